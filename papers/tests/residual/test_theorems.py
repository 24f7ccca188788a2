"""The theorems as numbers, and what is left of them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privet import accounting as losses
from privet.errors import InvalidArgument
from privet.guarantee import Backing, Standing, Unit
from privet.methods.noisy_inputs import NoisyInputCost, QueryCost
from privet_papers.residual.theorems import TheoremOne, TheoremThree, TheoremTwo, renyi_epsilon

IDC = TheoremOne(radius=30.0, bound=30.0, gamma=0.5, input_noise=0.25, epochs=100)


def _conditions_hold(epsilon, delta, rho):
    """Theorem 1 word for word: some lambda with pi^2 > R^2 2Tb alpha / (N lambda epsilon)."""
    lam = 1.0 - np.geomspace(1e-6, 1.0 - 1e-6, 5_001)
    alpha = math.log(1 / delta) / ((1 - lam) * epsilon) + 1
    return bool(np.any(rho * alpha / (lam * epsilon) <= 1.0))


def test_theorem_one_at_the_papers_settings_is_not_what_it_prints():
    """IDC: R = G = 30, gamma = .5, pi = .25, 100 epochs. The paper prints 1.1e3."""
    epsilon = IDC.epsilon(1e-5)
    assert epsilon == pytest.approx(2.9e6, rel=0.01)
    assert epsilon > 2000 * 1.1e3
    assert _conditions_hold(1.001 * epsilon, 1e-5, IDC.rho)
    assert not _conditions_hold(0.999 * epsilon, 1e-5, IDC.rho)
    assert not _conditions_hold(1.1e3, 1e-5, IDC.rho)


@given(st.floats(1e-3, 1e4), st.floats(1e-12, 0.5))
def test_the_least_epsilon_meets_the_conditions_and_nothing_less_does(rho, delta):
    epsilon = renyi_epsilon(rho, delta)
    s = math.sqrt(rho * math.log(1 / delta))
    lam = 1 - s / epsilon
    alpha = math.log(1 / delta) / ((1 - lam) * epsilon) + 1
    assert rho * alpha == pytest.approx(lam * epsilon, rel=1e-6)
    assert not _conditions_hold(0.99 * epsilon, delta, rho)


def test_what_survives_is_a_little_less_than_the_theorem_and_has_no_gamma():
    left = NoisyInputCost(radius=30.0, input_noise=0.25, draws=100, dimension=7500)
    assert left.loss().mu == pytest.approx(2 * 30 * math.sqrt(100) / 0.25, rel=1e-6)
    exact = left.loss().epsilon(1e-5)
    assert 0.99 * IDC.epsilon(1e-5) < exact < IDC.epsilon(1e-5)
    once = NoisyInputCost(radius=30.0, input_noise=0.25, dimension=7500)
    assert once.loss().mu == pytest.approx(left.loss().mu / 10, rel=1e-6)
    assert once.loss().mu >= 2 * 30 / 0.25  # never below


def test_claims_say_what_they_rest_on():
    claim = IDC.claim(1e-5)
    assert claim.standing is Standing.CLAIMED and len(claim.premises) == 6
    assert [a.backing for a in claim.premises].count(Backing.ASSUMED) == 4
    two = TheoremTwo(mappings=3, bound=1, floor=1, gamma=2, last=1, input_noise=2).claim(1e-5)
    assert two.unit is Unit.QUERY and all(a.backing is Backing.ASSUMED for a in two.premises)


def test_blocks_are_not_normal_as_theorem_one_assumes():
    """x + relu(u x) of a normal x: skewed, by a test that a normal sample passes.

    Level 1e-6 for each half.
    """
    from scipy import stats

    x = np.random.default_rng(0).normal(size=20_000)
    assert stats.skewtest(x).pvalue > 1e-6
    assert stats.skewtest(x + np.maximum(x, 0.0)).pvalue < 1e-6


@pytest.mark.parametrize("mappings", [1, 3, 9])
def test_a_query_costs_what_its_layers_cost_together(mappings):
    """Theorem 2's rho leaves out a layer: the sum of M + 1 layers is (M + 1) / M of it."""
    budget = QueryCost(
        mappings=mappings, bound=2.0, floor=0.5, gamma=8.0, last=1.0, output_noise=2.0
    )
    theorem = TheoremTwo.of(budget)
    each = losses.Gaussian(mu=2 * 2.0 / (8.0 * 0.5))
    last = losses.Gaussian(mu=2 * 1.0 / 2.0)
    together = losses.compose([*[each] * mappings, last])
    assert budget.mu == pytest.approx(together.mu, rel=1e-9) and budget.mu >= together.mu
    assert budget.mu**2 / 2 / theorem.rho == pytest.approx((mappings + 1) / mappings, rel=1e-9)
    assert budget.loss(16).mu == pytest.approx(4 * budget.mu)


def test_theorem_three_is_the_expectation_over_brownian_motion():
    """E[y^p(T)] / x^p(T) by simulation of the solution; standard error .0009, alarm at 5 of it."""
    bound = TheoremThree(gamma=1.2, power=0.4, time=0.7)
    b = math.sqrt(0.7) * np.random.default_rng(1).normal(size=200_000)
    ratio = np.exp(0.4 * (1.2 * b - 1.2**2 * 0.7 / 2))
    assert ratio.mean() == pytest.approx(bound.factor, abs=5 * ratio.std() / math.sqrt(len(b)))


def test_theorem_three_as_a_number():
    x = np.random.default_rng(0).uniform(size=(500, 20))
    f, g = TheoremThree(gamma=2.0).complexities(x)
    assert g / f == pytest.approx(math.exp(-0.25 * 4 / 2))
    jensen = math.exp(0.5) / 500 * math.sqrt(x.sum())  # E||.|| <= sqrt(sum ||x_i^p||^2), p = 1/2
    assert 0.8 * jensen < f < jensen
    plain = TheoremThree(gamma=0.0)
    assert plain.complexities(x)[0] == plain.complexities(x)[1]
    assert plain.gap(f, 500) > TheoremThree(gamma=2.0).gap(g, 500) > 0.0
    with pytest.raises(InvalidArgument, match="at least 0"):
        plain.complexities(-x)


def test_powers_do_not_commute_with_the_flow():
    """What the proof of Theorem 3 takes for granted fails for a circulant 2x2 matrix."""
    from scipy.linalg import expm

    u, x = np.array([[0.0, 1.0], [1.0, 0.0]]), np.array([1.0, 0.0])
    assert not np.allclose((expm(u) @ x) ** 0.5, expm(0.5 * u) @ x**0.5, atol=0.1)


def test_bad_settings_are_refused():
    with pytest.raises(InvalidArgument, match="radius"):
        TheoremOne(radius=0.0, bound=1, gamma=1, input_noise=1, epochs=1)
    with pytest.raises(InvalidArgument, match="floor"):
        QueryCost(mappings=1, bound=1, floor=0, gamma=1, last=1, output_noise=1)
