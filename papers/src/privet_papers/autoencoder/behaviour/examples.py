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
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Self, final

import numpy as np
from numpy.typing import NDArray

from privet.errors import InvalidArgument
from privet_papers.argument_checks import check_counts
from privet_papers.autoencoder.behaviour.panel_data import Panel
from privet_papers.autoencoder.behaviour.social_influence import tie_kinds, tie_weights

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

        >>> from privet_papers.autoencoder.behaviour.health_network import health_network
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
        check_counts(lags=lags)
        user, day = np.nonzero(statuses >= 0)
        x = relative_to_own_past(values)
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
        """The statuses as -1 (a decrease) and +1 (an increase)."""
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


def relative_to_own_past(values: Array) -> Array:
    """(v - mean) / (3 deviation) with each user's earlier days, clipped to [-1, 1]; 0 for NaN.

    values: users x days x attributes, in [0, 1]. The first days are compared with a prior: the
    middle of the declared range.

    >>> relative_to_own_past(np.array([[[0.5], [0.5], [0.9]]])).ravel().tolist()
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


@final
@dataclass(frozen=True, kw_only=True)
class SeriesLayout:
    """Which columns a series has: all public.

    >>> SeriesLayout(attributes=4, target=0, events=(3,), levels=(1, 3)).columns
    10
    """

    attributes: int
    target: int
    events: tuple[int, ...] = ()
    levels: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        for column in (self.target, *self.events):
            if not 0 <= column < self.attributes:
                raise InvalidArgument("column", column, f"one of {self.attributes} attributes")

    @classmethod
    def of(cls, panel: Panel, *, levels: tuple[int, ...] = ()) -> Self:
        """The layout of a panel's series."""
        named = panel.attributes.index
        return cls(
            attributes=len(panel.attributes),
            target=named(panel.target),
            events=tuple(named(name) for name in panel.events),
            levels=levels,
        )

    @property
    def columns(self) -> int:
        """How many numbers a day has."""
        return self.attributes + 3 + len(self.levels) + 1

    def to_dict(self) -> dict[str, Any]:
        """The layout as JSON can write it."""
        return asdict(self)

    @classmethod
    def from_dict(cls, d: Mapping[str, Any]) -> Self:
        """The inverse of `to_dict`."""
        fields: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in d.items()}
        return cls(**fields)

    def series(self, panel: Panel) -> NDArray[np.float32]:
        """The series of all users: users x days x columns."""
        values = panel.scaled()
        there = panel.observed()
        users, days = there.shape
        out = np.zeros((users, days, self.columns), dtype=np.float32)
        d = self.attributes
        out[..., :d] = np.where(there[..., None], values, 0.0)
        out[..., d] = there
        places = season_places(panel.first + 1 + np.arange(days), panel.season)
        out[..., d + 1 : d + 3] = (places + 1.0) / 2.0
        activity = relative_to_own_past(values)[..., self.target]
        kinds = tie_kinds(panel.edges, users, self.levels)
        weights = tie_weights(panel.edges, users, (), np.ones(1))
        for k in range(len(self.levels) + 1):
            out[..., d + 3 + k] = ((weights * (kinds == k)).T @ activity + 1.0) / 2.0
        return out

    def values(self, series: NDArray[Any]) -> Array:
        """Attributes, NaN on days that were not recorded."""
        there = series[..., self.attributes, None] >= 0.5
        return np.where(there, series[..., : self.attributes], np.nan)

    def places(self, series: NDArray[Any]) -> Array:
        """The place in the season of the day after each day."""
        d = self.attributes
        return np.asarray(2.0 * series[..., d + 1 : d + 3] - 1.0)

    def social(self, series: NDArray[Any]) -> Array:
        """What friends did on the last day, by kind of tie."""
        return np.asarray(2.0 * series[:, -1, self.attributes + 3 :] - 1.0)

    def training_examples(self, series: NDArray[Any], edges: Whole, *, lags: int) -> Examples:
        """Examples for all days that have so many days before them."""
        values = self.values(series)
        change = np.nan_to_num(np.diff(values[..., self.target], axis=1))
        statuses = np.full(series.shape[:2], -1)
        statuses[:, 1:] = np.where(change > 0.0, 1, np.where(change < 0.0, 0, -1))
        statuses[:, : lags + 1] = -1
        return self._examples(series, values[:, :-1], statuses, edges, lags)

    def tomorrow(self, series: NDArray[Any], *, lags: int) -> Examples:
        """A row for every series, for the day after its last."""
        n, days = series.shape[:2]
        asked = np.full((n, days + 1), -1)
        asked[:, -1] = 0
        nobody = np.zeros((0, 2), dtype=np.int64)
        return self._examples(series, self.values(series), asked, nobody, lags)

    def _examples(
        self, series: NDArray[Any], values: Array, statuses: Whole, edges: Whole, lags: int
    ) -> Examples:
        places = self.places(series)
        places = np.concatenate([np.zeros_like(places[:, :1]), places], axis=1)  # of each day
        return Examples.of_series(
            values,
            places[:, : statuses.shape[1]],
            statuses,
            lags=lags,
            span=max(1, series.shape[1] - lags - 1),
            edges=edges,
            target=self.target,
            events=self.events,
        )
