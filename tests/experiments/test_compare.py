"""privet compare: one table of the right facts, resumable, with errors a newcomer understands."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from privet.cli.main import main
from privet.data import load
from privet.errors import InvalidArgument
from privet.experiments.compare import ENTRANTS, compare
from privet.experiments.kept import kept

ROW = {
    "method", "accuracy", "claimed_epsilon", "proved_epsilon", "audited_epsilon", "verdict",
    "attack_auc", "attack_tpr_at_1pct_fpr", "time_ratio",
}  # fmt: skip


def test_rows_and_resume(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = load("blobs").subset(400)
    settings = {"epsilon": 1.0, "delta": 1e-5, "methods": ["adaptive-laplace"]}
    told: list[tuple[int, int]] = []
    first = compare(
        data, tmp_path, **settings, jobs=1, backend="sequential",
        progress=lambda what, done, of: told.append((done, of)),
    )  # fmt: skip
    limit, ours = first["rows"]
    assert set(limit) >= ROW
    assert limit["proved_epsilon"] == "inf" and limit["verdict"] == "no promise"
    assert ours["proved_epsilon"] <= 1.0 and ours["accuracy"] > 0.6
    assert ours["verdict"] in ("consistent", "uninformative")
    assert [e["epsilon"] <= 1.0 for e in ours["spent"]]
    assert told[0] == (0, 3) and told[-1] == (3, 3)

    def again(*cell: object) -> None:
        raise AssertionError("a finished cell was run again")

    monkeypatch.setattr("privet.experiments.compare.run._cell", again)
    assert compare(data, tmp_path, **settings, jobs=1) == first


def test_every_system_is_there() -> None:
    systems = {e.system for e in ENTRANTS}
    assert systems == {
        "the limit", "DP-SGD", "adaptive Laplace", "PATE", "residual perturbation",
        "deep private auto-encoder",
    }  # fmt: skip


def test_half_a_cell_is_no_cell(tmp_path: Path) -> None:
    def dies() -> dict[str, object]:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        kept(tmp_path, ["a"], dies)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--method", "dpsdg"), "one of not private, dpsgd"),
        (("--epsilon", "0"), "epsilon must be"),
        (("--delta", "2"), "delta must be"),
        (("--data", "digist"), "one of digits"),
        (("--data", "missing.csv"), "no such file"),
        (("--seeds", "0"), "seeds must be"),
        (("--out", "/proc/nowhere"), "a folder that can be made"),
    ],
)
def test_newcomers_mistakes(
    options: tuple[str, ...], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as left:
        main(["compare", *options])
    assert left.value.code == 2
    said = capsys.readouterr().err
    assert said.startswith("error: ") and message in said and said.count("\n") == 1


def test_an_unknown_method_in_python(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="one of not private"):
        compare(load("blobs"), tmp_path, epsilon=1.0, delta=1e-5, methods=["pat"])


@pytest.mark.slow
def test_killed_twenty_times_it_goes_on(tmp_path: Path) -> None:
    """Seeded moments; every finished cell stays as it was, and the last run needs no other."""
    command = [
        sys.executable, "-m", "privet.cli.main", "compare", "--data", "blobs", "--records", "300",
        "--method", "adaptive-laplace", "--method", "autoencoder", "--jobs", "1",
        "--backend", "sequential", "--out", str(tmp_path), "--json",
    ]  # fmt: skip
    rng, seen = random.Random(0), {}
    quiet = os.environ | {"OMP_NUM_THREADS": "1"}
    for _ in range(20):
        child = subprocess.Popen(command, stdout=subprocess.DEVNULL, env=quiet)
        time.sleep(rng.uniform(0.5, 5.0))
        child.send_signal(signal.SIGKILL)
        child.wait()
        for path in (tmp_path / "cells").glob("*.json"):
            text = path.read_text()
            json.loads(text)
            assert seen.setdefault(path.name, text) == text
    done = subprocess.run(command, capture_output=True, check=True, text=True, env=quiet)
    rows = json.loads(done.stdout)["rows"]
    assert [r["method"] for r in rows] == ["not private", "adaptive-laplace", "autoencoder"]
    assert all(len(r["spent"]) >= 1 for r in rows[1:])
    for name, text in seen.items():
        assert (tmp_path / "cells" / name).read_text() == text
