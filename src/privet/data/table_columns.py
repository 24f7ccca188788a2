"""The declared columns of a table, and the one public map from a record's cells to numbers.

A person's table may be a pandas or polars frame, a dict of columns, a list of dicts or a CSV file:
all become the same numbers by what was declared, a record at a time. Nothing is read from the
collection, so the map costs no privacy; it is kept with a run, and asked again by `predict`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import Any, Self, final

import numpy as np
from numpy.typing import NDArray

from privet.data.column_transforms import ColumnTransform, declared_transforms
from privet.errors import InvalidArgument

Array = NDArray[Any]
Table = dict[str, Any]
"""Columns by name, each a sequence of cells."""
Fill = str | Mapping[str, Any] | None
MIDDLE = "middle"
MISSING = frozenset({"", "na", "n/a", "nan", "nat", "null", "none", "?", ".", "<na>"})
"""Cells that hold nothing, in small letters."""
FILL_HINT = "fill or drop the line, or declare what missing cells count as: `fill`"
_DAY = 86400.0  # seconds


@final
@dataclass(frozen=True, kw_only=True)
class CellProblem:
    """A cell that the declared map cannot take: where it is, and what to do."""

    row: int
    text: str


@final
@dataclass(frozen=True, kw_only=True)
class TableColumns:
    """The declared columns of a table, as features in this order: numbers, dates, categories.

    - `numbers`: columns of numbers, those of `dates` too; text that is a number is taken as one.
    - `dates`: for a column of dates, the public day from which its days are counted.
    - `categories`: for a column of words, every value that may occur, one-hot coded.
    - `fill`: what a missing cell of a column counts as; None for no category at all.
    - `transforms`: for a column of numbers, what is made of it within its bounds.
    - `levels`: for a column of words in an order, all of them, the lowest first: numbers from 0.
    - `number_type`: float32 where a file was read, float64 where Python had the table.

    >>> columns = TableColumns(numbers=("age",), categories={"sex": ("f", "m")})
    >>> columns.encode({"sex": ["m", "f"], "age": ["41", 7], "name": ["Ann", "Bo"]})[0].tolist()
    [[41.0, 0.0, 1.0], [7.0, 1.0, 0.0]]
    """

    numbers: tuple[str, ...]
    dates: Mapping[str, str] = field(default_factory=dict)
    categories: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    fill: Mapping[str, Any] = field(default_factory=dict)
    transforms: Mapping[str, ColumnTransform] = field(default_factory=dict)
    levels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    number_type: str = "float64"

    @property
    def names(self) -> tuple[str, ...]:
        """The columns that are read."""
        return (*self.numbers, *self.categories)

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the features, one-hot columns as name=value."""
        one_hot = (f"{name}={v}" for name, values in self.categories.items() for v in values)
        return (*self.numbers, *one_hot)

    def require(self, given: Iterable[str]) -> None:
        """Refuse a table that lacks a declared column, by its name."""
        given = list(given)
        missing = [name for name in self.names if name not in given]
        if missing:
            raise InvalidArgument(
                "X", list(map(str, given)), f"columns as declared, also {missing[0]!r}"
            )

    def encode(self, table: Table) -> tuple[Array, list[CellProblem]]:
        """One row a record, and what is wrong with cells; a row with such a cell has a NaN.

        A cell means the same whatever type the others gave its column: True, 1, 1.0 and "1" do.
        """
        self.require(table)
        columns = {name: _cells(table[name]) for name in self.names}
        records = _equal_lengths(columns)
        out = np.zeros((records, len(self.features)), dtype=self.number_type)
        problems: list[CellProblem] = []
        for k, name in enumerate(self.numbers):
            out[:, k] = self._numbers(name, columns[name], problems)
        start = len(self.numbers)
        for name, values in self.categories.items():
            self._one_hot(name, columns[name], out[:, start : start + len(values)], problems)
            start += len(values)
        return out, sorted(problems, key=lambda p: p.row)

    def rows(self, table: Table) -> Array:
        """The same where every cell must be right: for records that a model is asked about."""
        found, problems = self.encode(table)
        if problems:
            first = problems[0]
            raise InvalidArgument("X", f"in record {first.row}", "cells as declared", first.text)
        return found

    def _numbers(self, name: str, cells: Array, problems: list[CellProblem]) -> Array:
        parse, kind = self._parser(name), self._kind(name)
        filled = parse(self.fill[name]) if name in self.fill else math.nan
        if cells.dtype.kind in "iubf" and kind == "number":
            out = cells.astype(np.float64)
            out[np.isnan(out)] = filled
        else:
            read = _number_of if kind != "level" else _level_of
            out = np.array([read(cell, parse, filled) for cell in cells], dtype=np.float64)
        wrong = ~(np.abs(out) <= float(np.finfo(self.number_type).max))
        problems += [
            _number_problem(int(i), name, cells[i], kind, parse) for i in np.flatnonzero(wrong)
        ]
        out[wrong] = np.nan
        return self.transforms[name].apply(out) if name in self.transforms else out

    def _kind(self, name: str) -> str:
        return "date" if name in self.dates else "level" if name in self.levels else "number"

    def _parser(self, name: str) -> Callable[[Any], float]:
        """What makes a number of a cell that is there."""
        if name in self.dates:
            origin = _seconds(self.dates[name])
            return lambda cell: (_seconds(cell) - origin) / _DAY
        if name in self.levels:
            places = [_value_key(value) for value in self.levels[name]]
            return lambda cell: float(places.index(_value_key(cell)))
        return _number

    def _one_hot(self, name: str, cells: Array, out: Array, problems: list[CellProblem]) -> None:
        values = self.categories[name]
        place = {_value_key(value): k for k, value in enumerate(values)}
        for i, cell in enumerate(cells.tolist() if cells.dtype.kind in "iubf" else cells):
            k = place.get(_value_key(cell))
            if k is None and name in self.fill and is_missing(cell):
                if self.fill[name] is None:
                    continue
                k = place[_value_key(self.fill[name])]
            if k is None:
                out[i] = np.nan
                shown = ", ".join(values[:6]) + (", ..." if len(values) > 6 else "")
                text = f"column {name!r}: {_shown(cell)} is not among {shown}; "
                text += FILL_HINT if is_missing(cell) else "declare every value that may occur"
                problems.append(CellProblem(row=i, text=text))
            else:
                out[i, k] = 1.0

    def fill_row(self) -> Array | None:
        """What a row of missing cells counts as; None unless every column of numbers has one."""
        if not all(name in self.fill for name in self.numbers):
            return None
        row, _ = self.encode({name: [None] for name in self.names})
        return np.asarray(np.nan_to_num(row[0], nan=0.0))

    def to_dict(self) -> dict[str, Any]:
        """A JSON-ready mapping; `from_dict` reads it."""
        return {
            "numbers": list(self.numbers), "dates": dict(self.dates),
            "categories": {name: list(values) for name, values in self.categories.items()},
            "fill": dict(self.fill), "number_type": self.number_type,
            **({"transforms": {k: v.to_list() for k, v in self.transforms.items()}}
               if self.transforms else {}),
            **({"levels": {k: list(v) for k, v in self.levels.items()}} if self.levels else {}),
        }  # fmt: skip

    @classmethod
    def from_dict(cls, d: Mapping[str, Any]) -> Self:
        """What `to_dict` wrote."""
        return cls(
            numbers=tuple(d["numbers"]), dates=dict(d["dates"]),
            categories={name: tuple(values) for name, values in d["categories"].items()},
            fill=dict(d["fill"]), number_type=str(d["number_type"]),
            transforms={k: ColumnTransform.of(v) for k, v in d.get("transforms", {}).items()},
            levels={name: tuple(values) for name, values in d.get("levels", {}).items()},
        )  # fmt: skip


@final
@dataclass(frozen=True, kw_only=True)
class ColumnDeclaration:
    """What is publicly known of a table's columns: their map to numbers, and the numbers' range."""

    columns: TableColumns
    low: NDArray[np.float64]
    high: NDArray[np.float64]


def declare_columns(
    *,
    bounds: Mapping[str, Any] | None,
    categories: Mapping[str, Sequence[Any]] | None,
    fill: Fill = None,
    transforms: Mapping[str, Any] | None = None,
    number_type: str = "float64",
) -> ColumnDeclaration:
    """The map and the ranges of declared columns.

    `bounds` are numbers (low, high), or two dates for a column of dates, whose features are days
    since the first. `fill` is a value a column, or "middle" of every range (and no category).
    `transforms` are a word for a column of numbers, or the levels of a column, the lowest first.

    >>> found = declare_columns(bounds={"admitted": ("2020-01-01", "2020-12-31")}, categories={})
    >>> found.columns.encode({"admitted": ["2020-01-03"]})[0].tolist(), found.high.tolist()
    ([[2.0]], [365.0])
    """
    bounds, categories = dict(bounds or {}), dict(categories or {})
    if both := sorted(set(bounds) & set(categories)):
        raise InvalidArgument("bounds", both[0], "columns that are not also in categories")
    if not bounds and not categories and not transforms:
        hint = 'give bounds={"age": (0, 120), ...} and categories={"sex": ("F", "M"), ...}'
        raise InvalidArgument("bounds", None, "at least one column", hint)
    values = {str(name): _values(name, given) for name, given in categories.items()}
    dates, ranges = {}, {}
    for name, pair in bounds.items():
        if is_date_pair(pair):
            first, last = (_seconds(end) for end in pair)
            dates[name] = datetime.fromtimestamp(first, UTC).isoformat()
            pair = (0.0, (last - first) / _DAY)
        check_pair(name, pair)
        ranges[name] = (float(pair[0]), float(pair[1]))
    not_dates = {name: pair for name, pair in ranges.items() if name not in dates}
    words, levels = declared_transforms(transforms, not_dates)
    for name, given in levels.items():
        if name in bounds or name in categories:
            raise InvalidArgument(f"transforms[{name!r}]", given, "a column declared once")
        _values(name, given)
    filled = _fills(fill, ranges, dates, values, words, levels)
    ranges |= {name: one.range for name, one in words.items()}
    ranges |= {name: (0.0, len(given) - 1.0) for name, given in levels.items()}
    columns = TableColumns(
        numbers=tuple(ranges), dates=dates, categories=values, fill=filled, transforms=words,
        levels=levels, number_type=number_type,
    )  # fmt: skip
    extra = len(columns.features) - len(ranges)
    low = np.array([pair[0] for pair in ranges.values()] + [0.0] * extra)
    high = np.array([pair[1] for pair in ranges.values()] + [1.0] * extra)
    return ColumnDeclaration(columns=columns, low=low, high=high)


def declared_for(
    table: Table,
    *,
    bounds: Any,
    categories: Mapping[str, Sequence[Any]] | None,
    fill: Any,
    ignore: Sequence[str],
    transforms: Mapping[str, Any] | None = None,
) -> ColumnDeclaration:
    """The declaration of the columns of this table, in their order; each must be declared.

    One pair of numbers as `bounds` is that of all columns that are not categories, one number as
    `fill` likewise.
    """
    categories, transforms = dict(categories or {}), dict(transforms or {})
    names = [name for name in table if name not in ignore]
    levelled = [name for name in names if isinstance(transforms.get(name), list | tuple)]
    others = [name for name in names if name not in categories and name not in levelled]
    if not isinstance(bounds, Mapping):
        bounds = dict.fromkeys(others, bounds) if bounds is not None else {}
    undeclared = [name for name in others if name not in bounds and not is_unnamed(name)]
    if undeclared:
        raise InvalidArgument(
            "bounds", list(bounds), f"one for each column, also {undeclared[0]!r}",
            "or list its values in categories, or name it in ignore",
        )  # fmt: skip
    used = [name for name in others if name in bounds]
    if isinstance(fill, Mapping):
        fill = {name: value for name, value in fill.items() if name in names}
    elif fill is not None and not isinstance(fill, str):
        each = [fill] * len(used) if np.ndim(fill) == 0 else list(fill)
        if len(each) != len(used):
            raise InvalidArgument("fill", fill, f"a number, or {len(used)} of them")
        fill = dict(zip(used, each, strict=True))
    return declare_columns(
        bounds={name: bounds[name] for name in used},
        categories={name: categories[name] for name in names if name in categories},
        fill=fill,
        transforms={name: given for name, given in transforms.items() if name in names},
    )


def check_columns_are_numbers(table: Table) -> None:
    """Refuse a table with text in a column for which nothing is declared by name."""
    for name, column in table.items():
        cells = _cells(column)
        text = (
            next((c for c in cells if isinstance(c, str)), None) if cells.dtype == object else None
        )
        if text is not None or cells.dtype.kind in "UM":
            raise InvalidArgument(
                f"X[{name!r}]", "text or dates" if text is None else text, "a number",
                "declare the column: categories={column: [every value]}, or its first and last "
                "date in bounds={column: (low, high)}; or name it in ignore",
            )  # fmt: skip


def table_of(X: Any) -> Table | None:
    """The columns of a frame, a dict of columns or a list of dicts by name; None for an array.

    >>> table_of([{"a": 1, "b": 2}, {"a": 3}])
    {'a': [1, 3], 'b': [2, None]}
    """
    if isinstance(X, Mapping):  # one kind of sparse matrix is a dict too, and is not
        return None if hasattr(X, "tocsr") else {str(name): cells for name, cells in X.items()}
    if isinstance(X, list | tuple) and X and all(isinstance(one, Mapping) for one in X):
        names = dict.fromkeys(str(name) for one in X for name in one)
        return {name: [one.get(name) for one in X] for name in names}
    names_of = getattr(X, "column_names", getattr(X, "columns", None))
    if names_of is None or not hasattr(X, "__getitem__"):
        return None
    names_of = list(names_of)
    if len(set(map(str, names_of))) < len(names_of):
        raise InvalidArgument("X", list(map(str, names_of)), "columns of different names")
    return {str(name): X[name] for name in names_of}


def is_unnamed(name: str) -> bool:
    """Whether a column is the index that pandas writes without a name."""
    return name.strip() == "" or name.startswith("Unnamed: ")


def is_missing(cell: Any) -> bool:
    """Whether a cell holds nothing: None, NaN, NaT or NA, or a word for it."""
    if cell is None:
        return True
    if isinstance(cell, str):
        return cell.strip().lower() in MISSING
    try:
        return bool(cell != cell)
    except TypeError:  # pandas.NA says neither
        return True


def check_pair(name: str, pair: Any) -> None:
    """Refuse bounds that are not (low, high), finite and in this order."""
    try:
        low, high = (float(value) for value in pair)
    except (TypeError, ValueError):
        raise InvalidArgument(
            f"bounds[{name!r}]", pair, "a pair (low, high) of numbers or of dates"
        ) from None
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise InvalidArgument(f"bounds[{name!r}]", pair, "a finite pair with low below high")


def is_date_pair(pair: Any) -> bool:
    """Whether these are two days, as text like 2026-11-18 or as dates.

    >>> is_date_pair(("2020-01-01", "2021-01-01")), is_date_pair((0, 120)), is_date_pair(("0", "9"))
    (True, False, False)
    """
    if not isinstance(pair, list | tuple) or len(pair) != 2:
        return False
    try:
        return all(_is_date(end) and math.isfinite(_seconds(end)) for end in pair)
    except (TypeError, ValueError, OverflowError):
        return False


def _is_date(value: Any) -> bool:
    return isinstance(value, date | np.datetime64) or (isinstance(value, str) and "-" in value[1:])


def _seconds(cell: Any) -> float:
    """Seconds since 1970 of a date or a time; without a zone it is UTC."""
    if isinstance(cell, np.datetime64):
        if np.isnat(cell):
            return math.nan
        cell = cell.astype("datetime64[us]").item()
    if isinstance(cell, str):
        cell = datetime.fromisoformat(cell.strip())
    if isinstance(cell, date) and not isinstance(cell, datetime):
        cell = datetime(cell.year, cell.month, cell.day)
    if not isinstance(cell, datetime):
        raise ValueError(f"{cell!r} is not a date")
    since = (cell if cell.tzinfo else cell.replace(tzinfo=UTC)) - datetime(1970, 1, 1, tzinfo=UTC)
    return since // timedelta(microseconds=1) / 1e6  # whatever type a date came in, the same bits


def _number(cell: Any) -> float:
    """A number, also from text; the words that files have for yes and no are 1 and 0."""
    if isinstance(cell, str) and cell.lower() in ("true", "false"):
        return float(cell.lower() == "true")
    return float(cell)


def _number_of(cell: Any, parse: Callable[[Any], float], filled: float) -> float:
    """A cell as a number; infinity for what is none, `filled` for what is missing."""
    if is_missing(cell):
        return filled
    try:
        return parse(cell.strip() if isinstance(cell, str) else cell)
    except (TypeError, ValueError, OverflowError):
        return math.inf


def _level_of(cell: Any, parse: Callable[[Any], float], filled: float) -> float:
    """The same of a level: one that was declared is no missing cell, whatever word it is."""
    try:
        return parse(cell)
    except ValueError:
        return filled if is_missing(cell) else math.inf


def _number_problem(
    row: int, name: str, cell: Any, kind: str, parse: Callable[[Any], float]
) -> CellProblem:
    problem = f"{_shown(cell)} is not a {kind}; {FILL_HINT}"
    try:
        parse(cell.strip() if isinstance(cell, str) else cell)
        problem = f"{_shown(cell)} is not finite; {FILL_HINT}"
    except (TypeError, ValueError, OverflowError):
        if not is_missing(cell):
            problem += (
                "; dates are written 2023-10-19 or 2023-10-19 08:30"
                if kind == "date"
                else ", or list the column's values under `categories`"
            )
    return CellProblem(row=row, text=f"column {name!r}: {problem}")


def _value_key(cell: Any) -> str:
    """A category as text, the same for True, 1, 1.0 and "1"; codes such as 01 stay as they are.

    >>> [_value_key(cell) for cell in (True, 1.0, "1.0", "01", 2.5)]
    ['1', '1', '1', '01', '2.5']
    """
    if isinstance(cell, float) and cell.is_integer():
        if abs(cell) >= 2.0**53:
            raise InvalidArgument(
                "categories", cell, "codes below 2^53, or as text",
                "whole numbers were rounded to it: keep the column from becoming floats",
            )  # fmt: skip
        cell = int(cell)
    text = str(cell).strip()
    if text in ("True", "False"):
        return str(int(text == "True"))
    return text[:-2] if text.endswith(".0") and text[:-2].lstrip("-").isdigit() else text


def _shown(cell: Any) -> str:
    return repr(cell.strip()) if isinstance(cell, str) else repr(cell)


def _values(name: Any, values: Any) -> tuple[str, ...]:
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise InvalidArgument(f"categories[{name!r}]", values, "a list of every value")
    listed = tuple(map(str, values))
    if len({_value_key(value) for value in listed}) < len(listed) or not listed:
        raise InvalidArgument(f"categories[{name!r}]", listed, "values, each of them once")
    return listed


def _fills(
    fill: Fill,
    ranges: Mapping[str, tuple[float, float]],
    dates: Mapping[str, str],
    categories: Mapping[str, tuple[str, ...]],
    transforms: Mapping[str, ColumnTransform],
    levels: Mapping[str, tuple[str, ...]],
) -> dict[str, Any]:
    """What a missing cell of a column counts as; None for no category."""
    if fill is None:
        return {}
    if isinstance(fill, str) and fill == MIDDLE:
        middle: dict[str, Any] = {
            name: _from_days(dates[name], (a + b) / 2.0) if name in dates else (a + b) / 2.0
            for name, (a, b) in ranges.items()
        }
        middle |= {name: one.middle for name, one in transforms.items()}
        middle |= {name: given[(len(given) - 1) // 2] for name, given in levels.items()}
        return middle | dict.fromkeys(categories)
    if not isinstance(fill, Mapping):
        raise InvalidArgument("fill", fill, f'"{MIDDLE}", or a value for each column')
    found = {}
    for name, value in fill.items():
        if name in dates:
            known = _is_date(value) and is_date_pair((value, value))
            value = datetime.fromtimestamp(_seconds(value), UTC).isoformat() if known else value
        elif name in ranges:
            known = isinstance(value, int | float | np.number) and math.isfinite(value)
            value = float(value) if known else value
        else:
            allowed = categories.get(name, levels.get(name, ()))
            known = _value_key(value) in map(_value_key, allowed)
            known = known or (value is None and name in categories)
        if not known:
            raise InvalidArgument(f"fill[{name!r}]", value, "a value that the column can have")
        found[name] = value
    return found


def _from_days(origin: str, days: float) -> str:
    return datetime.fromtimestamp(_seconds(origin) + days * _DAY, UTC).isoformat()


def _cells(column: Any) -> Array:
    """A column's cells; those of a list keep their own types, whatever the others have."""
    if not isinstance(column, list | tuple):
        try:
            cells = np.asarray(column)
        except Exception:  # whatever a frame's own type raises that numpy does not know
            cells = np.empty(0)
        whole = "int" in str(getattr(column, "dtype", "")).lower()
        if len(cells) == len(column) and not (whole and cells.dtype.kind == "f"):
            return cells
        column = list(column)  # of polars' whole numbers with a gap numpy would make floats
    out = np.empty(len(column), dtype=object)
    out[:] = column
    return out


def _equal_lengths(columns: Mapping[str, Array]) -> int:
    lengths = {name: len(cells) if cells.ndim == 1 else -1 for name, cells in columns.items()}
    wanted = next(iter(lengths.values()))
    for name, length in lengths.items():
        if length < 0 or length != wanted:
            raise InvalidArgument(
                f"X[{name!r}]", columns[name].shape, f"a column of {wanted} cells"
            )
    return wanted
