"""Users come and go: every released moment moves by no more than was declared."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from privet.data.records import PublicFacts
from privet.sensitivity import user_weights
from privet_papers.autoencoder.behaviour.examples import Examples
from privet_papers.autoencoder.behaviour.panel_data import Panel
from privet_papers.autoencoder.behaviour.plan import CROSS, SECOND, PanelSizes, plan_behaviour
from privet_papers.autoencoder.behaviour.released_layers import BehaviourLayer, own_rows
from privet_papers.autoencoder.behaviour.sensitivity import RowShape
from privet_papers.autoencoder.behaviour.social_influence import (
    FriendshipInfluence,
    PropagationInfluence,
    friend_weights,
    largest_degree,
)

USERS, DAYS = 9, 12


def random_panel(seed: int, *, star: bool = False, extreme: bool = False) -> Panel:
    rng = np.random.default_rng(seed)
    values = rng.random((USERS, DAYS, 3))
    if extreme:
        values = (values > 0.5).astype(float)
    values[rng.random((USERS, DAYS)) < 0.15] = np.nan
    edges = rng.integers(0, USERS, (14, 2))
    if star:
        edges = np.column_stack([np.zeros(USERS - 1, dtype=int), np.arange(1, USERS)])
    return Panel(
        name="random", about="", attributes=("a", "b", "c"), target="b", events=("c",), low=0.0,
        high=1.0, users=tuple(map(str, range(USERS))), edges=edges, values=values, season=7,
    )  # fmt: skip


def packed(panel: Panel, weights: Any = None) -> tuple[Any, Any, float]:
    """The output layer's packed moments, the second moments of layer 1, and what is declared."""
    rows = Examples.of(panel, range(4, DAYS), lags=3)
    facts = PublicFacts(records=len(panel.users), features=3, outputs=2, epsilon=1.0, delta=1e-5)
    sizes = PanelSizes(
        users=len(panel.users), days=DAYS - 4, friends=largest_degree(panel.edges), attributes=3,
        events=1,
        lags=3,
    )  # fmt: skip
    plan = plan_behaviour(facts, sizes, hidden=(), influence=FriendshipInfluence())
    own = own_rows(rows, ())
    shape = plan.row_shape(own.shape[1])
    total = plan.output_moments(own.shape[1]).sum()
    friends = friend_weights(panel.edges, len(panel.users)) if weights is None else weights
    total.add(shape.rows(own, rows.social(friends)), rows.signs[:, None], user_weights(rows.user))
    first = plan.layer_moments(3).sum()
    first.add(rows.now, weights=user_weights(rows.user))
    return total.bounded(), first.bounded(), plan.output_moments(own.shape[1]).add_remove.l2


@pytest.mark.slow
@pytest.mark.parametrize("star", [False, True])
@pytest.mark.parametrize("extreme", [False, True])
@pytest.mark.parametrize("seed", range(2))
def test_taking_a_user_out_moves_no_more_than_declared(
    star: bool, extreme: bool, seed: int
) -> None:
    panel = random_panel(seed, star=star, extreme=extreme)
    with_all, first, declared = packed(panel)
    assert with_all.add_remove.l2 == declared
    for user in range(USERS):
        without, first_without, same = packed(panel.without(user))
        assert same == declared
        moved = float(np.linalg.norm(with_all.value - without.value))
        assert moved <= declared
        assert np.linalg.norm(first.value - first_without.value) <= first.add_remove.l2
        counts = PropagationInfluence(budget_share=0.1)
        a, b = (
            counts.counts(Examples.of(p, range(4, DAYS)).activity, p.edges)
            for p in (panel, panel.without(user))
        )
        assert a is not None and b is not None
        assert np.linalg.norm(a.value - b.value) <= a.add_remove.l2
        assert np.abs(a.value - b.value).sum() <= a.add_remove.l1


def test_the_plain_mean_over_friends_would_break_the_bound() -> None:
    """Why the weights are 1 / max(degrees): the centre of a star is in everybody's rows.

    With the mean over friends the centre weighs 1 in each of them, and moves the moments by more
    than the bound; the test above would fail.
    """
    users = 60
    up = np.arange(DAYS) % 2 == 0
    values = np.where(up, 0.9, 0.1)[None, :, None].repeat(users, axis=0).repeat(3, axis=2)
    values[0] = 1.0 - values[0]  # the centre is high on the eve of every rise of the others
    panel = Panel(
        name="star", about="", attributes=("a", "b", "c"), target="b", events=("c",), low=0.0,
        high=1.0, users=tuple(map(str, range(users))), values=values,
        edges=np.column_stack([np.zeros(users - 1, dtype=int), np.arange(1, users)]),
    )  # fmt: skip
    mean = np.zeros((users, users))
    mean[0, 1:] = 1.0
    mean[1:, 0] = 1.0 / (users - 1)
    for weights, breaks in ((mean, True), (None, False)):
        with_all, _, declared = packed(panel, weights)
        without, _, _ = packed(panel.without(0), weights)
        assert bool(np.linalg.norm(with_all.value - without.value) > declared) is breaks


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_a_friends_rows_move_as_the_lipschitz_bound_says(seed: int) -> None:
    """Rows z and z' that differ in s by Delta: phi moves by at most L Delta, and nearly by that."""
    rng = np.random.default_rng(seed)
    shape = RowShape(own=4, social=0.6, friends=1, days=1, weight=8)
    lipschitz = np.sqrt(2 * SECOND**2 * (1 + 0.36) + CROSS**2)
    largest = 0.0
    for _ in range(2000):
        own = rng.normal(size=(1, 4))
        s = np.sort(rng.uniform(-1, 1, 2)) if rng.random() < 0.5 else np.array([0.99, 1.0])
        z, w = (shape.rows(own, np.array([x]))[0] for x in s)
        moved = np.hypot(
            SECOND * np.linalg.norm(np.outer(z, z) - np.outer(w, w)),
            CROSS * np.linalg.norm(z - w),
        )
        largest = max(largest, moved / (lipschitz * np.linalg.norm(z - w)))
    assert 0.98 < largest <= 1.0 + 1e-9


@pytest.mark.parametrize("seed", range(5))
def test_friend_weights_bound_both_directions(seed: int) -> None:
    edges = np.random.default_rng(seed).integers(0, 30, (100, 2))
    edges = edges[edges[:, 0] != edges[:, 1]]
    weights = friend_weights(edges, 30)
    assert weights.sum(axis=0).max() <= 1.0 and weights.sum(axis=1).max() <= 1.0
    assert np.array_equal(weights, weights.T)


def test_without_friends_a_user_costs_what_a_record_costs() -> None:
    shape = RowShape(own=3, social=0.0, friends=0, days=100, weight=50)
    moments = shape.moments(second=SECOND, cross=CROSS, per_user=True)
    assert moments.add_remove.l2 == pytest.approx(np.hypot(SECOND, CROSS), rel=1e-9)


def test_codes_of_a_row_depend_on_that_row_alone() -> None:
    """To the last bit: a user more or less must not change how the rows of others are rounded."""
    rng = np.random.default_rng(0)
    layer = BehaviourLayer(weights=np.linalg.qr(rng.standard_normal((60, 4)))[0])
    x = rng.standard_normal((4500, 60))
    every = layer.codes(x)
    for n in (1, 2, 50, 4165, 4166, 4167):
        assert np.array_equal(layer.codes(x[:n]), every[:n])
    lagged = x[:600].reshape(200, 3, 60)
    assert np.array_equal(layer.codes(lagged)[:50], layer.codes(lagged[:50]))
