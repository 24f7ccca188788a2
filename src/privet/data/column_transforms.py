"""Declared transforms of a table's columns: for skewed or heavy-tailed numbers, and for levels.

A box that holds a few large incomes squeezes all others into a corner of it; their logarithm fills
it. Words in an order (none, school, degree) say more as numbers than as words of their own. Which
column is so is declared, never seen in the records; a transform is a public map of a cell alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Self, final

import numpy as np
from numpy.typing import NDArray

from privet.errors import InvalidArgument

Array = NDArray[Any]
Both = tuple[Callable[[Any], Any], Callable[[Any], Any], float]
WORDS: dict[str, Both] = {
    "log": (np.log, np.exp, math.ulp(0.0)),
    "log1p": (np.log1p, np.expm1, 0.0),
    "sqrt": (np.sqrt, np.square, 0.0),
    "asinh": (np.arcsinh, np.sinh, -math.inf),
}
"""The map, its inverse, and the least number that a column's bounds may have. asinh is a logarithm
of either sign: x where |x| is small, log(2 |x|) where it is large."""


@final
@dataclass(frozen=True, kw_only=True)
class ColumnTransform:
    """A number clipped to its bounds and mapped by a word of `WORDS`.

    >>> income = ColumnTransform(word="log1p", low=0.0, high=1e6)
    >>> income.apply(np.array([0.0, 999.0, 9e9])).round(2).tolist()
    [0.0, 6.91, 13.82]
    """

    word: str
    low: float
    high: float

    def apply(self, values: Array) -> Array:
        """The numbers as features; what is missing stays so."""
        return np.asarray(WORDS[self.word][0](np.clip(values, self.low, self.high)))

    @property
    def range(self) -> tuple[float, float]:
        """The bounds of the feature."""
        low, high = (float(v) for v in self.apply(np.array([self.low, self.high])))
        return low, high

    @property
    def middle(self) -> float:
        """The number whose feature is in the middle of its range."""
        return float(WORDS[self.word][1](sum(self.range) / 2.0))

    def to_list(self) -> list[Any]:
        """A JSON-ready list, which `of` reads."""
        return [self.word, self.low, self.high]

    @classmethod
    def of(cls, listed: Any) -> Self:
        """What `to_list` wrote."""
        word, low, high = listed
        return cls(word=str(word), low=float(low), high=float(high))


def declared_transforms(
    transforms: Mapping[str, Any] | None, ranges: Mapping[str, tuple[float, float]]
) -> tuple[dict[str, ColumnTransform], dict[str, tuple[str, ...]]]:
    """Words of columns with bounds, and lists of levels, from one mapping; checked.

    >>> found = declared_transforms({"income": "log1p", "school": ["none", "some"]},
    ...                             {"income": (0.0, 10.0)})
    >>> found[0]["income"].to_list(), found[1]
    (['log1p', 0.0, 10.0], {'school': ('none', 'some')})
    """
    words, levels = {}, {}
    for name, given in dict(transforms or {}).items():
        what = f"transforms[{name!r}]"
        if isinstance(given, list | tuple):
            if len(given) < 2:
                raise InvalidArgument(what, given, "two or more levels, the lowest first")
            levels[str(name)] = tuple(map(str, given))
            continue
        if given not in WORDS:
            raise InvalidArgument(what, given, f"one of {', '.join(WORDS)}, or a list of levels")
        if name not in ranges:
            hint = "a list of levels needs no bounds; dates and categories are not transformed"
            raise InvalidArgument(what, given, "a column with two numbers as bounds", hint)
        low, high = ranges[name]
        if low < WORDS[given][2]:
            least = "above 0" if given == "log" else "0 or more"
            hint = "asinh takes both signs"
            raise InvalidArgument(f"bounds[{name!r}]", (low, high), f"{least} for {given}", hint)
        words[str(name)] = ColumnTransform(word=given, low=low, high=high)
    return words, levels
