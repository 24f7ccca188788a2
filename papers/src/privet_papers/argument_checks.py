"""Checks of arguments by name: a wrong one raises `InvalidArgument`, which says so in one line."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from privet.errors import InvalidArgument


def _require(name: str, value: Any, expected: str, accept: Callable[[float], bool]) -> None:
    try:
        right = accept(float(value))
    except (TypeError, ValueError):
        right = False
    if not right:
        raise InvalidArgument(name, value, expected)


def check_positive(**numbers: float) -> None:
    """Each number is finite and above 0.

    >>> check_positive(gamma=0.0)
    Traceback (most recent call last):
    ...
    privet.errors.InvalidArgument: gamma must be a finite number above 0, got 0.0
    """
    for name, x in numbers.items():
        _require(name, x, "a finite number above 0", lambda v: 0.0 < v < math.inf)


def check_in_unit(**numbers: float) -> None:
    """Each number is in [0, 1], such as a rate."""
    for name, x in numbers.items():
        _require(name, x, "a number in [0, 1]", lambda v: 0.0 <= v <= 1.0)


def check_in_open_unit(**numbers: float) -> None:
    """Each number is in (0, 1), such as delta."""
    for name, x in numbers.items():
        _require(name, x, "a number in (0, 1)", lambda v: 0.0 < v < 1.0)


def check_counts(minimum: int = 1, **numbers: int) -> None:
    """Each is a whole number of at least `minimum`.

    >>> check_counts(2, classes=1)
    Traceback (most recent call last):
    ...
    privet.errors.InvalidArgument: classes must be a whole number of at least 2, got 1
    """
    for name, x in numbers.items():
        expected = f"a whole number of at least {minimum}"
        if isinstance(x, bool):
            raise InvalidArgument(name, x, expected)
        _require(name, x, expected, lambda v: minimum <= v < math.inf and v == int(v))
