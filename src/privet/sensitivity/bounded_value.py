"""A value that knows how far one unit of data can move it: what a mechanism can release."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from privet import _check
from privet._check import Checked, checked, non_negative_or_infinite
from privet.errors import InvalidArgument
from privet.guarantee import Adjacency, Premise, Unit
from privet.noise.grid import power_of_two_at_most


@dataclass(frozen=True, kw_only=True)
class Sensitivity(Checked):
    """How far a value can move between neighbours, in the L1 and the L2 norm; may be infinite."""

    l1: float = checked(non_negative_or_infinite)
    l2: float = checked(non_negative_or_infinite)

    def scaled(self, factor: float) -> Sensitivity:
        """The sensitivity after multiplication by a public constant."""
        factor = _check.non_negative_or_infinite("factor", factor)
        return Sensitivity(l1=self.l1 * factor, l2=self.l2 * factor)


@dataclass(frozen=True, kw_only=True)
class BoundedValue:
    """An array whose change between neighbours is bounded; what a mechanism can release.

    Sensitivity: max over neighbours D, D' of ||f(D) - f(D')||, for each norm and each adjacency.

    **Guarantee** as good as `premise`: the functions of this package make bounds that are
    *enforced* by clipping; whoever builds a `BoundedValue` by hand states in `premise` why the
    bound holds.

    **Assumes** nothing else; that the value is finite is checked. `spacing`, if not 0, is a power
    of two that the value is a multiple of *for every data set* (counts have 1), which saves the
    cost of rounding. `unit` says whose data make the difference between neighbours. `invalid`
    counts rows that were dropped for NaN or infinity: it is exact, so it is not protected.

    >>> from privet.sensitivity import clip_l2
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
            step = _check.finite("spacing", self.spacing)
            if step < 0.0 or power_of_two_at_most(step) != step:
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
