"""A user's record as a series: what the contract calls one record of behaviour.

A day of a series is a row of numbers in [0, 1]:

    attributes | whether all were recorded | place of the next day in the season (2) | friends (K)

The last K columns say what friends did that day, by kind of tie, moved from [-1, 1]. They are for
asking a model. Training never reads them: it makes its own from everybody's records and the public
graph, under the bound of `sensitivity.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self, final

import numpy as np
from numpy.typing import NDArray

from privet.data.behaviour import Panel
from privet.errors import InvalidArgument
from privet.methods.autoencoder.behaviour.examples import (
    Examples,
    against_own_past,
    season_places,
)
from privet.methods.autoencoder.behaviour.influence import tie_kinds, tie_weights

Array = NDArray[Any]


@final
@dataclass(frozen=True, kw_only=True)
class Layout:
    """Which columns a series has: all public.

    >>> Layout(attributes=4, target=0, events=(3,), levels=(1, 3)).columns
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
        """That of a panel."""
        named = panel.attributes.index
        return cls(
            attributes=len(panel.attributes),
            target=named(panel.target),
            events=tuple(named(name) for name in panel.events),
            levels=levels,
        )

    @property
    def columns(self) -> int:
        """Numbers a day."""
        return self.attributes + 3 + len(self.levels) + 1

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return asdict(self)

    @classmethod
    def from_dict(cls, d: Mapping[str, Any]) -> Self:
        """The inverse of `to_dict`."""
        told: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in d.items()}
        return cls(**told)

    def series(self, panel: Panel) -> NDArray[np.float32]:
        """Users x days x columns."""
        values = panel.scaled()
        there = panel.observed()
        users, days = there.shape
        out = np.zeros((users, days, self.columns), dtype=np.float32)
        d = self.attributes
        out[..., :d] = np.where(there[..., None], values, 0.0)
        out[..., d] = there
        places = season_places(panel.first + 1 + np.arange(days), panel.season)
        out[..., d + 1 : d + 3] = (places + 1.0) / 2.0
        activity = against_own_past(values)[..., self.target]
        kinds = tie_kinds(panel.edges, users, self.levels)
        weights = tie_weights(panel.edges, users, (), np.ones(1))
        for k in range(len(self.levels) + 1):
            out[..., d + 3 + k] = ((weights * (kinds == k)).T @ activity + 1.0) / 2.0
        return out

    def values(self, series: Array) -> Array:
        """Attributes, NaN on days that were not recorded."""
        there = series[..., self.attributes, None] >= 0.5
        return np.where(there, series[..., : self.attributes], np.nan)

    def places(self, series: Array) -> Array:
        """The place in the season of the day after each day."""
        d = self.attributes
        return np.asarray(2.0 * series[..., d + 1 : d + 3] - 1.0)

    def social(self, series: Array) -> Array:
        """What friends did on the last day, by kind of tie."""
        return np.asarray(2.0 * series[:, -1, self.attributes + 3 :] - 1.0)

    def learned_from(self, series: Array, edges: Array, *, lags: int) -> Examples:
        """Examples for all days that have so many days before them."""
        values = self.values(series)
        change = np.nan_to_num(np.diff(values[..., self.target], axis=1))
        statuses = np.full(series.shape[:2], -1)
        statuses[:, 1:] = np.where(change > 0.0, 1, np.where(change < 0.0, 0, -1))
        statuses[:, : lags + 1] = -1
        return self._examples(series, values[:, :-1], statuses, edges, lags)

    def tomorrow(self, series: Array, *, lags: int) -> Examples:
        """A row for every series, for the day after its last."""
        n, days = series.shape[:2]
        asked = np.full((n, days + 1), -1)
        asked[:, -1] = 0
        nobody = np.zeros((0, 2), dtype=np.int64)
        return self._examples(series, self.values(series), asked, nobody, lags)

    def _examples(
        self, series: Array, values: Array, statuses: Array, edges: Array, lags: int
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
