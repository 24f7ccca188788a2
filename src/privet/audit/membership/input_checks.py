"""Checks that every attack makes on what it is given."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from privet.errors import InvalidArgument

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]
Labels = NDArray[np.int64]


def numbers(name: str, value: Any) -> Floats:
    """An array of numbers."""
    try:
        return np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise InvalidArgument(name, value, "an array of numbers, one row a record") from None


def answers(name: str, value: Any) -> Floats:
    """Answers of a model: one finite row a record, one column a class."""
    rows = numbers(name, value)
    if rows.ndim != 2 or rows.shape[1] < 2:
        raise InvalidArgument(name, rows.shape, "one row a record and a column for each class")
    if not len(rows):
        raise InvalidArgument(name, rows.shape, "at least one record")
    bad = ~np.isfinite(rows).all(axis=1)
    if bad.any():
        found = f"{int(bad.sum())} rows with NaN or infinity, the first is row {int(bad.argmax())}"
        raise InvalidArgument(name, found, "finite")
    return rows


def probabilities(name: str, value: Any) -> Floats:
    """Answers that are probabilities: none negative, rows that sum to 1."""
    rows = answers(name, value)
    wrong = (rows < 0.0).any(axis=1) | (np.abs(rows.sum(axis=1) - 1.0) > 1e-2)  # half precision
    if wrong.any():
        where = int(wrong.argmax())
        raise InvalidArgument(
            name,
            f"row {where} with sum {rows[where].sum():.4g} and least {rows[where].min():.4g}",
            "probabilities that sum to 1",
            "for logits there is confidence_of_logits",
        )
    return rows


def labels(name: str, value: Any, records: int, classes: int) -> Labels:
    """One class number a record."""
    y = np.asarray(value)
    if y.shape != (records,):
        raise InvalidArgument(name, y.shape, f"one label for each of {records} records")
    expected = f"whole numbers below {classes}, the columns of the answers"
    if not np.issubdtype(y.dtype, np.integer):
        raise InvalidArgument(name, f"{y.dtype} such as {y[0]}", expected)
    if y.min() < 0 or y.max() >= classes:
        raise InvalidArgument(name, f"{y.dtype} from {y.min()} to {y.max()}", expected)
    return y.astype(np.int64)


def members(name: str, value: Any, records: int) -> Mask:
    """For each record whether it was trained on; some were and some were not."""
    mask = np.asarray(value)
    if mask.shape != (records,) or mask.dtype != np.bool_:
        raise InvalidArgument(
            name, (mask.shape, str(mask.dtype)), f"true or false for each of {records} records"
        )
    if mask.all() or not mask.any():
        raise InvalidArgument(
            name, f"{int(mask.sum())} of {records}", "some members and some non-members"
        )
    return mask


def scores(name: str, value: Any) -> Floats:
    """One score a record; infinities are allowed, NaN is not."""
    s = numbers(name, value)
    if s.ndim != 1 or not len(s):
        raise InvalidArgument(name, s.shape, "one score for each record")
    if np.isnan(s).any():
        raise InvalidArgument(name, f"{int(np.isnan(s).sum())} NaN", "free of NaN")
    return s
