"""Training on noisy inputs: what is charged, what training sees, replay, and runs."""

from __future__ import annotations

import dataclasses
import itertools
import math
import warnings
from collections import Counter

import numpy as np
import pytest
from scipy import stats
from sklearn.base import clone

import privet
from privet import ResidualPerturbationClassifier, premises
from privet.data.domain import Domain, RowKind, Rows
from privet.data.records import PublicFacts, Records
from privet.errors import BudgetExceeded, InvalidArgument
from privet.guarantee import Adjacency, Protects
from privet.ledger import Ledger
from privet.mechanisms.release_transcript import record_releases
from privet.methods.neighbouring_pairs import lone_record_pair
from privet.methods.noisy_inputs import LabelPrivacy, NoisyInputs
from privet.methods.noisy_inputs.noisy_inputs import PUBLIC_LABELS
from privet.methods.noisy_inputs.public_slots import fill_slots, noisy_rows, randomised_labels
from privet.methods.train_method import train
from privet.noise import seeded
from tests.methods import replaying


def facts(records=200, features=5, epsilon=4.0, **changes):
    settings = {"outputs": 3, "delta": 1e-5, "shape": (features,), **changes}
    return PublicFacts(records=records, features=features, epsilon=epsilon, **settings)


def method(**changes):
    return NoisyInputs(**{"radius": 2.0, "epochs": 2, **changes})


def records_of(rows, targets=None, null=None, outputs=3):
    """Rows of a ball, which are shown as they are."""
    rows = np.asarray(rows, dtype=np.float32)
    null = np.zeros(len(rows), dtype=bool) if null is None else null
    targets = np.zeros(len(rows), dtype=np.int64) if targets is None else targets
    return Records(
        rows=Rows(values=rows, kind=RowKind.BALL, null=null), targets=targets, outputs=outputs
    )


@pytest.mark.slow
@pytest.mark.parametrize("labels", list(LabelPrivacy))
@pytest.mark.parametrize("redraw", [False, True])
@pytest.mark.parametrize("epsilon", [0.1, 4.0, 50.0])
@pytest.mark.parametrize("declared", [False, True])
def test_the_budget_is_met_and_nearly_spent(labels, redraw, epsilon, declared):
    plan = method(labels=labels, redraw=redraw, members=3).plan(
        facts(epsilon=epsilon, declared=declared)
    )
    spent = plan.loss.epsilon(1e-5)
    assert spent <= epsilon
    if labels is LabelPrivacy.PUBLIC:
        assert spent == pytest.approx(epsilon, rel=1e-5)
    draws = 6 if redraw else 1
    assert plan.cost.draws == draws
    radii = 1 if labels is LabelPrivacy.RANDOMISED and not declared else 2
    # rounding widens the radii by at most sqrt(5) 2^-26 pi, some 3e-6 of them at the least budget
    assert plan.cost.loss().mu == pytest.approx(
        radii * 2.0 * math.sqrt(draws) / plan.cost.input_noise, rel=8e-6
    )


@pytest.mark.slow
def test_the_radius_is_that_of_the_rows_unless_told():
    loose = NoisyInputs()
    assert loose.plan(facts(features=9)).cost.radius == 3.0
    assert loose.plan(facts(features=9, kind=RowKind.BALL)).cost.radius == 1.0
    assert loose.plan(facts()).signal.growth == 0.5


@pytest.mark.slow
@pytest.mark.parametrize("declared", [False, True])
def test_who_is_protected_and_from_whom(declared):
    public = method(labels=LabelPrivacy.PUBLIC).plan(facts(declared=declared))
    assert public.protects is Protects.FEATURES and public.stated_adjacency is Adjacency.REPLACE_ONE
    assert PUBLIC_LABELS in public.premises
    whole = method().plan(facts(declared=declared))
    assert whole.protects is Protects.RECORD
    assert whole.stated_adjacency is (Adjacency.ADD_REMOVE if declared else Adjacency.ZERO_OUT)
    assert (premises.slots(200) in whole.premises) == declared


@pytest.mark.slow
@pytest.mark.parametrize("kind", list(RowKind))
@pytest.mark.parametrize("declared", [False, True])
@pytest.mark.parametrize("changes", [{}, {"labels": "public"}, {"redraw": True, "members": 2}])
def test_releases_are_replayed_on_neighbours(kind, declared, changes):
    """Within the sensitivity, paid for at the number that is drawn, and the same model after."""
    chosen = method(radius=None, epochs=3, **changes)
    plan = chosen.plan(facts(records=12, kind=kind, declared=declared))
    found = replaying.check(chosen, plan)
    labels = 0 if plan.answers is None else 1
    assert len(found.present.releases) == labels + plan.cost.draws
    # as far as the plan says: the whole price where a neighbour is one that is taken out
    far = plan.cost.radius * (2.0 if plan.answers is None else 1.0)
    if kind is RowKind.BOX:
        assert replaying.moved(found, -1) == pytest.approx(far, rel=1e-5)


@pytest.mark.slow
def test_answers_of_null_slots_are_drawn_from_all_classes_alike():
    """Nobody's records: chi-square at level 1e-6. A class that nulls prefer would count them."""
    chosen = method(epochs=1)
    plan = chosen.plan(facts(records=3000, features=1))
    with record_releases() as seen:
        train(
            chosen, lone_record_pair(plan.facts, kind=plan.facts.kind).absent, plan, rng=seeded(1)
        )
    said = seen.releases[0].noisy
    assert said.shape == (3000,) and (seen.releases[0].exact == -1).all()
    assert stats.chisquare(np.bincount(said, minlength=3)).pvalue > 1e-6


def test_null_records_are_null_slots():
    null = np.arange(6) % 2 == 0
    rows = np.where(null[:, None], 0.0, np.arange(1.0, 7.0)[:, None] / 10)
    plan = method().plan(facts(records=8, features=1))
    filled, known, empty = fill_slots(
        records_of(rows, np.where(null, -1, 2), null), plan, seeded(0)
    )
    assert empty.sum() == 5 and (filled[empty] == 0.0).all() and (known[empty] == -1).all()
    assert (known[~empty] == 2).all() and np.allclose(np.sort(filled[~empty, 0]), [0.2, 0.4, 0.6])


def test_inputs_are_really_clipped_and_noised():
    """Rows of length 1e6 and NaN: the noise that comes out is N(0, pi^2) around the clipped row.

    KS at level 1e-4.
    """
    plan = method().plan(facts(features=4))
    rows = np.tile([[3e6, 4e6, 0.0, 0.0]], (3000, 1))
    rows[0] = np.nan
    out = noisy_rows(rows, plan.cost, seeded(1), adjacency=plan.adjacency)
    scale = plan.cost.input_noise
    assert np.isfinite(out).all()
    clipped = np.array([1.2, 1.6, 0.0, 0.0])
    assert stats.kstest(((out[1:] - clipped) / scale).ravel(), "norm").pvalue > 1e-4
    assert len(np.unique(out)) > 0.99 * out.size  # every block has noise of its own


def test_slots_hold_records_and_nulls():
    for slots in (8, 5):
        plan = method().plan(facts(records=slots, features=1))
        rows = np.arange(1.0, 7.0)[:, None] / 10
        filled, _, null = fill_slots(records_of(rows), plan, seeded(0))
        assert filled.shape == (slots, 1)
        assert null.sum() == max(slots - 6, 0) and (filled[null] == 0.0).all()
        kept = np.sort(filled[~null].ravel())
        assert len(set(kept)) == min(slots, 6) and set(kept) <= set(rows.ravel().astype(np.float32))


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
    records = records_of(np.arange(1.0, 5.0)[:, None] / 8)
    dropped = [
        round(10 - 8 * float(fill_slots(records, plan, seeded(s))[0].sum())) for s in range(400)
    ]
    assert stats.chisquare(np.bincount(dropped, minlength=5)[1:]).pvalue > 1e-4


def test_labels_answer_by_randomised_response():
    """The rate of true answers is that of the plan within 5 standard errors."""
    plan = method().plan(facts(records=20_000, features=1, epsilon=5.0))
    y = np.arange(20_000) % 3
    said = randomised_labels(y, np.zeros(20_000, dtype=bool), plan, seeded(4))
    truth = plan.answers.truth
    assert abs(np.mean(said == y) - truth) < 5 * math.sqrt(truth * (1 - truth) / 20_000)


def clouds(n=400, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, n)
    x = 0.5 + 0.25 * (2 * y[:, None] - 1) * np.array([1.0, -1.0]) + 0.08 * rng.normal(size=(n, 2))
    return x, np.where(y == 1, "yes", "no")


def classifier(**changes):
    settings = {"bounds": (0.0, 1.0), "classes": ["no", "yes"], "epochs": 3, "random_state": 0}
    return ResidualPerturbationClassifier(**{"epsilon": 8.0, **settings, **changes})


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, None])
@pytest.mark.parametrize("n_public", [100, None])
@pytest.mark.parametrize("labels", list(LabelPrivacy))
def test_premises_are_stated_once_and_are_those_of_the_run(seed, n_public, labels):
    x, y = clouds(100)
    made = classifier(random_state=seed, n_public=n_public, labels=labels, epochs=1).fit(x, y)
    stated = made.guarantee_.premises
    assert len({p.about for p in stated}) == len(stated)
    assert (premises.SECRET_SEED in stated) == (seed is not None)
    assert (PUBLIC_LABELS in stated) == (labels is LabelPrivacy.PUBLIC)
    sized = [p for p in stated if p.about == "number of records"]
    assert len(sized) == 1 and "100" in sized[0].text


@pytest.mark.slow
def test_what_is_charged_is_what_was_planned():
    x, y = clouds()
    ledger = Ledger.in_memory(cap_epsilon=8.0, cap_delta=1e-5, adjacency=Adjacency.ADD_REMOVE)
    made = classifier(ledger=ledger, n_public=400).fit(x, y)
    assert [e.loss for e in ledger.entries()] == [made.plan_.loss]
    assert made.score(x, y) > 0.9
    with pytest.raises(InvalidArgument, match="n_public"):
        classifier(ledger=ledger).fit(x, y)  # zero-out is not what the ledger promises


def test_members_share_one_noisy_copy():
    x, y = clouds()
    one, three = (classifier(members=k).fit(x, y) for k in (1, 3))
    assert one.guarantee_ == three.guarantee_
    assert len(three.model_.members) == 3


@pytest.mark.slow
@pytest.mark.parametrize("changes", [{}, {"members": 2, "gamma": 0.3, "noise_draws": 2}])
def test_runs_are_loaded_bit_for_bit(changes, tmp_path):
    x, y = clouds()
    made = classifier(**changes).fit(x, y)
    made.save(tmp_path / "run")
    run = privet.load(tmp_path / "run")
    assert np.array_equal(run.predict_proba(x), made.predict_proba(x))
    assert run.guarantee == made.guarantee_ and run.config["settings"]["labels"] == "randomised"


@pytest.mark.slow
@pytest.mark.parametrize("flat", [False, True])
def test_pictures_go_through_a_resnet(flat, tmp_path):
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 255, size=(40, 8, 8, 3)), rng.integers(0, 2, 40)
    x = x.reshape(40, -1) if flat else x
    made = ResidualPerturbationClassifier(
        bounds=(0, 255), classes=[0, 1], epochs=1, random_state=0,
        shape=(8, 8, 3) if flat else None,
    ).fit(x, y)  # fmt: skip
    assert made.predict_proba(x).shape == (40, 2)
    made.save(tmp_path / "run")
    run = privet.load(tmp_path / "run")
    assert type(run.model.members[0]).__name__ == "PictureResNet"
    assert np.array_equal(run.predict_proba(x), made.predict_proba(x))


def test_a_ledger_that_refuses_stops_it():
    x, y = clouds()
    ledger = Ledger.in_memory(cap_epsilon=1.0, cap_delta=1e-5)
    with pytest.raises(BudgetExceeded):
        classifier(ledger=ledger, n_public=400).fit(x, y)
    assert len(ledger) == 0


@pytest.mark.parametrize(
    ("bad", "match"),
    [
        ({"bounds": None}, "bounds"),
        ({"bounds": (1.0, 0.0)}, "low below its high"),
        ({"labels": "secret"}, "randomised, public"),
        ({"members": 0}, "members"),
        ({"radius": -1.0}, "radius"),
        ({"shape": (2,)}, "height, width"),
        ({"label_share": 1.0}, "label_share"),
        ({"classes": ["yes"]}, "at least two"),
    ],
)
def test_wrong_settings_are_told_in_one_line(bad, match):
    x, y = clouds(50)
    with pytest.raises(InvalidArgument, match=match) as caught:
        classifier(**bad).fit(x, y)
    assert "\n" not in str(caught.value)


def test_clones_and_copies():
    assert clone(classifier(members=3)).members == 3
    assert dataclasses.replace(method(labels="public"), epochs=1).labels is LabelPrivacy.PUBLIC


@pytest.mark.slow
def test_bad_records_are_null_and_move_no_other():
    """A row or label gone bad changes its own slot alone: the other noisy rows stay as they are."""
    domain = Domain(shape=(2,), bounds=(0.0, 1.0))
    x, y = clouds(30)
    chosen = NoisyInputs(epochs=1)
    seen = []
    for bad in (False, True):
        x[4] = np.nan if bad else x[4]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # tells the owner of the data
            records = Records.with_classes(x, y, domain=domain, classes=["no", "yes"])
        plan = chosen.plan(records.facts(epsilon=4.0, delta=1e-5))
        with record_releases() as found:
            train(chosen, records, plan, rng=seeded(0))
        seen.append(found.releases[1].noisy)
    assert (seen[0] != seen[1]).any(axis=1).sum() == 1


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
