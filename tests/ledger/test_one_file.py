"""One file is one budget: other names, descriptors closed behind SQLite's back, copies."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from privet.accounting import Gaussian
from privet.errors import BudgetExceeded, LedgerError, LedgerLocked, LedgerTampered
from privet.ledger import Ledger, file_lock

pytestmark = pytest.mark.skipif(os.name != "posix", reason="flock and fork")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "a.ledger"
    Ledger.create(path, cap_epsilon=1.0, cap_delta=1e-5).charge(Gaussian(mu=0.1), what="first")
    return path


def test_a_second_name_is_refused_under_both(path: Path) -> None:
    """Two names have two logs: two spenders spent 358 charges where 179 fit (epsilon 1.46 of 1)."""
    open_before, other = Ledger.open(path), path.with_name("b.ledger")
    os.link(path, other)
    for name in (path, other):
        with pytest.raises(LedgerError, match=r"has 2 names \(hard links\)"):
            Ledger.open(name)
    with pytest.raises(LedgerError, match="2 names"):
        open_before.charge(Gaussian(mu=0.1), what="x")
    other.unlink()
    open_before.charge(Gaussian(mu=0.1), what="x")
    assert Ledger.open(path).verify().count == 2


def test_a_second_name_that_appears_during_a_charge_stops_it(path: Path) -> None:
    ledger = Ledger.open(path)
    with pytest.raises(LedgerError, match="2 names"), ledger._store.transaction(write=True):
        os.link(path, path.with_name("b.ledger"))
    path.with_name("b.ledger").unlink()
    assert Ledger.open(path).verify().count == 1


@pytest.mark.slow
def test_two_spenders_under_two_names_share_one_cap(path: Path, monkeypatch) -> None:
    """Even if the check of names is passed (a bind mount elsewhere), the lock keeps them apart."""
    monkeypatch.setattr(file_lock, "_refuse_other_names", lambda *_: None)
    other = path.with_name("b.ledger")
    os.link(path, other)
    context = multiprocessing.get_context("fork")
    counts = context.Queue()

    def work(name: Path) -> None:
        ledger, done = Ledger.open(name), 0
        for _ in range(60):
            try:
                ledger.charge(Gaussian(mu=0.05), what="x")
                done += 1
            except BudgetExceeded:
                break
        counts.put(done)

    workers = [context.Process(target=work, args=(name,)) for name in (path, other)]
    for worker in workers:
        worker.start()
    total = sum(counts.get(timeout=60) for _ in workers)
    for worker in workers:
        worker.join()
    with pytest.raises(BudgetExceeded):
        Ledger.open(path).charge(Gaussian(mu=0.05), what="full")
    assert len(Ledger.open(path)) == len(Ledger.open(other)) == total + 1
    assert Ledger.open(path).verify().spent <= 1.0


@pytest.mark.slow
def test_reading_the_file_in_the_charging_process_loses_nothing(tmp_path: Path) -> None:
    """Closing any descriptor drops SQLite's locks: 22 charges returned and 12 were in the file."""
    path = tmp_path / "l.ledger"
    Ledger.create(path, cap_epsilon=100.0, cap_delta=1e-5)
    context = multiprocessing.get_context("fork")
    hashes = context.Queue()

    def work() -> None:
        stop = threading.Event()

        def read() -> None:
            while not stop.is_set():
                path.read_bytes()

        threading.Thread(target=read, daemon=True).start()
        ledger = Ledger.open(path)
        hashes.put([ledger.charge(Gaussian(mu=0.001), what="x").hash for _ in range(40)])
        stop.set()

    workers = [context.Process(target=work) for _ in range(3)]
    for worker in workers:
        worker.start()
    returned = [h for _ in workers for h in hashes.get(timeout=120)]
    for worker in workers:
        worker.join()
    ledger = Ledger.open(path)
    assert {e.hash for e in ledger.entries()} == set(returned)
    assert ledger.verify().count == len(returned) == 120


@pytest.mark.slow
def test_a_file_mounted_by_itself_is_refused(path: Path, tmp_path: Path) -> None:
    """As containers do it: one inode, one link, two names."""
    other = tmp_path / "mounted"
    other.touch()
    code = f"from privet.ledger import Ledger; Ledger.open({str(other)!r})"
    shell = f'mount --bind "{path}" "{other}" && exec "$0" -c "$1"'
    ran = subprocess.run(
        ["unshare", "-m", "sh", "-c", shell, sys.executable, code],
        capture_output=True,
        text=True,
        check=False,
    )
    if "permission denied" in ran.stderr.lower() or "not permitted" in ran.stderr.lower():
        pytest.skip("mounting needs rights that we do not have")
    assert "is mounted as a single file under a second name" in ran.stderr


def test_a_symbolic_link_is_the_same_ledger(path: Path) -> None:
    link = path.with_name("link.ledger")
    link.symlink_to(path)
    by_link, by_name = Ledger.open(link), Ledger.open(path)
    by_link.charge(Gaussian(mu=0.1), what="by the link")
    assert by_link.name == by_name.name
    assert len(by_name) == 2


def test_a_ledger_moved_while_open_is_not_found_and_not_confused(path: Path) -> None:
    ledger = Ledger.open(path)
    moved = path.with_name("moved.ledger")
    path.rename(moved)
    with pytest.raises(FileNotFoundError):
        ledger.charge(Gaussian(mu=0.1), what="x")
    Ledger.open(moved).charge(Gaussian(mu=0.1), what="under its new name")
    Ledger.create(path, cap_epsilon=9.0, cap_delta=1e-5)
    with pytest.raises(LedgerTampered, match="terms changed"):
        ledger.charge(Gaussian(mu=0.1), what="x")


def test_a_ledger_replaced_during_a_charge_keeps_neither(path: Path) -> None:
    other = path.with_name("other.ledger")
    shutil.copy(path, other)
    with (
        pytest.raises(LedgerTampered, match="replaced"),
        Ledger.open(path)._store.transaction(write=True),
    ):
        os.replace(other, path)


def test_a_spender_waits_for_the_holder_of_the_file(path: Path) -> None:
    ledger = Ledger.open(path, timeout=0.1)
    code = (
        "import fcntl, sys\n"
        f"f = open({str(path)!r}); fcntl.flock(f, fcntl.LOCK_EX); print('held', flush=True)\n"
        "sys.stdin.readline()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdin is not None
        holder.stdout.readline()
        with pytest.raises(LedgerLocked, match=r"after 0\.1 s"):
            ledger.charge(Gaussian(mu=0.1), what="x")
        holder.stdin.close()
    ledger.charge(Gaussian(mu=0.1), what="x")


def test_a_child_born_during_a_charge_does_not_keep_the_lock(path: Path) -> None:
    """A fork copies the descriptor; the lock is given back by name, not by the last close."""
    ledger = Ledger.open(path, timeout=0.5)
    readable, writable = os.pipe()
    with ledger._store.transaction(write=False):
        child = os.fork()
        if child == 0:
            os.close(writable)
            os.read(readable, 1)
            os._exit(0)
    try:
        ledger.charge(Gaussian(mu=0.1), what="x")
    finally:
        os.write(writable, b"x")
        os.waitpid(child, 0)
        os.close(readable)
        os.close(writable)


def test_a_backup_is_read_and_verified_but_never_charged(path: Path, tmp_path: Path) -> None:
    ledger = Ledger.open(path)
    copy = tmp_path / "copy.ledger"
    head = ledger.backup(copy)
    ledger.charge(Gaussian(mu=0.1), what="later")
    kept = Ledger.open(copy)
    assert kept.is_backup
    assert not ledger.is_backup
    assert kept.verify(head=head).count == 1
    assert kept.export()["head"] == head
    with pytest.raises(LedgerError, match="is a backup, which takes no charges"):
        kept.charge(Gaussian(mu=0.1), what="x")
    with pytest.raises(LedgerError, match="is already there"):
        ledger.backup(copy)


@pytest.mark.slow
def test_a_backup_older_than_the_noted_head_is_not_restored(path: Path, tmp_path: Path) -> None:
    ledger = Ledger.open(path)
    old, new = tmp_path / "old.ledger", tmp_path / "new.ledger"
    ledger.backup(old)
    noted = ledger.charge(Gaussian(mu=0.1), what="later").hash
    assert ledger.backup(new) == noted
    path.unlink()
    with pytest.raises(LedgerTampered, match="noted head"):
        Ledger.restore(old, path, head=noted)
    assert not path.exists()
    again = Ledger.restore(new, path, head=noted)
    assert again.charge(Gaussian(mu=0.1), what="goes on").sequence == 3
    with pytest.raises(LedgerError, match="not a backup"):
        Ledger.restore(path, tmp_path / "second.ledger", head=noted)
