"""Adapters for other people's code, and the table of what runs of it show."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import peers
from privet.accounting import Gaussian
from privet.audit import Verdict, audit_releases
from privet.audit.third_party_audit import audit_draws, floating_point_leak, note_noisy_sum
from privet.guarantee import Adjacency
from privet.noise import Source, seeded

NEEDS = {"dp-accounting": "dp_accounting", "prv-accountant": "prv_accountant"}


@pytest.mark.slow
def test_half_of_somebodys_noise_is_seen_by_counting() -> None:
    def half(there: bool, seed: int) -> object:
        return there + 0.5 * seeded(seed).laplace(1)

    found = audit_draws(half, what="a count", epsilon=1.0, trials=2_000)
    assert found.verdict is Verdict.FALSIFIED


def test_noise_on_a_grid_has_no_bits_that_tell() -> None:
    """Multiples of 2^-20 around 0 and 1 are the same numbers."""

    def on_grid(value: float, seed: int) -> float:
        return float(np.round((value + np.random.default_rng(seed).laplace()) * 2**20) / 2**20)

    assert floating_point_leak(on_grid) == 0.0
    assert floating_point_leak(lambda v, seed: v + np.random.default_rng(seed).laplace()) > 0.2


@pytest.mark.parametrize(("factor", "verdict"), [(1.0, "consistent"), (0.5, "falsified")])
def test_a_training_loop_in_plain_numpy(factor: float, verdict: str) -> None:
    """Five steps with one record's clipped gradient in them; the bound errs with 1%, seeded."""
    z, steps = 8.0, 5

    def loop(scale: float) -> object:
        def run(inside: bool, rng: Source) -> None:
            weights = np.zeros(3)
            for step in range(steps):
                exact = np.array([1.0 if inside else 0.0, 0.0, 0.0])
                noisy = exact + scale * rng.child("step", step).gaussian(3)
                weights -= 1e-3 * note_noisy_sum(exact, noisy, scale=z, sensitivity=1.0)

        return run

    proved = Gaussian(mu=steps**0.5 / z).epsilon(1e-5)
    found = audit_releases(
        loop(factor * z), without_noise=loop(1e-3 * z), what="a loop", claimed=None, proved=proved,
        delta=1e-5, adjacency=Adjacency.ADD_REMOVE, trials=100, rng=seeded(2),
    )  # fmt: skip
    assert found.verdict.value == verdict
    assert found.audited > 0.7 * proved


@pytest.mark.slow
@pytest.mark.parametrize("library", peers.PARTS)
def test_every_entry_is_run_and_ours_hold(library: str) -> None:
    """What others state is theirs to mend: here, that the table can be made, and that ours hold."""
    if library not in ("privet", "numpy", "diffprivlib"):
        pytest.importorskip(NEEDS.get(library, library), reason="needs privet[peers]")
    found = list(peers.entries((library,)))
    assert found
    assert all(e.library == library for e in found)
    if library == "privet":
        assert {e.verdict for e in found} == {"holds", "consistent"}
    if library == "numpy":
        assert "tells" in found[-1].verdict


def test_a_library_that_is_missing_is_named() -> None:
    (row,) = peers.entries(("no-such-library",))
    assert row.verdict.startswith("not installed")
