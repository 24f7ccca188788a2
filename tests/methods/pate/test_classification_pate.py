"""PATE for classes as methods: plan, charge, premises, replay, runs, and whose records go where."""

from __future__ import annotations

import dataclasses
import math
import warnings

import numpy as np
import pytest
from scipy import stats
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeClassifier

import privet
from privet import PATEClassifier, PrivateClassifier, premises
from privet.data.domain import Domain
from privet.data.records import PublicFacts, Records
from privet.errors import BudgetExceeded, InvalidArgument
from privet.guarantee import Adjacency, Unit
from privet.mechanisms.release_transcript import record_releases
from privet.methods.pate import MeanPATE, TeacherFailed, VotingPATE, shard_ledger
from privet.methods.pate.teachers import deal_shards
from privet.methods.train_method import train
from privet.networks.architectures import SmallMLP
from privet.noise import seeded
from tests.methods import replaying

DOMAIN = Domain(shape=(2,), bounds=(0.0, 1.0))
WAYS = {
    "mean": MeanPATE,
    "votes": VotingPATE,
    "confident": lambda **kw: VotingPATE(answers=12, threshold=0.01, **kw),
}
every_way = pytest.mark.parametrize("way", WAYS)


def table(n=600, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.uniform(size=(n, 2))
    return x, (x[:, 0] > x[:, 1]).astype(int)


def facts(n=200, **changes):
    settings = {"records": n, "features": 2, "outputs": 3, "epsilon": 3.0, "delta": 1e-5}
    return PublicFacts(**{**settings, "shape": (2,), **changes})


def method(way, **changes):
    settings = {"public_inputs": table(30, seed=9)[0], "teachers": 20, **changes}
    return WAYS[way](**settings).for_domain(DOMAIN)


def classifier(way, **changes):
    settings = {"epsilon": 6.0, "classes": ["no", "yes"], "bounds": (0, 1), "random_state": 0}
    kept = {"public_inputs": table(40, seed=9)[0], "teachers": 10}
    kept |= {k: changes.pop(k) for k in ("teachers", "student", "teacher") if k in changes}
    return PrivateClassifier(WAYS[way](**kept), **{**settings, **changes})


def named(y):
    return np.where(np.asarray(y) == 1, "yes", "no")


@every_way
def test_the_plan_needs_public_facts_alone_and_spends_the_budget(way):
    plan = method(way, teachers=None).plan(facts())
    assert plan.teachers == 25 and plan.unit is Unit.SHARD
    assert plan.stated_adjacency is Adjacency.REPLACE_ONE
    assert plan.loss.epsilon(1e-5) == pytest.approx(3.0, rel=1e-6) and plan.loss.epsilon(1e-5) <= 3
    assert plan.signal.units == 25 and plan.signal.what == "teachers"


@pytest.mark.parametrize(("n", "teachers"), [(6, 6), (50, 10), (200, 25), (2500, 312)])
def test_teachers_by_rule(n, teachers):
    assert method("mean", teachers=None).plan(facts(n)).teachers == teachers


@pytest.mark.slow
@every_way
def test_what_is_charged_is_what_was_planned(way):
    x, y = table()
    ledger = shard_ledger(epsilon=6.0, delta=1e-5)
    made = classifier(way, ledger=ledger).fit(x, named(y))
    assert [e.loss for e in ledger.entries()] == [made.plan_.loss]
    assert ledger.spent() == pytest.approx(made.guarantee_.epsilon, rel=1e-9)
    with pytest.raises(BudgetExceeded):
        classifier(way, ledger=ledger).fit(x, named(y))
    assert len(ledger) == 1


@pytest.mark.slow
@pytest.mark.parametrize("way", ["mean", "votes"])
def test_students_learn(way):
    x, y = table()
    assert classifier(way, teachers=40).fit(x, named(y)).score(x, named(y)) > 0.8


@pytest.mark.slow
@every_way
@pytest.mark.parametrize("seed", [0, None])
def test_premises_are_stated_once_and_are_those_of_the_run(way, seed):
    x, y = table(100)
    stated = classifier(way, random_state=seed).fit(x, named(y)).guarantee_.premises
    assert len({p.about for p in stated}) == len(stated)
    assert {premises.PUBLIC_QUESTIONS, premises.DISJOINT_SHARDS} <= set(stated)
    assert (premises.SECRET_SEED in stated) == (seed is not None)
    assert (premises.DRAWN_KEY in stated) == (seed is None)
    assert premises.DECLARED_CLASSES in stated and premises.counted_size(100) in stated


@pytest.mark.slow
@every_way
def test_releases_are_replayed_on_a_flipped_shard(way):
    """Within the sensitivity, paid for, and nothing but the releases reaches the student."""
    chosen = method(way)
    plan = chosen.plan(facts())
    found = replaying.check(chosen, plan)
    rows = len(found.present.releases[-1].exact.reshape(-1, 3))
    assert replaying.moved(found, -1) == pytest.approx(math.sqrt(2 * rows), rel=1e-6)


@every_way
def test_users_with_groups_are_replayed_too(way):
    chosen = method(way)
    replaying.check(chosen, chosen.plan(facts(unit=Unit.USER)))


def test_a_price_for_the_answers_given_would_be_seen():
    """A confident vote that answers nothing is charged like one that answers all it may."""
    shy = dataclasses.replace(method("confident"), threshold=0.999)
    plan = shy.plan(facts(epsilon=0.5))
    with record_releases() as seen:
        done = train(shy, shy.neighbours(plan).present, plan, rng=seeded(0))
    assert len(seen.releases) < 2 or len(seen.releases[1].exact) < 12
    assert [e.loss for e in done.entries] == [plan.loss] and plan.aggregation.answers == 12


@every_way
def test_noise_is_of_the_planned_scale_in_every_coordinate(way):
    chosen = method(way)
    plan = chosen.plan(facts())
    with record_releases() as seen:
        train(chosen, chosen.neighbours(plan).present, plan, rng=seeded(0))
    for r in seen.releases:
        z = ((r.noisy - r.exact) / r.mechanism.scale).ravel()
        assert stats.kstest(z, "norm").pvalue > 1e-5
        assert len(np.unique(z)) == len(z)


@pytest.mark.slow
@every_way
def test_runs_are_loaded_bit_for_bit(way, tmp_path):
    x, y = table(300)
    made = classifier(way).fit(x, named(y))
    made.save(tmp_path / "run")
    run = privet.load(tmp_path / "run")
    assert np.array_equal(run.predict_proba(x), made.predict_proba(x))
    assert np.array_equal(run.predict(x), made.predict(x))
    assert run.guarantee == made.guarantee_ and run.method == made.method.name
    assert run.config["settings"]["teachers"] == 10 and "teacher" not in run.config["settings"]


def test_torch_students_are_loaded_bit_for_bit(tmp_path):
    x, y = table(300)
    student = SmallMLP(features=2, classes=2, hidden=4)
    made = classifier("mean", student=student).fit(x, named(y))
    made.save(tmp_path / "run")
    assert np.array_equal(privet.load(tmp_path / "run").predict_proba(x), made.predict_proba(x))


def test_other_students_answer_but_are_not_saved(tmp_path):
    x, y = table(400)
    made = classifier("votes", student=DecisionTreeClassifier(max_depth=3)).fit(x, named(y))
    assert made.score(x, named(y)) > 0.6
    with pytest.raises(InvalidArgument, match="no other student can be saved"):
        made.save(tmp_path / "run")
    assert not (tmp_path / "run" / "guarantee.json").exists()


@pytest.mark.parametrize("classes", [2, 4])
def test_a_linear_student_is_its_logistic_regression(classes):
    """Coefficients say what scikit-learn says, also when a class has no label."""
    from privet.methods.pate.learner_adapters import as_learner
    from privet.methods.pate.students import train_student

    rng = np.random.default_rng(0)
    x = rng.uniform(size=(60, 2))
    labels = rng.integers(0, max(2, classes - 1), 60)  # the last of four is never seen
    rows = DOMAIN.rows(x)
    inputs = rows.box().astype(np.float64)
    learner = as_learner(LogisticRegression(), classes=classes)
    p = learner.train(inputs, labels, seed=0)(inputs)
    z = train_student(learner, inputs, labels).outputs(rows)
    own = np.exp(z - z.max(axis=1, keepdims=True))
    assert np.allclose(own / own.sum(axis=1, keepdims=True), p, atol=1e-12)


def quoting(x, y, seed):
    """A teacher that quotes its records in a warning, and then fails with another."""
    warnings.warn(f"record {x[0]}", UserWarning, stacklevel=1)
    if seed == 3:
        raise ValueError(f"cannot fit {x[0]}")
    return lambda new: np.full((len(new), 2), 0.5)


@every_way
def test_what_a_teacher_says_about_its_records_stays_with_it(way):
    x, y = table(100)
    made = classifier(way, teacher=quoting)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(TeacherFailed) as failed:
            made.fit(x, named(y))
    assert failed.value.failures == {"teacher 3": "ValueError"}
    assert "0." not in str(failed.value)
    assert failed.value.__cause__ is None and failed.value.__context__ is None


def test_null_records_keep_their_place_and_are_left_out():
    x, y = table(10)
    x[4] = np.nan
    with pytest.warns(UserWarning, match="count for nothing"):
        records = Records.with_classes(
            x, np.where(np.arange(10) == 7, 9, y), domain=DOMAIN, classes=[0, 1]
        )
    shards = deal_shards(records, 5)
    assert [len(rows) for rows, _ in shards] == [2, 2, 1, 2, 1]
    for k, (rows, labels) in enumerate(shards):
        own = [i for i in (k, k + 5) if i not in (4, 7)]
        assert np.allclose(rows, x[own], atol=1e-6) and np.array_equal(labels, y[own])


def test_groups_share_a_teacher():
    x, y = table(60)
    hospital = np.random.default_rng(0).integers(0, 12, 60)
    records = Records.with_classes(x, y, domain=DOMAIN, classes=[0, 1], groups=hospital)
    for k, (rows, _) in enumerate(deal_shards(records, 4)):
        assert len(rows) == (hospital % 4 == k).sum()
    with pytest.raises(InvalidArgument, match="at most 12"):
        deal_shards(records, 13)
    made = classifier("mean", teachers=12).fit(x, named(y), groups=hospital)
    assert made.guarantee_.unit is Unit.SHARD
    assert premises.one_group_each("groups") in made.guarantee_.premises


@pytest.mark.parametrize(
    ("bad", "match"),
    [
        ({"public_inputs": None}, "public_inputs"),
        ({"public_inputs": np.zeros((0, 2))}, "public_inputs"),
        ({"public_inputs": np.zeros((5, 3))}, "records of shape"),
        ({"teachers": 0}, "teachers"),
        ({"teachers": 101}, "at most 100"),
        ({"queries": 41}, "at most 40"),
        ({"bounds": None}, "bounds"),
    ],
)
def test_what_is_wrong_is_told_in_one_line(bad, match):
    x, y = table(100)
    settings = {"public_inputs": table(40)[0], "classes": [0, 1], "bounds": (0, 1), **bad}
    with pytest.raises(InvalidArgument, match=match) as told:
        PATEClassifier(**settings, random_state=0).fit(x, y)
    assert "\n" not in str(told.value)


@pytest.mark.slow
def test_public_inputs_go_through_the_map_of_the_records():
    """In thousands, or in units: the same student."""
    x, y = table(400)
    public = table(40, seed=9)[0]
    settings = {"classes": [0, 1], "random_state": 0, "epsilon": 6.0}
    one = PATEClassifier(public_inputs=public, bounds=(0, 1), **settings).fit(x, y)
    other = PATEClassifier(public_inputs=1024 * public, bounds=(0, 1024), **settings)
    assert np.array_equal(other.fit(1024 * x, y).predict_proba(1024 * x), one.predict_proba(x))


@pytest.mark.slow
def test_means_of_probabilities_find_the_rare_class():
    """Teachers of 40 records answer near the shares of the classes: all was the frequent one."""
    rng = np.random.default_rng(0)
    y = (rng.random(4500) < 0.74).astype(int)
    x = 0.6 * rng.normal(size=(4500, 30)) + 0.5 * (y[:, None] - 0.5) * (np.arange(30) < 15)
    train, asked, test = slice(0, 3600), slice(3600, 3900), slice(3900, 4500)
    clf = PATEClassifier(
        public_inputs=x[asked], epsilon=4.0, classes=[0, 1], bounds=(-3, 3), random_state=0
    ).fit(x[train], y[train])
    said = clf.predict(x[test])
    recalls = [(said[y[test] == k] == k).mean() for k in (0, 1)]
    assert min(recalls) > 0.4 and sum(recalls) / 2 > 0.75, recalls  # [0, 1] before


def test_labels_of_noise_alone_leave_the_student_as_it_is():
    from sklearn.linear_model import LogisticRegression

    from privet.methods.pate.learner_adapters import as_learner
    from privet.methods.pate.students import train_student, train_student_matching_shares

    rng = np.random.default_rng(1)
    x, noise = rng.normal(size=(200, 5)), 0.2 * rng.normal(size=(200, 1))
    labels = np.hstack([0.3 + noise, 0.7 - noise])  # noise, whatever x is
    learner = as_learner(LogisticRegression(), classes=2)
    plain, found = (
        train_student(learner, x, labels),
        train_student_matching_shares(learner, x, labels),
    )
    np.testing.assert_array_equal(found.intercept, plain.intercept)
    labels += 0.1 * np.sign(x[:, :1]) * np.array([[1.0, -1.0]])  # and now there is something
    plain, found = (
        train_student(learner, x, labels),
        train_student_matching_shares(learner, x, labels),
    )
    share = (x @ found.weights + found.intercept).argmax(axis=1).mean()
    assert (
        abs(share - 0.7) < 0.06 < 0.2 < (x @ plain.weights + plain.intercept).argmax(axis=1).mean()
    )
