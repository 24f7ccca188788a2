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

from dataclasses import dataclass, field
from typing import Self, final

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
        statuses = panel.statuses()[:, days.start : days.stop]
        user, place = np.nonzero(statuses >= 0)
        if not len(user):
            raise InvalidArgument("days", days, "days on which somebody has a status")
        known = panel.before(days.stop - 1) if days.stop > 1 else panel
        return cls._rows(known, user, place + days.start, statuses[user, place], lags, len(days))

    @classmethod
    def tomorrow(cls, panel: Panel, *, lags: int = 3) -> Self:
        """A row for every user, recorded today or not, for the day after the panel's last."""
        user = np.arange(len(panel.users))
        unknown = np.full(len(user), -1, dtype=np.int64)
        return cls._rows(panel, user, np.full(len(user), panel.days), unknown, lags, 1)

    @classmethod
    def _rows(
        cls, panel: Panel, user: Whole, day: Whole, status: Whole, lags: int, span: int
    ) -> Self:
        lags = _check.count("lags", lags)
        x = against_own_past(panel.scaled())
        target = panel.attributes.index(panel.target)
        padded = np.concatenate([np.zeros((len(x), lags + 1, x.shape[2])), x], axis=1)
        at = day - 1 + lags + 1
        past = np.stack([padded[user, at - k] for k in range(1, lags + 1)], axis=1)
        calendar = np.zeros((len(user), 2))
        if panel.season:
            angle = 2.0 * np.pi * (day % panel.season) / panel.season
            calendar = np.column_stack([np.cos(angle), np.sin(angle)])
        return cls(
            now=padded[user, at],
            past=past,
            calendar=calendar,
            status=status,
            user=user,
            day=day,
            activity=x[:, :, target],
            edges=panel.edges,
            target=target,
            events=tuple(panel.attributes.index(name) for name in panel.events),
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
        return np.hstack([self.now, self.past.reshape(len(self), -1), self.calendar])

    def social(self, weights: Array) -> Array:
        """sum_v weights[v, u] g_vt for each row: what friends did on the eve."""
        return np.asarray((weights.T @ self.activity)[self.user, self.day - 1])


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
