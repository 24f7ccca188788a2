"""Weights that hold a user, who may have many records, to the influence of a few."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from privet import _check
from privet.errors import InvalidArgument

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
        _refuse_merged(self.users)

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, part: slice | NDArray[Any]) -> UserWeights:
        return UserWeights(users=self.users[part], values=self.values[part])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.array(self.values, dtype=dtype)


def user_ids(groups: Any) -> NDArray[Any]:
    """The ids of users as an array, in which no two of them have become one on the way.

    A list stays a list of objects: numpy would make strings of names and numbers, floats of large
    numbers, and would drop what ends in zero bytes.

    >>> user_ids([2**63, -1]).tolist()
    [9223372036854775808, -1]
    >>> user_ids([1.7e18])  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    privet.errors.InvalidArgument: groups must be whole numbers, or text, got 'a float of 2^53...
    """
    if isinstance(groups, list | tuple):
        users = np.fromiter(groups, dtype=object, count=len(groups))
    else:
        users = np.asarray(groups)
    if users.ndim != 1:
        raise InvalidArgument("groups", users.shape, "the user of each row")
    _refuse_merged(users)
    return users


# Numbers as a table of floats is printed: 1.7e+18, 1700000000000000000.0, 2E+18, 1,7E+18. Without a
# point only with the sign that programs write: 12e45 may be the beginning of a hash.
_PRINTED_FLOAT = re.compile(r"\s*[+-]?\d+([.,]\d*([eE][+-]?\d+)?|[eE]\+\d+)\s*")


def _refuse_merged(users: NDArray[Any]) -> None:
    """Refuse ids of several kinds, and floats so large that whole numbers were rounded to them.

    Cost: one look at the type of each id.
    """
    if users.dtype.kind in "iubmMV":
        return
    if users.dtype.kind == "f":
        digits = np.finfo(users.dtype).nmant + 1
        if (np.abs(users) >= 2.0**digits).any():
            raise _rounded_ids(digits)
        return
    if users.dtype.kind not in "OUS":
        raise InvalidArgument("groups", users.dtype, "whole numbers or text")
    ids = users.tolist()
    types = set(map(type, ids))
    for wrong in (t for t in types if issubclass(t, _CONTAINERS)):
        raise InvalidArgument("groups", f"a {wrong.__name__}", "one id for each record")
    if any(issubclass(t, str) for t in types) and any(map(_is_large_float, ids)):
        raise _rounded_ids(53)
    for floats in (t for t in types if issubclass(t, float | np.floating)):
        _refuse_merged(np.array([user for user in ids if type(user) is floats]))
    if len(set(map(_kind_of_id, types))) > 1:
        types = {type(user) for user in ids if not _is_missing(user)}
    kinds = set(map(_kind_of_id, types))
    if len(kinds) > 1:
        names = " and ".join(sorted(kind.__name__ for kind in kinds))
        raise InvalidArgument(
            "groups", f"ids of the kinds {names}", "users of one kind", "make all of them text"
        )


_CONTAINERS = (list, tuple, set, frozenset, dict, np.ndarray)


def _is_large_float(user: Any) -> bool:
    if not isinstance(user, str) or not _PRINTED_FLOAT.fullmatch(user):
        return False
    # from here on float64 has not every whole number
    return abs(float(user.replace(",", "."))) >= 2.0**53


def _rounded_ids(digits: int) -> InvalidArgument:
    return InvalidArgument(
        "groups", f"a float of 2^{digits} or more", "whole numbers, or text",
        "ids were rounded to it, and people fall together: keep the column from becoming floats",
    )  # fmt: skip


def _kind_of_id(kind: type) -> type:
    """What must be the same of all ids: 1, 1.0, True and '1' could be four people, or one."""
    alike: tuple[tuple[type, tuple[type, ...]], ...] = (
        (bool, (bool, np.bool_)),
        (int, (int, np.integer)),
        (float, (float, np.floating)),
        (str, (str,)),
        (bytes, (bytes,)),
    )
    return next((name for name, types in alike if issubclass(kind, types)), kind)


def number_users(groups: ArrayLike, *, records: int | None = None) -> NDArray[np.int64]:
    """The users of all records, numbered; every record must have one.

    Records without one would each count as a person, or all of them as a single one.

    >>> number_users(["bob", "ann", "bob"]).tolist()
    [1, 0, 1]
    """
    users = user_ids(groups)
    if records not in (None, len(users)):
        raise InvalidArgument("groups", users.shape, f"the user of each of {records} rows")
    if _any_missing(users):
        raise InvalidArgument("groups", "records without a user", "a user for each record")
    try:
        number = np.unique(users, return_inverse=True)[1]
    except TypeError:
        raise InvalidArgument("groups", "names and numbers", "users of one kind") from None
    return np.asarray(number, dtype=np.int64)


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
        if not owned or any(map(_is_missing, owned)):
            raise InvalidArgument("groups", "records without a user", "an owner for each record")
        everybody.extend(given)
        if seen.isdisjoint(owned):
            groups[owned] = len(groups)
            seen |= owned
        out[i] = groups.get(owned, -1)
    user_ids(everybody)
    return out


def _any_missing(users: NDArray[Any]) -> bool:
    if users.dtype.kind == "O":
        return any(map(_is_missing, users))
    if users.dtype.kind in "US":
        return bool((np.char.str_len(np.char.strip(users)) == 0).any())
    return bool((users != users).any())


def _is_missing(user: Any) -> bool:
    """None, NaN, pandas' NA and NaT, and blanks."""
    if isinstance(user, str | bytes):
        return not user.strip()
    try:
        return user is None or not bool(user == user)
    except TypeError:
        return True


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
        used = np.array([self._used.get(name, 0) for name in _keys(names)], dtype=np.int64)
        order = np.argsort(which, kind="stable")
        ends = np.cumsum(wanted[order])
        before = ends - wanted[order]
        first = np.searchsorted(which[order], np.arange(len(names)))
        before += (used - before[first])[which[order]]
        granted = np.empty_like(wanted)
        granted[order] = np.clip(self.most - before, 0, wanted[order])
        used += np.bincount(which, granted, minlength=len(names)).astype(np.int64)
        self._used.update(zip(_keys(names), used.tolist(), strict=True))
        return granted / UNIT


def _keys(names: NDArray[Any]) -> list[Any]:
    """Users as keys of a dictionary; all that are not a number are one user."""
    return ["not a number" if name != name else name for name in names.tolist()]
