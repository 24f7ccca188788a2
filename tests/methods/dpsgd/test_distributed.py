"""torchrun with two processes on loopback: same guarantee and, seeded, the same model as one."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[3]


def both(folder, mode):
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}", "OMP_NUM_THREADS": "1"}
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    script = ["-m", "tests.methods.dpsgd.processes", str(folder), mode]
    launch = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2",
              "--master-addr=127.0.0.1", f"--master-port={port}"]  # fmt: skip
    for command in (launch + script, [sys.executable, *script]):
        done = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr[-3000:]
    return [json.loads((folder / f"{n}.json").read_text()) for n in ("alone0", "rank0", "rank1")]


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["seeded", "adaptive", "wrapped"])
def test_two_processes_are_one(tmp_path, mode):
    """Equal but for the order of float32 additions: 1e-5 relative, which Tanh and momentum carry on."""
    alone, first, second = both(tmp_path, mode)
    assert first["weights"] == second["weights"] and first["average"] == second["average"]
    np.testing.assert_allclose(first["weights"], alone["weights"], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(first["average"], alone["average"], rtol=1e-4, atol=1e-5)
    assert first["examples"] + second["examples"] == alone["examples"]
    assert min(first["examples"], second["examples"]) > 0.3 * alone["examples"]
    assert (first["noises"], second["noises"]) == (alone["noises"], 0)  # noise once
    assert first["epsilon"] == second["epsilon"] == alone["epsilon"]
    assert first["spent"] == alone["spent"] == pytest.approx(alone["epsilon"], rel=1e-11)
    assert first["bound"] == pytest.approx(alone["bound"], rel=1e-9)
    assert first["stopped_early"] == second["stopped_early"] == alone["stopped_early"] is True
    assert first["steps"] == alone["steps"] == second["steps"] > 0  # the cap stops all of them


@pytest.mark.slow
def test_secure_processes_agree(tmp_path):
    alone, first, second = both(tmp_path, "secure")
    assert first["weights"] == second["weights"] != alone["weights"]
    assert first["epsilon"] == second["epsilon"] == alone["epsilon"]
    expected = 301 * 0.3 * first["steps"]  # five standard deviations of a binomial count
    assert abs(first["examples"] + second["examples"] - expected) < 5 * (0.7 * expected) ** 0.5
