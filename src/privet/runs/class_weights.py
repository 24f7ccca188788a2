"""Class weights: how much worse it is to miss a class, declared by the user.

The most probable class is the best answer where all mistakes cost the same. Where missing class k
costs w_k, it is the largest w_k P(k | x): log w_k is added to the logit of k. A map of what was
released by public numbers: every method takes them, and they cost nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privet.errors import InvalidArgument

HINT = "class sizes are never read from the records: declare a weight for each class"


def class_offsets(weights: Any, classes: Iterable[Any]) -> NDArray[np.float64] | None:
    """log w_k for every class, 0 where none is given; None for no weights at all.

    >>> class_offsets({"ill": 1.0}, ["ill", "well"]).tolist()
    [0.0, 0.0]
    >>> class_offsets("balanced", ["ill", "well"])
    Traceback (most recent call last):
    ...
    privet.errors.InvalidArgument: class_weight must be a mapping from classes to weights, got ...
    """
    if weights is None:
        return None
    if not isinstance(weights, Mapping):
        expected = "a mapping from classes to weights"
        raise InvalidArgument("class_weight", weights, expected, HINT)
    given = {str(name): w for name, w in weights.items()}
    known = [str(name) for name in classes]
    for name, w in given.items():
        if name not in known:
            raise InvalidArgument("class_weight", name, f"one of {', '.join(known)}")
        right = isinstance(w, int | float | np.number) and math.isfinite(w) and w > 0
        if not right:
            raise InvalidArgument(f"class_weight[{name!r}]", w, "a finite number above 0")
    return np.log([float(given.get(name, 1.0)) for name in known])


def read_weights(text: str | None) -> dict[str, float] | None:
    """Weights as a command line gives them: ill=5,well=1."""
    if text is None:
        return None
    try:
        pairs = (part.rsplit("=", 1) for part in text.split(","))
        return {name.strip(): float(w) for name, w in pairs}
    except ValueError:
        raise InvalidArgument("--class-weights", text, "such as ill=5,well=1") from None
