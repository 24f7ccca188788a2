"""torchrun with two processes on loopback: same guarantee and, seeded, the same model as one."""

import numpy as np
import pytest

from tests.methods.dpsgd.several_processes import answers, launch

MODES = ("seeded", "adaptive", "wrapped", "secure")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    found = tmp_path_factory.mktemp("processes")
    launch("tests.methods.dpsgd.processes", found, modes=MODES, alone=MODES)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["seeded", "adaptive", "wrapped"])
def test_two_processes_are_one(folder, mode):
    """Equal but for the order of float32 additions: 1e-5 relative, which Tanh and momentum carry on."""
    alone, first, second = answers(folder, mode)
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
def test_secure_processes_agree(folder):
    alone, first, second = answers(folder, "secure")
    assert first["weights"] == second["weights"] != alone["weights"]
    assert first["epsilon"] == second["epsilon"] == alone["epsilon"]
    expected = 301 * 0.3 * first["steps"]  # five standard deviations of a binomial count
    assert abs(first["examples"] + second["examples"] - expected) < 5 * (0.7 * expected) ** 0.5
