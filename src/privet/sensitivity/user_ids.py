"""Ids of users: numbered, and refused where two people may have become one."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from privet.errors import InvalidArgument

# Numbers as a table of floats is printed: 1.7e+18, 1700000000000000000.0, 2E+18, 1,7E+18. Without a
# point only with the sign that programs write: 12e45 may be the beginning of a hash.
_PRINTED_FLOAT = re.compile(r"\s*[+-]?\d+([.,]\d*([eE][+-]?\d+)?|[eE]\+\d+)\s*")

_CONTAINERS = (list, tuple, set, frozenset, dict, np.ndarray)


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
    refuse_merged_ids(users)
    return users


def refuse_merged_ids(users: NDArray[Any]) -> None:
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
        refuse_merged_ids(np.array([user for user in ids if type(user) is floats]))
    if len(set(map(_kind_of_id, types))) > 1:
        types = {type(user) for user in ids if not is_missing(user)}
    kinds = set(map(_kind_of_id, types))
    if len(kinds) > 1:
        names = " and ".join(sorted(kind.__name__ for kind in kinds))
        raise InvalidArgument(
            "groups", f"ids of the kinds {names}", "users of one kind", "make all of them text"
        )


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


def _any_missing(users: NDArray[Any]) -> bool:
    if users.dtype.kind == "O":
        return any(map(is_missing, users))
    if users.dtype.kind in "US":
        return bool((np.char.str_len(np.char.strip(users)) == 0).any())
    return bool((users != users).any())


def is_missing(user: Any) -> bool:
    """None, NaN, pandas' NA and NaT, and blanks."""
    if isinstance(user, str | bytes):
        return not user.strip()
    try:
        return user is None or not bool(user == user)
    except TypeError:
        return True


def as_keys(names: NDArray[Any]) -> list[Any]:
    """Users as keys of a dictionary; all that are not a number are one user."""
    return ["not a number" if name != name else name for name in names.tolist()]
