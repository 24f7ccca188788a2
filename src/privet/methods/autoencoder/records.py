"""Records block by block: arrays, memory maps, or a stream that can be read again."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from privet import _check
from privet._exact import row_norms, row_sums
from privet.bounds import UserWeights
from privet.errors import InvalidArgument
from privet.methods.base import column_bounds
from privet.nets.features import Features

Array = NDArray[Any]
Bounds = None | float | tuple[Any, Any]

BLOCK = 2048


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Block:
    """Some records: rows, their labels (None: there are none) and their weights (None: 1 each)."""

    rows: Array = field(repr=False)
    labels: Array | None = None
    weights: UserWeights | NDArray[np.float64] | None = None


class Records(ABC):
    """A data set that is read in passes; memory is that of one block."""

    @abstractmethod
    def blocks(self) -> Iterator[Block]:
        """One pass over all records, in blocks."""


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Held(Records):
    """Records in an array, or in a memory map on disk, of which a block at a time is read."""

    rows: Array = field(repr=False)
    labels: Array | None = field(default=None, repr=False)
    weights: UserWeights | NDArray[np.float64] | None = field(default=None, repr=False)

    def blocks(self) -> Iterator[Block]:
        """Slices of the array."""
        for start in range(0, len(self.rows), BLOCK):
            part = slice(start, start + BLOCK)
            yield Block(
                rows=self.rows[part],
                labels=None if self.labels is None else self.labels[part],
                weights=None if self.weights is None else self.weights[part],
            )


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Stream(Records):
    """Records that come in chunks: `open()` begins a new pass and yields rows, or (rows, labels).

    `columns` is how many features a row has. Each pass must yield the same records.

    >>> stream = Stream(open=lambda: iter([np.ones((3, 2)), np.zeros((1, 2))]), columns=2)
    >>> [len(block.rows) for block in stream.blocks()]
    [3, 1]
    """

    open: Callable[[], Iterable[Any]]
    columns: int

    def __post_init__(self) -> None:
        _check.count("columns", self.columns)

    def blocks(self) -> Iterator[Block]:
        """The chunks, cut where they are long."""
        for chunk in self.open():
            rows, labels = chunk if isinstance(chunk, tuple) else (chunk, None)
            rows = np.asarray(rows)
            rows = rows.reshape(len(rows), -1)
            if rows.shape[1] != self.columns:
                raise InvalidArgument("stream", rows.shape, f"chunks with {self.columns} columns")
            labels = None if labels is None else np.asarray(labels)
            if labels is not None and labels.shape != (len(rows),):
                raise InvalidArgument("stream", labels.shape, f"{len(rows)} labels in this chunk")
            yield from Held(rows=rows, labels=labels).blocks()


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Scaling:
    """The public map of a record into the unit ball, and back.

    - `features`: a public extractor of `privet.nets.features` (no way back beyond its features);
    - `bounds` a number c: x / max(||x||, c);
    - `bounds` a pair (low, high), numbers or one a column: columns are clipped and scaled to
      [0, 1], to u, and u goes to u / sqrt(r^2 + ||u||^2), r = looseness sqrt(d).

    A small `looseness` sends rows far out into the unit ball, where noise weighs least: for
    classifying. A large one keeps away from the border, where the way back is steep: for
    reconstruction.

    **Guarantee** every row has length below 1, whatever the record; one that is not finite is zero.
    Nothing is read from other records.

    >>> scaling = Scaling(bounds=([0, 0], [1, 100]), columns=2)
    >>> scaling.back(scaling.rows(np.array([[0.5, 50.0]]))).round(4).tolist()
    [[0.5, 50.0]]
    """

    columns: int
    bounds: Bounds = None
    features: Features | None = None
    looseness: float = 0.5

    def __post_init__(self) -> None:
        if self.features is None and self.bounds is None:
            raise InvalidArgument(
                "bounds",
                None,
                "given when there are no features",
                "pass bounds=(low, high) with what is publicly known of each column, or bounds=c "
                "for rows of length at most c; they are never read from the data",
            )
        if self.features is None and not isinstance(self.bounds, tuple | list):
            _check.positive("bounds", self.bounds)
        elif self.features is None:
            object.__setattr__(self, "bounds", column_bounds(self.bounds, self.columns))

    @property
    def size(self) -> int:
        """How many features come out."""
        return self.columns if self.features is None else self.features.n_features

    @property
    def _radius(self) -> float:
        """r."""
        return self.looseness * math.sqrt(self.columns)

    def rows(self, x: Array) -> NDArray[np.float32]:
        """Rows of the unit ball."""
        if self.features is not None:
            return self.features.transform(x)
        u = np.asarray(x, dtype=np.float64).reshape(len(x), -1)
        good = np.isfinite(u).all(axis=1, keepdims=True)
        if isinstance(self.bounds, tuple):
            low, high = self.bounds
            u = np.where(good, (np.clip(np.where(good, u, low), low, high) - low) / (high - low), 0)
            return squashed(u, self._radius).astype(np.float32)
        u = np.where(good, u, 0.0)
        largest = np.maximum(np.abs(u).max(axis=1, keepdims=True, initial=0.0), 1e-300)
        norms = largest * row_norms(u / largest)[:, None]
        longest = _check.positive("bounds", self.bounds)
        return np.asarray(u / np.maximum(norms, longest) * (1.0 - 1e-6), dtype=np.float32)

    def back(self, rows: Array) -> NDArray[np.float64]:
        """Records from rows of the unit ball; public features stay features."""
        if self.features is not None:
            return np.asarray(rows, dtype=np.float64)
        if isinstance(self.bounds, tuple):
            low, high = self.bounds
            u = unsquashed(rows, self._radius)
            return np.asarray(low + np.clip(u, 0.0, 1.0) * (high - low))
        assert isinstance(self.bounds, float | int)
        return np.asarray(rows, dtype=np.float64) * float(self.bounds)


def squashed(a: Array, radius: float) -> NDArray[Any]:
    """a / sqrt(radius^2 + ||a||^2), row by row: into the open unit ball, one to one.

    >>> squashed(np.array([[3.0, 4.0]]), 0.0).tolist()
    [[0.6, 0.8]]
    """
    squares = row_sums(np.square(a))[:, None]
    return np.asarray(a / np.sqrt(radius**2 + squares + 1e-30))


def unsquashed(z: Array, radius: float) -> NDArray[np.float64]:
    """The inverse of `squashed`; rows on the border or beyond come from far out, not infinity."""
    z = np.asarray(z, dtype=np.float64)
    room = np.maximum(1.0 - np.square(z).sum(axis=1, keepdims=True), 1e-6)
    return np.asarray(radius * z / np.sqrt(room))
