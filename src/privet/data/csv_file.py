"""CSV files of the user's own: declared columns, read block by block, never whole."""

from __future__ import annotations

import csv
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from privet.data.array_files import check_labels, check_parts, target_pair
from privet.data.data_folder import damaged_file
from privet.data.dataset import Dataset
from privet.data.table_columns import Fill, TableColumns, declare_columns, is_missing, is_unnamed
from privet.data.train_test_split import BY_CONTENT, split_rule
from privet.errors import InvalidArgument, MissingFile

DROP = "drop"
_BLOCK = 512  # lines of a block: as text some hundred kilobytes of a usual table


def load_csv(
    path: str | os.PathLike[str],
    *,
    label: str,
    classes: Sequence[str] = (),
    target_bounds: tuple[float, float] | None = None,
    bounds: Mapping[str, Any] | None = None,
    categories: Mapping[str, Sequence[str]] | None = None,
    ignore: Sequence[str] = (),
    fill: Fill = None,
    transforms: Mapping[str, Any] | None = None,
    missing_labels: str | None = None,
    user: str | None = None,
    test_path: str | os.PathLike[str] | None = None,
    test_fraction: float = 0.2,
    seed: int = 0,
) -> Dataset:
    """A data set from a CSV file with a header line.

    Numeric columns are those of `bounds` (column -> (low, high), two numbers or two dates),
    categorical ones those of `categories` (column -> every value that may occur), one-hot coded.
    The label column holds one of `classes`, or a number in `target_bounds`. Every other column must
    be named in `ignore`, so that none is left out by accident; the index that pandas writes without
    a name is left out. A missing cell counts as `fill` says (column -> value, or "middle"), and is
    an error without; a record without a label is an error, or left out by `missing_labels="drop"`.
    `transforms` are those of `declare_columns`.
    The test part is `test_path`, or the rows that a hash of their own cells, those of `ignore` too
    and the label not, sends there: about `test_fraction`. With `user`, the column that says whose a
    record is, all records of a person go to one part.

    **Assumes**: bounds, categories and classes are known apart from the data; a record's cells are
    its own, none of them its place in the file. Values outside the bounds are kept as they are and
    clipped by `Dataset.train_rows`.
    """
    # here: every command imports this module, and `privet account` needs no linear algebra
    from privet.sensitivity.user_ids import user_ids

    declared = declare_columns(
        bounds=bounds, categories=categories, fill=fill, transforms=transforms,
        number_type="float32",
    )  # fmt: skip
    columns = declared.columns
    if missing_labels not in (None, DROP):
        raise InvalidArgument("missing_labels", missing_labels, f'"{DROP}", or left out')
    reader = CSVReader(
        columns=columns, label=label, classes=tuple(map(str, classes)), ignore=tuple(ignore),
        target_bounds=target_pair(target_bounds, classes), user=user,
        drops_unlabelled=missing_labels == DROP,
    )  # fmt: skip
    place = Path(path)
    if test_path is not None:
        (x, y, whose), _ = reader.read(place)
        (x_test, y_test, _), _ = reader.read(Path(test_path))
    else:
        is_test = split_rule(share=test_fraction, seed=seed)
        (x, y, whose), (x_test, y_test, _) = reader.read(place, is_test)
    check_labels(place, np.concatenate([y, y_test]), reader.classes)
    if test_path is None:
        check_parts(place, len(y), len(y_test))
    return Dataset(
        name=place.stem,
        about=f"{place.name}: {len(columns.features)} features, label {label!r}",
        classes=reader.classes,
        target_bounds=reader.target_bounds,
        low=declared.low,
        high=declared.high,
        feature_names=columns.features,
        columns=columns,
        x_train=x,
        y_train=y,
        x_test=x_test,
        y_test=y_test,
        split_assumes=BY_CONTENT,
        drops_unlabelled=reader.drops_unlabelled,
        groups=None if user is None else user_ids(whose),
        user=user,
    )


Line = tuple[int, list[str]]
"""Its number, and its cells."""
Part = tuple[NDArray[np.float32], NDArray[Any], list[str]]
"""Features, labels, and whose the records are where a column says so."""


@final
@dataclass(frozen=True, kw_only=True)
class CSVReader:
    """The columns of a CSV file: features by their declared map, a label, perhaps a user.

    `target_bounds` says that the label is a number in this range; else it is one of `classes`.
    `user` names the column that says whose record it is: all records of a person go to one part.
    """

    columns: TableColumns
    label: str = ""
    classes: tuple[str, ...] = ()
    target_bounds: tuple[float, float] | None = None
    ignore: tuple[str, ...] = ()
    user: str | None = None
    drops_unlabelled: bool = False

    def read(
        self, path: Path, part: Callable[[bytes], bool] = lambda content: False
    ) -> tuple[Part, Part]:
        """Features and labels of a CSV file, in two parts: `part` sends a record to the second.

        It gets the record's cells, without the label; or whose record it is, where that is known.
        """
        lines = read_lines(path)
        header = next(lines)[1]
        self._every_column_is_declared(path, header)
        at = header.index(self.label)
        content = [k for k, name in enumerate(header) if k != at and not self._is_index(name)]
        if self.user is not None:
            content = [header.index(self.user)]
        sides = [_GrowingPart(len(self.columns.features), self._label_type) for _ in range(2)]
        for block in _blocks(self._labelled(lines, at)):
            y = np.array([self._label_number(path, n, line[at].strip()) for n, line in block])
            x = self._features(path, header, block)
            cells = ["\x1f".join(line[k] for k in content) for _, line in block]
            if self.user is not None:
                cells = [cell.strip() for cell in cells]
            side = np.array([part(cell.encode()) for cell in cells], dtype=bool)
            for k in range(2):
                whose = [c for c, s in zip(cells, side, strict=True) if s == k and self.user]
                sides[k].add(x[side == k], y[side == k], whose)
        return sides[0].whole(), sides[1].whole()

    def read_new(self, path: Path) -> tuple[NDArray[np.float32], NDArray[Any] | None]:
        """Features of records to ask a model about, and their labels if the file has them.

        Other columns than those declared are not looked at. A number to predict that is missing is
        NaN, a class that is missing -1.
        """
        lines = read_lines(path)
        header = next(lines)[1]
        missing = [name for name in self.columns.names if name not in header]
        if missing:
            problem = f"it has no column {missing[0]!r}, only {', '.join(header)}"
            raise damaged_file(path, f"{problem}; the model was trained with it")
        at = header.index(self.label) if self.label in header else None
        absent = -1 if self.target_bounds is None else np.nan
        found = _GrowingPart(len(self.columns.features), self._label_type)
        for block in _blocks(lines):
            x = self._features(path, header, block)
            cells = ["" if at is None else line[at].strip() for _, line in block]
            y = [
                absent if is_missing(cell) and cell not in self.classes
                else self._label_number(path, number, cell)
                for cell, (number, _) in zip(cells, block, strict=True)
            ]  # fmt: skip
            found.add(x, np.array(y), [])
        x, labels, _ = found.whole()
        return x, None if at is None else labels

    @property
    def _label_type(self) -> type[Any]:
        return np.int64 if self.target_bounds is None else np.float64

    def _is_index(self, name: str) -> bool:
        """Whether a column is an index without a name, which nobody declared."""
        return is_unnamed(name) and name not in (*self.columns.names, *self.ignore, self.user)

    def _labelled(self, lines: Iterator[Line], at: int) -> Iterator[Line]:
        """The lines; those without a label are left out where that was declared."""
        for number, line in lines:
            cell = line[at].strip()
            if not (self.drops_unlabelled and is_missing(cell) and cell not in self.classes):
                yield number, line

    def _every_column_is_declared(self, path: Path, header: list[str]) -> None:
        own = () if self.user is None else (self.user,)
        known = (*self.columns.names, self.label, *own, *self.ignore)
        for name in known:
            if name not in header:
                problem = f"it has no column {name!r}, only {', '.join(header)}"
                raise damaged_file(path, f"{problem}; correct what is declared, or the file")
        for name in header:
            if name not in known and not self._is_index(name):
                raise InvalidArgument(
                    "bounds", name, "declared for every column",
                    "give its [low, high], or its values under categories, or name it in ignore",
                )  # fmt: skip

    def _features(self, path: Path, header: list[str], block: list[Line]) -> NDArray[np.float32]:
        where = {name: header.index(name) for name in self.columns.names}
        table = {name: [line[k].strip() for _, line in block] for name, k in where.items()}
        x, problems = self.columns.encode(table)
        if problems:
            raise damaged_file(path, f"line {block[problems[0].row][0]}, {problems[0].text}")
        return x

    def _label_number(self, path: Path, number: int, cell: str) -> float:
        """The number of a class, or the number to predict."""
        where = f"line {number}, column {self.label!r}: {cell!r}"
        hint = f'"missing_labels": "{DROP}" in the declaration leaves out such records'
        if self.target_bounds is None:
            if cell in self.classes:
                return self.classes.index(cell)
            shown = ", ".join(self.classes[:6]) + (", ..." if len(self.classes) > 6 else "")
            hint = hint if is_missing(cell) else "declare every value that may occur"
            raise damaged_file(path, f"{where} is not among {shown}; {hint}")
        try:
            value = float(cell)
        except ValueError:
            raise damaged_file(path, f"{where} is not a number; {hint}") from None
        if not np.isfinite(value):
            raise damaged_file(path, f"{where} is not finite; {hint}")
        return value


def _blocks(lines: Iterator[Line]) -> Iterator[list[Line]]:
    while block := list(islice(lines, _BLOCK)):
        yield block


def read_lines(path: Path) -> Iterator[Line]:
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
                        raise damaged_file(path, f"line {number} has {problem}")
                    yield number, line
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise damaged_file(path, f"not a readable CSV file ({error})") from None
    if header is None:
        raise damaged_file(path, "it is empty; expected a header line")


class _GrowingPart:
    """Rows that grow by blocks: little more memory than they take in the end."""

    def __init__(self, width: int, kind: type[Any]) -> None:
        self.width, self.kind = width, kind
        self.blocks: list[NDArray[np.float32]] = []
        self.targets: list[NDArray[Any]] = []
        self.users: list[str] = []

    def add(self, x: NDArray[np.float32], y: NDArray[Any], users: list[str]) -> None:
        self.blocks.append(x)
        self.targets.append(y)
        self.users += users

    def whole(self) -> Part:
        """All rows and targets, which cannot be written to; blocks are given up on the way."""
        n = sum(map(len, self.targets))
        x, y = np.empty((n, self.width), dtype=np.float32), np.empty(n, dtype=self.kind)
        start = 0
        while self.blocks:
            block, targets = self.blocks.pop(0), self.targets.pop(0)
            x[start : start + len(block)], y[start : start + len(block)] = block, targets
            start += len(block)
        x.flags.writeable = y.flags.writeable = False
        return x, y, self.users
