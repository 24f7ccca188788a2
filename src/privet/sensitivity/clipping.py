"""Clipping of records, so that sums of them have a known sensitivity.

Clipping is exact: each record is clipped in float64 with a margin for rounding, then cut towards
zero to a multiple of a public power of two s, the `spacing` of the bound (`privet.noise.grid`).
Cutting makes no coordinate larger, so the bound holds exactly, and sums of multiples of s are sums
of integers: they have no rounding error that could depend on the data or on their order.

Symbols: c the bound, d the dimension of a row, s the spacing, u = 2^-53.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

from privet import _check, premises
from privet.errors import InvalidArgument
from privet.guarantee import Premise
from privet.noise.grid import ROUND_UP, spacing
from privet.rowwise_arithmetic import row_norms, row_sums
from privet.sensitivity.bounded_value import BoundedValue, Sensitivity

_LARGEST = 2**53  # the largest whole number up to which float64 holds all of them


@dataclass(frozen=True, kw_only=True)
class ClippedRows:
    """Clipped records, one a row, as multiples of `spacing`; add them up with `sum` or `mean`.

    `add_remove` and `replace_one` say how far one record can move the sum, `premise` why: the
    functions of this module enforce it, whoever builds this by hand states a premise of their own.
    """

    units: NDArray[np.int64] = field(repr=False)
    spacing: float
    add_remove: Sensitivity
    replace_one: Sensitivity
    premise: Premise
    invalid: int = 0

    def __post_init__(self) -> None:
        self.units.setflags(write=False)

    def sum(self) -> BoundedValue:
        """The exact sum over records (held within 2^53 units, which is 1-Lipschitz)."""
        total = np.clip(self.units.sum(axis=0, dtype=np.int64), -_LARGEST, _LARGEST)
        return BoundedValue(
            value=total.astype(np.float64) * self.spacing,
            add_remove=self.add_remove,
            replace_one=self.replace_one,
            premise=self.premise,
            spacing=self.spacing,
            invalid=self.invalid,
        )

    def mean(self, *, records: int) -> BoundedValue:
        """The sum divided by a *public* number of records.

        The division rounds: a quotient of at most 2^53 s / n is off by at most s / n, so two of
        them by 2 s / n a coordinate, which is added to the sensitivity.

        **Assumes** `records` is public. The true number of rows is a secret under add-remove
        adjacency; it is not looked at here.
        """
        if (n := _check.count("records", records)) > _LARGEST:
            raise InvalidArgument("records", records, "at most 2**53")
        total = self.sum()
        d, slack = total.dimension, 2.0 * self.spacing

        def divided(x: Sensitivity) -> Sensitivity:
            wider = Sensitivity(l1=x.l1 + d * slack, l2=x.l2 + math.sqrt(d) * slack)
            return wider.scaled(ROUND_UP / n)

        return BoundedValue(
            value=total.value / n,
            add_remove=divided(self.add_remove),
            replace_one=divided(self.replace_one),
            premise=total.premise,
            invalid=self.invalid,
        )


def clip_l2(rows: ArrayLike, bound: float) -> ClippedRows:
    """Scale every row that is longer than `bound` down to it.

    x -> x min(1, c / ||x||_2), with c reduced by the largest relative error (d + 16) 2u that the
    norm and the scaling can have, so that the result is no longer than the bound in exact
    arithmetic. A row with a NaN or an infinity becomes zero.

    **Guarantee** the sum has L2 sensitivity c (add-remove) and 2 c (replace-one).

    >>> clip_l2([[3.0, 4.0], [float("nan"), 1.0]], 1.0).sum().value.round(6).tolist()
    [0.6, 0.8]
    """
    c = _bound(bound)
    x, d, invalid = _finite_rows("rows", rows)
    units = _scaled_down(x, c, d, order=2)
    l1 = c * math.sqrt(d) * (ROUND_UP if d > 1 else 1.0)
    once = Sensitivity(l1=l1, l2=c)
    return ClippedRows(
        units=units,
        spacing=spacing(c),
        add_remove=once,
        replace_one=once.scaled(2.0),
        premise=premises.bound(f"each record clipped to L2 norm {c:g}"),
        invalid=invalid,
    )


def clip_l1(rows: ArrayLike, bound: float) -> ClippedRows:
    """Scale every row whose absolute values sum to more than `bound` down to it.

    **Guarantee** the sum has L1 and L2 sensitivity c (add-remove) and 2 c (replace-one).

    >>> clip_l1([[3.0, -1.0]], 1.0).sum().value.round(6).tolist()
    [0.75, -0.25]
    """
    c = _bound(bound)
    x, d, invalid = _finite_rows("rows", rows)
    once = Sensitivity(l1=c, l2=c)
    return ClippedRows(
        units=_scaled_down(x, c, d, order=1),
        spacing=spacing(c),
        add_remove=once,
        replace_one=once.scaled(2.0),
        premise=premises.bound(f"each record clipped to L1 norm {c:g}"),
        invalid=invalid,
    )


def clip_range(values: ArrayLike, lower: float, upper: float) -> ClippedRows:
    """Put every entry into [lower, upper].

    A NaN or an infinite entry makes its row the point of the range nearest to 0. The ends are
    widened to multiples of the spacing a s <= lower and upper <= b s, and the sensitivity is that
    of the wider range.

    **Guarantee** of a sum with d entries a record: max(|a|, |b|) s an entry (add-remove), (b - a) s
    (replace-one), times d in L1 and sqrt(d) in L2.

    >>> total = clip_range([0.2, 7.0, -3.0], 0.0, 1.0).sum()
    >>> total.add_remove.l1, total.replace_one.l1, round(float(total.value), 6)
    (1.0, 1.0, 1.2)
    """
    lo, hi = _check.finite("range", lower), _check.finite("range", upper)
    if not lo < hi:
        raise InvalidArgument("range", (lower, upper), "two finite numbers, the lower one first")
    s = spacing(_bound(max(abs(lo), abs(hi))))
    a, b = math.floor(lo / s), math.ceil(hi / s)
    x, d, invalid = _finite_rows("values", values)
    units = np.clip(np.rint(np.clip(x, lo, hi) / s), a, b).astype(np.int64)
    return ClippedRows(
        units=units,
        spacing=s,
        add_remove=_box(max(abs(a), abs(b)) * s, d),
        replace_one=_box((b - a) * s, d),
        premise=premises.bound(f"each record clipped to [{lo:g}, {hi:g}]"),
        invalid=invalid,
    )


def _box(side: float, d: int) -> Sensitivity:
    up = ROUND_UP if d > 1 else 1.0
    return Sensitivity(l1=side * d * up, l2=side * math.sqrt(d) * up)


def _bound(bound: float) -> float:
    # squares of entries, summed, stay within the range of float64
    return _check.between("bound", bound, 1e-200, 1e200)


def _finite_rows(name: str, rows: ArrayLike) -> tuple[NDArray[np.float64], int, int]:
    """Records as float64 rows with the bad ones set to zero; a row's size; how many were bad."""
    try:
        x = np.array(rows, dtype=np.float64)
    except (TypeError, ValueError):
        raise InvalidArgument(name, rows, "an array of real numbers, one record a row") from None
    if x.ndim == 0:
        raise InvalidArgument(name, rows, "an array with one record a row")
    d = math.prod(x.shape[1:])
    if d == 0:
        raise InvalidArgument(name, x.shape, "an array whose rows are not empty")
    bad = ~np.isfinite(x.reshape(len(x), d)).all(axis=1)
    x[bad] = 0.0
    return x, d, int(bad.sum())


def rounding_room(d: int) -> float:
    """How much shorter than its bound a row of d entries is made, relatively: (d + 16) 2u.

    The norm is a sum of d squares; with a root, quotients and products that is d + 16 roundings at
    most, and all of it twice over.
    """
    return 2.0 * (d + 16) * 2.0**-53


def _scaled_down(x: NDArray[np.float64], c: float, d: int, *, order: int) -> NDArray[np.int64]:
    """Rows of norm at most c, cut towards zero to multiples of the spacing.

    A row is divided by its largest entry m first, so that nothing overflows or underflows. Norm and
    quotients are then sums and products of d + 16 roundings of relative size u at most, entry by
    entry and in an order that d alone fixes: a function of the row, on every processor.
    """
    flat = x.reshape(len(x), d)
    m = np.abs(flat).max(axis=1, keepdims=True, initial=0.0)
    m[m == 0.0] = 1.0
    unit = flat / m
    norm = (row_sums(np.abs(unit)) if order == 1 else row_norms(unit))[:, None]
    safe = c * (1.0 - rounding_room(d))
    with np.errstate(over="ignore"):
        longer = norm > safe / m
        scaled = np.where(longer, unit * (safe / np.maximum(norm, 1.0)), flat)
    return np.trunc(scaled / spacing(c)).astype(np.int64).reshape(x.shape)
