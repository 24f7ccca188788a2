"""Which columns a table has, and how its lines become numbers: read line by line, never whole."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privet.data.files import damaged
from privet.errors import InvalidArgument, MissingFile

Bounds = Mapping[str, tuple[float, float]]
Fill = str | Mapping[str, Any] | None
MIDDLE = "middle"
MISSING = frozenset({"", "na", "n/a", "nan", "null", "none", "?", "."})
"""Cells that hold nothing, in small letters."""
_BLOCK = 8192
_LARGEST = float(np.finfo(np.float32).max)
_AS_THEY_ARE = "fill or drop the line, or declare what missing cells count as: `fill`"


class Columns:
    """The declared columns of a table.

    `fill` says what a missing cell counts as: a value a column, or "middle" for the middle of every
    range (and no category at all). It is declared, so a record's numbers stay its own.
    `target_bounds` says that the label is a number in this range; else it is one of `classes`.
    `user` names the column that says whose record it is: all records of a person go to one part.
    """

    def __init__(
        self,
        label: str,
        classes: tuple[str, ...],
        bounds: Bounds,
        categories: Mapping[str, Sequence[str]],
        ignore: tuple[str, ...],
        *,
        fill: Fill = None,
        target_bounds: tuple[float, float] | None = None,
        user: str | None = None,
    ) -> None:
        self.label, self.classes, self.bounds, self.ignore = label, classes, bounds, ignore
        self.target_bounds, self.user = target_bounds, user
        self.users: list[str] = []
        """Whose the records of the first part are, where there is a column that says so."""
        self.categories = {name: tuple(map(str, values)) for name, values in categories.items()}
        if both := sorted(set(self.bounds) & set(self.categories)):
            raise InvalidArgument("bounds", both[0], "columns that are not also in categories")
        if not self.bounds and not self.categories:
            hint = 'give bounds={"age": (0, 120), ...} and categories={"sex": ("F", "M"), ...}'
            raise InvalidArgument("bounds", None, "at least one column", hint)
        self.fill = self._fills(fill)

    def _fills(self, fill: Fill) -> dict[str, Any]:
        """What a missing cell of a column counts as; None for no category."""
        if fill is None:
            return {}
        if fill == MIDDLE:
            middle: dict[str, Any] = {k: (a + b) / 2.0 for k, (a, b) in self.bounds.items()}
            return middle | dict.fromkeys(self.categories)
        if not isinstance(fill, Mapping):
            raise InvalidArgument("fill", fill, f'"{MIDDLE}", or a value for each column')
        for name, value in fill.items():
            if name in self.bounds:
                known = isinstance(value, int | float) and math.isfinite(value)
            else:
                known = name in self.categories and (
                    value is None or str(value) in self.categories[name]
                )
            if not known:
                raise InvalidArgument(f"fill[{name!r}]", value, "a value that the column can have")
        return dict(fill)

    def names(self) -> tuple[str, ...]:
        """Names of the features, one-hot columns as name=value."""
        one_hot = [
            f"{name}={value}" for name, values in self.categories.items() for value in values
        ]
        return (*self.bounds, *one_hot)

    def limits(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Lower and upper bounds of the features; 0 and 1 for one-hot columns."""
        extra = len(self.names()) - len(self.bounds)
        low = [float(pair[0]) for pair in self.bounds.values()] + [0.0] * extra
        high = [float(pair[1]) for pair in self.bounds.values()] + [1.0] * extra
        return np.array(low), np.array(high)

    def read(
        self, path: Path, part: Callable[[bytes], bool] = lambda content: False
    ) -> tuple[tuple[NDArray[np.float32], NDArray[Any]], tuple[NDArray[np.float32], NDArray[Any]]]:
        """Features and labels of a CSV file, in two parts: `part` sends a record to the second.

        It is told the record's cells, without the label; or whose record it is, where that is
        known.
        """
        lines = self._lines(path)
        header = next(lines)[1]
        own = () if self.user is None else (self.user,)
        where = self._where(path, header, tuple(dict.fromkeys((self.label, *own, *self.ignore))))
        at = where[self.label]
        kind = np.int64 if self.target_bounds is None else np.float64
        sides = [_Rows(len(self.names()), kind) for _ in range(2)]
        for number, line in lines:
            whose = None if self.user is None else line[where[self.user]].strip()
            told = "\x1f".join(line[:at] + line[at + 1 :]) if whose is None else whose
            side = sides[part(told.encode())]
            if whose is not None and side is sides[0]:
                self.users.append(whose)
            self._fill(path, number, line, where, side.row(self._target(path, number, line[at])))
        first, second = (side.arrays() for side in sides)
        return first, second

    def read_features(self, path: Path) -> tuple[NDArray[np.float32], NDArray[Any] | None]:
        """Features of a CSV file that may lack the label and what is ignored; labels if there."""
        lines = self._lines(path)
        header = next(lines)[1]
        known = dict.fromkeys((self.label, self.user, *self.ignore))
        spare = tuple(n for n in known if n is not None and n in header)
        where = self._where(path, header, spare)
        at = where.get(self.label)
        found = _Rows(len(self.names()), np.float64)
        for number, line in lines:
            target = 0.0 if at is None else self._target(path, number, line[at])
            self._fill(path, number, line, where, found.row(target))
        x, y = found.arrays()
        if at is None:
            return x, None
        return x, y if self.target_bounds is not None else y.astype(np.int64)

    def _lines(self, path: Path) -> Iterator[tuple[int, list[str]]]:
        """The header and all lines that are not empty, as cells, with their numbers."""
        if not path.is_file():
            raise MissingFile(path, "give the path of a CSV file with a header line")
        header: list[str] | None = None
        try:
            with path.open(newline="", encoding="utf-8-sig") as file:
                for number, line in enumerate(csv.reader(file, skipinitialspace=True), start=1):
                    if header is None:
                        header = [name.strip() for name in line]
                        yield number, header
                    elif line:
                        if len(line) != len(header):
                            problem = f"{len(line)} cells instead of {len(header)}"
                            raise damaged(path, f"line {number} has {problem}")
                        yield number, line
        except (OSError, UnicodeDecodeError, csv.Error) as error:
            raise damaged(path, f"not a readable CSV file ({error})") from None
        if header is None:
            raise damaged(path, "it is empty; expected a header line")

    def _where(self, path: Path, header: list[str], more: tuple[str, ...]) -> dict[str, int]:
        known = (*self.bounds, *self.categories, *more)
        for name in known:
            if name not in header:
                problem = f"it has no column {name!r}, only {', '.join(header)}"
                raise damaged(path, f"{problem}; correct what is declared, or the file")
        for name in header:
            if name not in known:
                raise InvalidArgument(
                    "bounds", name, "declared for every column",
                    "give its [low, high], or its values under categories, or name it in ignore",
                )  # fmt: skip
        return {name: header.index(name) for name in known}

    def _target(self, path: Path, number: int, cell: str) -> float:
        if self.target_bounds is None:
            return self._choice(path, number, self.label, cell.strip(), self.classes)
        return self._number(path, number, self.label, cell.strip(), "drop the line")

    def _fill(
        self,
        path: Path,
        number: int,
        line: list[str],
        where: Mapping[str, int],
        row: NDArray[np.float32],
    ) -> None:
        at = 0
        for name in self.bounds:
            cell = line[where[name]].strip()
            if name in self.fill and cell.lower() in MISSING:
                row[at] = self.fill[name]
            else:
                row[at] = self._number(path, number, name, cell, _AS_THEY_ARE)
            at += 1
        for name, values in self.categories.items():
            cell = line[where[name]].strip()
            if name in self.fill and cell.lower() in MISSING and cell not in values:
                cell = self.fill[name]
            if cell is not None:
                row[at + self._choice(path, number, name, str(cell), values)] = 1.0
            at += len(values)

    @staticmethod
    def _number(path: Path, number: int, name: str, cell: str, hint: str) -> float:
        try:
            found = float(cell)
        except ValueError:
            problem = f"line {number}, column {name!r}: {cell!r} is not a number; {hint}"
            if cell.lower() not in MISSING:
                problem += ", or list the column's values under `categories`"
            raise damaged(path, problem) from None
        if not abs(found) <= _LARGEST:
            problem = f"line {number}, column {name!r}: {cell!r} is not finite; {hint}"
            raise damaged(path, problem)
        return found

    @staticmethod
    def _choice(path: Path, number: int, name: str, cell: str, values: tuple[str, ...]) -> int:
        try:
            return values.index(cell)
        except ValueError:
            shown = ", ".join(values[:6]) + (", ..." if len(values) > 6 else "")
            problem = (
                f"line {number}, column {name!r}: {cell!r} is not among {shown}; "
                "declare every value that may occur"
            )
            raise damaged(path, problem) from None


class _Rows:
    """Rows that grow by blocks: little more memory than they take in the end."""

    def __init__(self, width: int, kind: type[Any]) -> None:
        self.width, self.kind, self.used = width, kind, _BLOCK
        self.blocks: list[NDArray[np.float32]] = []
        self.targets: list[NDArray[Any]] = []

    def row(self, target: float) -> NDArray[np.float32]:
        """The next row, of zeros, to fill in."""
        if self.used == _BLOCK:
            self.blocks.append(np.zeros((_BLOCK, self.width), dtype=np.float32))
            self.targets.append(np.zeros(_BLOCK, dtype=self.kind))
            self.used = 0
        self.used += 1
        self.targets[-1][self.used - 1] = target
        found: NDArray[np.float32] = self.blocks[-1][self.used - 1]
        return found

    def arrays(self) -> tuple[NDArray[np.float32], NDArray[Any]]:
        """All rows and targets, which cannot be written to; blocks are given up on the way."""
        n = max(0, len(self.blocks) - 1) * _BLOCK + (self.used if self.blocks else 0)
        x, y = np.empty((n, self.width), dtype=np.float32), np.empty(n, dtype=self.kind)
        for start in range(0, n, _BLOCK):
            end = min(n, start + _BLOCK)
            x[start:end] = self.blocks.pop(0)[: end - start]
            y[start:end] = self.targets.pop(0)[: end - start]
        x.flags.writeable = y.flags.writeable = False
        return x, y
