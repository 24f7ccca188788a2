"""Randomised response: exact probabilities, unbiased estimates, the right adjacency."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from privet.errors import Incomparable, InvalidArgument
from privet.guarantee import Adjacency
from privet.mechanisms import RandomisedResponse
from privet.noise import seeded
from privet.sensitivity import categories


@given(st.integers(2, 1000), st.floats(1e-3, 50.0))
def test_odds_are_at_most_e_to_the_epsilon(classes: int, epsilon: float) -> None:
    r = RandomisedResponse(classes=classes, epsilon=epsilon)
    log_odds = math.log1p(-r._false) - math.log(r.lie)
    assert log_odds <= epsilon + 1e-15 * max(1.0, epsilon)
    assert log_odds >= epsilon - 1e-14 * (classes + 10)
    assert r.truth + (classes - 1) * r.lie == pytest.approx(1.0)


@pytest.mark.parametrize("classes", [3, 1000, 999_999, 1_999_999_999])
@pytest.mark.parametrize("epsilon", [1e-16, 1e-11, 1e-8, 1e-3])
def test_many_classes_and_little_epsilon_keep_the_promise(classes: int, epsilon: float) -> None:
    """(K - 1) / K in float64 made the truth up to 2^-53 K likelier than a lie."""
    false = Fraction(RandomisedResponse(classes=classes, epsilon=epsilon)._false)
    odds = (1 - false) * (classes - 1) / false
    assert odds <= sum(Fraction(epsilon) ** k / math.factorial(k) for k in range(12))  # below e^eps


def test_answers_have_the_stated_law() -> None:
    """Chi-square of 60,000 answers of each true category; false alarm 1e-6 each."""
    r, rng = RandomisedResponse(classes=4, epsilon=1.0), seeded(3)
    for true in range(4):
        answers = r.release(categories(np.full(60_000, true), 4), rng=rng)
        p = np.full(4, r.lie)
        p[true] = r.truth
        assert stats.chisquare(np.bincount(answers, minlength=4), p * 60_000).pvalue > 1e-6


@pytest.mark.slow
def test_estimates_are_unbiased_with_the_stated_variance() -> None:
    true = np.array([50, 30, 20])
    labels = categories(np.repeat(np.arange(3), true), 3)
    r, rng = RandomisedResponse(classes=3, epsilon=1.2), seeded(4)
    runs = np.array(
        [r.debias(np.bincount(r.release(labels, rng=rng), minlength=3)) for _ in range(3000)]
    )
    variance = r.variance(true)
    assert np.all(np.abs(runs.mean(axis=0) - true) < 5 * np.sqrt(variance / 3000))
    assert np.allclose(runs.var(axis=0), variance, rtol=0.15)
    assert np.allclose(runs.sum(axis=1), 100.0)


def test_expectation_exactly() -> None:
    """debias is linear, so that applying it to the expected counts gives the truth back."""
    r = RandomisedResponse(classes=5, epsilon=0.3)
    true = np.array([5.0, 0.0, 2.0, 90.0, 3.0])
    expected = r.truth * true + r.lie * (true.sum() - true)
    assert np.allclose(r.debias(expected), true)
    one_hot = np.eye(5)
    rows = r.truth * one_hot + r.lie * (1 - one_hot)
    assert np.allclose(r.debias(rows), one_hot)


def test_cost_and_order_of_payment() -> None:
    r = RandomisedResponse(classes=3, epsilon=0.7)
    assert r.loss().epsilon(0.0) == 0.7
    with pytest.raises(Incomparable, match="adjacency"):
        r.loss(adjacency=Adjacency.ADD_REMOVE)
    paid: list[str] = []

    class Book:
        def charge(self, loss: object, *, what: str, scope: object) -> None:
            paid.append(what)
            raise RuntimeError("full")

    rng = seeded(0)
    with pytest.raises(RuntimeError):
        r.release(categories([0, 1], 3), rng=rng, ledger=Book(), what="labels")
    assert paid == ["labels"] and np.array_equal(rng.uint64(2), seeded(0).uint64(2))


def test_bad_input() -> None:
    for epsilon in (0.0, -1.0, math.nan, math.inf, 800.0):
        with pytest.raises(InvalidArgument, match="epsilon must be"):
            RandomisedResponse(classes=2, epsilon=epsilon)
    for classes in (1, 0, 2.5):
        with pytest.raises(InvalidArgument, match="classes must be"):
            RandomisedResponse(classes=classes, epsilon=1.0)  # type: ignore[arg-type]
    r = RandomisedResponse(classes=3, epsilon=1.0)
    for records in ([0, 1], categories([0], 2)):
        with pytest.raises(InvalidArgument, match="records must be"):
            r.release(records, rng=seeded(0))  # type: ignore[arg-type]
    for counts in (3.0, [1.0, 2.0], [1.0, math.nan, 2.0]):
        with pytest.raises(InvalidArgument, match="counts must be"):
            r.debias(counts)


@given(st.integers(2, 1000), st.floats(1e-3, 20.0))
def test_a_record_taken_out_costs_what_is_said(classes: int, epsilon: float) -> None:
    """All ratios of an answer's probability to 1/K, in both directions; and nothing is wasted."""
    r = RandomisedResponse.for_null(classes=classes, epsilon=epsilon)
    ratios = [abs(math.log(classes * p)) for p in (r.truth, r.lie)]
    assert max(ratios) <= r.epsilon_of_null <= r.epsilon + 1e-11
    assert r.epsilon_of_null == pytest.approx(epsilon, rel=1e-6)


def test_a_record_taken_out_of_two_classes_costs_about_half() -> None:
    r = RandomisedResponse(classes=2, epsilon=0.01)
    assert r.epsilon_of_null == pytest.approx(0.005, rel=0.01)
