"""The account that grows: never below the truth, close to it, at the cost of the new part."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.stats import binom, norm

from privet.accounting import (
    ZCDP,
    ApproximateDP,
    Gaussian,
    Laplace,
    PrivacyLoss,
    Pure,
    SampledGaussian,
    SampledLaplace,
    compose,
)
from privet.accounting.incremental_composition import IncrementalComposition
from privet.accounting.privacy_loss import Direction, VerticalLine
from privet.accounting.running_total import MixedPureLosses, RunningTotal
from privet.errors import BudgetExceeded
from privet.guarantee import Adjacency
from privet.ledger import Ledger

A = Adjacency.ADD_REMOVE
DELTA = 1e-5


def growing(
    *losses: PrivacyLoss, delta: float = DELTA, cap: float = math.inf
) -> IncrementalComposition:
    """All of them, one after the other, with a look at the bound after each."""
    account = IncrementalComposition(adjacency=A, delta=delta, cap=cap)
    for loss in losses:
        found = account.epsilon_with(loss)
        account.add(loss)
        assert account.epsilon == pytest.approx(found, rel=1e-4, abs=1e-8)
    return account


def true_epsilon(mu: float, e: float, times: int, delta: float) -> float:
    """A Gaussian and `times` randomised responses: a mixture of shifted Gaussian curves."""
    up = binom.pmf(np.arange(times + 1), times, 1.0 / (1.0 + math.exp(-e)))
    shift = e * (2 * np.arange(times + 1) - times)

    def excess(epsilon: float) -> float:
        t = epsilon - shift
        each = norm.cdf(mu / 2 - t / mu) - np.exp(t) * norm.cdf(-mu / 2 - t / mu)
        return float(np.sum(up * each)) - delta

    return float(brentq(excess, 0.0, 100.0, xtol=1e-12)) if excess(0.0) > 0 else 0.0


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(
    mu=st.floats(0.02, 1.5),
    e=st.floats(0.005, 0.5),
    times=st.integers(1, 60),
    delta=st.sampled_from([1e-3, 1e-5, 1e-9]),
    pieces=st.integers(1, 4),
)
def test_it_is_never_below_the_truth_and_close_to_it(
    mu: float, e: float, times: int, delta: float, pieces: int
) -> None:
    gaussians = [Gaussian(mu=mu / math.sqrt(pieces))] * pieces
    account = growing(*gaussians, *[Pure(epsilon_each=e)] * times, delta=delta)
    truth = true_epsilon(mu, e, times, delta)
    assert account.epsilon >= truth * (1 - 1e-9) - 1e-12
    assert account.epsilon <= 1.05 * truth + 0.02


LOSSES = st.one_of(
    st.floats(0.01, 0.4).map(lambda m: Gaussian(mu=m)),
    st.floats(0.01, 0.4).map(lambda e: Pure(epsilon_each=e)),
    st.floats(0.01, 0.4).map(lambda e: Laplace(epsilon_each=e)),
    st.floats(0.01, 0.4).map(lambda e: ApproximateDP(epsilon_each=e, delta_each=1e-7)),
    st.tuples(st.floats(1e-3, 1.0), st.floats(0.7, 4.0), st.integers(1, 30)).map(
        lambda s: SampledGaussian(sample_rate=s[0], noise_multiplier=s[1], steps=s[2])
    ),
    st.tuples(st.floats(1e-3, 0.1), st.floats(0.7, 4.0), st.integers(1, 9)).map(
        lambda s: SampledLaplace(sample_rate=s[0], noise_multiplier=s[1], steps=s[2])
    ),
    st.floats(1e-4, 0.05).map(lambda r: ZCDP(rho=r)),
)


@pytest.mark.slow
@settings(max_examples=10, deadline=None)
@given(st.lists(LOSSES, min_size=1, max_size=8))
def test_it_agrees_with_one_composition_of_all(losses: list[PrivacyLoss]) -> None:
    """Both are upper bounds within a few parts in 10^4; neither may be far below the other."""
    account = growing(*losses)
    exact = compose(losses).epsilon(DELTA)
    assert account.running_total.total.epsilon(DELTA) == pytest.approx(exact, rel=1e-9)
    assert account.epsilon >= exact * (1 - 5e-3) - 2e-4
    if not any(isinstance(loss, ZCDP) for loss in losses):
        assert account.epsilon <= 1.1 * exact + 0.05


@pytest.mark.slow
def test_one_direction_that_nothing_is_known_of_is_not_hidden_by_the_other() -> None:
    """A part whose moments explode at the order of the line, in one direction only."""
    account = growing(*[Gaussian(mu=0.005)] * 300, *[Pure(epsilon_each=0.005)] * 300, cap=20.0)
    order = account._line.quadrature.order if account._line else 0.0
    assert order > 5.0
    wild = SampledGaussian(sample_rate=0.003, noise_multiplier=0.6, steps=3)
    exact = (account.running_total.total + wild).epsilon(DELTA)
    assert exact * (1 - 1e-3) <= account.epsilon_with(wild) <= 1.05 * exact + 0.02


@pytest.mark.slow
def test_a_thousand_different_charges_follow_the_exact_total() -> None:
    rng = np.random.default_rng(0)
    account = IncrementalComposition(adjacency=A, delta=DELTA, cap=20.0)
    for i in range(900):
        each = float(rng.uniform(0.00125, 0.00375))
        noise = float(rng.uniform(1.0, 3.0))
        loss = (
            SampledGaussian(sample_rate=each, noise_multiplier=noise, steps=2)
            if i % 10 == 9
            else (Gaussian(mu=each) if i % 3 else Pure(epsilon_each=each))
        )
        found = account.epsilon_with(loss)
        account.add(loss)
        if i % 300 == 299:
            exact = account.running_total.total.epsilon(DELTA)
            assert exact * (1 - 1e-3) <= found <= 1.02 * exact


@pytest.mark.slow
def test_at_the_cap_nothing_that_fits_is_refused_and_nothing_else_admitted() -> None:
    """Up to the cap and through it, against the exact composition."""
    rng = np.random.default_rng(5)

    def draw(i: int) -> PrivacyLoss:
        size = float(rng.uniform(0.01, 0.06))
        return Gaussian(mu=size) if i % 2 else Pure(epsilon_each=size)

    charged = [draw(i) for i in range(70)]
    cap = compose(charged).epsilon(DELTA) * 1.01
    ledger = Ledger.in_memory(cap_epsilon=cap, cap_delta=DELTA)
    for loss in charged:
        assert ledger.charge(loss, what="x").spent <= cap
    reported: list[tuple[float, float]] = []
    for i in range(7):
        loss = draw(i)
        exact = compose([*charged, loss]).epsilon(DELTA)
        try:
            ledger.charge(loss, what="x")
            charged.append(loss)
            assert exact <= cap * (1 + 3e-4)  # either bound is above the truth by so much at most
        except BudgetExceeded as error:
            assert exact > cap
            reported.append((error.would_be, exact))
    assert reported
    assert len(charged) > 70
    assert all(would_be == pytest.approx(exact, rel=1e-9) for would_be, exact in reported)
    assert ledger.verify().spent <= cap


@pytest.mark.slow
def test_a_ledger_opened_again_goes_on_where_it_was(tmp_path) -> None:
    first = Ledger.create(tmp_path / "l", cap_epsilon=3.0, cap_delta=DELTA)
    losses = [Pure(epsilon_each=0.01 + i / 1000) for i in range(40)]
    for loss in losses:
        first.charge(loss, what="x")
    again = Ledger.open(tmp_path / "l")
    more = SampledGaussian(sample_rate=0.01, noise_multiplier=1.0, steps=100)
    assert again.charge(more, what="x").spent == pytest.approx(
        compose([*losses, more]).epsilon(DELTA), rel=0.02
    )
    assert first.spent() == again.spent()


@pytest.mark.slow
def test_a_loss_that_is_refused_leaves_no_trace() -> None:
    losses = [Gaussian(mu=0.02), Pure(epsilon_each=0.02)] * 20
    account = growing(*losses, cap=2.0)
    before, line = account.epsilon, account._line
    for wild in (
        Gaussian(mu=50.0),
        Pure(epsilon_each=30.0),
        SampledGaussian(sample_rate=0.5, noise_multiplier=0.01),
    ):
        assert not account.epsilon_with(wild) <= 2.0
        assert account._line is line
        assert account.epsilon == pytest.approx(before, rel=1e-4)


def test_without_a_cap_it_ends_whatever_comes() -> None:
    account = growing(
        Pure(epsilon_each=0.1), SampledGaussian(sample_rate=0.5, noise_multiplier=0.01)
    )
    account.add(Gaussian(mu=0.1))
    assert account.epsilon > 1000.0


def test_pure_sums_at_delta_zero_are_exact() -> None:
    account = growing(*[Pure(epsilon_each=0.1)] * 7, Laplace(epsilon_each=0.25), delta=0.0)
    assert account.epsilon == pytest.approx(0.95, rel=1e-15)
    account.add(Gaussian(mu=1e-3))
    assert account.epsilon == math.inf


def test_a_failure_above_delta_is_unbounded() -> None:
    account = growing(Pure(epsilon_each=0.1), ApproximateDP(epsilon_each=0.1, delta_each=6e-6))
    assert account.epsilon <= 0.2
    assert account.epsilon_with(ApproximateDP(epsilon_each=0.1, delta_each=6e-6)) == math.inf


def test_many_different_pure_losses_are_exactly_their_composition() -> None:
    rng = np.random.default_rng(1)
    members = [
        kind(epsilon_each=float(e), times=int(n))
        for kind in (Pure, Laplace)
        for e, n in zip(rng.uniform(0.001, 0.3, 300), rng.integers(1, 4, 300), strict=True)
    ]
    many = MixedPureLosses.of(members)
    orders = np.array([0.1, 3.0, 50.0])
    apart = sum(m.log_mgf(orders, Direction.ADD) for m in members)
    assert np.allclose(many.log_mgf(orders, Direction.ADD), apart, rtol=1e-12)
    line = VerticalLine(order=2.0, spacing=0.5, count=40)
    pairs = [m.log_mgf_on(line, Direction.REMOVE) for m in members]
    k, errors = many.log_mgf_on(line, Direction.REMOVE)
    assert np.all(np.abs(k - sum(p[0] for p in pairs)) <= errors + sum(p[1] for p in pairs))
    assert np.all(errors >= 0.9 * sum(p[1] for p in pairs))
    assert many.releases == sum(m.times for m in members)
    assert many.supremum(Direction.ADD) == pytest.approx(
        sum(m.supremum(Direction.ADD) for m in members)
    )


def test_sums_count_equal_releases_and_keep_the_rest_apart() -> None:
    sums = RunningTotal(A)
    for _ in range(3):
        sums.add(Gaussian(mu=0.3))
        sums.add(Pure(epsilon_each=0.1))
        sums.add(SampledGaussian(sample_rate=0.1, noise_multiplier=2.0, steps=4))
    sums.add(Gaussian(mu=0.0))
    gaussian, pure, sampled = sums.total.parts
    assert gaussian.to_dict() == Gaussian(mu=math.hypot(0.3, 0.3, 0.3)).to_dict()
    assert pure == Pure(epsilon_each=0.1, times=3)
    assert sampled == SampledGaussian(sample_rate=0.1, noise_multiplier=2.0, steps=12)
    assert sums.kinds == {Gaussian, Pure, SampledGaussian}


@pytest.mark.slow
def test_a_replay_part_by_part_is_a_bound_too() -> None:
    losses = [
        SampledGaussian(sample_rate=0.01 + i / 1e4, noise_multiplier=1.0 + i / 100, steps=40)
        for i in range(60)
    ]
    exact = compose(losses).epsilon(DELTA)
    account = IncrementalComposition.of(losses, adjacency=A, delta=DELTA, cap=1.2 * exact)
    assert account.replay(losses) == pytest.approx(exact, rel=0.005)
