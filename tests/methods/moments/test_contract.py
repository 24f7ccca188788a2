"""The three methods under the contract: plan, charge, premises, files, and replay on neighbours."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

import privet
from privet import premises
from privet.audit.conformance import streams_drawn_once
from privet.data.domain import Domain
from privet.data.records import PublicFacts, Records, UnprotectedDiagnostic
from privet.errors import BudgetExceeded, InvalidArgument
from privet.estimators import PrivateClassifier
from privet.guarantee import Adjacency, Unit
from privet.ledger import Ledger
from privet.mechanisms import GaussianMechanism
from privet.mechanisms.release_transcript import record_releases
from privet.methods.catalogue import method_names, method_type
from privet.methods.dpsgd import NetworkDPSGD
from privet.methods.moments import LocalRecords, OneShotMoments, RelevanceShapedTraining
from privet.methods.neighbour_replay import charge_problems, distance, replay, stream_problems
from privet.methods.train_method import make_plan, train
from privet.noise import secure, seeded
from tests.methods.crowd import neighbours_in_a_crowd

pytestmark = pytest.mark.filterwarnings("ignore::privet.data.records.UnprotectedDiagnostic")

SHAPED = RelevanceShapedTraining(trainer=NetworkDPSGD(steps=3))
METHODS = [OneShotMoments(), LocalRecords(), SHAPED]


def facts(**more) -> PublicFacts:
    told = {"records": 50, "features": 4, "outputs": 3, "epsilon": 2.0, "delta": 1e-5, **more}
    return PublicFacts(**{"shape": (4,), **told})


def blobs(n: int = 600) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    y = rng.integers(3, size=n)
    x = 0.3 + 0.4 * np.eye(3, 4)[y] + 0.1 * rng.normal(size=(n, 4))
    return x, np.array(["a", "b", "c"])[y]


def records(n: int = 600, **more) -> Records:
    x, y = blobs(n)
    return Records.with_classes(
        x, y, domain=Domain(shape=(4,), bounds=(0.0, 1.0)), classes=np.array(["a", "b", "c"]), **more
    )  # fmt: skip


def classifier(method, **more) -> PrivateClassifier:
    told = {"epsilon": 4.0, "bounds": (0, 1), "classes": ["a", "b", "c"], "random_state": 0}
    return PrivateClassifier(method, **{**told, **more})


@pytest.mark.parametrize("method", METHODS, ids=lambda m: m.name)
def test_named_in_the_catalogue(method) -> None:
    assert method.name in method_names() and method_type(method.name) is type(method)


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS, ids=lambda m: m.name)
def test_a_plan_needs_facts_alone_and_is_what_is_charged(method) -> None:
    plan = method.plan(records().facts(epsilon=2.0, delta=1e-5))
    found = train(method, records(), plan, rng=seeded(0))
    delta = plan.facts.delta
    paid = [entry.loss for entry in found.entries]
    total = privet.accounting.compose(paid, adjacency=plan.adjacency)
    assert total.epsilon(delta) == pytest.approx(plan.loss.epsilon(delta), rel=1e-9)
    assert found.guarantee.epsilon == pytest.approx(plan.loss.epsilon(delta), rel=1e-9)
    assert 0.98 * 2.0 < found.guarantee.epsilon <= 2.0
    assert found.claim is None and plan.summary()


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS, ids=lambda m: m.name)
@pytest.mark.parametrize("rng", [seeded(0), secure()], ids=["seeded", "secure"])
@pytest.mark.parametrize("n_public", [None, 600])
def test_premises_say_what_was_run_and_each_thing_once(method, rng, n_public) -> None:
    held = records(n_public=n_public)
    told = train(
        method, held, make_plan(method, held.facts(epsilon=2.0, delta=1e-5)), rng=rng
    ).guarantee
    about = [p.about for p in told.premises]
    assert len(about) == len(set(about))
    size = premises.counted_size(600) if n_public is None else premises.declared_size(600)
    assert {rng.premise, size, premises.DECLARED_CLASSES, premises.ONE_RECORD_EACH} <= set(
        told.premises
    )
    assert any(text.about.startswith("bound") for text in told.premises)
    if isinstance(method, LocalRecords):
        assert told.adjacency is Adjacency.REPLACE_ONE and told.delta == 0.0
    else:
        counted = n_public is None
        assert told.adjacency is (Adjacency.ZERO_OUT if counted else Adjacency.ADD_REMOVE)


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS, ids=lambda m: m.name)
def test_saved_and_loaded_predictions_are_the_same_bits(method, tmp_path) -> None:
    x, y = blobs()
    clf = classifier(method).fit(x, y)
    x[3] = np.nan
    run = privet.load(clf.save(tmp_path / "run"))
    assert np.array_equal(run.predict_proba(x), clf.predict_proba(x))
    assert np.array_equal(run.predict(x), clf.predict(x)) and run.guarantee == clf.guarantee_
    assert run.config["method"] == method.name


def test_components_are_kept_in_the_file(tmp_path) -> None:
    x, y = blobs()
    clf = classifier(OneShotMoments(components=3)).fit(x, y)
    run = privet.load(clf.save(tmp_path / "run"))
    assert clf.model_.weights.shape == (3, 3)
    assert np.array_equal(run.predict_proba(x), clf.predict_proba(x))


@pytest.mark.slow
def test_a_network_of_ones_own_is_brought_again(tmp_path) -> None:
    import torch
    from torch import nn

    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3))
    x, y = blobs()
    method = RelevanceShapedTraining(trainer=NetworkDPSGD(network=net, steps=3))
    clf = classifier(method).fit(x, y)
    folder = clf.save(tmp_path / "run")
    with pytest.raises(InvalidArgument, match="module"):
        privet.load(folder)
    again = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3))
    run = privet.load(folder, module=again)
    assert np.array_equal(run.predict_proba(x), clf.predict_proba(x))


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS, ids=lambda m: m.name)
def test_a_ledger_that_cannot_afford_it_is_not_charged(method) -> None:
    ledger = Ledger.in_memory(
        cap_epsilon=1.0,
        cap_delta=1e-5,
        adjacency=method.plan(facts(declared=False)).stated_adjacency,
    )
    plan = make_plan(method, records().facts(epsilon=2.0, delta=1e-5))
    with pytest.raises(BudgetExceeded):
        train(method, records(), plan, rng=seeded(0), ledger=ledger)
    assert not list(ledger.entries())


# Replay


def check_replay(method, plan, worst) -> list[float]:
    """No problem on these neighbours; how much of its sensitivity each release was moved by."""
    found = replay(method, plan, worst)
    assert found.problems() == []
    return [
        distance(a.mechanism, a.exact, b.exact) / a.sensitivity
        for a, b in zip(found.present.releases, found.absent.releases, strict=True)
    ]


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS, ids=lambda m: m.name)
def test_charges_come_first_and_noise_is_drawn_once(method) -> None:
    plan = make_plan(method, records().facts(epsilon=2.0, delta=1e-5))
    assert charge_problems(method, plan, records()) == []
    assert stream_problems(method, plan, records()) == []
    assert streams_drawn_once(lambda: train(method, records(), plan, rng=seeded(5))) is None


MOMENTS = [
    OneShotMoments(),
    OneShotMoments(exponent=0.0, components=3),
    OneShotMoments(adjacency=Adjacency.REPLACE_ONE),
    OneShotMoments(share=1.0),
]


@pytest.mark.slow
@pytest.mark.parametrize("method", MOMENTS)
@pytest.mark.parametrize("delta", [1e-5, 0.0])
@pytest.mark.parametrize("declared", [True, False])
@pytest.mark.parametrize("unit", [Unit.RECORD, Unit.USER])
def test_moments_on_their_worst_neighbours(method, delta, declared, unit) -> None:
    plan = method.plan(facts(delta=delta, declared=declared, unit=unit))
    worst = method.neighbours(plan)
    assert (
        len(worst.absent) < len(worst.present)
        or not declared
        or plan.adjacency is not (Adjacency.ADD_REMOVE)
    )
    parts = check_replay(method, plan, worst)
    if plan.adjacency is Adjacency.ADD_REMOVE:
        assert parts[0] > 0.9  # the pair is nearly as bad as can be
        assert plan.projected or len(parts) == 1 or parts[1] > 0.99


@pytest.mark.slow
@pytest.mark.parametrize("method", MOMENTS)
@pytest.mark.parametrize("delta", [1e-5, 0.0])
@pytest.mark.parametrize("declared", [True, False])
@pytest.mark.parametrize("users", [False, True])
def test_moments_on_an_outlier_in_a_crowd(method, delta, declared, users) -> None:
    """Divisors, ranges and shapes that come from the records show here."""
    worst = neighbours_in_a_crowd(method.adjacency, declared=declared, users=users)
    plan = method.plan(worst.present.facts(epsilon=2.0, delta=delta))
    check_replay(method, plan, worst)


def test_user_share_is_reached_and_not_passed() -> None:
    method = OneShotMoments(user_share=3.0)
    plan = method.plan(facts(unit=Unit.USER))
    parts = check_replay(method, plan, method.neighbours(plan))
    assert min(parts) > 0.9


@pytest.mark.parametrize("ratios", [None, (4.0, 1.0, 2.0, 1.0)])
def test_local_records_on_their_worst_neighbours(ratios) -> None:
    method = LocalRecords(ratios=ratios)
    plan = method.plan(facts())
    parts = check_replay(method, plan, method.neighbours(plan))
    assert parts[0] > 0.99 and parts[1] == 1.0
    crowd = neighbours_in_a_crowd(Adjacency.REPLACE_ONE, declared=True, n=49)
    check_replay(method, plan, crowd)


def test_a_null_record_answers_like_any_other_locally() -> None:
    """Its label is drawn by lot; always class 0 would say that it is null."""
    worst = neighbours_in_a_crowd(Adjacency.ADD_REMOVE, declared=False, n=400)
    nulls = worst.absent.null | (np.arange(401) < 400)
    rows = type(worst.absent.rows)(
        values=np.zeros_like(worst.absent.rows.values), kind=worst.absent.rows.kind, null=nulls
    )
    method = LocalRecords()
    plan = method.plan(facts(records=401, epsilon=100.0))
    with record_releases() as seen:
        null = replace(worst.absent, rows=rows, targets=np.full(401, -1))
        train(method, null, plan, rng=seeded(0))
    counts = np.bincount(seen.releases[-1].exact.astype(int), minlength=3)
    assert counts.min() > 90  # 134 each, five standard deviations


@pytest.mark.slow
@pytest.mark.parametrize("declared", [True, False])
@pytest.mark.parametrize("crowd", [False, True])
def test_the_shape_of_training_comes_from_its_release_alone(declared, crowd) -> None:
    plan = SHAPED.plan(facts(declared=declared))
    worst = SHAPED.neighbours(plan)
    if crowd:
        worst = neighbours_in_a_crowd(Adjacency.ADD_REMOVE, declared=declared, n=50)
        plan = SHAPED.plan(worst.present.facts(epsilon=2.0, delta=1e-5))
    check_replay(SHAPED, plan, worst)


@pytest.mark.slow
def test_all_gaussian_releases_together_cost_what_was_planned() -> None:
    """A release beside those that are priced would show as a larger mu."""
    plan = SHAPED.plan(facts(records=600))
    with record_releases() as made:
        train(SHAPED, records(), plan, rng=seeded(0))
    first = [r for r in made.releases if isinstance(r.mechanism, GaussianMechanism)]
    assert plan.relevance is not None
    mu = math.sqrt(sum((r.sensitivity / r.mechanism.scale) ** 2 for r in first))
    assert mu <= plan.relevance.loss.mu * (1 + 1e-9)


# Null records


def test_null_records_add_nothing_to_any_sum() -> None:
    """Rows that are not finite, or of no class: the exact sums are those without them."""
    x, y = blobs(60)
    domain, classes = Domain(shape=(4,), bounds=(0.0, 1.0)), np.array(["a", "b", "c"])
    method = OneShotMoments()
    plan = method.plan(facts(records=60))
    x[5], y[9] = np.nan, "z"
    y[7], x[7] = "z", np.inf
    with pytest.warns(UnprotectedDiagnostic):
        broken = Records.with_classes(x, y, domain=domain, classes=classes)
    good = ~broken.null
    assert good.sum() == 57
    with record_releases() as one:
        train(method, broken, plan, rng=seeded(0))
    with record_releases() as other:
        kept = Records.with_classes(x[good], y[good], domain=domain, classes=classes)
        train(method, kept, plan, rng=seeded(0))
    assert np.array_equal(one.releases[0].exact, other.releases[0].exact)
    assert np.array_equal(one.releases[1].exact, other.releases[1].exact)


def test_wrong_settings_say_what_is_wrong_in_one_line() -> None:
    for make, wrong in (
        (OneShotMoments, {"share": 0.0}),
        (OneShotMoments, {"adjacency": "zero-out"}),
        (OneShotMoments, {"adjacency": "x"}),
        (OneShotMoments, {"objective": "x"}),
        (OneShotMoments, {"ridge": -1}),
        (OneShotMoments, {"exponent": -1.0}),
        (OneShotMoments, {"components": 0}),
        (LocalRecords, {"label_share": 1.0}),
        (RelevanceShapedTraining, {"share": 0.0}),
        (RelevanceShapedTraining, {"share": 1.0}),
        (RelevanceShapedTraining, {"exponent": -1.0}),
        (RelevanceShapedTraining, {"radius": math.inf}),
    ):
        with pytest.raises(InvalidArgument) as error:
            make(**wrong)
        assert "\n" not in str(error.value)
    with pytest.raises(InvalidArgument, match="delta"):
        SHAPED.plan(facts(delta=0.0))
    for method in (LocalRecords(), SHAPED):
        with pytest.raises(InvalidArgument, match="groups"):
            classifier(method).fit(*blobs(30), groups=np.arange(30))
