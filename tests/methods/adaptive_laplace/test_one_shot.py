"""One-shot moments: replayed sensitivity, price, ledger, epochs, users, and what it learns."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privet.bounds import Moments
from privet.errors import BudgetExceeded, InvalidArgument
from privet.guarantee import Adjacency, Standing, Unit
from privet.ledger import Ledger
from privet.mechanisms import Gaussian, KNorm
from privet.methods.adaptive_laplace import LinearRule, Objective, OneShotMoments, Solver
from privet.methods.adaptive_laplace.moments import MomentPlan
from privet.methods.adaptive_laplace.solve import ClassMeans, shape_of
from privet.methods.base import PublicFacts
from privet.nets.features import unit_rows
from privet.noise import seeded


def facts(n: int = 4000, d: int = 6, epsilon: float = 1.0, delta: float = 1e-5) -> PublicFacts:
    return PublicFacts(records=n, features=d, outputs=3, epsilon=epsilon, delta=delta)


def blobs(n: int = 4000, d: int = 6, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    centres = 2.0 * np.eye(3, d)
    y = rng.integers(3, size=n)
    return unit_rows((centres[y] + rng.normal(size=(n, d))).astype(np.float32)), y


@pytest.mark.parametrize("adjacency", list(Adjacency))
@pytest.mark.parametrize("delta", [0.0, 1e-5])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0])
@pytest.mark.parametrize("share", [None, 0.3, 1.0])
def test_the_plan_fills_the_budget_and_never_passes_it(adjacency, delta, epsilon, share) -> None:
    plan = OneShotMoments(adjacency=adjacency, share=share).plan(
        facts(epsilon=epsilon, delta=delta)
    )
    spent = plan.loss.epsilon(delta)
    assert 0.999 * epsilon < spent <= epsilon
    assert plan.loss.neighbours is adjacency
    assert isinstance(plan.first_mechanism, KNorm if delta == 0.0 else Gaussian)


def test_per_coordinate_scales_obey_the_budget() -> None:
    """sum_j s_j^2 / sigma_j^2 <= mu^2 for every record, whatever the shape D (the shaped noise)."""
    rng = np.random.default_rng(0)
    shape = rng.uniform(0.1, 3.0, size=5)
    sigma, moments = 7.0, Moments(features=5)
    for h in rng.normal(size=(200, 5)):
        u = shape * h / np.linalg.norm(shape * h)
        contribution = np.outer(u, u) / np.outer(shape, shape)  # in the features' own coordinates
        scales = sigma / np.outer(shape, shape)
        total = float(((contribution / scales) ** 2).sum())
        assert total <= (moments.add_remove.l2 / sigma) ** 2 * (1 + 1e-12)


class Recording:
    """Keeps what a mechanism is given: the exact sums, before noise."""

    def __init__(self) -> None:
        self.values: list[np.ndarray] = []


@pytest.fixture
def exact(monkeypatch: pytest.MonkeyPatch) -> Recording:
    kept = Recording()
    whole = Gaussian.release

    def release(self, bounded, **arguments):
        kept.values.append(bounded.value)
        return whole(self, bounded, **arguments)

    monkeypatch.setattr(Gaussian, "release", release)
    return kept


ENTRY = st.one_of(st.floats(-1, 1, width=32), st.sampled_from([math.nan, math.inf, 0.0, 1e30]))
RECORD = st.tuples(st.lists(ENTRY, min_size=3, max_size=3), st.integers(-1, 3))


@pytest.mark.slow
@settings(max_examples=80, deadline=None)
@given(st.lists(RECORD, min_size=1, max_size=6), RECORD, RECORD, st.sampled_from([0.0, 0.25, 1.0]))
def test_one_record_moves_each_release_by_its_sensitivity(rest, one, other, exponent) -> None:
    """Both sums on neighbours, given the *same* first release (adaptive composition)."""
    method = OneShotMoments(exponent=exponent)
    plan = method.plan(facts(n=6, d=3))
    rng = np.random.default_rng(0)
    first = ClassMeans(
        means=rng.normal(size=(3, 3)) / 3,
        sizes=np.array([5.0, 3.0, 9.0]),
        within=rng.uniform(0.1, 0.4, size=3),
        noise=0.0,
    )
    sums = []
    for records in (rest, [*rest, one], [*rest, other]):
        x = np.array([row for row, _ in records], dtype=np.float32)
        y = np.array([label for _, label in records])
        sums.append(_exact_sums(method, plan, first, x, y))
    for which, moments in enumerate((plan.first, plan.second)):
        assert moments is not None
        without, with_one, with_other = (s[which] for s in sums)
        slack = 1 + 1e-9
        assert np.linalg.norm(with_one - without) <= moments.add_remove.l2 * slack
        assert np.abs(with_one - without).sum() <= moments.add_remove.l1 * slack
        assert np.linalg.norm(with_one - with_other) <= moments.replace_one.l2 * slack
        assert np.abs(with_one - with_other).sum() <= moments.replace_one.l1 * slack


def _exact_sums(method, plan: MomentPlan, first: ClassMeans, x, y) -> list[np.ndarray]:
    kept: list[np.ndarray] = []
    whole = Gaussian.release

    def release(self, bounded, **arguments):
        kept.append(bounded.value)
        return whole(self, bounded, **arguments)

    with pytest.MonkeyPatch.context() as patch, np.errstate(all="ignore"):
        patch.setattr(Gaussian, "release", release)
        method.class_means(x, y, plan, None, seeded(0))
        method._rule(x, y, plan, None, first, seeded(1))
    return kept


def fitted(method: OneShotMoments, seed: int = 0, **arguments) -> LinearRule:
    x, y = blobs()
    plan = method.plan(facts())
    return method.fit(x, y, plan, ledger=None, rng=seeded(seed), **arguments).model


@pytest.mark.parametrize("objective", list(Objective))
@pytest.mark.parametrize("exponent", [0.0, 0.25])
def test_it_learns_and_epochs_are_post_processing(objective: Objective, exponent: float) -> None:
    """Closed form and ten thousand epochs give one classifier at one price."""
    x, y = blobs(seed=1)
    closed = fitted(OneShotMoments(exponent=exponent, solver=Solver(objective=objective)))
    many = OneShotMoments(exponent=exponent, solver=Solver(objective=objective, epochs=10_000))
    descended = fitted(many)
    assert (closed.logits(x).argmax(axis=1) == y).mean() > 0.85
    gap = np.abs(closed.logits(x) - descended.logits(x)).max()
    assert gap < 1e-3 * np.abs(closed.logits(x)).max()
    assert many.plan(facts()).loss.epsilon(1e-5) == OneShotMoments().plan(facts()).loss.epsilon(
        1e-5
    )


def test_at_a_huge_budget_it_is_linear_discriminant_analysis() -> None:
    """The limit case, against scikit-learn on the same rows."""
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

    x, y = blobs(n=20_000)
    method = OneShotMoments(solver=Solver(ridge=0.0))
    plan = method.plan(facts(n=20_000, epsilon=1e6, delta=1e-5))
    rule = method.fit(x, y, plan, ledger=None, rng=seeded(0)).model
    reference = LinearDiscriminantAnalysis(solver="lsqr").fit(x, y)
    assert (rule.logits(x).argmax(axis=1) == reference.predict(x)).mean() > 0.99


def test_charged_once_before_anything_is_drawn(exact: Recording) -> None:
    x, y = blobs()
    method = OneShotMoments()
    plan = method.plan(facts())
    ledger = Ledger.in_memory(cap_epsilon=1.0, cap_delta=1e-5)
    release = method.fit(x, y, plan, ledger=ledger, rng=seeded(0))
    assert len(ledger.entries()) == len(release.entries) == 1 and release.claim is None
    assert release.guarantee.standing is Standing.PROVED
    assert ledger.spent() == pytest.approx(release.guarantee.epsilon, rel=1e-9)
    exact.values.clear()
    with pytest.raises(BudgetExceeded):
        method.fit(x, y, plan, ledger=ledger, rng=seeded(0))
    assert exact.values == []
    wrong = Ledger.in_memory(cap_epsilon=9.0, cap_delta=1e-5, adjacency=Adjacency.REPLACE_ONE)
    with pytest.raises(InvalidArgument):
        method.fit(x, y, plan, ledger=wrong, rng=seeded(0))


def test_users_are_bounded_by_their_share(exact: Recording) -> None:
    """A user with a thousand records moves the sums no more than one with one."""
    x, y = blobs(n=1200)
    groups = np.where(np.arange(1200) < 1000, 0, np.arange(1200))
    method = OneShotMoments(unit=Unit.USER)
    plan = method.plan(facts(n=1200))
    release = method.fit(x, y, plan, ledger=None, rng=seeded(0), groups=groups)
    assert release.guarantee.unit is Unit.USER
    with_all = exact.values[0]
    exact.values.clear()
    rest = groups > 0
    method.fit(x[rest], y[rest], plan, ledger=None, rng=seeded(0), groups=groups[rest])
    assert np.linalg.norm(with_all - exact.values[0]) <= plan.first.add_remove.l2
    with pytest.raises(InvalidArgument):
        method.fit(x, y, plan, ledger=None, rng=seeded(0))
    with pytest.raises(InvalidArgument):
        OneShotMoments().fit(
            x, y, OneShotMoments().plan(facts()), ledger=None, rng=seeded(0), groups=groups
        )


def test_pure_budgets_project_the_second_moment_when_it_would_drown() -> None:
    small = OneShotMoments().plan(facts(n=1000, d=50, epsilon=0.1, delta=0.0))
    large = OneShotMoments().plan(facts(n=1_000_000, d=20, epsilon=1.0, delta=0.0))
    assert small.projected and small.second is not None and small.second.features == 2
    assert not large.projected and large.second is not None and large.second.features == 20


@pytest.mark.parametrize("share", [0.9, 1.0])
def test_pure_budgets_learn(share: float) -> None:
    x, y = blobs()
    method = OneShotMoments(share=share)
    plan = method.plan(facts(n=500, delta=0.0, epsilon=0.3))  # a nominal n, for the rule
    assert plan.projected and (plan.second is None) == (share == 1.0)
    rule = method.fit(x, y, plan, ledger=None, rng=seeded(0)).model
    assert (rule.logits(x).argmax(axis=1) == y).mean() > 0.85


def test_relevance_finds_the_features_that_decide() -> None:
    x, y = blobs(n=20_000)
    method = OneShotMoments()
    first = method.class_means(x, y, method.plan(facts(n=20_000)), None, seeded(0))
    assert first.relevance[:3].min() > 3 * first.relevance[3:].max()
    shape = shape_of(first.relevance, 0.5)
    assert shape[:3].min() > shape[3:].max() and shape_of(np.zeros(3), 1.0).tolist() == [1.0] * 3


def test_the_same_seed_gives_the_same_release_and_another_one_another() -> None:
    one, again, other = (fitted(OneShotMoments(), seed) for seed in (0, 0, 1))
    assert np.array_equal(one.weights, again.weights)
    assert not np.array_equal(one.weights, other.weights)


def test_empty_and_lost_data_still_give_a_release() -> None:
    """Failing on empty data, or on a class without records, would tell about them."""
    method = OneShotMoments()
    plan = method.plan(facts())
    for x, y in (
        (np.zeros((0, 6), np.float32), np.zeros(0, int)),
        (np.full((9, 6), np.nan), np.ones(9, int)),
    ):
        with np.errstate(invalid="ignore"):
            rule = method.fit(x, y, plan, ledger=None, rng=seeded(0)).model
        assert np.isfinite(rule.weights).all() and np.isfinite(rule.intercept).all()
    with pytest.raises(InvalidArgument):
        OneShotMoments(share=0.0).plan(facts())
