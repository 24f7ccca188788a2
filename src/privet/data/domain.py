"""The public bounds of a record, and its scaling to rows in the unit box or ball.

A record becomes a row by a public map of that record alone: its columns are brought to [0, 1] by
declared bounds, or it is cut to a declared length, or a public extractor makes features of it. A
row that is not finite is *null*: it keeps its place and counts for nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from privet import _check, premises, tuned_defaults
from privet.data.unit_ball import MARGIN, shorten, squash_rows
from privet.errors import InvalidArgument
from privet.features import Features, unit_rows
from privet.features.combined_extractors import ZeroFeatures
from privet.guarantee import Premise
from privet.rowwise_arithmetic import row_blocks

Array = NDArray[Any]
Bounds = None | float | tuple[Any, Any]


class RowKind(Enum):
    """What is known of every row."""

    BOX = "box"
    """Each number is in [0, 1]."""
    BALL = "ball"
    """Each row has L2 norm at most 1."""
    FREE = "free"
    """Nothing: rows that a paid-for map made of others; whoever uses them bounds what they do."""


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Rows:
    """Records as rows of a box or a ball, in the order of their places; null ones are zero.

    The views are public maps of each row alone, and take a null row to zero.
    """

    values: NDArray[np.float32] = field(repr=False)
    """One row a record, in the record's own shape."""
    kind: RowKind
    null: NDArray[np.bool_] = field(repr=False)

    def __len__(self) -> int:
        return len(self.values)

    def part(self, which: slice | Array) -> Rows:
        """Some of the rows."""
        return Rows(values=self.values[which], kind=self.kind, null=self.null[which])

    def without(self, wrong: NDArray[np.bool_]) -> Rows:
        """The same rows, of which these are null too."""
        values = self.values.copy()
        values[wrong] = 0.0
        return Rows(values=values, kind=self.kind, null=self.null | wrong)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one row."""
        return self.values.shape[1:]

    @property
    def flat(self) -> NDArray[np.float32]:
        """As they are, one dimension a row."""
        return self.values.reshape(len(self.values), int(np.prod(self.shape)))

    def box(self) -> NDArray[np.float32]:
        """In [0, 1], in the record's shape; rows of a ball are moved there."""
        self._bounded("box")
        if self.kind is RowKind.BOX:
            return self.values
        return self._held((self.values + np.float32(1.0)) * np.float32(0.5))

    def cube(self) -> NDArray[np.float32]:
        """In [-1, 1], in the record's shape; free rows as they are."""
        if self.kind is not RowKind.BOX:
            return self.values
        return self._held(self.values * np.float32(2.0) - np.float32(1.0))

    def ball(self) -> NDArray[np.float32]:
        """Flat rows of length at most 1: the cube about its middle, shrunk."""
        self._bounded("ball")
        if self.kind is RowKind.BALL:
            return self.flat
        flat = self.cube().reshape(len(self.values), -1)
        return flat * np.float32((1.0 - MARGIN) / math.sqrt(max(1, flat.shape[1])))

    def directions(self) -> NDArray[np.float32]:
        """Flat rows, those of a box scaled to length 1."""
        self._bounded("ball")
        return self.flat if self.kind is RowKind.BALL else unit_rows(self.flat)

    def unit(self) -> NDArray[np.float32]:
        """Flat rows of length at most 1, made of a box for what is linear in them.

        Pictures, which have several dimensions, are directions from zero, their background. Of a
        table's columns many may rise together, and directions from a corner of the box lose just
        that: its rows are seen from the middle, and squashed.
        """
        if self.kind is not RowKind.BOX or len(self.shape) > 1:
            return self.directions()
        return squash_rows(self.cube(), tuned_defaults.TABLE_LOOSENESS)

    def squash(self, looseness: float) -> NDArray[np.float32]:
        """Flat rows of length below 1, those of a box as u / sqrt(r^2 + ||u||^2), which has a way
        back; r = looseness sqrt(d).
        """
        self._bounded("ball")
        if self.kind is RowKind.BALL:
            return self.flat
        return squash_rows(self.flat, looseness)

    def _bounded(self, wanted: str) -> None:
        if self.kind is RowKind.FREE:
            raise InvalidArgument(
                "rows", "free ones", f"rows of a box or a ball, to make a {wanted}"
            )

    def _held(self, values: Array) -> NDArray[np.float32]:
        out = np.asarray(values, dtype=np.float32)
        out[self.null] = 0.0
        return out


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Domain:
    """What is publicly known of one record: its shape, the ranges of its columns, its features.

    - `bounds` a pair (low, high), each a number or one a column: columns are clipped and scaled to
      [0, 1];
    - `bounds` a number c: rows x / max(||x||, c);
    - `features`: a public extractor of `privet.features`, after the bounds if there are any.
      Without bounds records are pictures of bytes: the scale is declared, never seen in the data.
    - `fill`: what a missing number (NaN) counts as, one value or one a column, declared like the
      bounds; "middle" is the middle of every range. Without it such a record counts for nothing.

    >>> domain = Domain(shape=(2,), bounds=([0, 0], [1, 100]))
    >>> domain.rows(np.array([[0.5, 900.0], [np.nan, 1.0]])).values.tolist()
    [[0.5, 1.0], [0.0, 0.0]]
    >>> Domain(shape=(2,))
    Traceback (most recent call last):
    ...
    privet.errors.InvalidArgument: bounds must be given when there are no features, got None; ...
    """

    shape: tuple[int, ...]
    bounds: Bounds = None
    features: Features | None = None
    fill: Any = None

    def __post_init__(self) -> None:
        if self.bounds is None and self.features is None:
            raise InvalidArgument(
                "bounds",
                None,
                "given when there are no features",
                "pass bounds=(low, high) with what is publicly known of each column, or bounds=c "
                "for rows of length at most c; they are never read from the data",
            )
        if isinstance(self.bounds, tuple | list):
            object.__setattr__(self, "bounds", column_bounds(self.bounds, self.shape))
        elif self.bounds is not None:
            object.__setattr__(self, "bounds", _check.positive("bounds", self.bounds))
        if self.fill is not None:
            object.__setattr__(self, "fill", self._fill_values())

    def _fill_values(self) -> Array:
        """A finite number a column, in the record's shape."""
        value: Any = self.fill
        if isinstance(value, str):
            if value != "middle" or not isinstance(self.bounds, tuple):
                raise InvalidArgument(
                    "fill", value, 'a number, one a column, or "middle" of bounds'
                )
            value = (self.bounds[0] + self.bounds[1]) / 2.0
        try:
            flat = np.broadcast_to(np.asarray(value, dtype=np.float64).ravel(), self.columns)
        except (TypeError, ValueError):
            flat = np.array([np.nan])
        if not np.isfinite(flat).all():
            raise InvalidArgument("fill", self.fill, f"a finite number, or {self.columns} of them")
        return flat.reshape(self.shape)

    @property
    def columns(self) -> int:
        """Numbers in a record."""
        return int(np.prod(self.shape))

    @property
    def row_shape(self) -> tuple[int, ...]:
        """The shape of a row that comes out."""
        return self.shape if self.features is None else (self.features.n_features,)

    def with_zero_features(self) -> Domain:
        """The same with zeros for features, of which a plan may know the number alone."""
        return (
            self if self.features is None else replace(self, features=ZeroFeatures(self.features))
        )

    def rows(self, x: Array) -> Rows:
        """The records' rows."""
        x = _check.numbers("X", x)
        if self.bounds is None:
            self._check_number_type(x)
        if x.shape[1:] != self.shape:
            x = self._reshaped(x)
        if self.fill is not None and np.issubdtype(x.dtype, np.floating):
            x = np.where(np.isnan(x), self.fill, x)
        null = ~finite_records(x)
        if self.features is None:
            return self._bounded(x, null)
        if self.bounds is None:
            zeroed = np.where(_column(null, x), 0, x)
        else:
            zeroed = self._bounded(x, null).values
        values = self.features.transform(zeroed)
        if values.shape != (len(x), *self.row_shape):  # a plan was made for that many
            raise InvalidArgument("features", values.shape, f"{len(x)} rows of {self.row_shape[0]}")
        values[null] = 0.0
        return Rows(values=values, kind=RowKind.BALL, null=null)

    def _check_number_type(self, x: Array) -> None:
        """Bytes only, where the type could matter: one record of another type makes all of it so.

        (`bounds` bring numbers of every type to the same float32.)
        """
        seen = self.features is not None and self.features.sees_number_type
        if seen and x.dtype != np.uint8:
            raise InvalidArgument(
                "X", f"numbers of type {x.dtype}", "pictures of bytes (uint8) without bounds",
                "declare bounds=(0, 1) for pictures in [0, 1], or the public (low, high)",
            )  # fmt: skip

    def _reshaped(self, x: Array) -> Array:
        if x.ndim < 2 or int(np.prod(x.shape[1:])) != self.columns:
            raise InvalidArgument("X", x.shape, f"records of shape {self.shape}")
        return x.reshape(len(x), *self.shape)

    def _bounded(self, x: Array, null: NDArray[np.bool_]) -> Rows:
        out = np.empty(x.shape, dtype=np.float32)
        pair = isinstance(self.bounds, tuple)
        for block in row_blocks(len(x), self.columns):
            part, bad = x[block], null[block]
            part = np.where(_column(bad, part), 0.0, part).astype(np.float64)
            held = _boxed(part, self.bounds) if pair else shorten(part, self.bounds)
            held[bad] = 0.0
            out[block] = held
        return Rows(values=out, kind=RowKind.BOX if pair else RowKind.BALL, null=null)

    @property
    def premise(self) -> Premise:
        """How it is known that a row depends on its own record alone, rounding included."""
        return premises.EXACT_ROWS if self.features is None else self.features.premise


def column_bounds(bounds: Any, shape: int | tuple[int, ...]) -> tuple[Array, Array]:
    """Public (low, high) of every column, from two numbers or two lists.

    >>> [b.tolist() for b in column_bounds((0, [1, 2]), 2)]
    [[0.0, 0.0], [1.0, 2.0]]
    """
    shape = (shape,) if isinstance(shape, int) else shape
    columns = int(np.prod(shape))
    expected = f"two numbers, or two lists of {columns}, finite, each low below its high"
    try:
        low, high = (
            np.broadcast_to(np.asarray(b, dtype=np.float64).ravel(), columns).reshape(shape)
            for b in bounds
        )
    except (TypeError, ValueError):
        raise InvalidArgument("bounds", bounds, expected) from None
    if not (np.isfinite(low) & np.isfinite(high) & (low < high)).all():
        raise InvalidArgument("bounds", bounds, expected)
    return low, high


def finite_records(x: Array) -> NDArray[np.bool_]:
    """Which records hold finite numbers only."""
    flat = np.asarray(x).reshape(len(x), math.prod(np.shape(x)[1:]))
    if np.issubdtype(flat.dtype, np.integer) or flat.dtype == bool:
        return np.ones(len(flat), dtype=bool)
    return np.asarray(np.isfinite(flat).all(axis=1))


def _boxed(part: Array, bounds: Any) -> Array:
    low, high = bounds
    return np.asarray((np.clip(part, low, high) - low) / (high - low))


def _column(mask: NDArray[np.bool_], like: Array) -> NDArray[np.bool_]:
    return mask.reshape(-1, *(1,) * (like.ndim - 1))
