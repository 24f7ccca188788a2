"""Records as rows of the unit ball, by a public map of each record by itself."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from privet import _check
from privet._exact import row_norms
from privet.errors import InvalidArgument
from privet.methods.base import column_bounds
from privet.nets.features import Features, unit_rows

Array = NDArray[Any]
Bounds = None | float | tuple[Any, Any]

_BLOCK = 1024


def public_rows(x: Array, *, features: Features | None, bounds: Bounds) -> Array:
    """Rows of length at most 1: public features, or columns scaled by declared bounds.

    - `features`: their `transform`;
    - `bounds` a number c: x / max(||x||, c);
    - `bounds` a pair (low, high), numbers or one a column: columns are clipped and scaled to
      [0, 1], then each row to length 1.

    A record that is not finite becomes zero. Nothing is read from the data but the record itself:
    without features and bounds there is no such map, and none is guessed.

    >>> public_rows(np.array([[0.0, 50.0]]), features=None, bounds=([0, 0], [1, 100])).tolist()
    [[0.0, 0.9999989867210388]]
    """
    if features is not None:
        return features.transform(x)
    if bounds is None:
        raise InvalidArgument(
            "bounds",
            bounds,
            "given when there are no features",
            "pass bounds=(low, high) with what is publicly known of each column, such as "
            "bounds=(dataset.low, dataset.high), or bounds=c for rows of length at most c; "
            "they are never read from the data",
        )
    flat = np.asarray(x).reshape(len(x), -1)
    pair = column_bounds(bounds, flat.shape[1]) if isinstance(bounds, tuple | list) else None
    length = 1.0 if isinstance(bounds, tuple | list) else _check.positive("bounds", bounds)
    out = np.empty(flat.shape, dtype=np.float32)
    for start in range(0, len(flat), _BLOCK):
        part = flat[start : start + _BLOCK].astype(np.float64)
        out[start : start + _BLOCK] = _shortened(part, length) if pair is None else _box(part, pair)
    return out


def boxed_rows(x: Array, bounds: tuple[Any, Any] | list[Any]) -> Array:
    """Columns clipped to (low, high) and scaled to [0, 1]; a record that is not finite is zero.

    >>> boxed_rows(np.array([[5.0, 900.0]]), ([0, 0], [10, 100])).tolist()
    [[0.5, 1.0]]
    """
    flat = np.asarray(x, dtype=np.float64).reshape(len(x), -1)
    return np.asarray(_to_unit_box(flat, column_bounds(bounds, flat.shape[1])), dtype=np.float32)


def _shortened(part: Array, length: float) -> Array:
    """x / max(||x||, length) in place, and a little shorter: float32 rounding is less."""
    with np.errstate(over="ignore", invalid="ignore"):
        norms = row_norms(part)
    if not np.isfinite(norms).all():  # not finite, or too long to be squared
        part[~np.isfinite(part).all(axis=1)] = 0.0
        part /= np.maximum(np.abs(part).max(axis=1, keepdims=True, initial=0.0) / 1e100, 1.0)
        norms = row_norms(part)
    part *= ((1.0 - 1e-6) / np.maximum(norms, length))[:, None]
    return part


def _box(part: Array, pair: tuple[Array, Array]) -> Array:
    """Columns scaled to [0, 1], then rows to length 1; rows that are not finite are zero."""
    return unit_rows(_to_unit_box(part, pair))


def _to_unit_box(part: Array, pair: tuple[Array, Array]) -> Array:
    low, high = pair
    good = np.isfinite(part).all(axis=1, keepdims=True)
    scaled = (np.clip(np.where(good, part, low), low, high) - low) / (high - low)
    return np.asarray(np.where(good, scaled, 0.0))
