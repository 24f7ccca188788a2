"""Examples: what is known of a user on the eve of a predicted day, from the past alone.

For user u and predicted day t + 1 an example holds

- x_ut, ..., x_u,t-N: attributes *against the user's own past*, (v - mean) / (3 deviation), clipped
  to [-1, 1], mean and deviation being those of the user's earlier days; 0 where nothing was
  recorded;
- the day's place in the public season;
- g_vt of the friends, the same for the target attribute (`Examples.activity`), from which an
  influence model makes the social part.

Everything but the last is a function of one user's own records, so a user's examples vanish with
the user, and a user's trace in the examples of others is g alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any, Self, final

import numpy as np
from numpy.typing import NDArray

from privet import _check
from privet.data.behaviour import Panel
from privet.errors import InvalidArgument

Array = NDArray[np.float64]
Whole = NDArray[np.int64]

_PRIOR_DAYS, _PRIOR_DEVIATION = 3.0, 0.1
"""A user's past starts as so many days with this deviation (in units of the declared range)."""


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Examples:
    """Rows of users and predicted days with their statuses; make them with `Examples.of`.

    - `now` (rows x d), `past` (rows x N x d): x_ut and its lags, entries in [-1, 1];
    - `calendar` (rows x 2): cosine and sine of the predicted day's place in the season, or zeros;
    - `status`: 1 for an increase, 0 for a decrease, -1 for a row that has none (yet);
    - `user`, `day`: whose row it is and which day is predicted;
    - `activity` (users x days): g in [-1, 1], 0 where nothing was recorded;
    - `edges`, `users`: the public graph; `span`: over how many days rows could be, a choice of
      whoever made them and so the most rows a user can have.
    """

    now: Array = field(repr=False)
    past: Array = field(repr=False)
    calendar: Array = field(repr=False)
    status: Whole = field(repr=False)
    user: Whole = field(repr=False)
    day: Whole = field(repr=False)
    activity: Array = field(repr=False)
    edges: Whole = field(repr=False)
    target: int
    events: tuple[int, ...]
    span: int

    @classmethod
    def of(cls, panel: Panel, days: range, *, lags: int = 3) -> Self:
        """Examples for the statuses of `days`; rows without a status are left out.

        Nothing from the last of `days` or later is read, apart from the statuses.

        >>> from privet.data.behaviour_health import health_network
        >>> panel = health_network(users=20, days=30, seed=0).panel
        >>> rows = Examples.of(panel, range(5, 30))
        >>> rows.now.shape[1], rows.past.shape[1:], bool((rows.status >= 0).all())
        (30, (3, 30), True)
        """
        if not days or days.step != 1 or not 1 <= days.start < days.stop <= panel.days:
            raise InvalidArgument("days", days, f"a range of days between 1 and {panel.days}")
        statuses = panel.statuses()
        statuses[:, : days.start] = -1
        statuses[:, days.stop :] = -1
        known = panel.before(days.stop - 1) if days.stop > 1 else panel
        return cls.of_series(
            known.scaled(),
            _seasons(panel, days.stop)[None],
            statuses[:, : days.stop],
            lags=lags,
            span=len(days),
            **_public(panel),
        )

    @classmethod
    def tomorrow(cls, panel: Panel, *, lags: int = 3) -> Self:
        """A row for every user, recorded today or not, for the day after the panel's last."""
        unknown = np.full((len(panel.users), panel.days + 1), -1)
        unknown[:, -1] = 0
        found = cls.of_series(
            panel.scaled(),
            _seasons(panel, panel.days + 1)[None],
            unknown,
            lags=lags,
            span=1,
            **_public(panel),
        )
        return replace(found, status=np.full(len(found), -1))

    @classmethod
    def of_series(
        cls,
        values: Array,
        calendar: Array,
        statuses: Whole,
        *,
        lags: int,
        span: int,
        edges: Whole,
        target: int,
        events: tuple[int, ...],
    ) -> Self:
        """A row for every status of at least 0: users x days, one more than `values` may have.

        `values`: users x days x attributes in [0, 1], NaN where nothing was recorded; `calendar`:
        the place of each *predicted* day in the season, for all users (1 x days x 2) or by user.
        """
        lags = _check.count("lags", lags)
        user, day = np.nonzero(statuses >= 0)
        x = against_own_past(values)
        padded = np.concatenate([np.zeros((len(x), lags + 1, x.shape[2])), x], axis=1)
        at = day - 1 + lags + 1
        return cls(
            now=padded[user, at],
            past=np.stack([padded[user, at - k] for k in range(1, lags + 1)], axis=1),
            calendar=np.broadcast_to(calendar, (len(x), *calendar.shape[1:]))[user, day],
            status=statuses[user, day],
            user=user,
            day=day,
            activity=x[:, :, target],
            edges=edges,
            target=target,
            events=events,
            span=span,
        )

    def __len__(self) -> int:
        return len(self.user)

    @property
    def users(self) -> int:
        """How many users the graph has."""
        return len(self.activity)

    @property
    def signs(self) -> Array:
        """Statuses as -1 and +1."""
        return np.asarray(2.0 * self.status - 1.0)

    def own(self) -> Array:
        """Now, lags and calendar side by side: the user's own part of a row."""
        return np.hstack(
            [self.now, self.past.reshape(len(self), math.prod(self.past.shape[1:])), self.calendar]
        )

    def social(self, weights: Array) -> Array:
        """sum_v weights[v, u] g_vt for each row: what friends did on the eve."""
        return np.asarray((weights.T @ self.activity)[self.user, self.day - 1])


def _public(panel: Panel) -> dict[str, Any]:
    return {
        "edges": panel.edges,
        "target": panel.attributes.index(panel.target),
        "events": tuple(panel.attributes.index(name) for name in panel.events),
    }


def _seasons(panel: Panel, days: int) -> Array:
    return season_places(panel.first + np.arange(days), panel.season)


def season_places(day: Whole, season: int) -> Array:
    """Cosine and sine of days' places in the season; zeros without one."""
    if not season:
        return np.zeros((len(day), 2))
    angle = 2.0 * np.pi * (day % season) / season
    return np.column_stack([np.cos(angle), np.sin(angle)])


def against_own_past(values: Array) -> Array:
    """(v - mean) / (3 deviation) with each user's earlier days, clipped to [-1, 1]; 0 for NaN.

    values: users x days x attributes, in [0, 1]. The first days are compared with a prior: the
    middle of the declared range.

    >>> against_own_past(np.array([[[0.5], [0.5], [0.9]]])).ravel().tolist()
    [0.0, 0.0, 1.0]
    """
    there = ~np.isnan(values).any(axis=2, keepdims=True)
    x: Array = np.asarray(np.where(there, values - 0.5, 0.0))

    def earlier(z: Array) -> Array:
        total = np.cumsum(z, axis=1)
        return np.concatenate([np.zeros_like(total[:, :1]), total[:, :-1]], axis=1)

    count = earlier(np.asarray(there, dtype=np.float64))
    mean = earlier(x) / np.maximum(count, 1.0)
    prior = _PRIOR_DAYS * _PRIOR_DEVIATION**2
    spread = earlier(np.asarray(x * x)) - count * mean**2
    deviation = np.sqrt((np.maximum(spread, 0.0) + prior) / (count + _PRIOR_DAYS))
    return np.asarray(np.where(there, np.clip((x - mean) / (3.0 * deviation), -1.0, 1.0), 0.0))
