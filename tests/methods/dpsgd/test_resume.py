"""Resuming under fire: kills inside every write, full disks, clocks and copies that went back."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from privet.dpsgd import CheckpointError, Checkpoints, Schedule
from privet.errors import LedgerError, PrivetError
from privet.ledger import Ledger, ledger
from privet.noise import secure, seeded
from privet.noise.key_stream import KeyStream
from tests.methods.dpsgd.helpers import data, losses_of, start

ROOT = Path(__file__).parents[3]


def killed_while_writing(folder: Path, mode: str, kill: str) -> dict[str, Any]:
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}", "OMP_NUM_THREADS": "1"}
    script = [sys.executable, "-m", "tests.methods.dpsgd.killed_while_writing"]
    done = subprocess.run(
        [*script, str(folder), mode, kill],
        cwd=ROOT, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["seeded", "secure"])
def test_killed_at_every_stage_of_every_checkpoint(tmp_path: Path, mode: str) -> None:
    """30 kills and 4 full disks on the way through 9 steps: nothing is lost, no noise used twice."""
    found = killed_while_writing(tmp_path / "killed", mode, "kill")
    assert found["kills"] == 30 and found["full"] == [3, 3, 3, 3]
    assert found["charges lost"] == found["noise drawn twice"] == found["left behind"] == 0
    assert found["releases"] > 9  # steps were made again
    if mode == "seeded":
        assert found["weights"] == killed_while_writing(tmp_path / "calm", mode, "")["weights"]
        assert found["charged"] == 9
    else:
        assert found["charged"] >= found["releases"]


def train(folder: Path, path: Path, *, steps: int = 6, rng: Any = None, stop: int = 99) -> Any:
    """A run of a network with some 80 kB, charged two steps at a time, until `stop`."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(5, 4000), torch.nn.ReLU(), torch.nn.Linear(4000, 2))
    training = start(
        model=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.01),
        tensors=data(20),
        schedule=Schedule(steps=steps, sample_rate=1.0, noise_multiplier=20.0),
        rng=secure() if rng is None else rng,
        ledger=Ledger.open(path),
        checkpoints=Checkpoints(folder=folder, every=2),
        block=2,
        micro_batch=20,
    )
    with training:
        for batch in training:
            if batch.step == stop:
                break
            training.step(losses_of(training.model, batch))
    return training


@pytest.fixture
def small_disk(tmp_path: Path) -> Any:
    """A file system in memory of 1 MB; needs the right to mount one."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(place)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("a tmpfs cannot be mounted here")
    yield place
    subprocess.run(["umount", str(place)], check=False, capture_output=True)


def fill(place: Path, *, leave: int) -> Path:
    ballast = place / "ballast"
    room = shutil.disk_usage(place).free
    ballast.write_bytes(bytes(max(0, room - leave)))
    return ballast


@pytest.mark.slow
@pytest.mark.parametrize("leave", [0, 40_000])
def test_a_full_disk_is_one_line_and_the_run_goes_on_later(small_disk: Path, leave: int) -> None:
    """No room for a charge: nothing is released. No room for a checkpoint: the old one is whole."""
    Ledger.create(small_disk / "b.ledger", cap_epsilon=50.0, cap_delta=1e-5)
    train(small_disk / "run", small_disk / "b.ledger", rng=seeded(1), stop=3)
    saved = (small_disk / "run" / "checkpoint.safetensors").read_bytes()
    before = Ledger.open(small_disk / "b.ledger").head
    ballast = fill(small_disk, leave=leave)
    with pytest.raises((CheckpointError, LedgerError)) as full:
        train(small_disk / "run", small_disk / "b.ledger", rng=seeded(1))
    assert "\n" not in str(full.value)
    assert (small_disk / "run" / "checkpoint.safetensors").read_bytes() == saved
    ballast.unlink()
    ledger = Ledger.open(small_disk / "b.ledger")
    ledger.verify(head=before)
    whole = train(small_disk / "run", small_disk / "b.ledger", rng=seeded(1))
    assert whole.epsilon_spent == pytest.approx(ledger.spent()) and len(ledger) == 3


def test_a_clock_that_was_set_back_changes_dates_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "b.ledger"
    Ledger.create(path, cap_epsilon=50.0, cap_delta=1e-5)
    train(tmp_path / "run", path, rng=seeded(1), stop=3)
    monkeypatch.setattr(ledger, "utc_now", lambda: "1970-01-01T00:00:00.000000+00:00")
    training = train(tmp_path / "run", path, rng=seeded(1))
    found = Ledger.open(path)
    assert found.verify().count == 3 and found.entries()[-1].when.startswith("1970")
    assert [e.sequence for e in found.entries()] == [1, 2, 3]
    assert found.spent() == pytest.approx(training.epsilon_spent)


def test_a_run_refuses_a_ledger_that_was_restored_from_an_older_copy(tmp_path: Path) -> None:
    """Attack: the copy covers all steps up to the checkpoint, but not those made a second time."""
    path, copy = tmp_path / "b.ledger", tmp_path / "copy"
    Ledger.create(path, cap_epsilon=50.0, cap_delta=1e-5)
    train(tmp_path / "run", path, stop=3)  # charged 0-1 and 2-3; saved after step 2
    shutil.copy(path, copy)
    train(tmp_path / "run", path, stop=4)  # 2-3 again, saved after step 4; 4-5
    assert len(Ledger.open(path)) == 4
    shutil.copy(copy, path)
    with pytest.raises(LedgerError, match="not an older copy"):
        train(tmp_path / "run", path)


def test_a_snapshot_that_is_restored_twice_draws_the_same_only_from_open_streams() -> None:
    """Two copies of a machine have the same keys in memory; new streams take fresh bytes."""
    copies = [KeyStream(bytes(32), secret=True) for _ in range(2)]
    assert (copies[0].words(4) == copies[1].words(4)).all()  # what cannot be seen from inside
    for make in (lambda s: s.child("step", 3), lambda s: s.split()):
        first, second = (make(copy).words(4) for copy in copies)
        assert (first != second).all()
    first, second = (torch.zeros(4, dtype=torch.int64).numpy().view("uint64") for _ in range(2))
    copies[0].bulk().fill(first)
    copies[1].bulk().fill(second)
    assert (first != second).all()


def test_a_checkpoint_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(PrivetError, match="cannot be written") as refused:
        Checkpoints(folder=tmp_path / "file").write({}, {})
    assert "\n" not in str(refused.value)
