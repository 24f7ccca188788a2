"""fully_shard on two gloo processes: the guarantee and, seeded, the model of one; by parts only."""

from itertools import pairwise

import numpy as np
import pytest
import torch

from privet.noise import seeded
from privet.noise.torch_noise import BLOCK, Places, add_gaussian_
from tests.methods.dpsgd.several_processes import answers, launch

ALONE = ("memory", "mlp", "transformer", "adaptive", "half")
MODES = (
    *ALONE, "secure", "one record", "other record", "checkpoints", "ema", "other schedule",
    "other model", "other seed", "other kind of noise source",
)  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    found = tmp_path_factory.mktemp("spread")
    launch("tests.methods.dpsgd.spread_processes", found, modes=MODES, alone=ALONE)
    return found


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
def test_a_spread_model_is_trained_as_by_one_process(folder, mode):
    alone, first, second = answers(folder, mode)
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
def test_secure_parts_have_noise_of_their_own(folder):
    first, second = answers(folder, "secure", alone=False)
    assert first["weights"] == second["weights"]
    assert first["guarantee"] == second["guarantee"]
    assert [s[2] for s in first["scales"]] != [s[2] for s in second["scales"]]
    assert min(s[2] for one in (first, second) for s in one["scales"]) > 0.0


@pytest.mark.slow
def test_a_record_of_the_second_process_moves_the_sum_by_what_is_paid(folder):
    sums, sensitivity = [], 0.0
    for mode in ("one record", "other record"):
        first, second = answers(folder, mode, alone=False)
        sums.append(joined(first, second, 0))
        sensitivity = first["scales"][0][1]
        assert second["scales"][0][1] == sensitivity
    moved = float(np.linalg.norm(sums[0] - sums[1]))
    assert 0.1 < moved <= 2 * sensitivity  # one record for another: both are clipped to the bound


@pytest.mark.slow
def test_no_process_holds_the_whole_model(folder):
    """Eight layers: the largest thing is the process's own part of the sum, in float64.

    A whole copy of the model in float32 on top would be .1 more of the peak of one process.
    """
    alone, first, second = answers(folder, "memory")
    assert alone["largest"] == 8 * alone["size"]  # the counter sees the flat sum of one process
    for one in (first, second):
        assert one["held"] < 0.51 * one["size"] and one["largest"] <= 8 * one["held"]
        assert one["peak"] < 0.55 * alone["peak"]


@pytest.mark.slow
def test_passes_in_bfloat16_keep_the_parts_in_float32(folder):
    alone, first, second = answers(folder, "half")
    assert first["said"] == second["said"] == "" and first["weights"] == second["weights"]
    assert first["guarantee"] == alone["guarantee"]
    assert 0 < abs(np.subtract(first["weights"], alone["weights"])).max() < 0.05
    assert any(w != float(torch.tensor(w).bfloat16()) for w in first["weights"])


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["checkpoints", "ema"])
def test_what_needs_the_whole_model_is_refused(folder, mode):
    first, second = answers(folder, mode, alone=False)
    assert first["said"] == second["said"] and mode in first["said"]
    assert "\n" not in first["said"] and "fully_shard" in first["said"]


@pytest.mark.slow
@pytest.mark.parametrize("what", ["schedule", "model", "seed", "kind of noise source"])
def test_processes_that_were_given_different_things_are_refused(folder, what):
    """The first pays for all: less noise, a larger bound or a seed elsewhere would go unsaid."""
    first, second = answers(folder, f"other {what}", alone=False)
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
