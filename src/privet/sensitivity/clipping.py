"""Values that know how far one unit of data can move them; clipping, which makes that so.

Clipping is exact: each record is clipped in float64 with a margin for rounding, then cut towards
zero to a multiple of a public power of two s, the `spacing` of the bound (`privet.noise.grid`).
Cutting makes no coordinate larger, so the bound holds exactly, and sums of multiples of s are sums
of integers: they have no rounding error that could depend on the data or on their order.

Symbols: c the bound, d the dimension of a row, s the spacing, u = 2^-53.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import SupportsFloat

import numpy as np
from numpy.typing import ArrayLike, NDArray

from privet import _check, premises
from privet._check import Checked, checked, non_negative_or_infinite
from privet._exact import row_norms, row_sums
from privet.errors import InvalidArgument
from privet.guarantee import Adjacency, Premise, Unit
from privet.noise.grid import spacing

_LARGEST = 2**53
_UP = 1.0 + 2.0**-50


@dataclass(frozen=True, kw_only=True)
class Sensitivity(Checked):
    """How far a value can move between neighbours, in the L1 and the L2 norm; may be infinite."""

    l1: float = checked(non_negative_or_infinite)
    l2: float = checked(non_negative_or_infinite)

    def scaled(self, factor: float) -> Sensitivity:
        """The sensitivity after multiplication by a public constant."""
        if not isinstance(factor, SupportsFloat):
            raise InvalidArgument("factor", factor, "a number of at least 0")
        return Sensitivity(l1=self.l1 * factor, l2=self.l2 * factor)


@dataclass(frozen=True, kw_only=True)
class Bounded:
    """An array whose change between neighbours is bounded; what a mechanism can release.

    Sensitivity: max over neighbours D, D' of ||f(D) - f(D')||, for each norm and each adjacency.

    **Guarantee** as good as `premise`: the functions of this package make bounds that are
    *enforced* by clipping; whoever builds a `Bounded` by hand states in `premise` why the bound
    holds.

    **Assumes** nothing else; that the value is finite is checked. `spacing`, if not 0, is a power
    of two that the value is a multiple of *for every data set* (counts have 1), which saves the
    cost of rounding. `unit` says whose data make the difference between neighbours. `invalid`
    counts rows that were dropped for NaN or infinity: it is exact, so it is not protected.

    >>> from privet.bounds import clip_l2
    >>> total = clip_l2([[3.0, 4.0], [0.0, 0.5]], 1.0).sum()
    >>> total.sensitivity(Adjacency.ADD_REMOVE).l2, total.sensitivity(Adjacency.REPLACE_ONE).l2
    (1.0, 2.0)
    """

    value: NDArray[np.float64] = field(repr=False)
    add_remove: Sensitivity
    replace_one: Sensitivity
    premise: Premise
    spacing: float = 0.0
    unit: Unit = Unit.RECORD
    invalid: int = 0

    def __post_init__(self) -> None:
        value = np.array(self.value, dtype=np.float64)
        if not np.all(np.isfinite(value)):
            raise InvalidArgument("value", self.value, "finite everywhere")
        value.setflags(write=False)
        object.__setattr__(self, "value", value)
        if self.spacing != 0.0:
            numeric = isinstance(self.spacing, SupportsFloat)
            if not numeric or math.frexp(self.spacing)[0] != 0.5:
                raise InvalidArgument("spacing", self.spacing, "a power of two, or 0 for none")
            if not np.all(np.rint(value / self.spacing) * self.spacing == value):
                raise InvalidArgument("value", self.value, f"made of multiples of {self.spacing:g}")

    @property
    def dimension(self) -> int:
        """How many numbers the value holds."""
        return int(self.value.size)

    def sensitivity(self, adjacency: Adjacency) -> Sensitivity:
        """The sensitivity for this neighbouring relation."""
        return self.replace_one if adjacency is Adjacency.REPLACE_ONE else self.add_remove


@dataclass(frozen=True, kw_only=True)
class Rows:
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

    def sum(self) -> Bounded:
        """The exact sum over records (held within 2^53 units, which is 1-Lipschitz)."""
        total = np.clip(self.units.sum(axis=0, dtype=np.int64), -_LARGEST, _LARGEST)
        return Bounded(
            value=total.astype(np.float64) * self.spacing,
            add_remove=self.add_remove,
            replace_one=self.replace_one,
            premise=self.premise,
            spacing=self.spacing,
            invalid=self.invalid,
        )

    def mean(self, *, records: int) -> Bounded:
        """The sum divided by a *public* number of records.

        The division rounds: a quotient of at most 2^53 s / n is off by at most s / n, so two of
        them by 2 s / n a coordinate, which is added to the sensitivity.

        **Assumes** `records` is public. The true number of rows is a secret under add-remove
        adjacency; it is not looked at here.
        """
        if (n := _check.count("records", records)) > 2**53:
            raise InvalidArgument("records", records, "at most 2**53")
        total = self.sum()
        d, slack = total.dimension, 2.0 * self.spacing

        def divided(x: Sensitivity) -> Sensitivity:
            wider = Sensitivity(l1=x.l1 + d * slack, l2=x.l2 + math.sqrt(d) * slack)
            return wider.scaled(_UP / n)

        return Bounded(
            value=total.value / n,
            add_remove=divided(self.add_remove),
            replace_one=divided(self.replace_one),
            premise=total.premise,
            invalid=self.invalid,
        )


def clip_l2(rows: ArrayLike, bound: float) -> Rows:
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
    l1 = c * math.sqrt(d) * (_UP if d > 1 else 1.0)
    once = Sensitivity(l1=l1, l2=c)
    return Rows(
        units=units,
        spacing=spacing(c),
        add_remove=once,
        replace_one=once.scaled(2.0),
        premise=premises.bound(f"each record clipped to L2 norm {c:g}"),
        invalid=invalid,
    )


def clip_l1(rows: ArrayLike, bound: float) -> Rows:
    """Scale every row whose absolute values sum to more than `bound` down to it.

    **Guarantee** the sum has L1 and L2 sensitivity c (add-remove) and 2 c (replace-one).

    >>> clip_l1([[3.0, -1.0]], 1.0).sum().value.round(6).tolist()
    [0.75, -0.25]
    """
    c = _bound(bound)
    x, d, invalid = _finite_rows("rows", rows)
    once = Sensitivity(l1=c, l2=c)
    return Rows(
        units=_scaled_down(x, c, d, order=1),
        spacing=spacing(c),
        add_remove=once,
        replace_one=once.scaled(2.0),
        premise=premises.bound(f"each record clipped to L1 norm {c:g}"),
        invalid=invalid,
    )


def clip_range(values: ArrayLike, lower: float, upper: float) -> Rows:
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
    numbers = isinstance(lower, SupportsFloat) and isinstance(upper, SupportsFloat)
    if not (numbers and -math.inf < lower < upper < math.inf):
        raise InvalidArgument("range", (lower, upper), "two finite numbers, the lower one first")
    lo, hi = float(lower), float(upper)
    s = spacing(_bound(max(abs(lo), abs(hi))))
    a, b = math.floor(lo / s), math.ceil(hi / s)
    x, d, invalid = _finite_rows("values", values)
    units = np.clip(np.rint(np.clip(x, lo, hi) / s), a, b).astype(np.int64)
    return Rows(
        units=units,
        spacing=s,
        add_remove=_box(max(abs(a), abs(b)) * s, d),
        replace_one=_box((b - a) * s, d),
        premise=premises.bound(f"each record clipped to [{lo:g}, {hi:g}]"),
        invalid=invalid,
    )


def _box(side: float, d: int) -> Sensitivity:
    up = _UP if d > 1 else 1.0
    return Sensitivity(l1=side * d * up, l2=side * math.sqrt(d) * up)


def _bound(bound: float) -> float:
    if not (isinstance(bound, SupportsFloat) and 1e-200 <= bound <= 1e200):
        raise InvalidArgument("bound", bound, "a number above 0, between 1e-200 and 1e200")
    return float(bound)


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
    safe = c * (1.0 - 2.0 * (d + 16) * 2.0**-53)
    with np.errstate(over="ignore"):
        longer = norm > safe / m
        scaled = np.where(longer, unit * (safe / np.maximum(norm, 1.0)), flat)
    return np.trunc(scaled / spacing(c)).astype(np.int64).reshape(x.shape)
