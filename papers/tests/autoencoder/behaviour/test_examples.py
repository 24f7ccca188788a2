"""Examples know the past only, and a user's own part knows the user only."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from privet.errors import InvalidArgument
from privet_papers.autoencoder.behaviour import Examples
from privet_papers.autoencoder.behaviour.health_network import health_network
from privet_papers.autoencoder.behaviour.panel_data import Panel
from privet_papers.autoencoder.behaviour.social_influence import friend_weights


@pytest.fixture(scope="module")
def panel() -> Panel:
    return health_network(users=25, days=40, seed=2).panel


def parts(rows: Examples) -> tuple[np.ndarray, ...]:
    weights = friend_weights(rows.edges, rows.users)
    return rows.now, rows.past, rows.calendar, rows.social(weights)


def test_nothing_is_read_from_the_future(panel: Panel) -> None:
    """Scramble everything from day 20 on: examples of days up to 20 stay, bit for bit."""
    values = panel.values.copy()
    values[:, 20:] = np.random.default_rng(0).random(values[:, 20:].shape)
    other = replace(panel, values=values)
    for a, b in zip(
        parts(Examples.of(panel, range(5, 20))),
        parts(Examples.of(other, range(5, 20))),
        strict=True,
    ):
        assert np.array_equal(a, b)
    # day 20 itself is predicted from the days before: the inputs stay, only statuses may differ
    a, b = (Examples.of(p, range(20, 21)) for p in (panel, other))
    both = np.intersect1d(a.user, b.user)
    assert len(both) > 5
    for x, y in zip(parts(a), parts(b), strict=True):
        assert np.array_equal(x[np.isin(a.user, both)], y[np.isin(b.user, both)])


def test_own_parts_are_own(panel: Panel) -> None:
    a, b = Examples.of(panel, range(5, 40)), Examples.of(panel.without(3), range(5, 40))
    kept = a.user != 3
    assert np.array_equal(a.own()[kept], b.own()) and not (b.user == 3).any()
    weights = friend_weights(panel.edges, 25)
    moved = np.abs(a.social(weights)[kept] - b.social(weights))
    assert moved.max() > 0.0
    assert (moved <= weights[3, a.user[kept]] + 1e-12).all()


def test_lags_are_the_days_before(panel: Panel) -> None:
    rows = Examples.of(panel, range(6, 40), lags=3)
    i = int(np.flatnonzero((rows.user == 4) & (rows.day > 20))[0])
    j = np.flatnonzero((rows.user == 4) & (rows.day == rows.day[i] - 1))
    if len(j):
        assert np.array_equal(rows.past[i, 0], rows.now[j[0]])
    assert np.array_equal(
        rows.past[i, :, rows.target], rows.activity[4, rows.day[i] - 4 : rows.day[i] - 1][::-1]
    )


def test_bounds_hold_for_wild_values() -> None:
    rng = np.random.default_rng(1)
    values = rng.normal(size=(6, 20, 2)) * 1e6
    values[0, 3] = np.inf
    wild = Panel(
        name="wild", about="", attributes=("a", "b"), target="a", low=-1.0, high=1.0,
        users=tuple("abcdef"), edges=[(0, 1)], values=values,
    )  # fmt: skip
    rows = Examples.of(wild, range(1, 20))
    assert np.isfinite(rows.own()).all() and np.abs(rows.own()).max() <= 1.0
    assert np.abs(rows.activity).max() <= 1.0


def test_tomorrow_has_a_row_for_everybody(panel: Panel) -> None:
    rows = Examples.tomorrow(panel.without(0))
    assert len(rows) == 25 and (rows.status == -1).all() and (rows.now[0] == 0.0).all()


def test_what_is_refused(panel: Panel) -> None:
    for days in (range(5), range(5, 5), range(5, 99), range(5, 20, 2)):
        with pytest.raises(InvalidArgument, match="days"):
            Examples.of(panel, days)
    # whether anybody has a status is a fact about records: it stops nothing
    nobody = replace(panel, values=np.full_like(panel.values, np.nan))
    assert len(Examples.of(nobody, range(5, 20))) == 0
