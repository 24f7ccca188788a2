"""Records as rows of the unit ball, by a public map of each record by itself."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from privet import _check
from privet.errors import InvalidArgument
from privet.nets.features import Features, unit_rows

Array = NDArray[Any]
Bounds = None | float | tuple[Any, Any]


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
    flat = np.asarray(x, dtype=np.float64).reshape(len(x), -1)
    if bounds is None:
        raise InvalidArgument(
            "bounds",
            bounds,
            "given when there are no features",
            "pass bounds=(low, high) with what is publicly known of each column, such as "
            "bounds=(dataset.low, dataset.high), or bounds=c for rows of length at most c; "
            "they are never read from the data",
        )
    good = np.isfinite(flat).all(axis=1, keepdims=True)
    flat = np.where(good, flat, 0.0)
    if isinstance(bounds, tuple | list):
        low, high = _pair(bounds, flat.shape[1])
        scaled = (np.clip(flat, low, high) - low) / (high - low)
        return unit_rows(np.where(good, scaled, 0.0).astype(np.float32))
    largest = np.maximum(np.abs(flat).max(axis=1, keepdims=True, initial=0.0), 1e-300)
    norms = np.linalg.norm(flat / largest, axis=1, keepdims=True) * largest
    rows = flat / np.maximum(norms, _check.positive("bounds", bounds))
    return np.asarray((rows * (1.0 - 1e-6)).astype(np.float32))


def _pair(bounds: tuple[Any, Any] | list[Any], columns: int) -> tuple[Array, Array]:
    expected = f"two numbers, or two lists of {columns}, finite, each low below its high"
    try:
        low, high = (
            np.broadcast_to(np.asarray(b, dtype=np.float64).ravel(), columns) for b in bounds
        )
    except (TypeError, ValueError):
        raise InvalidArgument("bounds", bounds, expected) from None
    if not (np.isfinite(low) & np.isfinite(high) & (low < high)).all():
        raise InvalidArgument("bounds", bounds, expected)
    return low, high
