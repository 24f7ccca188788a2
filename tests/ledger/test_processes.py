"""Several processes, and processes that die: no release goes unrecorded."""

from __future__ import annotations

import math
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from privet.accounting import Gaussian, PrivacyLoss, Pure
from privet.errors import BudgetExceeded, LedgerError, NotALedger
from privet.ledger import Ledger

pytestmark = pytest.mark.skipif(os.name != "posix", reason="fork and SIGKILL")


def fork(work: Callable[[], object]) -> int:
    """Run `work` in a child that never comes back into pytest; its process id."""
    child = os.fork()
    if child == 0:
        try:
            work()
            os._exit(0)
        except BaseException as e:
            os.write(2, f"child: {type(e).__name__}: {e}\n".encode())
            os._exit(1)
    return child


def kill_after(child: int, seconds: float) -> None:
    time.sleep(seconds)
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status), "the child ended by itself"


@pytest.mark.slow
def test_killed_at_200_random_moments_it_never_reports_less_than_was_released(
    tmp_path: Path,
) -> None:
    path, released = tmp_path / "l.db", tmp_path / "released"
    Ledger.create(path, cap_epsilon=1e6, cap_delta=1e-5)
    released.touch()

    def spend_and_release() -> None:
        ledger = Ledger.open(path)
        handle = os.open(released, os.O_WRONLY | os.O_APPEND)
        while True:
            entry = ledger.charge(Gaussian(mu=0.05), what="release")
            os.write(handle, f"{entry.sequence} {entry.hash}\n".encode())
            os.fsync(handle)

    rng = random.Random(20)
    unfinished, before, window = 0, 0, 0.02
    for kills in range(1, 201):
        kill_after(fork(spend_and_release), rng.uniform(0.0, window))
        log = path.with_name(path.name + "-wal")
        unfinished += log.exists() and log.stat().st_size > 0
        ledger = Ledger.open(path)
        verified = ledger.verify()
        lines = released.read_text().splitlines()
        assert len(lines) <= verified.count <= len(lines) + kills
        assert ledger.spent() >= Gaussian(mu=0.05 * len(lines) ** 0.5).epsilon(1e-5) * (1 - 1e-9)
        # follow the speed of the machine, so that about every second life sees a release
        window *= 0.9 if len(lines) > before else 1.1
        before = len(lines)
    written = {f"{e.sequence} {e.hash}" for e in Ledger.open(path).entries()}
    assert written.issuperset(lines)
    assert len(lines) > 20
    assert unfinished > 5, "the kills missed the writes; they prove nothing"
    assert Ledger.open(path).charge(Gaussian(mu=0.05), what="still works")


@pytest.mark.slow
def test_killed_while_creating_there_is_a_whole_ledger_or_none(tmp_path: Path) -> None:
    def create_many() -> None:
        for i in range(10_000):
            Ledger.create(tmp_path / f"{os.getpid()}-{i}.db", cap_epsilon=1.0, cap_delta=0.0)

    rng = random.Random(4)
    for _ in range(20):
        kill_after(fork(create_many), rng.uniform(0.0, 0.05))
    made = sorted(tmp_path.glob("[0-9]*.db"))
    assert made
    for path in made:
        if path.stat().st_size == 0:
            with pytest.raises(NotALedger, match="is empty; remove it"):
                Ledger.open(path)
        else:
            assert Ledger.open(path).verify().count == 0


def test_when_a_charge_returns_the_file_is_whole_without_its_log(tmp_path: Path) -> None:
    path = tmp_path / "l.db"
    Ledger.create(path, cap_epsilon=100.0, cap_delta=0.0)

    def spend_and_die() -> None:
        ledger = Ledger.open(path)
        for i in range(3):
            ledger.charge(Pure(epsilon_each=1.0), what=f"release {i}")
        os.kill(os.getpid(), signal.SIGKILL)

    os.waitpid(fork(spend_and_die), 0)
    assert [p.name for p in tmp_path.iterdir()] == ["l.db"]
    assert Ledger.open(path).verify().count == 3


@pytest.mark.slow
def test_a_damaged_log_costs_at_most_the_charges_still_in_it(tmp_path: Path) -> None:
    """The file as a kill between commit and return leaves it: three charges folded in, one not."""
    path, copy = tmp_path / "l.db", tmp_path / "copy.db"
    ledger = Ledger.create(path, cap_epsilon=100.0, cap_delta=0.0)
    for i in range(3):
        ledger.charge(Pure(epsilon_each=1.0), what=f"release {i}")
    holder = sqlite3.connect(path)
    holder.execute("SELECT * FROM head").fetchall()
    ledger.charge(Pure(epsilon_each=1.0), what="in the log")
    file, log = path.read_bytes(), path.with_name("l.db-wal").read_bytes()
    holder.close()
    rng = random.Random(5)
    counts = []
    for position in [None, *range(100), *rng.sample(range(100, len(log)), 200)]:
        spoilt = bytearray(log)
        if position is not None:
            spoilt[position] ^= 1 << rng.randrange(8)
        copy.write_bytes(file)
        copy.with_name("copy.db-shm").unlink(missing_ok=True)
        copy.with_name("copy.db-wal").write_bytes(spoilt)
        counts.append(Ledger.open(copy).verify().count)
    assert counts[0] == 4
    assert set(counts) == {3, 4}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("loss", "cap", "delta", "fits"),
    [
        ("Pure(epsilon_each=0.1)", 4.0, 0.0, 40),
        ("Gaussian(mu=0.1)", Gaussian(mu=0.1 * 30.5**0.5).epsilon(1e-5), 1e-5, 30),
    ],
)
def test_eight_processes_spend_exactly_what_the_cap_allows(
    tmp_path: Path, loss: str, cap: float, delta: float, fits: int
) -> None:
    path = tmp_path / "l.db"
    ledger = Ledger.create(path, cap_epsilon=cap, cap_delta=delta)
    spender = (
        "import sys\n"
        "from privet.errors import BudgetExceeded\n"
        "from privet.ledger import Ledger\n"
        "from privet.accounting import Gaussian, Pure\n"
        f"ledger = Ledger.open({str(path)!r}, timeout=120.0)\n"
        "print('ready', flush=True)\n"
        "sys.stdin.readline()\n"
        "spent = 0\n"
        "try:\n"
        "    while True:\n"
        f"        ledger.charge({loss}, what='race')\n"
        "        spent += 1\n"
        "except BudgetExceeded:\n"
        "    print(spent)\n"
    )
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", spender],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(8)
    ]
    for p in processes:
        assert p.stdout is not None
        assert p.stdout.readline() == "ready\n"
    shares = []
    for p in processes:
        assert p.stdin is not None
        p.stdin.write("go\n")
        p.stdin.flush()
    for p in processes:
        out, _ = p.communicate(timeout=120)
        assert p.returncode == 0
        shares.append(int(out))
    assert sum(shares) == fits == len(ledger)
    assert len({e.process for e in ledger.entries()}) == sum(s > 0 for s in shares)
    assert ledger.verify().spent <= cap


@pytest.mark.slow
def test_a_forked_child_may_use_the_same_file(tmp_path: Path) -> None:
    ledger = Ledger.create(tmp_path / "l.db", cap_epsilon=10.0, cap_delta=1e-5)
    ledger.charge(Gaussian(mu=0.1), what="before the fork")
    children = [
        fork(lambda: [ledger.charge(Gaussian(mu=0.1), what="child") for _ in range(5)])
        for _ in range(3)
    ]
    for _ in range(5):
        ledger.charge(Gaussian(mu=0.1), what="parent")
    for child in children:
        assert os.waitpid(child, 0)[1] == 0
    assert ledger.verify().count == 21
    assert ledger.spent() == pytest.approx(Gaussian(mu=0.1 * 21**0.5).epsilon(1e-5))


def test_nobody_waits_for_the_arithmetic_of_another(tmp_path: Path) -> None:
    """A charge that computes for long holds no lock, and counts what was charged meanwhile."""
    path = tmp_path / "l.db"
    cap = Gaussian(mu=0.45).epsilon(1e-5)
    Ledger.create(path, cap_epsilon=cap, cap_delta=1e-5)
    computing, go_on = os.pipe(), os.pipe()

    def slow() -> None:
        ledger = Ledger.open(path)
        account = ledger._chain.composition
        quick, asked = account.epsilon_with, []

        def stuck(loss: PrivacyLoss) -> float:
            asked.append(loss)
            if len(asked) == 1:
                os.write(computing[1], b"x")
                os.read(go_on[0], 1)
            return quick(loss)

        account.epsilon_with = stuck  # type: ignore[method-assign]
        with pytest.raises(BudgetExceeded):  # it would have fitted when it began
            ledger.charge(Gaussian(mu=0.35), what="slow")
        assert len(asked) == 2

    child = fork(slow)
    os.read(computing[0], 1)
    Ledger.open(path, timeout=0.5).charge(Gaussian(mu=0.3), what="meanwhile")
    os.write(go_on[1], b"x")
    assert os.waitpid(child, 0)[1] == 0
    assert [e.what for e in Ledger.open(path).entries()] == ["meanwhile"]


def test_a_charge_that_is_overtaken_is_made_all_the_same(tmp_path: Path) -> None:
    ledger = Ledger.create(tmp_path / "l.db", cap_epsilon=10.0, cap_delta=1e-5)
    account, quick, others = ledger._chain.composition, ledger._chain.composition.epsilon_with, 3

    def overtaken(loss: PrivacyLoss) -> float:
        nonlocal others
        if others:
            others -= 1
            Ledger.open(tmp_path / "l.db").charge(Gaussian(mu=0.1), what="faster")
        return quick(loss)

    account.epsilon_with = overtaken  # type: ignore[method-assign]
    entry = ledger.charge(Gaussian(mu=0.2), what="overtaken three times")
    assert entry.sequence == 4
    assert entry.spent == pytest.approx(Gaussian(mu=math.sqrt(0.07)).epsilon(1e-5))
    assert ledger.verify().count == 4


def test_a_forked_child_may_not_spend_from_memory() -> None:
    ledger = Ledger.in_memory(cap_epsilon=10.0, cap_delta=1e-5)

    def refused() -> None:
        with pytest.raises(LedgerError, match="second budget"):
            ledger.charge(Gaussian(mu=0.1), what="child")
        with pytest.raises(LedgerError, match="second budget"):
            ledger.spent()

    assert os.waitpid(fork(refused), 0)[1] == 0
    ledger.charge(Gaussian(mu=0.1), what="parent")
    assert len(ledger) == 1
