"""Absurd sizes: an error of ours, or a loss that is not below the truth; never a silent wrong."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from privet.errors import InvalidArgument, PrivetError
from privet.guarantee import Backing, Premise
from privet.mechanisms import (
    DiscreteGaussianMechanism,
    DiscreteLaplaceMechanism,
    GaussianMechanism,
    KNormMechanism,
    LaplaceMechanism,
    RandomisedResponse,
)
from privet.noise import grid, seeded
from privet.sensitivity import BoundedValue, Sensitivity, categories, clip_l2

SIZES = [0.0, 5e-324, 1e-300, 1e-30, 1.0, 1e30, 1e300, 1.7e308]
DIMENSIONS = [1, 2, 10**6, 10**18, 10**400]


@pytest.mark.parametrize(
    "kind",
    [
        LaplaceMechanism,
        GaussianMechanism,
        KNormMechanism,
        DiscreteLaplaceMechanism,
        DiscreteGaussianMechanism,
    ],
)
def test_a_loss_is_right_or_refused(kind: type) -> None:
    for scale, sensitivity, d in itertools.product([1e-30, 1.0, 1e30, 2.0**900], SIZES, DIMENSIONS):
        try:
            loss = kind(scale=scale).loss(sensitivity, dimension=d)
        except PrivetError:
            continue
        least = Fraction(sensitivity) / Fraction(scale)
        if kind is LaplaceMechanism:
            assert Fraction(loss.epsilon_each) >= least
        elif kind is GaussianMechanism:
            assert Fraction(loss.mu) >= least
        elif kind is DiscreteGaussianMechanism:
            assert Fraction(loss.rho) >= least * least / 2
        else:
            assert Fraction(loss.epsilon(0.0)) >= least


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind",
    [
        LaplaceMechanism,
        GaussianMechanism,
        KNormMechanism,
        DiscreteLaplaceMechanism,
        DiscreteGaussianMechanism,
    ],
)
def test_a_budget_is_met_or_refused(kind: type) -> None:
    gaussian = "Gauss" in kind.__name__  # whose curves take longer to invert
    delta = {"delta": 1e-5} if gaussian else {}
    for sensitivity, d, epsilon in itertools.product(
        SIZES[::3] if gaussian else SIZES, DIMENSIONS[::2], [5e-324, 1e-12, 1.0, 1e300]
    ):
        try:
            found = kind.for_budget(sensitivity, epsilon=epsilon, dimension=d, **delta)
            stated = found.loss(sensitivity, dimension=d).epsilon(delta.get("delta", 0.0))
        except PrivetError:
            continue
        assert stated <= epsilon


def test_a_tiny_sensitivity_still_crosses_a_cell() -> None:
    """1e-310 over a step of 2^824 is 0 in float64, yet two values so close may round apart."""
    step = grid.spacing(2.0**850)
    assert grid.l1_after_rounding(1e-310, dimension=1, step=step) == step
    assert grid.l1_after_rounding(0.0, dimension=1, step=step) == 0.0
    a, b = np.array([step / 2]), np.array([math.nextafter(step / 2, 0.0)])
    assert grid.to_units(a, step) - grid.to_units(b, step) == 1
    assert LaplaceMechanism(scale=2.0**850).loss(1e-310).epsilon(0.0) >= step / 2.0**850


def test_values_of_any_size_are_released() -> None:
    one = Sensitivity(l1=1.0, l2=1.0)
    claim = Premise(about="bound", text="test", backing=Backing.TESTED)
    for size, kind in itertools.product(
        SIZES, (LaplaceMechanism, GaussianMechanism, KNormMechanism, DiscreteLaplaceMechanism)
    ):
        value = BoundedValue(
            value=np.array([size, -size]), add_remove=one, replace_one=one, premise=claim
        )
        out = kind(scale=2.0).release(value, rng=seeded(0))
        assert np.isfinite(out).all() and abs(out[0]) <= 1.8e308


def test_counts_that_no_machine_holds_are_refused() -> None:
    for classes in (2**31 + 1, 2**63, 10**400):
        with pytest.raises(InvalidArgument, match="classes must be at most"):
            RandomisedResponse(classes=classes, epsilon=1.0)
        with pytest.raises(InvalidArgument, match="classes must be at most"):
            categories([0], classes)
    with pytest.raises(InvalidArgument, match="records must be at most"):
        clip_l2([[1.0]], 1.0).mean(records=10**400)
    for scale in (math.inf, math.nan, 0.0, 1e300):
        for draw in (
            seeded(0).gaussian_on_grid,
            seeded(0).laplace_on_grid,
            seeded(0).k_norm_on_grid,
        ):
            with pytest.raises(InvalidArgument, match="scale must be"):
                draw(2, scale)
