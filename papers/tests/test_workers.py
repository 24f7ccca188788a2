"""Cells in worker processes: the same files as one after another, however the run ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import cloudpickle
import numpy as np
import pytest

from privet.errors import InvalidArgument, PrivetError
from privet.jobs import Cell
from privet_papers.experiment import Experiment, Settings, setting
from privet_papers.result_tables import Table

# workers that an earlier test started do not know where this file is
cloudpickle.register_pickle_by_value(sys.modules[__name__])

NOT_COMPARED = ("who", "results.json", "processor_seconds.tsv")
"""Who computed what, and how long it took."""

pytestmark = pytest.mark.slow  # every worker is a new interpreter


@dataclass(frozen=True, kw_only=True)
class WalkSettings(Settings):
    """Of an experiment whose cells can be made to fail."""

    numbers: tuple[int, ...] = setting((0, 1, 2, 3, 4, 5), help="Which cells.", picks=True)
    pause: float = setting(0.0, help="Seconds that a cell takes.", picks=True)
    refused: int = setting(-1, help="This cell has a wrong argument.", picks=True)
    broken: int = setting(-1, help="This cell has a bug.", picks=True)
    killed: int = setting(-1, help="This cell's process is killed.", picks=True)


class Walks(Experiment[WalkSettings]):
    """Walks from two starts, which are made first."""

    name = "walks"
    quick: ClassVar = {"one": WalkSettings()}

    def cells(self) -> Iterator[Cell]:
        """Two starts, and a walk a number."""
        for k in (0, 1):
            yield Cell(f"start {k}", partial(self._start, k), shared=True)
        for n in self.settings.numbers:
            yield Cell(f"walk {n}", partial(self._walk, n), needs=(f"start {n % 2}",))

    def _start(self, k: int, told: Any) -> Any:
        return self.kept_arrays(["start", k], partial(self._drawn, k))

    def _drawn(self, k: int) -> dict[str, Any]:
        with (self.out / "who").open("a") as file:
            file.write(f"start {k} {os.getpid()}\n")
        time.sleep(self.settings.pause)
        return {"x": np.random.default_rng(k).normal(size=(150, 150))}

    def _walk(self, n: int, told: Any) -> dict[str, Any]:
        def missing() -> Any:
            raise AssertionError("the start is not there yet")

        def run() -> dict[str, Any]:
            s = self.settings
            with (self.out / "who").open("a") as file:
                file.write(f"walk {n} {os.getpid()}\n")
            told(f"walking {n}")
            if n == s.refused:
                raise InvalidArgument("number", n, "another one")
            if n == s.broken:
                raise ZeroDivisionError("in two\nlines")
            if n == s.killed:
                os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(s.pause)
            x = self.kept_arrays(["start", n % 2], missing)["x"]
            step = np.random.default_rng([n, 1]).normal(size=x.shape) / 12.0
            for _ in range(20):
                x = np.tanh(x @ step)
            return {"number": n, "ends": float(x.sum())}

        return self.kept(n, run)

    def collect(self, found: list[Any]) -> dict[str, Any]:
        """The rows."""
        return {"rows": found}

    def draw(self, results: dict[str, Any]) -> list[Path]:
        """Nothing."""
        return []

    def tables(self, results: dict[str, Any]) -> list[Table]:
        """None."""
        return []

    def remarks(self, results: dict[str, Any]) -> Iterator[str]:
        """The ends."""
        yield from (f"{r['ends']!r}" for r in results["rows"])


def files(out: Path) -> dict[str, bytes]:
    """All that a run wrote whole, but who computed it; settings that pick cells are left out."""
    written = {
        str(p.relative_to(out)): p.read_bytes()
        for p in sorted(out.rglob("*"))
        if p.is_file() and p.name not in NOT_COMPARED and p.suffix != ".part"
    }
    rows = json.loads((out / "results.json").read_text())["rows"]
    return written | {"rows": json.dumps(rows).encode()}


def who(out: Path) -> list[tuple[str, int]]:
    """What was computed, and by which process."""
    lines = [line.rsplit(" ", 1) for line in (out / "who").read_text().splitlines()]
    return [(what, int(pid)) for what, pid in lines]


def gone(pid: int) -> bool:
    """Whether a process has ended."""
    try:
        return "\nState:\tZ" in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return True


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """What is written by one process, one after another."""
    out = tmp_path_factory.mktemp("alone")
    Walks(WalkSettings(), out).run()
    assert {pid for _, pid in who(out)} == {os.getpid()}
    return files(out)


@pytest.mark.parametrize("jobs", [2, 3])
def test_workers_write_the_same_files(jobs: int, tmp_path: Path, alone: dict[str, bytes]) -> None:
    told: list[tuple[str, int, int]] = []
    Walks(WalkSettings(pause=0.3), tmp_path).run(lambda *a: told.append(a), jobs)
    assert files(tmp_path) == alone
    computed = who(tmp_path)
    assert sorted(what for what, _ in computed) == sorted(
        [*(f"start {k}" for k in (0, 1)), *(f"walk {n}" for n in range(6))]
    )
    assert os.getpid() not in {pid for _, pid in computed}
    assert 2 <= len({pid for _, pid in computed}) <= jobs
    assert all(gone(pid) for _, pid in computed)
    assert {"start 0", "walk 3", "walking 3"} <= {what for what, _, _ in told}
    done = [n for _, n, _ in told]
    assert done == sorted(done) and done[0] == 0 and told[-1] == ("done", 6, 6)
    Walks(WalkSettings(), tmp_path).run(jobs=jobs)
    assert who(tmp_path) == computed  # all of it was there


def test_a_wrong_argument_and_a_bug_come_back_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="number must be another one, got 2"):
        Walks(WalkSettings(refused=2), tmp_path).run(jobs=2)
    with pytest.raises(PrivetError) as bug:
        Walks(WalkSettings(broken=3), tmp_path / "again").run(jobs=2)  # walk 3 may be done above
    said = str(bug.value)
    assert said.startswith("walk 3: ZeroDivisionError: in two lines; --jobs 1 shows where; ")
    assert "\n" not in said and said.endswith("the same command goes on")
    assert all(gone(pid) for _, pid in who(tmp_path) + who(tmp_path / "again"))
    with pytest.raises(InvalidArgument, match="jobs must be at least 1"):
        Walks(WalkSettings(), tmp_path).run(jobs=0)


def test_a_killed_worker_is_named_and_the_run_goes_on(
    tmp_path: Path, alone: dict[str, bytes]
) -> None:
    with pytest.raises(PrivetError, match=r"walk 4.*: a worker process ended \(exit code -9"):
        Walks(WalkSettings(killed=4), tmp_path).run(jobs=2)
    before = who(tmp_path)
    assert all(gone(pid) for _, pid in before)
    Walks(WalkSettings(), tmp_path).run(jobs=2)
    assert files(tmp_path) == alone
    begun = {what for what, _ in before} - {"walk 4"}
    again = begun & {what for what, _ in who(tmp_path)[len(before) :]}
    assert len(again) <= 1, again  # what the other worker was at


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_an_end_in_the_middle_leaves_whole_cells_and_no_process(
    how: signal.Signals, tmp_path: Path, alone: dict[str, bytes]
) -> None:
    script = (
        "import signal, sys; from pathlib import Path; from papers.tests.test_workers import *\n"
        "if __name__ == '__main__':\n"
        "    signal.signal(signal.SIGINT, signal.default_int_handler)  # nohup and & ignore it\n"
        "    Walks(WalkSettings(pause=1.0), Path(sys.argv[1])).run(jobs=2)\n"
    )
    (tmp_path / "script.py").write_text(script)
    out = tmp_path / "out"
    root = str(Path(__file__).parents[2])
    paths = os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])
    run = subprocess.Popen(
        [sys.executable, str(tmp_path / "script.py"), str(out)],
        env=os.environ | {"PYTHONPATH": paths}, stderr=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip
    until = time.monotonic() + 120
    while len(list((out / "cells").glob("*.json"))) < 2 and time.monotonic() < until:
        assert run.poll() is None, run.communicate()[1]
        time.sleep(0.02)
    if how is signal.SIGINT:  # as Ctrl-C does: everybody in the group
        os.killpg(run.pid, how)
    else:
        run.send_signal(how)
    run.communicate(timeout=60)
    assert run.returncode != 0
    before = who(out)
    until = time.monotonic() + 30
    while not all(gone(pid) for _, pid in before) and time.monotonic() < until:
        time.sleep(0.05)
    assert all(gone(pid) for _, pid in before)
    whole = [json.loads(p.read_text())["number"] for p in (out / "cells").glob("*.json")]
    assert 2 <= len(whole) < 6
    Walks(WalkSettings(), out).run(jobs=2)
    again = [what for what, _ in who(out)[len(before) :]]
    assert sorted(again) == sorted(f"walk {n}" for n in range(6) if n not in whole)
    assert files(out) == alone


def test_teachers_are_trained_once_whoever_asks(tmp_path: Path) -> None:
    """PATE's rows share networks: two workers train what one does, to the bit."""
    pytest.importorskip("monai")
    from papers.tests.pate.test_experiment import TINY
    from privet_papers.pate.experiment import PATEExperiment

    settings = replace(TINY, sweep=())
    found, told = {}, list[str]()
    for jobs in (1, 2):
        out = tmp_path / str(jobs)
        kept = PATEExperiment(settings, out).run(lambda what, *_: told.append(what), jobs)
        networks = {p.name: p.read_bytes() for p in (out / "cells").rglob("*.safetensors")}
        timed = ("seconds", "processor_seconds")
        rows = [{k: v for k, v in r.items() if k not in timed} for r in kept["rows"]]
        found[jobs] = networks, rows, kept["few"]
        trained = [what for what in told if what in {Path(n).stem for n in networks}]
        if jobs == 2:
            assert all(what in told for what in ("teacher-0", "public labels but fold 1"))
        for k in range(settings.teachers):
            assert trained.count(f"teacher-{k}") == 1
        told.clear()
    assert found[1] == found[2]
