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
from typing import Any, TypeVar

from privet.errors import InvalidArgument

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


def count(name: str, value: Any, *, minimum: int = 1) -> int:
    """A whole number of at least `minimum`."""
    expected = f"a whole number of at least {minimum}"
    if isinstance(value, bool):
        raise InvalidArgument(name, value, expected)
    if isinstance(value, int) and value >= minimum:
        return value  # of any size: 2^53 + 1 is not a float
    x = _number(name, value, expected, lambda x: math.isfinite(x) and x == int(x) and x >= minimum)
    return int(x)


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
