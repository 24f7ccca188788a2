"""Argument checks: each returns the value as a plain number or raises `InvalidArgument`.

A frozen dataclass states the checks of its fields where it declares them: `Checked` and `checked`.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from enum import Enum
from functools import cache
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from privet.errors import InvalidArgument

if TYPE_CHECKING:
    from numpy.typing import NDArray

Choice = TypeVar("Choice", bound=Enum)


def _number(name: str, value: Any, expected: str, accept: Callable[[float], bool]) -> float:
    try:
        x = float(value)
    except (TypeError, ValueError):
        raise InvalidArgument(name, value, expected) from None
    if math.isnan(x) or not accept(x):
        raise InvalidArgument(name, value, expected)
    return x


def open_unit(name: str, value: Any) -> float:
    """A number in (0, 1), such as delta."""
    return _number(name, value, "a number in (0, 1)", lambda x: 0.0 < x < 1.0)


def delta_or_zero(name: str, value: Any) -> float:
    """A number in [0, 1): a delta where pure privacy is allowed."""
    return _number(name, value, "a number in [0, 1)", lambda x: 0.0 <= x < 1.0)


def unit(name: str, value: Any) -> float:
    """A number in [0, 1], such as a sampling rate."""
    return _number(name, value, "a number in [0, 1]", lambda x: 0.0 <= x <= 1.0)


def positive(name: str, value: Any) -> float:
    """A finite number above 0."""
    return _number(name, value, "a finite number above 0", lambda x: 0.0 < x < math.inf)


# What docs/theory/summation.md needs of C (Lemma 3): a weight is C 2^-81 at least, so that it and
# what it weighs are normal numbers of float32, or off by less than the room that is left under C.
SMALLEST_CLIPPING_BOUND = 2.0**-40


def clipping_bound(name: str, value: Any) -> float:
    """A bound of gradients that float32 can clip to."""
    expected = (
        "a finite number of at least 2^-40, below which float32 cannot clip: "
        "multiply losses and bound by the same number"
    )
    return _number(name, value, expected, lambda x: SMALLEST_CLIPPING_BOUND <= x < math.inf)


def positive_or_infinite(name: str, value: Any) -> float:
    """A number above 0; infinity for a cap that refuses nothing."""
    return _number(name, value, "a number above 0", lambda x: x > 0.0)


def finite(name: str, value: Any) -> float:
    """A finite number."""
    return _number(name, value, "a finite number", math.isfinite)


def non_negative(name: str, value: Any) -> float:
    """A finite number of at least 0."""
    return _number(name, value, "a finite number of at least 0", lambda x: 0.0 <= x < math.inf)


def non_negative_or_infinite(name: str, value: Any) -> float:
    """A number of at least 0; infinity says that nothing is known."""
    return _number(name, value, "a number of at least 0", lambda x: x >= 0.0)


def between(name: str, value: Any, low: float, high: float) -> float:
    """A number from `low` to `high`, both allowed."""
    return _number(name, value, f"a number from {low:g} to {high:g}", lambda x: low <= x <= high)


def count(name: str, value: Any, *, minimum: int = 1) -> int:
    """A whole number of at least `minimum`."""
    expected = f"a whole number of at least {minimum}"
    if isinstance(value, bool):
        raise InvalidArgument(name, value, expected)
    if isinstance(value, int) and value >= minimum:
        return value  # of any size: 2^53 + 1 is not a float
    x = _number(name, value, expected, lambda x: math.isfinite(x) and x == int(x) and x >= minimum)
    return int(x)


def numbers(name: str, value: Any) -> NDArray[Any]:
    """Records as an array in which each number is what it is as a float64 by itself.

    An array has one type for all its records, and one of them can change it. Types that float64
    holds exactly are kept; others are rounded to it always, not only beside a float.

    >>> numbers("X", [[2**53 + 1]]).tolist()
    [[9007199254740992.0]]
    """
    import numpy as np  # here: `privet ledger` checks numbers and needs no numpy

    try:
        x = np.asarray(value)
        x = x.astype(np.float64) if x.dtype.kind == "O" else x
    except (TypeError, ValueError, OverflowError):
        raise InvalidArgument(name, type(value), "numbers, in records of one shape") from None
    if x.dtype.kind not in "biuf":
        raise InvalidArgument(name, f"type {x.dtype}", "numbers")
    with np.errstate(over="ignore"):  # a number too large for float64 is infinite
        return x if x.dtype.itemsize < 8 or x.dtype == np.float64 else x.astype(np.float64)


def path(name: str, value: Any) -> Path:
    """A path, or the word for it."""
    if not isinstance(value, str | PathLike):
        raise InvalidArgument(name, value, "a path")
    return Path(value)


def member(name: str, value: Any, kind: type[Choice]) -> Choice:
    """One of a list of choices, or the word for it."""
    try:
        return kind(value)
    except ValueError:
        words = ", ".join(str(choice.value) for choice in kind)
        raise InvalidArgument(name, value, f"one of {words}") from None


def checked(check: Callable[[str, Any], Any], default: Any = dataclasses.MISSING) -> Any:
    """A field of a `Checked` dataclass that is held against `check` when an object is made."""
    return dataclasses.field(default=default, metadata={"check": check})


class Checked:
    """Base of frozen dataclasses some of whose fields are `checked`, and kept as plain numbers.

    >>> @dataclasses.dataclass(frozen=True)
    ... class Coin(Checked):
    ...     bias: float = checked(unit)
    >>> Coin(2.0)
    Traceback (most recent call last):
    ...
    privet.errors.InvalidArgument: bias must be a number in [0, 1], got 2.0
    """

    def __post_init__(self) -> None:
        kind: Any = type(self)
        for name, check in _checks(kind):
            object.__setattr__(self, name, check(name, getattr(self, name)))


@cache
def _checks(kind: Any) -> tuple[tuple[str, Callable[[str, Any], Any]], ...]:
    fields = dataclasses.fields(kind)
    return tuple((f.name, f.metadata["check"]) for f in fields if "check" in f.metadata)
