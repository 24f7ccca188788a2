"""Behaviour by user and day, with friendships: tables, labels and splits that never look ahead.

A panel holds x_ut, the attributes of user u on day t, and an undirected graph of friendships. The
question is the status y_u,t+1: does the target attribute (exercise, calls and texts) increase
tomorrow?
"""

from __future__ import annotations

import csv
import os
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from privet.data.data_folder import damaged_file
from privet.errors import InvalidArgument, MissingFile
from privet_papers.argument_checks import check_counts

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
    - `season`: length of a public cycle in days (7 for weeks), 0 for none. `first`: the number of
      the first day, from which places in the season are counted.

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
    first: int = 0

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
        check_counts(0, season=self.season)
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
        check_counts(day=day)
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


def rolling_folds(
    panel: Panel, *, horizon: int = 1, folds: int = 1, window: int | None = None, first: int = 1
) -> tuple[Fold, ...]:
    """Folds that move forward in time, the last of which ends with the panel.

    Each has the next `horizon` days as its test; training days are the `window` days before them
    (None: all since day `first`). The paper's M is `window`.

    >>> from privet_papers.autoencoder.behaviour.health_network import health_network
    >>> panel = health_network(users=20, days=30, seed=0).panel
    >>> rolling_folds(panel, horizon=5, folds=2, window=10)
    (Fold(train=range(10, 20), test=range(20, 25)), Fold(train=range(15, 25), test=range(25, 30)))
    """
    check_counts(horizon=horizon, folds=folds)
    start = panel.days - horizon * folds
    if start - first < 1:
        raise InvalidArgument(
            "folds", folds, f"few enough to leave a training day: the panel has {panel.days} days"
        )
    if window is not None:
        check_counts(window=window)
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
    categories: Mapping[str, Sequence[str]] | None = None,
    user: str = "user",
    day: str = "day",
    events: Sequence[str] = (),
    season: int = 0,
    name: str | None = None,
) -> Panel:
    """A panel from a CSV table (user, day, attributes) and a CSV list of friendships.

    - `bounds` names the attributes to use, each with its declared low and high; `categories` those
      that are words: each declared word becomes an attribute "column=word" of 0 and 1;
    - `day` holds whole numbers or dates (2026-11-16, with or without a time); days without a row,
      and with a cell that is empty or no declared word, are not observed;
    - the first two columns of `edges` are friends, under a header or without one. A friend who has
      no row in the table is a user who recorded nothing.

    **Assumes** that the first and the last day and the list of users are public: they are read from
    the files, and day numbers, weeks and the panel's length follow from them.
    """
    words = {} if categories is None else categories
    path = Path(table)
    rows = read_table(path)
    if not rows:
        raise damaged_file(path, "there are no rows")
    for column in (user, day, *bounds, *words):
        if column not in rows[0]:
            raise damaged_file(path, f"there is no column {column!r}")
    pairs = [] if edges is None else read_pairs(Path(edges), known={r[user].strip() for r in rows})
    names = tuple(sorted({r[user].strip() for r in rows} | {friend for p in pairs for friend in p}))
    place = {u: i for i, u in enumerate(names)}
    try:
        days = np.array([_day(r[day]) for r in rows])
        numbers = [[_number(r[a]) for a in bounds] for r in rows]
    except ValueError as error:
        raise damaged_file(path, str(error)) from None
    columns = [(c, word) for c, allowed in words.items() for word in allowed]
    indicators = [
        [float(r[c].strip() == w) if r[c].strip() in words[c] else np.nan for c, w in columns]
        for r in rows
    ]
    attributes = (*bounds, *(f"{c}={word}" for c, word in columns))
    values = np.full((len(names), int(days.max() - days.min()) + 1, len(attributes)), np.nan)
    values[[place[r[user].strip()] for r in rows], days - days.min()] = np.hstack(
        [numbers, indicators]
    )
    limits = [*bounds.values(), *[(0.0, 1.0)] * len(columns)]
    return Panel(
        name=name or path.stem,
        about=f"{len(names)} users from {path.name}",
        values=values,
        attributes=attributes,
        target=target,
        low=np.array([low for low, _ in limits]),
        high=np.array([high for _, high in limits]),
        users=names,
        edges=np.array([(place[a], place[b]) for a, b in pairs], dtype=np.int64),
        events=tuple(events),
        season=season,
        first=int(days.min()),
    )


def read_pairs(path: Path, *, known: Set[str]) -> list[tuple[str, str]]:
    """Friends from the first two columns of a CSV file.

    The first line is a header where neither of its cells is a user of the table or occurs again.
    """
    if not path.is_file():
        raise MissingFile(path)
    with path.open(newline="", encoding="utf-8-sig") as file:
        rows = [row for row in csv.reader(file) if row]
    if any(len(row) < 2 for row in rows):
        raise damaged_file(path, "two columns wanted: friends")
    pairs = [(row[0].strip(), row[1].strip()) for row in rows]
    seen = known | {cell for pair in pairs[1:] for cell in pair}
    header = bool(pairs) and not seen & set(pairs[0])
    return pairs[header:]


def read_table(path: Path) -> list[dict[str, str]]:
    """The rows of a CSV file with a header."""
    if not path.is_file():
        raise MissingFile(path)
    with path.open(newline="", encoding="utf-8-sig") as file:
        rows = list(csv.DictReader(file))
    if any(None in r or None in r.values() for r in rows):
        raise damaged_file(path, "rows have different numbers of cells")
    return rows


def _number(cell: str) -> float:
    return float(cell) if cell.strip() else float("nan")


def _day(cell: str) -> int:
    """A whole number, or the number of a date."""
    text = cell.strip()
    try:
        return int(text)
    except ValueError:
        pass
    try:
        return datetime.fromisoformat(text).toordinal()
    except ValueError:
        raise ValueError(f"{text!r} is no day: a whole number or a date like 2026-11-16") from None
