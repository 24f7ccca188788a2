"""Training on noisy inputs: what is charged, what training sees, and the estimator."""

from __future__ import annotations

import itertools
import math
from collections import Counter

import numpy as np
import pytest
from scipy import stats
from sklearn.base import clone

from privet.errors import BudgetExceeded, InvalidArgument
from privet.guarantee import Adjacency, Protects
from privet.ledger import Ledger
from privet.methods.base import PublicFacts
from privet.methods.residual import (
    Labels,
    NoisyInputs,
    ResidualPerturbationClassifier,
    Training,
)
from privet.methods.residual.noisy_inputs import fill_slots, noisy
from privet.nets.residual import DenseResidual
from privet.noise import seeded


def facts(records=200, features=5, epsilon=4.0):
    return PublicFacts(records=records, features=features, outputs=3, epsilon=epsilon, delta=1e-5)


def method(**kw):
    def build(f, seed):
        return DenseResidual(features=f.features, classes=f.outputs, width=8)

    return NoisyInputs(**{"radius": 2.0, "build": build, "training": Training(epochs=2), **kw})


@pytest.mark.parametrize("labels", list(Labels))
@pytest.mark.parametrize("redraw", [False, True])
@pytest.mark.parametrize("epsilon", [0.1, 4.0, 50.0])
def test_the_budget_is_met_and_nearly_spent(labels, redraw, epsilon):
    plan = method(labels=labels, redraw=redraw, members=3).plan(facts(epsilon=epsilon))
    spent = plan.loss.epsilon(1e-5)
    assert spent <= epsilon
    if labels is Labels.PUBLIC:
        assert spent == pytest.approx(epsilon, rel=1e-5)
    draws = 6 if redraw else 1
    assert plan.budget.draws == draws
    # rounding widens 2R = 4 by at most sqrt(5) 2^-26 pi, some 1.4e-6 of it at the smallest budget
    assert plan.budget.loss().mu == pytest.approx(
        2 * 2.0 * math.sqrt(draws) / plan.budget.input_noise, rel=4e-6
    )


def test_public_labels_protect_features_only():
    g = method(labels=Labels.PUBLIC).plan(facts()).guarantee
    assert g.protects is Protects.FEATURES and g.adjacency is Adjacency.REPLACE_ONE
    assert any("labels are public" in a.text for a in g.premises)
    whole = method().plan(facts()).guarantee
    assert whole.protects is Protects.RECORD and whole.adjacency is Adjacency.ADD_REMOVE


def test_inputs_are_really_clipped_and_noised():
    """Rows of length 1e6 and NaN: the noise that comes out is N(0, pi^2) around the clipped row.

    KS at level 1e-4.
    """
    plan = method().plan(facts(features=4))
    rows = np.tile([[3e6, 4e6, 0.0, 0.0]], (3000, 1))
    rows[0] = np.nan
    out = noisy(rows, plan.budget, seeded(1), adjacency=plan.adjacency)
    scale = plan.budget.input_noise
    assert np.isfinite(out).all()
    clipped = np.array([1.2, 1.6, 0.0, 0.0])
    assert stats.kstest(((out[1:] - clipped) / scale).ravel(), "norm").pvalue > 1e-4


def test_slots_hold_records_and_nulls():
    for slots in (8, 5):
        plan = method().plan(facts(records=slots, features=1))
        rows, labels = np.arange(1.0, 7.0)[:, None], np.zeros(6)
        filled, _, null = fill_slots(rows, labels, plan, seeded(0))
        assert filled.shape == (slots, 1)
        assert null.sum() == max(slots - 6, 0) and (filled[null] == 0.0).all()
        kept = np.sort(filled[~null].ravel())
        assert len(set(kept)) == min(slots, 6) and set(kept) <= set(rows.ravel())


def _arrangements(records, slots):
    """What `fill_slots` draws from uniformly: the first slots of every order, 0 a null record."""
    padded = [*records, *[0] * (slots - len(records))]
    return [order[:slots] for order in itertools.permutations(padded)]


@pytest.mark.parametrize("slots", [2, 3, 4, 5])
def test_removing_a_record_can_be_coupled_to_change_one_slot(slots):
    """The proof's coupling, by counting: orders with the record and without it are matched so that
    no pair differs in more than one slot, and both sides are uniform."""
    whole, less = [1, 2, 3, 4], [1, 2, 3]
    coupled = []
    for order in itertools.permutations([*whole, *[0] * (slots - 4)]):
        rest = list(order)
        where = rest.index(4)
        if len(order) > slots:  # too many records: the last one takes the place of the removed one
            last = rest.pop()
            if where < len(rest):
                rest[where] = last
            rest = rest[: max(slots, 3)]
        else:
            rest[where] = 0
        first, second = order[:slots], tuple(rest[:slots])
        assert sum(a != b for a, b in zip(first, second, strict=True)) <= 1
        coupled.append(second)
    found, wanted = Counter(coupled), Counter(_arrangements(less, slots))
    assert found.keys() == wanted.keys()
    assert len({found[k] / wanted[k] for k in found}) == 1


def test_slots_are_filled_in_random_order():
    """Each of 4 records is equally likely to be dropped from 3 slots: chi-square at 1e-4."""
    plan = method().plan(facts(records=3, features=1))
    rows = np.arange(1.0, 5.0)[:, None]
    dropped = [
        int(10 - fill_slots(rows, np.zeros(4), plan, seeded(s))[0].sum()) for s in range(400)
    ]
    assert stats.chisquare(np.bincount(dropped, minlength=5)[1:]).pvalue > 1e-4


def test_labels_answer_by_randomised_response():
    """The rate of true answers is that of the plan within 5 standard errors."""
    from privet.methods.residual.noisy_inputs import _with_answers

    plan = method().plan(facts(records=20_000, features=1, epsilon=5.0))
    rows = np.arange(20_000.0)[:, None]
    y = np.arange(20_000) % 3
    filled, said = _with_answers(rows, y, plan, seeded(4))
    truth = plan.answers.truth
    rate = np.mean(said == y[filled.ravel().astype(int)])
    assert abs(rate - truth) < 5 * math.sqrt(truth * (1 - truth) / 20_000)


def clouds(n=400, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, n)
    x = 0.5 + 0.25 * (2 * y[:, None] - 1) * np.array([1.0, -1.0]) + 0.08 * rng.normal(size=(n, 2))
    return x, np.where(y == 1, "yes", "no")


def classifier(**kw):
    settings = {"bounds": (0.0, 1.0), "classes": ["no", "yes"], "epochs": 5, "random_state": 0}
    return ResidualPerturbationClassifier(**{**settings, **kw})


def test_members_share_one_noisy_copy_when_sound():
    x, y = clouds()
    one, three = (classifier(members=k).fit(x, y) for k in (1, 3))
    assert one.guarantee_ == three.guarantee_
    assert len(three.model_.members) == 3


def test_pictures_go_through_a_resnet():
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 255, size=(40, 8, 8, 3)), rng.integers(0, 2, 40)
    clf = ResidualPerturbationClassifier(
        bounds=(0, 255), shape=(8, 8, 3), classes=[0, 1], epochs=1, random_state=0
    ).fit(x, y)
    assert clf.predict_proba(x).shape == (40, 2)


def test_a_ledger_that_refuses_stops_it():
    x, y = clouds()
    ledger = Ledger.in_memory(cap_epsilon=1.0, cap_delta=1e-5)
    clf = classifier(ledger=ledger)
    with pytest.raises(BudgetExceeded):
        clf.fit(x, y)
    assert len(ledger) == 0


@pytest.mark.parametrize(
    ("bad", "match"),
    [
        ({"bounds": None}, "bounds"),
        ({"bounds": (1.0, 0.0)}, "low below its high"),
        ({"reading": "both"}, "sound, published"),
        ({"labels": "secret"}, "randomised, public"),
        ({"members": 0}, "members"),
        ({"radius": -1.0}, "radius"),
        ({"shape": (2,)}, "height, width"),
        ({"classes": ["yes"]}, "at least two"),
    ],
)
def test_wrong_settings_are_told_in_one_line(bad, match):
    x, y = clouds(50)
    with pytest.raises(InvalidArgument, match=match) as caught:
        classifier(**bad).fit(x, y)
    assert "\n" not in str(caught.value)


def test_clones():
    assert clone(classifier(members=3)).members == 3


@pytest.mark.slow
def test_passes_scikit_learns_own_checks():
    from sklearn.utils.estimator_checks import check_estimator

    known = {}
    report = check_estimator(
        ResidualPerturbationClassifier(bounds=(-100.0, 100.0), epochs=2, random_state=0),
        on_fail=None,
        on_skip=None,
        expected_failed_checks=known,
    )
    failed = [r["check_name"] for r in report if r["status"] == "failed"]
    assert not failed
