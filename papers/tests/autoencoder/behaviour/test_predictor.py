"""dPAH: price, ledger, learning, layers, influence."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from privet import accounting as losses
from privet.data.records import PublicFacts
from privet.errors import BudgetExceeded, InvalidArgument
from privet.guarantee import Backing, Standing, Unit
from privet.ledger import Ledger
from privet.mechanisms.release_transcript import record_releases, replay_releases
from privet.noise import secure, seeded
from privet_papers.autoencoder.behaviour import (
    BehaviourPredictor,
    Examples,
    FriendshipInfluence,
    PropagationInfluence,
)
from privet_papers.autoencoder.behaviour.health_network import health_network
from privet_papers.autoencoder.behaviour.panel_data import Panel, rolling_folds
from privet_papers.autoencoder.behaviour.plan import PanelSizes, plan_behaviour
from privet_papers.autoencoder.behaviour.social_influence import tie_weights

Split = tuple[Examples, Examples]


def facts(**changes: object) -> tuple[PublicFacts, PanelSizes]:
    given: dict[str, object] = {
        "users": 254, "days": 236, "friends": 24, "attributes": 30, "events": 3, "lags": 3,
        "epsilon": 1.0,
    }  # fmt: skip
    report = given | changes
    epsilon = report.pop("epsilon")
    public = PublicFacts(records=254, features=30, outputs=2, epsilon=epsilon, delta=1e-5)  # type: ignore[arg-type]
    return public, PanelSizes(**report)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def panel() -> Panel:
    return health_network(users=150, days=60, seed=5).panel


@pytest.fixture(scope="module")
def split(panel: Panel) -> Split:
    fold = rolling_folds(panel, horizon=12, first=4)[0]
    return Examples.of(panel, fold.train), Examples.of(panel, fold.test)


@pytest.mark.parametrize("epsilon", [0.2, 1.0, 8.0])
@pytest.mark.parametrize("hidden", [(), (8,), (8, 8)])
@pytest.mark.parametrize("influence", [FriendshipInfluence(), PropagationInfluence()])
def test_all_releases_together_cost_the_budget(
    epsilon: float, hidden: tuple[int, ...], influence: FriendshipInfluence | PropagationInfluence
) -> None:
    plan = plan_behaviour(*facts(epsilon=epsilon), hidden=hidden, influence=influence)
    assert 0.999 * epsilon < plan.loss.epsilon(1e-5) <= epsilon
    # an independent sum: squares of mu = sensitivity over noise
    bare = [plan.output_moments(20).add_remove.l2 / plan.output.scale]
    bare += [1.0 / layer.scale for layer in plan.layers]
    if plan.influence is not None:
        bare.append(influence.sensitivity.l2 / plan.influence.scale)
    assert np.sqrt(np.square(bare).sum()) <= losses.gaussian_mu(epsilon, 1e-5)


def test_layers_are_learned_where_they_stand_out_of_the_noise() -> None:
    def hidden(**changes: object) -> tuple[int, ...]:
        return plan_behaviour(
            *facts(**changes), hidden=None, influence=FriendshipInfluence()
        ).hidden

    assert hidden() == ()
    assert hidden(per_user=False) == (8, 8)
    assert hidden(users=20_000) == (8, 8)


def test_guarantee_says_what_is_assumed(split: Split) -> None:
    model = BehaviourPredictor(random_state=0).fit(split[0])
    g = model.guarantee_
    assert g.unit is Unit.USER and g.standing is Standing.PROVED and g.epsilon <= 1.0
    assumed = [a.text for a in g.premises if a.backing is Backing.ASSUMED]
    assert any("graph" in text for text in assumed)
    record = BehaviourPredictor(random_state=0, unit="record").fit(split[0]).guarantee_
    assert record.unit is Unit.RECORD and any("one tuple" in a.text for a in record.premises)


@pytest.mark.parametrize("unit", ["user", "record"])
def test_premises_are_stated_once_and_say_what_was_run(split: Split, unit: str) -> None:
    plans = BehaviourPredictor(random_state=0, unit=unit).fit(split[0])
    secret = BehaviourPredictor(unit=unit).fit(split[0]).guarantee_
    for g, rng in ((plans.guarantee_, seeded(0)), (secret, secure())):
        about = [p.about for p in g.premises]
        assert len(about) == len(set(about)) and rng.premise in g.premises
        assert {"bound", "noise law", "people", "graph", "settings"} <= set(about)
    spent = plans.ledger_entry_.loss.epsilon(1e-5)
    assert spent == plans.plan_.loss.epsilon(1e-5) == plans.guarantee_.epsilon


@pytest.mark.slow
@pytest.mark.parametrize("hidden", [(), (4, 4)])
@pytest.mark.parametrize("influence", [FriendshipInfluence(), PropagationInfluence()])
def test_played_back_without_a_user_the_model_is_the_same(panel: Panel, hidden, influence) -> None:
    """Every release moves by at most what was said, and nothing else tells who was there."""
    fitted, made = [], []
    for k, p in enumerate((panel, panel.without(7))):
        model = BehaviourPredictor(random_state=k, hidden=hidden, influence=influence)
        with record_releases() if k == 0 else replay_releases(made[0]) as transcript:
            fitted.append(model.fit(Examples.of(p, range(4, 40))))
        made.append(transcript)
    for one, other in zip(made[0].releases, made[1].releases, strict=True):
        assert 0.0 < np.linalg.norm(one.exact - other.exact) <= one.sensitivity
    assert np.array_equal(fitted[0].model_.weights, fitted[1].model_.weights)
    for one, other in zip(fitted[0].model_.layers, fitted[1].model_.layers, strict=True):
        assert np.array_equal(one.weights, other.weights)


def test_noise_depends_on_public_facts_alone(panel: Panel) -> None:
    """Without the only user who has a status on the last days the plan is the same."""
    values = panel.values.copy()
    values[1:, 40:] = np.nan
    alone = replace(panel, values=values)
    plans = [
        BehaviourPredictor(random_state=0).fit(Examples.of(p, range(4, 60))).plan_
        for p in (alone, alone.without(0))
    ]
    assert plans[0] == plans[1]


def test_the_ledger_is_charged_first_and_can_refuse(split: Split) -> None:
    ledger = Ledger.in_memory(cap_epsilon=1.5, cap_delta=1e-5, unit=Unit.USER)
    model = BehaviourPredictor(epsilon=1.0, ledger=ledger, random_state=0).fit(split[0])
    assert model.ledger_entry_ is not None
    refused = BehaviourPredictor(epsilon=1.4, ledger=ledger, random_state=0)
    with pytest.raises(BudgetExceeded):
        refused.fit(split[0])
    assert "model_" not in vars(refused)
    wrong = Ledger.in_memory(cap_epsilon=9.0, cap_delta=1e-5)
    with pytest.raises(InvalidArgument, match="per user"):
        BehaviourPredictor(ledger=wrong).fit(split[0])


def test_it_learns_and_is_reproducible(split: Split) -> None:
    train, test = split
    plenty = BehaviourPredictor(epsilon=200.0, random_state=1).fit(train).score(test)
    assert plenty > 0.70
    one, two = (BehaviourPredictor(random_state=3).fit(train) for _ in range(2))
    assert np.array_equal(one.model_.weights, two.model_.weights)
    assert not np.array_equal(
        one.model_.weights, BehaviourPredictor(random_state=4).fit(train).model_.weights
    )
    assert not np.array_equal(
        BehaviourPredictor().fit(train).model_.weights,
        BehaviourPredictor().fit(train).model_.weights,
    )
    assert BehaviourPredictor(random_state=secure()).fit(train).score(test) > 0.4


def test_layers_and_probabilities(split: Split, panel: Panel) -> None:
    train, test = split
    model = BehaviourPredictor(epsilon=8.0, unit="record", hidden=(6, 4), random_state=0).fit(train)
    assert [layer.units for layer in model.model_.layers] == [6, 4]
    for layer in model.model_.layers:
        assert np.allclose(layer.weights.T @ layer.weights, np.eye(layer.units))
    p = model.predict_proba(test)
    assert ((p > 0.0) & (p < 1.0)).all() and model.score(test) > 0.68
    tomorrow = model.predict_tomorrow(panel)
    assert tomorrow.shape == (150,) and np.isfinite(tomorrow).all()


def test_influence_is_found_where_it_was_put() -> None:
    """Ties with three common friends or more were made ten times as strong."""
    made = health_network(users=254, days=120, seed=8)
    rows = Examples.of(made.panel, range(4, 120))
    found = PropagationInfluence()
    counts = found.counts(rows.activity, made.panel.edges)
    assert counts is not None
    theta = found.strengths(counts.value, 0.0)
    assert theta[2] == 1.0 and theta[0] < 0.8
    # with noise far above the counts nothing is believed: all ties alike
    assert (found.strengths(counts.value, 1e6) > 0.999).all()
    weights = tie_weights(made.panel.edges, 254, found.levels, theta)
    alike = tie_weights(made.panel.edges, 254, (), FriendshipInfluence().strengths(None, 0.0))
    pairs = made.influence > 0.0
    estimated, public = (
        np.corrcoef(w[pairs], made.influence[pairs])[0, 1] for w in (weights, alike)
    )
    assert estimated > 0.2 and estimated > public + 0.15


def test_a_model_serves_another_network(split: Split) -> None:
    model = BehaviourPredictor(epsilon=50.0, influence=PropagationInfluence(), random_state=0)
    other = health_network(users=40, days=30, seed=6).panel
    assert model.fit(split[0]).score(Examples.of(other, range(10, 30))) > 0.6


def test_influence_is_paid_for(split: Split) -> None:
    train, test = split
    model = BehaviourPredictor(epsilon=50.0, influence=PropagationInfluence(), random_state=0)
    assert model.fit(train).score(test) > 0.68
    assert model.plan_.influence is not None and model.guarantee_.epsilon <= 50.0


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ({"epsilon": 0.0}, "epsilon"),
        ({"delta": 0.0}, "delta"),
        ({"unit": "household"}, "unit"),
        ({"lags": 0}, "lags"),
        ({"hidden": (1, 2, 3)}, "hidden"),
    ],
)
def test_settings_that_are_refused(arguments: dict[str, object], word: str) -> None:
    with pytest.raises(InvalidArgument, match=word):
        BehaviourPredictor(**arguments)  # type: ignore[arg-type]


def test_examples_that_are_refused(split: Split, panel: Panel) -> None:
    with pytest.raises(InvalidArgument, match="lags"):
        BehaviourPredictor(lags=2).fit(split[0])
    with pytest.raises(InvalidArgument, match="statuses"):
        BehaviourPredictor().fit(Examples.tomorrow(panel))
    with pytest.raises(InvalidArgument, match="levels"):
        PropagationInfluence(levels=(3, 1))
