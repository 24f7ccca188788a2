"""Twenty SIGKILLs: a run always resumes, and the ledger never says less than what was released."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


def killing(folder, mode, kills):
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "tests.methods.dpsgd.killing", str(folder), mode, str(kills)],
        cwd=ROOT, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.slow
def test_seeded_run(tmp_path):
    """Same model bit for bit, each step charged once, and a repeated step is the same release."""
    calm = killing(tmp_path / "calm", "seeded", 0)
    found = killing(tmp_path / "killed", "seeded", 20)
    assert found["killed"] == 20 and not found["finished_early"]
    assert all(moment["released"] <= moment["charged"] for moment in found["trail"])
    assert found["weights"] == calm["weights"]
    assert found["steps"] == found["distinct"] == found["charged"] == 400
    assert found["releases"] > 400  # some steps were made again


@pytest.mark.slow
def test_secure_run(tmp_path):
    """A repeated step has new noise, and is charged again."""
    found = killing(tmp_path / "killed", "secure", 20)
    assert all(moment["released"] <= moment["charged"] for moment in found["trail"])
    assert found["steps"] == 400 and found["distinct"] == found["releases"] > 400
    assert found["charged"] >= found["releases"]
