"""How far one user can move the moments of everybody's examples.

An example's row is z = (o, s): the user's own part, ||o||^2 <= 1 - c^2, and the social part s =
c sum_v a(v, u) theta(v, u) g_vt with |s| <= c. The packed moments are phi(z, y) = (A z z^T, B z y),
|y| <= 1, and user u's examples weigh 1 together. Take user m out of the data (the graph stays):

- m's own examples leave: at most sqrt(A^2 + B^2).
- A friend u's rows change in s alone, by Delta <= c a(m, u). With the middle point w = (z + z')/2,
  ||z z^T - z' z'^T||_F^2 = 2 Delta^2 ||w||^2 + 2 Delta^2 w_s^2 <= 2 Delta^2 (1 + c^2), so phi moves
  by at most L Delta, L = sqrt(2 A^2 (1 + c^2) + B^2). Summed over u's examples, which weigh 1, and
  over the friends of m, whose weights a(m, u) sum to at most 1: at most c L.

In all sqrt(A^2 + B^2) + c L. Rows are cut to multiples of 2^-bits before they are added up. That
moves nothing but s, by at most 2^-bits more; a row that weighs 1/n is scaled by n^-1/2 first, so
the n rows of a friend move by L sqrt(n) 2^-bits more, and D friends with at most T examples each by
L D sqrt(T) 2^-bits.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import final

import numpy as np
from numpy.typing import NDArray

from privet.errors import InvalidArgument
from privet.sensitivity import Moments
from privet_papers.argument_checks import check_counts

Array = NDArray[np.float64]

_MARGIN = 2.0**-20
"""Rows are kept this much inside the unit ball, so that no clipping mixes s into the rest."""


@final
@dataclass(frozen=True, kw_only=True)
class RowShape:
    """Rows of `own` features in a ball, and one social feature within `social` of 0.

    >>> shape = RowShape(own=9, social=0.3, friends=24, days=240, weight=254)
    >>> round(shape.user_sensitivity(second=0.5, cross=1.0), 3)
    1.494
    """

    own: int
    social: float
    friends: int
    """The largest number of friends in the public graph."""
    days: int
    """The largest number of examples a user can have."""
    weight: int
    """The most that all examples weigh together: users, or examples where each weighs 1."""

    def __post_init__(self) -> None:
        check_counts(own=self.own)
        if not 0.0 <= self.social < 1.0:
            raise InvalidArgument("social", self.social, "a number in [0, 1)")

    @property
    def features(self) -> int:
        """The length of a row: own features and the social one."""
        return self.own + 1

    @property
    def bits(self) -> int:
        """Bits of the grid that rows are cut to: as many as sums of this weight stay exact with."""
        return min(18, max(4, (43 - math.ceil(math.log2(max(self.weight, 2)))) // 2))

    def user_sensitivity(self, *, second: float, cross: float) -> float:
        """The bound above: add or remove one user's records."""
        c = self.social
        lipschitz = math.sqrt(2.0 * second**2 * (1.0 + c * c) + cross**2)
        rounding = self.friends * math.sqrt(self.days) * (2.0**-self.bits + 2.0**-40)
        moved = lipschitz * (c + rounding) if c > 0.0 else 0.0
        return (math.hypot(second, cross) + moved) * (1.0 + 2.0**-40)

    def moments(self, *, second: float, cross: float, per_user: bool) -> Moments:
        """The moments of these rows: `share` carries the trace that a user leaves with friends."""
        bare = Moments(
            features=self.features,
            outputs=1,
            second=second,
            cross=cross,
            one_hot=False,
            bits=self.bits,
        )
        if not per_user:
            return bare
        total = self.user_sensitivity(second=bare.second, cross=bare.cross)
        share = max(1.0, total / bare.add_remove.l2 * (1.0 + 2.0**-40))
        return replace(bare, share=share)

    def rows(self, own: Array, social: Array) -> Array:
        """Rows (o, s) of this shape from own and social parts."""
        return social_rows(own, social, self.social)


def social_rows(own: Array, social: Array, c: float) -> Array:
    """Rows (o, s): own parts brought to their full length, social parts in [-1, 1] scaled to c."""
    length = math.sqrt(1.0 - c**2) * (1.0 - _MARGIN)
    norms = np.linalg.norm(own, axis=1, keepdims=True)
    o = own * (length / np.maximum(norms, 1e-12))
    s = c * (1.0 - _MARGIN) * np.clip(social, -1.0, 1.0)
    return np.hstack([o, s[:, None]])
