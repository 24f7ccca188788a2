"""Behaviour by user and day, with friendships: tables, labels and splits that never look ahead.

A panel holds x_ut, the attributes of user u on day t, and an undirected graph of friendships. The
question is the status y_u,t+1: does the target attribute (exercise, calls and texts) increase
tomorrow?
"""

from __future__ import annotations

import csv
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from privet import _check
from privet.data.files import damaged
from privet.errors import InvalidArgument, MissingFile

Array = NDArray[np.float64]


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Panel:
    """Attributes of users by day, the friendships among them, and what is public about both.

    - `values`: users x days x attributes; NaN where nothing was recorded. A day counts as observed
      for a user when all attributes are there.
    - `low`, `high`: declared bounds of each attribute, never read from the records.
    - `target`: the attribute whose increase is predicted. `events`: attributes that are events
      around a user (competitions, meetings).
    - `edges`: pairs of user numbers, each friendship once. The graph is taken as public.
    - `season`: length of a public cycle in days (7 for weeks), 0 for none.

    >>> panel = Panel(
    ...     name="two", about="two friends, three days", attributes=("steps",), target="steps",
    ...     low=0.0, high=10.0, users=("ann", "bob"), edges=[(0, 1)],
    ...     values=[[[1.0], [3.0], [2.0]], [[5.0], [float("nan")], [4.0]]])
    >>> panel.statuses().tolist()
    [[-1, 1, 0], [-1, -1, -1]]
    """

    name: str
    about: str
    values: Array = field(repr=False)
    attributes: tuple[str, ...]
    target: str
    low: Array
    high: Array
    users: tuple[str, ...] = field(repr=False)
    edges: NDArray[np.int64] = field(repr=False)
    events: tuple[str, ...] = ()
    season: int = 0

    def __post_init__(self) -> None:
        x = np.array(self.values, dtype=np.float64)
        if x.ndim != 3 or x.shape[0] != len(self.users) or x.shape[2] != len(self.attributes):
            expected = f"{len(self.users)} users x days x {len(self.attributes)} attributes"
            raise InvalidArgument("values", x.shape, expected)
        if 0 in x.shape:
            raise InvalidArgument("values", x.shape, "at least one user, day and attribute")
        x[~np.isfinite(x)] = np.nan
        for what, names in (("target", (self.target,)), ("events", self.events)):
            if unknown := [n for n in names if n not in self.attributes]:
                raise InvalidArgument(what, unknown[0], f"one of {', '.join(self.attributes)}")
        for side in ("low", "high"):
            bound = np.asarray(getattr(self, side), dtype=np.float64)
            object.__setattr__(self, side, np.broadcast_to(bound, x.shape[2:]).copy())
        if not (np.isfinite(self.low) & np.isfinite(self.high) & (self.low < self.high)).all():
            raise InvalidArgument(
                "bounds", (self.low, self.high), "finite, each low below its high"
            )
        _check.count("season", self.season, minimum=0)
        x.setflags(write=False)
        object.__setattr__(self, "values", x)
        object.__setattr__(self, "edges", _friendships(self.edges, len(self.users)))

    @property
    def days(self) -> int:
        """How many days the panel covers."""
        return int(self.values.shape[1])

    def observed(self) -> NDArray[np.bool_]:
        """Users x days: whether all attributes were recorded."""
        return np.asarray(~np.isnan(self.values).any(axis=2))

    def statuses(self) -> NDArray[np.int64]:
        """Users x days: 1 if the target rose since the day before, 0 if it fell.

        -1 if it stayed the same or one of the days was not observed: no status.
        """
        change = np.zeros(self.values.shape[:2])
        target = np.where(
            self.observed(), self.values[:, :, self.attributes.index(self.target)], np.nan
        )
        change[:, 1:] = np.nan_to_num(np.diff(target, axis=1))
        return np.where(change > 0.0, 1, np.where(change < 0.0, 0, -1))

    def scaled(self) -> Array:
        """Attributes clipped to their declared bounds and brought to [0, 1]; NaN stays NaN."""
        width = self.high - self.low
        return np.asarray((np.clip(self.values, self.low, self.high) - self.low) / width)

    def before(self, day: int) -> Panel:
        """The panel as it was known before `day`: later days are cut off."""
        day = _check.count("day", day)
        if day > self.days:
            raise InvalidArgument("day", day, f"at most {self.days}, the days of the panel")
        return replace(self, values=self.values[:, :day])

    def without(self, user: int) -> Panel:
        """The neighbour of this panel in which one user recorded nothing (the graph is public)."""
        values = self.values.copy()
        values[user] = np.nan
        return replace(self, values=values)

    def sample(self, users: Sequence[int] | NDArray[np.int64]) -> Panel:
        """The panel of these users only, with the friendships among them."""
        kept = np.asarray(users, dtype=np.int64)
        place = np.full(len(self.users), -1)
        place[kept] = np.arange(len(kept))
        edges = place[self.edges]
        return replace(
            self,
            values=self.values[kept],
            users=tuple(self.users[i] for i in kept),
            edges=edges[(edges >= 0).all(axis=1)],
        )


def _friendships(edges: Any, users: int) -> NDArray[np.int64]:
    """Each pair once, smaller number first, no loops."""
    pairs = np.asarray(edges, dtype=np.int64).reshape(-1, 2)
    if len(pairs) and (pairs.min() < 0 or pairs.max() >= users):
        raise InvalidArgument("edges", int(pairs.max()), f"user numbers from 0 to {users - 1}")
    pairs = np.unique(np.sort(pairs, axis=1), axis=0)
    pairs = np.asarray(pairs[pairs[:, 0] != pairs[:, 1]], dtype=np.int64)
    pairs.setflags(write=False)
    return pairs


@final
@dataclass(frozen=True, kw_only=True)
class Fold:
    """Which days' statuses are learned from and which are predicted; all of the latter come later.

    A model for `test` may read the panel before each predicted day; it is trained on statuses of
    days in `train` only.
    """

    train: range
    test: range


def rolling(
    panel: Panel, *, horizon: int = 1, folds: int = 1, window: int | None = None, first: int = 1
) -> tuple[Fold, ...]:
    """Folds that move forward in time, the last of which ends with the panel.

    Each has the next `horizon` days as its test; training days are the `window` days before them
    (None: all since day `first`). The paper's M is `window`.

    >>> from privet.data.behaviour_health import health_network
    >>> panel = health_network(users=20, days=30, seed=0).panel
    >>> rolling(panel, horizon=5, folds=2, window=10)
    (Fold(train=range(10, 20), test=range(20, 25)), Fold(train=range(15, 25), test=range(25, 30)))
    """
    horizon, folds = _check.count("horizon", horizon), _check.count("folds", folds)
    start = panel.days - horizon * folds
    if start - first < 1:
        raise InvalidArgument(
            "folds", folds, f"few enough to leave a training day: the panel has {panel.days} days"
        )
    if window is not None:
        _check.count("window", window)
    found = []
    for day in range(start, panel.days, horizon):
        begin = first if window is None else max(first, day - window)
        found.append(Fold(train=range(begin, day), test=range(day, day + horizon)))
    return tuple(found)


def load_panel(
    table: str | os.PathLike[str],
    edges: str | os.PathLike[str] | None = None,
    *,
    bounds: Mapping[str, tuple[float, float]],
    target: str,
    user: str = "user",
    day: str = "day",
    events: Sequence[str] = (),
    season: int = 0,
    name: str | None = None,
) -> Panel:
    """A panel from a CSV table (user, day, attributes) and a CSV list of friendships.

    - `bounds` names the attributes to use, each with its declared low and high;
    - `day` must hold whole numbers; days without a row, and cells that are empty, are not observed;
    - the first two columns of `edges` are friends; users without a row in the table are left out.

    **Assumes** that the first and the last day and the list of users are public: they are read from
    the table, and day numbers, weeks and the panel's length follow from them.
    """
    rows = read_table(Path(table))
    for column in (user, day, *bounds):
        if rows and column not in rows[0]:
            raise damaged(Path(table), f"there is no column {column!r}")
    if not rows:
        raise damaged(Path(table), "there are no rows")
    names = tuple(sorted({r[user] for r in rows}))
    place = {u: i for i, u in enumerate(names)}
    try:
        days = np.array([int(r[day]) for r in rows])
        cells = np.array([[_number(r[a]) for a in bounds] for r in rows], dtype=np.float64)
    except ValueError as error:
        raise damaged(Path(table), str(error)) from None
    values = np.full((len(names), int(days.max() - days.min()) + 1, len(bounds)), np.nan)
    values[[place[r[user]] for r in rows], days - days.min()] = cells
    pairs = [] if edges is None else [tuple(r.values())[:2] for r in read_table(Path(edges))]
    return Panel(
        name=name or Path(table).stem,
        about=f"{len(names)} users from {Path(table).name}",
        values=values,
        attributes=tuple(bounds),
        target=target,
        low=np.array([low for low, _ in bounds.values()]),
        high=np.array([high for _, high in bounds.values()]),
        users=names,
        edges=np.array(
            [(place[a], place[b]) for a, b in pairs if a in place and b in place], dtype=np.int64
        ),
        events=tuple(events),
        season=season,
    )


def read_table(path: Path) -> list[dict[str, str]]:
    """The rows of a CSV file with a header."""
    if not path.is_file():
        raise MissingFile(path)
    with path.open(newline="", encoding="utf-8-sig") as file:
        rows = list(csv.DictReader(file))
    if any(None in r or None in r.values() for r in rows):
        raise damaged(path, "rows have different numbers of cells")
    return rows


def _number(cell: str) -> float:
    return float(cell) if cell.strip() else float("nan")
