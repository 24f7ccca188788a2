"""Class weights and shares: how much worse it is to miss a class, and how frequent it is; declared.

The most probable class is the best answer where all mistakes cost the same. Where missing class k
costs w_k, it is the largest w_k P(k | x): log w_k is added to the logit of k. A map of what was
released by public numbers: every method takes them, and they cost nothing.

Where all classes are to be found equally often, whatever their share p_k of the records is, shares
are declared instead. Probabilities are then divided by them (w_k = 1 / p_k), unless the method did
better: linear DP-SGD pays for measuring how far (`methods/dpsgd/equal_recalls.py`).
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
        if not _is_positive(w):
            raise InvalidArgument(f"class_weight[{name!r}]", w, "a finite number above 0")
    return np.log([float(given.get(name, 1.0)) for name in known])


def class_shares(prior: Any, classes: Iterable[Any]) -> tuple[float, ...] | None:
    """The declared share of every class, in their order; None where none is declared.

    >>> class_shares({"ill": 0.1, "well": 0.9}, ["ill", "well"])
    (0.1, 0.9)
    >>> class_shares({"ill": 0.1}, ["ill", "well"])
    Traceback (most recent call last):
    ...
    privet.errors.InvalidArgument: class_prior must be a share above 0 for each of ill, well, ...
    """
    if prior is None:
        return None
    known = [str(name) for name in classes]
    given = {str(k): v for k, v in prior.items()} if isinstance(prior, Mapping) else {}
    right = sorted(given) == sorted(known) and all(_is_positive(v) for v in given.values())
    if not right or abs(sum(given.values()) - 1.0) > 0.02:  # what rounding to percents leaves
        expected = f"a share above 0 for each of {', '.join(known)}, summing to 1"
        hint = "they are never read from the records: declare what is publicly known"
        raise InvalidArgument("class_prior", prior, expected, hint)
    return tuple(float(given[name] / sum(given.values())) for name in known)


def decision_weights(
    weights: Mapping[Any, float] | None,
    shares: tuple[float, ...] | None,
    classes: Iterable[Any],
    *,
    served: bool,
) -> dict[str, float] | None:
    """The weights of a decision: those declared, over the shares unless these are `served`.

    >>> decision_weights({"ill": 2.0}, (0.25, 0.75), ["ill", "well"], served=True)
    {'ill': 2.0}
    >>> decision_weights({"ill": 2.0}, (0.25, 0.5), ["ill", "well"], served=False)
    {'ill': 8.0, 'well': 2.0}
    """
    given = None if weights is None else {str(k): float(w) for k, w in weights.items()}
    if shares is None or served:
        return given
    names = [str(name) for name in classes]
    return {k: (given or {}).get(k, 1.0) / p for k, p in zip(names, shares, strict=True)}


def _is_positive(value: Any) -> bool:
    number = isinstance(value, int | float | np.number)
    return number and math.isfinite(value) and bool(value > 0)


def read_weights(text: str | None, name: str = "--class-weights") -> dict[str, float] | None:
    """Weights or shares as a command line gives them: ill=5,well=1."""
    if text is None:
        return None
    try:
        pairs = (part.rsplit("=", 1) for part in text.split(","))
        return {name.strip(): float(w) for name, w in pairs}
    except ValueError:
        example = "ill=5,well=1" if name == "--class-weights" else "ill=.1,well=.9"
        raise InvalidArgument(name, text, f"such as {example}") from None
