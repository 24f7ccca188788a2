"""fully_shard on two gloo processes: the guarantee and, seeded, the model of one; by parts only."""

import json
import os
import socket
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch

from privet.noise import seeded
from privet.noise.tensor import BLOCK, Places, add_gaussian_

ROOT = Path(__file__).parents[3]


def both(folder, mode, alone=True):
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}", "OMP_NUM_THREADS": "1"}
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    script = ["-m", "tests.methods.dpsgd.spread_processes", str(folder), mode]
    launch = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2",
              "--master-addr=127.0.0.1", f"--master-port={port}"]  # fmt: skip
    for command in (launch + script, *([[sys.executable, *script]] if alone else [])):
        done = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300
        )
        assert done.returncode == 0, done.stderr[-3000:]
    names = (*(("alone0",) if alone else ()), "rank0", "rank1")
    return [json.loads((folder / f"{n}.json").read_text()) for n in names]


def joined(first, second, step):
    """The sum of a step from its two parts."""
    out = np.full(first["size"], np.nan)
    for one in (first, second):
        at = 0
        for start, stop in one["places"]:
            assert np.isnan(out[start:stop]).all()  # every number is released once
            out[start:stop] = one["sums"][step][at : at + stop - start]
            at += stop - start
    assert not np.isnan(out).any()
    return out


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["mlp", "transformer", "adaptive"])
def test_a_spread_model_is_trained_as_by_one_process(tmp_path, mode):
    alone, first, second = both(tmp_path, mode)
    assert first["said"] == second["said"] == alone["said"] == ""
    assert first["weights"] == second["weights"]
    assert abs(np.subtract(joined(first, second, 0), alone["sums"][0])).max() < 1e-6
    np.testing.assert_allclose(first["weights"], alone["weights"], rtol=1e-4, atol=1e-5)
    assert first["examples"] + second["examples"] == alone["examples"]
    assert first["guarantee"] == second["guarantee"] == alone["guarantee"]
    assert first["epsilon"] == alone["epsilon"] and first["spent"] == alone["spent"]
    assert first["steps"] == second["steps"] == alone["steps"] == 5
    assert first["bound"] == pytest.approx(alone["bound"], rel=1e-9) == second["bound"]
    for mine, its in zip(first["scales"], alone["scales"], strict=True):
        assert mine[:2] == pytest.approx(its[:2], rel=1e-9)  # the noise of the whole, on a part
    for one in (first, second):  # parts only, of the sum and of the optimiser's two averages
        assert one["held"] < 0.6 * one["size"] and one["state"] == 2 * one["held"]


@pytest.mark.slow
def test_secure_parts_have_noise_of_their_own(tmp_path):
    first, second = both(tmp_path, "secure", alone=False)
    assert first["weights"] == second["weights"]
    assert first["guarantee"] == second["guarantee"]
    assert [s[2] for s in first["scales"]] != [s[2] for s in second["scales"]]
    assert min(s[2] for one in (first, second) for s in one["scales"]) > 0.0


@pytest.mark.slow
def test_a_record_of_the_second_process_moves_the_sum_by_what_is_paid(tmp_path):
    sums, sensitivity = [], 0.0
    for mode in ("one record", "other record"):
        (tmp_path / mode).mkdir()
        first, second = both(tmp_path / mode, mode, alone=False)
        sums.append(joined(first, second, 0))
        sensitivity = first["scales"][0][1]
        assert second["scales"][0][1] == sensitivity
    moved = float(np.linalg.norm(sums[0] - sums[1]))
    assert 0.1 < moved <= 2 * sensitivity  # one record for another: both are clipped to the bound


@pytest.mark.slow
def test_no_process_holds_the_whole_model(tmp_path):
    """Eight layers: the largest thing is the process's own part of the sum, in float64.

    A whole copy of the model in float32 on top would be .1 more of the peak of one process.
    """
    alone, first, second = both(tmp_path, "memory")
    assert alone["largest"] == 8 * alone["size"]  # the counter sees the flat sum of one process
    for one in (first, second):
        assert one["held"] < 0.51 * one["size"] and one["largest"] <= 8 * one["held"]
        assert one["peak"] < 0.55 * alone["peak"]


@pytest.mark.slow
def test_passes_in_bfloat16_keep_the_parts_in_float32(tmp_path):
    alone, first, second = both(tmp_path, "half")
    assert first["said"] == second["said"] == "" and first["weights"] == second["weights"]
    assert first["guarantee"] == alone["guarantee"]
    assert 0 < abs(np.subtract(first["weights"], alone["weights"])).max() < 0.05
    assert any(w != float(torch.tensor(w).bfloat16()) for w in first["weights"])


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["checkpoints", "ema"])
def test_what_needs_the_whole_model_is_refused(tmp_path, mode):
    first, second = both(tmp_path, mode, alone=False)
    assert first["said"] == second["said"] and mode in first["said"]
    assert "\n" not in first["said"] and "fully_shard" in first["said"]


@pytest.mark.slow
@pytest.mark.parametrize("what", ["schedule", "model", "seed", "kind of noise source"])
def test_processes_that_were_given_different_things_are_refused(tmp_path, what):
    """The first pays for all: less noise, a larger bound or a seed elsewhere would go unsaid."""
    first, second = both(tmp_path, f"other {what}", alone=False)
    assert first["said"] == second["said"] and what in first["said"]
    assert "sums" not in first and "sums" not in second


@pytest.mark.parametrize("total", [20, BLOCK, 3 * BLOCK + 5])
def test_parts_get_the_noise_of_their_places(total):
    whole = add_gaussian_(torch.zeros(total, dtype=torch.float64), 2.0, seeded(3))
    cuts = [0, 3, 7, total // 2, total]
    runs = [*pairwise(cuts)]
    for mine in (runs[::2], runs[1::2], [(total, total)]):
        part = torch.zeros(sum(b - a for a, b in mine), dtype=torch.float64)
        add_gaussian_(part, 2.0, seeded(3), places=Places(total=total, runs=tuple(mine)))
        assert torch.equal(part, torch.cat([whole[a:b] for a, b in mine]))
