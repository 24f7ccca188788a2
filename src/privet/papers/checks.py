"""Checks of a paper's numbers by name: what is wrong is said in one line."""

from __future__ import annotations

import math

from privet.errors import InvalidArgument


def positive(**numbers: float) -> None:
    """Each is finite and above 0.

    >>> positive(gamma=0.0)
    Traceback (most recent call last):
    ...
    privet.errors.InvalidArgument: gamma must be a finite number above 0, got 0.0
    """
    for name, x in numbers.items():
        if not 0.0 < x < math.inf:
            raise InvalidArgument(name, x, "a finite number above 0")


def counts(minimum: int = 1, **numbers: int) -> None:
    """Each is a whole number of at least `minimum`.

    >>> counts(2, classes=1)
    Traceback (most recent call last):
    ...
    privet.errors.InvalidArgument: classes must be a whole number of at least 2, got 1
    """
    for name, x in numbers.items():
        if isinstance(x, bool) or x != int(x) or x < minimum:
            raise InvalidArgument(name, x, f"a whole number of at least {minimum}")
