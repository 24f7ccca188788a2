"""What teachers may answer: numbers in a public range, and how noisy answers are mapped into it."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from privet import _check
from privet.errors import InvalidArgument

Array = NDArray[Any]


class TargetSpace(ABC):
    """A public range of answers; the first axis counts queries, the second one classes (if any).

    **Guarantee** `to_coordinates` looks at each number (or voxel) by itself and at nothing else,
    and its result lies in a set known beforehand, whatever a teacher says; NaN counts as 0.
    `from_coordinates` is post-processing.
    """

    @abstractmethod
    def to_coordinates(self, answers: Array) -> Array:
        """Answers put into the range, as coordinates in which they are averaged."""

    @abstractmethod
    def from_coordinates(self, values: Array) -> Array:
        """Coordinates, with noise or without, as answers of the kind that teachers give."""

    @abstractmethod
    def middle(self, shape: tuple[int, ...]) -> float:
        """The middle of the range of each coordinate of a target of this shape."""

    @abstractmethod
    def radius(self, shape: tuple[int, ...]) -> float:
        """How far a proper answer of this shape can lie from the middle."""

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready; `space_from_dict` reads it back."""
        return {"kind": type(self).__name__, **asdict(self)}  # type: ignore[call-overload]


@final
@dataclass(frozen=True, kw_only=True)
class UnitBox(TargetSpace):
    """Numbers in [0, 1], each by itself.

    >>> UnitBox().to_coordinates(np.array([[0.5, 7.0, float("nan")]])).tolist()
    [[0.5, 1.0, 0.0]]
    """

    def to_coordinates(self, answers: Array) -> Array:
        return np.clip(np.nan_to_num(np.asarray(answers, dtype=np.float64), nan=0.0), 0.0, 1.0)

    def from_coordinates(self, values: Array) -> Array:
        return np.clip(values, 0.0, 1.0)

    def middle(self, shape: tuple[int, ...]) -> float:
        return 0.5

    def radius(self, shape: tuple[int, ...]) -> float:
        return 0.5 * math.sqrt(math.prod(shape))


@final
@dataclass(frozen=True, kw_only=True)
class ClassProbabilities(TargetSpace):
    """Probabilities of classes, which lie on axis 1; one voxel or many.

    A noisy answer is put right by the nearest point of the simplex, voxel by voxel.

    >>> ClassProbabilities().from_coordinates(np.array([[0.9, 0.5, -0.3]])).round(3).tolist()
    [[0.7, 0.3, 0.0]]
    """

    def to_coordinates(self, answers: Array) -> Array:
        return UnitBox().to_coordinates(answers)

    def from_coordinates(self, values: Array) -> Array:
        return project_to_simplex(values)

    def middle(self, shape: tuple[int, ...]) -> float:
        return 1.0 / shape[0]

    def radius(self, shape: tuple[int, ...]) -> float:
        return math.sqrt(math.prod(shape[1:]) * (1.0 - 1.0 / shape[0]))


@final
@dataclass(frozen=True, kw_only=True)
class CentredLogits(TargetSpace):
    """Probabilities of classes, averaged as logits: log p, centred over classes, clipped.

    Centring takes out the constant that a softmax does not see, so that probabilities and raw
    logits give the same. Without `limit` a single teacher's logits could be anything, and no amount
    of noise would be enough.

    >>> space = CentredLogits(limit=4.0)
    >>> space.to_coordinates(np.array([[0.5, 0.5], [1.0, 0.0]])).tolist()
    [[0.0, 0.0], [4.0, -4.0]]
    >>> space.from_coordinates(space.to_coordinates(np.array([[0.9, 0.1]]))).round(6).tolist()
    [[0.9, 0.1]]

    The paper aggregates logits "prior to the softmax layer"; the limit is ours.
    """

    limit: float = 5.0  # trades sure answers that are cut off for noise, which grows with it

    def __post_init__(self) -> None:
        _check.positive("limit", self.limit)

    def to_coordinates(self, answers: Array) -> Array:
        p = UnitBox().to_coordinates(answers)
        logits = np.log(np.maximum(p, 1e-30))  # log 0 would be infinite; clipped to `limit` anyway
        centred: Array = logits - logits.mean(axis=1, keepdims=True)
        return centred.clip(-self.limit, self.limit)

    def from_coordinates(self, values: Array) -> Array:
        return np.asarray(softmax(values, axis=1))

    def middle(self, shape: tuple[int, ...]) -> float:
        return 0.0

    def radius(self, shape: tuple[int, ...]) -> float:
        return self.limit * math.sqrt(math.prod(shape))


def space_from_dict(d: Mapping[str, Any]) -> TargetSpace:
    """The inverse of `TargetSpace.to_dict`.

    >>> space_from_dict(CentredLogits(limit=3.0).to_dict())
    CentredLogits(limit=3.0)
    """
    match d["kind"]:
        case "UnitBox":
            return UnitBox()
        case "ClassProbabilities":
            return ClassProbabilities()
        case "CentredLogits":
            return CentredLogits(limit=float(d["limit"]))
        case kind:
            raise InvalidArgument("space", kind, "UnitBox, ClassProbabilities or CentredLogits")


def project_to_simplex(values: Array) -> Array:
    """The nearest point with entries of at least 0 that sum to 1 along axis 1.

    max(v - t, 0) with the t that makes the sum 1, found from the sorted entries (Held, Wolfe and
    Crowder 1974).
    """
    v = np.asarray(values, dtype=np.float64)
    ordered = -np.sort(-v, axis=1)
    above = np.cumsum(ordered, axis=1) - 1.0
    shape = [1] * v.ndim
    shape[1] = v.shape[1]
    k = np.arange(1, v.shape[1] + 1).reshape(shape)
    last = np.sum(ordered - above / k > 0.0, axis=1, keepdims=True) - 1
    t = np.take_along_axis(above, last, axis=1) / (last + 1)
    return np.asarray(np.maximum(v - t, 0.0))
