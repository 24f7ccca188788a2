"""Rows in the unit ball, on a grid: a function of each record alone, on every processor."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from privet._exact import row_norms

Array = NDArray[np.float64]

_FEW = 128
"""Rows treated at a time: they fit the cache."""


def cut_to_ball(
    rows: NDArray[np.generic], bits: int, scale: Array | None = None
) -> tuple[Array, int]:
    """Rows of length at most 1, cut towards zero, in units of 2^-bits; how many were not finite.

    Rows longer than 1 - 2 (d + 16) 2^-53 are scaled down to that, which leaves room for the
    rounding of norm and quotient; cutting only shortens. `scale`, in [0, 1], multiplies them first.

    >>> cut_to_ball(np.array([[3.0, 4.0]]), 12)[0].tolist()
    [[2457.0, 3276.0]]
    """
    x = np.array(rows, dtype=np.float64, order="C")
    bad = 0
    for start in range(0, len(x), _FEW):
        part = slice(start, start + _FEW)
        bad += _cut(x[part], bits, None if scale is None else scale[part])
    return x, bad


def _cut(x: Array, bits: int, scale: Array | None) -> int:
    """In place; how many rows were not finite."""
    with np.errstate(over="ignore", invalid="ignore"):
        norms = row_norms(x)
    finite, bad = np.isfinite(norms), 0
    if not finite.all():  # overflow of a finite row, or a row that is not finite
        good = np.isfinite(x).all(axis=1)
        bad = int((~good).sum())
        x[~good] = 0.0
        largest = np.abs(x[~finite]).max(axis=1, keepdims=True, initial=0.0)
        x[~finite] /= np.maximum(largest, 1.0)
        norms = row_norms(x)
    safe = 1.0 - 2.0 * (x.shape[1] + 16) * 2.0**-53
    factor = safe / np.maximum(norms, safe)
    if scale is not None:
        factor = factor * scale
    x *= (factor * 2.0**bits)[:, None]
    np.trunc(x, out=x)
    return bad
