"""Weights that hold a user, who may have many records, to the influence of a few."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from privet import _check
from privet.errors import InvalidArgument
from privet.sensitivity.user_ids import (
    as_keys,
    is_missing,
    number_users,
    refuse_merged_ids,
    user_ids,
)

Array = NDArray[np.float64]

UNIT = 2.0**30
"""Weights are multiples of 2^-30, so that a user's weights are added without rounding."""


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class UserWeights:
    """Whose each record is, and what weight it should have; cut it as an array is cut.

    A sum that is given these keeps account of what each user has used, over all its batches, and
    takes no more than its share from anybody, whatever the weights say.
    """

    users: NDArray[Any] = field(repr=False)
    values: Array = field(repr=False)

    def __post_init__(self) -> None:
        if self.users.ndim != 1 or self.users.shape != self.values.shape:
            raise InvalidArgument("weights", self.values.shape, "one weight and one user a record")
        refuse_merged_ids(self.users)

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, part: slice | NDArray[Any]) -> UserWeights:
        return UserWeights(users=self.users[part], values=self.values[part])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.array(self.values, dtype=dtype)


def assign_owners(lists: Sequence[Collection[Any]]) -> NDArray[np.int64]:
    """One group for all records with the same owners, so that no owner is in two groups; or -1.

    In order: a record whose owners are all new makes a group; one with exactly the owners of a
    group joins it; any other record is left out (-1) and must not be used. A person who is taken
    away with all their records then takes one group away, and all of it: what were left of a group
    could point the other way, which would cost twice as much. That holds as long as who owns what
    is public: the rule looks at nothing else.

    >>> assign_owners([{"ann", "bob"}, {"eve"}, {"bob", "kim"}, {"bob", "ann"}]).tolist()
    [0, 1, -1, 0]
    """
    seen: set[Any] = set()
    groups: dict[frozenset[Any], int] = {}
    out = np.empty(len(lists), dtype=np.int64)
    everybody: list[Any] = []
    for i, given in enumerate(lists):
        if isinstance(given, str | bytes) or not isinstance(given, Collection):
            raise InvalidArgument("groups", given, "a list of owners for each record")
        owned = frozenset(given)
        if not owned or any(map(is_missing, owned)):
            raise InvalidArgument("groups", "records without a user", "an owner for each record")
        everybody.extend(given)
        if seen.isdisjoint(owned):
            groups[owned] = len(groups)
            seen |= owned
        out[i] = groups.get(owned, -1)
    user_ids(everybody)
    return out


def user_weights(groups: ArrayLike, *, share: float = 1.0) -> UserWeights:
    """A weight for each record, so that no user weighs more than `share` records.

    min(1, share / m) for a user with m records, rounded down to a multiple of 2^-30: a function of
    that user's own records, so a sum of weighted contributions has, between data sets that differ
    in one user, `share` times the sensitivity of a record: sum_i w_i phi_i lies in share times the
    convex hull of 0 and all phi.

    >>> user_weights(["ann", "bob", "ann", "ann"], share=1.5).values.round(3).tolist()
    [0.5, 1.0, 0.5, 0.5]
    """
    share = _check.positive("share", share)
    users, which = user_ids(groups), number_users(groups)
    counts = np.bincount(which)
    # down by eight roundings, more than a quotient and a product have
    units = np.floor(np.minimum(1.0, share / counts * (1.0 - 2.0**-50)) * UNIT)
    return UserWeights(users=users, values=np.asarray(units[which] / UNIT, dtype=np.float64))


class UserShares:
    """What each user has used of a share, exactly; grants no more than is left.

    Record by record in their order, so that what one record gets depends on that user's earlier
    records alone, however the data are cut into batches. Weights of `user_weights` are always
    granted in full.
    """

    def __init__(self, share: float) -> None:
        self.most = math.floor(min(share, 2.0**30) * UNIT)  # within int64; more is no limit
        self._used: dict[Any, int] = {}

    def take(self, weights: UserWeights) -> Array:
        """The weights that are granted to these records."""
        asked = np.clip(np.nan_to_num(weights.values, nan=0.0), 0.0, 1.0) * UNIT
        wanted = np.floor(asked).astype(np.int64)
        names, which = np.unique(weights.users, return_inverse=True)
        used = np.array([self._used.get(name, 0) for name in as_keys(names)], dtype=np.int64)
        order = np.argsort(which, kind="stable")
        ends = np.cumsum(wanted[order])
        before = ends - wanted[order]
        first = np.searchsorted(which[order], np.arange(len(names)))
        before += (used - before[first])[which[order]]
        granted = np.empty_like(wanted)
        granted[order] = np.clip(self.most - before, 0, wanted[order])
        used += np.bincount(which, granted, minlength=len(names)).astype(np.int64)
        self._used.update(zip(as_keys(names), used.tolist(), strict=True))
        return granted / UNIT
