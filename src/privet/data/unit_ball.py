"""Maps of records into the unit ball, each row by itself."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privet.rowwise_arithmetic import row_norms, row_sums

Array = NDArray[Any]


MARGIN = 1e-6
"""Rows are a relative 1e-6 shorter than their bound: float32 rounding is less."""


def squash(a: Array, radius: float) -> Array:
    """a / sqrt(radius^2 + ||a||^2), row by row: into the open unit ball, one to one.

    >>> squash(np.array([[3.0, 4.0]]), 0.0).tolist()
    [[0.6, 0.8]]
    """
    squares = row_sums(np.square(a))[:, None]
    return np.asarray(a / np.sqrt(radius**2 + squares + 1e-30))


def squash_rows(flat: NDArray[np.float32], looseness: float) -> NDArray[np.float32]:
    """Flat rows squashed at the radius looseness sqrt(d)."""
    radius = looseness * math.sqrt(flat.shape[1])
    return squash(flat.astype(np.float64), radius).astype(np.float32)


def unsquash(z: Array, radius: float) -> NDArray[np.float64]:
    """The inverse of `squash`; rows on the border or beyond come from far out, not infinity."""
    z = np.asarray(z, dtype=np.float64)
    room = np.maximum(1.0 - np.square(z).sum(axis=1, keepdims=True), 1e-6)
    return np.asarray(radius * z / np.sqrt(room))


def shorten(part: Array, length: Any) -> Array:
    """x / max(||x||, length), and a little shorter."""
    flat = part.reshape(len(part), -1)
    largest = np.maximum(np.abs(flat).max(axis=1, keepdims=True, initial=0.0), 1e-300)
    norms = largest * row_norms(flat / largest)[:, None]
    # the division first: a record of huge numbers must not overflow
    return np.asarray(flat / np.maximum(norms, length) * (1.0 - MARGIN)).reshape(part.shape)
