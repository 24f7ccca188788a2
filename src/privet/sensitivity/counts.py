"""Counts, histograms and categories: values that are bounded by what they are."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

from privet import _check, premises
from privet.errors import InvalidArgument
from privet.noise.grid import ROUND_UP
from privet.sensitivity.bounded_value import BoundedValue, Sensitivity


@dataclass(frozen=True, kw_only=True)
class Categories:
    """Records that each are one of `classes` categories, numbered from 0.

    `invalid` counts records that were none of them and were put into category 0; it is not
    protected.
    """

    values: NDArray[np.int64] = field(repr=False)
    classes: int
    invalid: int = 0

    def __post_init__(self) -> None:
        known = self.values.ndim == 1 and np.issubdtype(self.values.dtype, np.integer)
        if not known or ((self.values < 0) | (self.values >= self.classes)).any():
            raise InvalidArgument(
                "values", self.values.shape, f"whole numbers below {self.classes}, one a record"
            )
        self.values.setflags(write=False)

    def histogram(self) -> BoundedValue:
        """How many records each category has.

        **Guarantee** one record adds 1 to one entry: sensitivity 1 in both norms (add-remove); a
        replaced one takes 1 from one entry and gives it to another: 2 in L1, sqrt(2) in L2.

        >>> categories([0, 2, 2], 3).histogram().value.tolist()
        [1.0, 0.0, 2.0]
        """
        return BoundedValue(
            value=np.bincount(self.values, minlength=self.classes).astype(np.float64),
            add_remove=Sensitivity(l1=1.0, l2=1.0),
            replace_one=Sensitivity(l1=2.0, l2=math.sqrt(2.0) * ROUND_UP),
            premise=premises.bound("each record is in one category"),
            spacing=1.0,
            invalid=self.invalid,
        )


def categories(labels: ArrayLike, classes: int) -> Categories:
    """Whole numbers in [0, classes); anything else becomes 0 and is counted."""
    if (k := _check.count("classes", classes, minimum=2)) > 2**31:  # as in `RandomisedResponse`
        raise InvalidArgument("classes", classes, "at most 2**31")
    try:
        x = np.array(labels, dtype=np.float64)
    except (TypeError, ValueError):
        raise InvalidArgument("labels", labels, "a list of whole numbers") from None
    if x.ndim != 1:
        raise InvalidArgument("labels", x.shape, "a list of whole numbers, one a record")
    good = np.isfinite(x) & (x >= 0) & (x < k) & (np.floor(x) == x)
    values = np.where(good, x, 0.0).astype(np.int64)
    return Categories(values=values, classes=k, invalid=int((~good).sum()))


def count(which: ArrayLike) -> BoundedValue:
    """How many records are true: sensitivity 1 for either adjacency.

    >>> float(count([True, False, True]).value)
    2.0
    """
    x = np.asarray(which)
    if x.ndim != 1 or (x.dtype != np.bool_ and x.size):
        raise InvalidArgument("which", which, "a list of truth values, one a record")
    one = Sensitivity(l1=1.0, l2=1.0)
    return BoundedValue(
        value=np.array(float(np.count_nonzero(x))),
        add_remove=one,
        replace_one=one,
        premise=premises.bound("each record counts for 0 or 1"),
        spacing=1.0,
    )
