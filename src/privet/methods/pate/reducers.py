"""Reducers: public maps of a high-dimensional target into a ball of public radius, and back."""

from __future__ import annotations

import json
import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from privet import _check
from privet.errors import InvalidArgument
from privet.ledger import fingerprint
from privet.methods.pate.target_spaces import ClassProbabilities, TargetSpace

Array = NDArray[Any]
Codes = NDArray[np.float64]


class Reducer(ABC):
    """A fitted map between targets and codes; make one with the subclass's `fit`.

    Codes are what teachers send and what is averaged: vectors of `dimension` numbers and a length
    of at most `radius`.

    **Guarantee** `encode` looks at each answer by itself. That codes are not longer than `radius`
    is enforced where they are clipped (`privet.methods.pate.answer_files`), not here.

    **Assumes** that the targets it was fitted on are *public*: nothing is charged for them.
    """

    @property
    @abstractmethod
    def target_shape(self) -> tuple[int, ...]:
        """The shape of one target."""

    @property
    @abstractmethod
    def dimension(self) -> int:
        """How many numbers a code has."""

    @property
    @abstractmethod
    def radius(self) -> float:
        """The greatest length of a code: public."""

    @abstractmethod
    def _encode(self, answers: Array) -> Codes:
        """Codes of answers that have the right shape."""

    @abstractmethod
    def _decode(self, codes: Codes, noise: float) -> Array:
        """Targets of codes that have the right shape."""

    @abstractmethod
    def tensors(self) -> dict[str, Array]:
        """The arrays it is made of; with `settings` all that a file needs."""

    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """All that is not in `tensors`, JSON-ready."""

    def encode(self, answers: Array) -> Codes:
        """Encode answers: (queries, *target_shape) to (queries, dimension)."""
        y = np.asarray(answers)
        if y.shape[1:] != self.target_shape:
            raise InvalidArgument(
                "answers", y.shape, f"of shape (queries, {', '.join(map(str, self.target_shape))})"
            )
        return self._encode(y)

    def decode(self, codes: Array, *, noise: float = 0.0) -> Array:
        """Decode codes: (queries, dimension) to (queries, *target_shape).

        `noise`: the standard deviation of what was added to each number of a code; a reducer that
        knows the spread of codes uses it to shrink them. Post-processing: it costs nothing.
        """
        z = np.asarray(codes, dtype=np.float64)
        if z.ndim != 2 or z.shape[1] != self.dimension:
            raise InvalidArgument("codes", z.shape, f"of shape (queries, {self.dimension})")
        return self._decode(z, _check.non_negative("noise", noise))

    @property
    def name(self) -> str:
        """A hash of all that it does: equal for equal maps, on every machine."""
        tensors = self.tensors()
        note = json.dumps(
            {"kind": type(self).__name__, "names": sorted(tensors), **self.settings()},
            sort_keys=True,
        )
        return fingerprint(note.encode(), *(tensors[k] for k in sorted(tensors)))


@final
@dataclass(frozen=True, kw_only=True)
class IdentityReducer(Reducer):
    """No reduction: for targets that are small already, such as the probabilities of ten classes.

    A code is the target less the middle of its range. `length` is the greatest length of a code;
    None takes what the range implies: for class probabilities sqrt(1 - 1/c) a voxel, for a box of
    side w and d numbers w sqrt(d) / 2 (the paper's bound, sensitivity sqrt(d)/K for [0, 1]^d).

    Noisy codes are shrunk towards the middle by v / (v + sigma^2), v = C^2 / d being the variance
    of answers as far out as they can be. What then is put right is hardly distorted by it, so that
    noise averages out over the labels that a student sees.

    >>> reducer = IdentityReducer(shape=(10,))
    >>> reducer.dimension, round(reducer.radius, 4)
    (10, 0.9487)
    """

    shape: tuple[int, ...]
    space: TargetSpace = field(default_factory=ClassProbabilities)
    length: float | None = None

    def __post_init__(self) -> None:
        for n in self.shape:
            _check.count("shape", n)
        if self.length is not None:
            _check.positive("length", self.length)

    @property
    def target_shape(self) -> tuple[int, ...]:
        return self.shape

    @property
    def dimension(self) -> int:
        return math.prod(self.shape)

    @property
    def radius(self) -> float:
        return self.space.radius(self.shape) if self.length is None else self.length

    def _encode(self, answers: Array) -> Codes:
        bounded = self.space.to_coordinates(answers).reshape(len(answers), -1)
        return np.asarray(bounded - self.space.middle(self.shape))

    def _decode(self, codes: Codes, noise: float) -> Array:
        spread = self.radius**2 / self.dimension
        shrunk = codes * (spread / (spread + noise**2))
        values = (shrunk + self.space.middle(self.shape)).reshape(len(codes), *self.shape)
        return self.space.from_coordinates(values)

    def tensors(self) -> dict[str, Array]:
        return {}

    def settings(self) -> dict[str, Any]:
        return {"shape": list(self.shape), "length": self.length, "space": self.space.to_dict()}
