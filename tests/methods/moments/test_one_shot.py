"""One-shot moments: replayed sensitivity, price, ledger, epochs, users, and what it learns."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privet.data.domain import RowKind, Rows
from privet.data.records import PublicFacts, Records
from privet.errors import InvalidArgument
from privet.features import unit_rows
from privet.guarantee import Adjacency, Standing, Unit
from privet.ledger import Ledger
from privet.mechanisms import GaussianMechanism, KNormMechanism
from privet.mechanisms.release_transcript import record_releases
from privet.methods.moments import Objective, OneShotMoments, OneShotPlan
from privet.methods.moments.class_means import release_class_means
from privet.methods.moments.classifier_from_moments import ClassMeans, noise_shape
from privet.methods.released_models import LinearModel
from privet.methods.train_method import TrainingResult, train
from privet.noise import seeded
from privet.sensitivity import Moments

pytestmark = pytest.mark.filterwarnings("ignore::privet.data.records.UnprotectedDiagnostic")


def facts(n: int = 4000, d: int = 6, epsilon: float = 1.0, delta: float = 1e-5) -> PublicFacts:
    return PublicFacts(records=n, features=d, outputs=3, epsilon=epsilon, delta=delta)


def blobs(n: int = 4000, d: int = 6, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    centres = 2.0 * np.eye(3, d)
    y = rng.integers(3, size=n)
    return unit_rows((centres[y] + rng.normal(size=(n, d))).astype(np.float32)), y


def records(x: np.ndarray, y: np.ndarray, groups: np.ndarray | None = None) -> Records:
    """Rows of the unit ball as they are; what is not finite, or of no class, is null."""
    null = ~np.isfinite(x).all(axis=1) | (y < 0) | (y > 2)
    rows = np.where(null[:, None], 0.0, x).astype(np.float32)
    return Records(
        rows=Rows(values=rows, kind=RowKind.BALL, null=null),
        targets=np.where(null, -1, y),
        outputs=3,
        groups=groups,
        n_public=len(x),
    )


def logits(model: LinearModel, x: np.ndarray) -> np.ndarray:
    return model.outputs(records(x, np.zeros(len(x), dtype=int)).rows)


def right(model: LinearModel, x: np.ndarray, y: np.ndarray) -> float:
    return float((logits(model, x).argmax(axis=1) == y).mean())


@pytest.mark.parametrize("adjacency", [Adjacency.ADD_REMOVE, Adjacency.REPLACE_ONE])
@pytest.mark.parametrize("delta", [0.0, 1e-5])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0])
@pytest.mark.parametrize("share", [None, 0.3, 1.0])
def test_the_plan_fills_the_budget_and_never_passes_it(adjacency, delta, epsilon, share) -> None:
    plan = OneShotMoments(adjacency=adjacency, share=share).plan(
        facts(epsilon=epsilon, delta=delta)
    )
    spent = plan.loss.epsilon(delta)
    assert 0.999 * epsilon < spent <= epsilon
    assert plan.loss.adjacency is adjacency
    assert isinstance(plan.first.mechanism, KNormMechanism if delta == 0.0 else GaussianMechanism)


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
        total=0.7,
        noise=0.0,
    )
    sums = []
    for held in (rest, [*rest, one], [*rest, other]):
        x = np.array([row for row, _ in held], dtype=np.float32)
        y = np.array([label for _, label in held])
        sums.append(_exact_sums(method, plan, first, records(x, y)))
    assert plan.second is not None
    for which, moments in enumerate((plan.first.moments, plan.second.moments)):
        without, with_one, with_other = (s[which] for s in sums)
        slack = 1 + 1e-9
        assert np.linalg.norm(with_one - without) <= moments.add_remove.l2 * slack
        assert np.abs(with_one - without).sum() <= moments.add_remove.l1 * slack
        assert np.linalg.norm(with_one - with_other) <= moments.replace_one.l2 * slack
        assert np.abs(with_one - with_other).sum() <= moments.replace_one.l1 * slack


def _exact_sums(
    method: OneShotMoments, plan: OneShotPlan, first: ClassMeans, held: Records
) -> list[np.ndarray]:
    x, y, null = held.rows.directions(), held.targets, held.null
    with record_releases() as made, np.errstate(all="ignore"):
        release_class_means(x, y, plan.first, null=null, users=None, rng=seeded(0))
        method._solve_both(x, y, null, None, plan, first, seeded(1))
    return [release.exact for release in made.releases]


def released(method: OneShotMoments, x, y, seed: int = 0, **more) -> TrainingResult:
    held = records(x, y, more.pop("groups", None))
    told = held.facts(epsilon=more.pop("epsilon", 1.0), delta=more.pop("delta", 1e-5))
    return train(method, held, method.plan(told), rng=seeded(seed), **more)


def fitted(method: OneShotMoments, seed: int = 0) -> LinearModel:
    return released(method, *blobs(), seed).model


@pytest.mark.slow
@pytest.mark.parametrize("objective", list(Objective))
@pytest.mark.parametrize("exponent", [0.0, 0.25])
def test_it_learns_and_epochs_are_post_processing(objective: Objective, exponent: float) -> None:
    """Closed form and ten thousand epochs give one classifier at one price."""
    x, y = blobs(seed=1)
    closed = fitted(OneShotMoments(exponent=exponent, objective=objective))
    many = OneShotMoments(exponent=exponent, objective=objective, epochs=10_000)
    descended = fitted(many)
    assert right(closed, x, y) > 0.85
    gap = np.abs(logits(closed, x) - logits(descended, x)).max()
    assert gap < 1e-3 * np.abs(logits(closed, x)).max()
    assert many.plan(facts()).loss.epsilon(1e-5) == OneShotMoments().plan(facts()).loss.epsilon(
        1e-5
    )


def test_at_a_huge_budget_it_is_linear_discriminant_analysis() -> None:
    """The limit case, against scikit-learn on the same rows."""
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

    x, y = blobs(n=20_000)
    rule = released(OneShotMoments(ridge=0.0, exponent=0.0), x, y, epsilon=1e6).model
    reference = LinearDiscriminantAnalysis(solver="lsqr").fit(x, y)
    assert right(rule, x, reference.predict(x)) > 0.99


def test_charged_once_and_to_a_ledger_of_the_same_terms() -> None:
    x, y = blobs()
    ledger = Ledger.in_memory(cap_epsilon=1.0, cap_delta=1e-5, adjacency=Adjacency.ADD_REMOVE)
    release = released(OneShotMoments(), x, y, ledger=ledger)
    assert len(ledger.entries()) == len(release.entries) == 1 and release.claim is None
    assert release.guarantee.standing is Standing.PROVED
    assert ledger.spent() == pytest.approx(release.guarantee.epsilon, rel=1e-9)
    wrong = Ledger.in_memory(cap_epsilon=9.0, cap_delta=1e-5, adjacency=Adjacency.REPLACE_ONE)
    with pytest.raises(InvalidArgument):
        released(OneShotMoments(), x, y, ledger=wrong)


def test_users_are_bounded_by_their_share() -> None:
    """A user with a thousand records moves the sums no more than one with one."""
    x, y = blobs(n=1200)
    groups = np.where(np.arange(1200) < 1000, 0, np.arange(1200))
    rest = groups > 0
    with record_releases() as both:
        assert released(OneShotMoments(), x, y, groups=groups).guarantee.unit is Unit.USER
    with record_releases() as without:
        released(OneShotMoments(), x[rest], y[rest], groups=groups[rest])
    moved = np.linalg.norm(both.releases[0].exact - without.releases[0].exact)
    plan = OneShotMoments().plan(facts())
    assert moved <= plan.first.moments.add_remove.l2


def test_pure_budgets_project_the_second_moment_when_it_would_drown() -> None:
    small = OneShotMoments().plan(facts(n=1000, d=50, epsilon=0.1, delta=0.0))
    large = OneShotMoments().plan(facts(n=1_000_000, d=20, epsilon=1.0, delta=0.0))
    assert small.projected and small.second is not None and small.second.moments.features == 2
    assert not large.projected and large.second is not None and large.second.moments.features == 20


@pytest.mark.parametrize("share", [0.9, 1.0])
def test_pure_budgets_learn(share: float) -> None:
    x, y = blobs()
    method = OneShotMoments(share=share)
    plan = method.plan(facts(n=500, delta=0.0, epsilon=0.3))  # a nominal n, for the rule
    assert plan.projected and (plan.second is None) == (share == 1.0)
    rule = train(method, records(x, y), plan, rng=seeded(0)).model
    assert right(rule, x, y) > 0.85


def test_relevance_finds_the_features_that_decide() -> None:
    x, y = blobs(n=20_000)
    method = OneShotMoments()
    null = np.zeros(len(x), dtype=bool)
    plan = method.plan(facts(n=20_000))
    first = release_class_means(x, y, plan.first, null=null, users=None, rng=seeded(0))
    assert first.relevance[:3].min() > 3 * first.relevance[3:].max()
    shape = noise_shape(first.relevance, 0.5)
    assert shape[:3].min() > shape[3:].max() and noise_shape(np.zeros(3), 1.0).tolist() == [1.0] * 3


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
        rule = train(method, records(x, y), plan, rng=seeded(0)).model
        assert np.isfinite(rule.weights).all() and np.isfinite(rule.intercept).all()
