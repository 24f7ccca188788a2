"""Tables of the user's own: CSV and npz, with bounds, categories and classes declared."""

from __future__ import annotations

import csv
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privet.data.dataset import Dataset
from privet.data.files import damaged
from privet.data.pictures import read_npz
from privet.data.split import BY_CONTENT, kept_for_tests
from privet.errors import InvalidArgument, MissingFile

Bounds = Mapping[str, tuple[float, float]]


def load_csv(
    path: str | os.PathLike[str],
    *,
    label: str,
    classes: Sequence[str],
    bounds: Bounds | None = None,
    categories: Mapping[str, Sequence[str]] | None = None,
    ignore: Sequence[str] = (),
    test_path: str | os.PathLike[str] | None = None,
    test_fraction: float = 0.2,
    seed: int = 0,
) -> Dataset:
    """A data set from a CSV file with a header line.

    Numeric columns are those of `bounds` (column -> (low, high)), categorical ones those of
    `categories` (column -> every value that may occur), one-hot coded. The label column holds one
    of `classes`. Every other column must be named in `ignore`, so that none is left out by
    accident. The test part is `test_path`, or the rows that a hash of their own cells, those of
    `ignore` too and the label not, sends there: about `test_fraction` of them.

    **Assumes**: bounds, categories and classes are known apart from the data; a record's cells are
    its own, none of them its place in the file. Values outside the bounds are kept as they are and
    clipped by `Dataset.train_rows`.
    """
    bounds, categories = dict(bounds or {}), dict(categories or {})
    for name, pair in bounds.items():
        _check_pair(name, pair)
    columns = Columns(label, tuple(map(str, classes)), bounds, categories, tuple(ignore))
    x, y, contents = columns.read(Path(path))
    check_labels(Path(path), y, columns.classes)
    if test_path is not None:
        x_test, y_test, _ = columns.read(Path(test_path))
    else:
        tests = kept_for_tests(contents, share=test_fraction, seed=seed)
        check_parts(Path(path), tests)
        x, x_test, y, y_test = x[~tests], x[tests], y[~tests], y[tests]
    low, high = columns.limits()
    return Dataset(
        name=Path(path).stem,
        about=f"{Path(path).name}: {len(columns.names())} features, label {label!r}",
        classes=columns.classes,
        low=low,
        high=high,
        feature_names=columns.names(),
        x_train=x,
        y_train=y,
        x_test=x_test,
        y_test=y_test,
        split_assumes=BY_CONTENT,
    )


def load_npz(
    path: str | os.PathLike[str],
    *,
    bounds: tuple[Any, Any],
    classes: Sequence[str],
) -> Dataset:
    """A data set from an npz file with arrays x_train, y_train, x_test, y_test.

    `bounds` is (low, high): numbers, or arrays with one entry for each feature. Object arrays are
    refused.
    """
    place = Path(path)
    if not place.is_file():
        raise MissingFile(place, "give the path of an npz file")
    arrays = read_npz(place, ("x_train", "y_train", "x_test", "y_test"))
    for name in ("x_train", "x_test"):
        if not np.issubdtype(arrays[name].dtype, np.number):
            raise damaged(place, f"{name} holds {arrays[name].dtype}, not numbers")
        if not np.isfinite(arrays[name]).all():
            raise damaged(
                place, f"{name} has values that are not finite; fill or drop those records"
            )
    data = Dataset(
        name=place.stem,
        about=place.name,
        classes=tuple(map(str, classes)),
        low=bounds[0],
        high=bounds[1],
        x_train=arrays["x_train"],
        y_train=arrays["y_train"],
        x_test=arrays["x_test"],
        y_test=arrays["y_test"],
    )
    check_labels(place, data.y_train, data.classes)
    return data


def check_labels(path: Path, y: NDArray[np.int64], classes: tuple[str, ...]) -> None:
    """Refuse a file without records, or whose records are all of one class."""
    found = np.unique(y)
    if len(found) == 0:
        raise damaged(path, "it has no records")
    if len(found) == 1:
        problem = f"all its labels are {classes[found[0]]!r}, and there is nothing to learn"
        raise damaged(path, f"{problem}; see that the right column is named as the label")


def check_parts(path: Path, tests: NDArray[np.bool_]) -> None:
    """Refuse a split that leaves a part empty."""
    if tests.all() or not tests.any():
        problem = f"too few different records ({len(tests)}) to keep some for tests"
        raise damaged(path, f"{problem}; a number of its own, under `ignore`, tells copies apart")


def _check_pair(name: str, pair: Any) -> None:
    try:
        low, high = (float(value) for value in pair)
    except (TypeError, ValueError):
        raise InvalidArgument(f"bounds[{name!r}]", pair, "a pair (low, high)") from None
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise InvalidArgument(f"bounds[{name!r}]", pair, "a finite pair with low below high")


class Columns:
    """Which columns a table has, and how its lines become numbers."""

    def __init__(
        self,
        label: str,
        classes: tuple[str, ...],
        bounds: Bounds,
        categories: Mapping[str, Sequence[str]],
        ignore: tuple[str, ...],
    ) -> None:
        self.label, self.classes, self.bounds, self.ignore = label, classes, bounds, ignore
        self.categories = {name: tuple(map(str, values)) for name, values in categories.items()}
        if both := sorted(set(self.bounds) & set(self.categories)):
            raise InvalidArgument("bounds", both[0], "columns that are not also in categories")
        if not self.bounds and not self.categories:
            hint = 'give bounds={"age": (0, 120), ...} and categories={"sex": ("F", "M"), ...}'
            raise InvalidArgument("bounds", None, "at least one column", hint)

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

    def read(self, path: Path) -> tuple[NDArray[np.float32], NDArray[np.int64], list[bytes]]:
        """Features and labels of a CSV file, and each record's cells but the label as bytes."""
        lines = self._lines(path)
        where = self._where(path, lines[0], (self.label, *self.ignore))
        x = np.zeros((len(lines) - 1, len(self.names())), dtype=np.float32)
        y = np.zeros(len(x), dtype=np.int64)
        for index, (number, line) in enumerate(_numbered(lines)):
            self._fill(path, number, line, where, x[index])
            y[index] = self._choice(path, number, self.label, line[where[self.label]], self.classes)
        at = where[self.label]
        return x, y, ["\x1f".join(c[:at] + c[at + 1 :]).encode() for c in lines[1:]]

    def read_features(self, path: Path) -> NDArray[np.float32]:
        """Features of a CSV file that may lack the label and what is ignored."""
        lines = self._lines(path)
        spare = tuple(n for n in (self.label, *self.ignore) if n in lines[0])
        where = self._where(path, lines[0], spare)
        x = np.zeros((len(lines) - 1, len(self.names())), dtype=np.float32)
        for index, (number, line) in enumerate(_numbered(lines)):
            self._fill(path, number, line, where, x[index])
        return x

    def _lines(self, path: Path) -> list[list[str]]:
        """The header and all lines that are not empty, as cells."""
        if not path.is_file():
            raise MissingFile(path, "give the path of a CSV file with a header line")
        try:
            with path.open(newline="", encoding="utf-8-sig") as file:
                lines = list(csv.reader(file, skipinitialspace=True))
        except (OSError, UnicodeDecodeError, csv.Error) as error:
            raise damaged(path, f"not a readable CSV file ({error})") from None
        if not lines:
            raise damaged(path, "it is empty; expected a header line")
        header, rows = [name.strip() for name in lines[0]], [line for line in lines[1:] if line]
        for number, line in enumerate(lines[1:], start=2):
            if line and len(line) != len(header):
                raise damaged(path, f"line {number} has {len(line)} cells instead of {len(header)}")
        return [header, *rows]

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
            try:
                row[at] = float(cell)
            except ValueError:
                problem = (
                    f"line {number}, column {name!r}: {cell!r} is not a number; fill or drop the "
                    "line, or list the column's values under `categories`"
                )
                raise damaged(path, problem) from None
            if not math.isfinite(row[at]):
                problem = (
                    f"line {number}, column {name!r}: {cell!r} is not finite; fill or drop the line"
                )
                raise damaged(path, problem)
            at += 1
        for name, values in self.categories.items():
            row[at + self._choice(path, number, name, line[where[name]], values)] = 1.0
            at += len(values)

    @staticmethod
    def _choice(path: Path, number: int, name: str, cell: str, values: tuple[str, ...]) -> int:
        try:
            return values.index(cell.strip())
        except ValueError:
            shown = ", ".join(values[:6]) + (", ..." if len(values) > 6 else "")
            problem = (
                f"line {number}, column {name!r}: {cell.strip()!r} is not among {shown}; "
                "declare every value that may occur"
            )
            raise damaged(path, problem) from None


def _numbered(lines: list[list[str]]) -> Iterator[tuple[int, list[str]]]:
    """The lines below the header, with their numbers in a file without empty lines."""
    return enumerate(lines[1:], start=2)
