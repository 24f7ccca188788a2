"""Algorithm 1 as printed: components of public maps, and noise for all of the cube [0, 1]^d."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Self, final

import numpy as np
from numpy.typing import NDArray

from privet.methods.pate import Reducer

Array = NDArray[Any]


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class PrintedPCA(Reducer):
    """The first l components of a map about the middle of the cube; nothing is clipped.

    Two maps in [0, 1]^d are at most sqrt(d) apart, so that codes about the middle have length
    sqrt(d) / 2 at most: the paper's sensitivity sqrt(d) / K.

    **Assumes** that the mean and the components are of public maps.

    >>> maps = np.random.default_rng(0).uniform(size=(6, 2, 2, 2, 2))
    >>> reducer = PrintedPCA.fit(maps, components=2)
    >>> reducer.encode(maps).shape, reducer.radius, reducer.decode(reducer.encode(maps)).shape
    ((6, 2), 2.0, (6, 2, 2, 2, 2))

    pate-high-dimensional-targets, Algorithm 1.
    """

    shape: tuple[int, ...]
    mean: Array = field(repr=False)
    basis: Array = field(repr=False)
    """(l, d), rows of length 1."""

    @classmethod
    def fit(cls, public_maps: Array, *, components: int) -> Self:
        """Components of public maps (maps, classes, x, y, z), those of the largest variance."""
        maps = np.asarray(public_maps, dtype=np.float64)
        flat = maps.reshape(len(maps), -1)
        mean = flat.mean(axis=0)
        basis = np.linalg.svd(flat - mean, full_matrices=False)[2][:components]
        return cls(shape=maps.shape[1:], mean=mean, basis=basis)

    @property
    def target_shape(self) -> tuple[int, ...]:
        return self.shape

    @property
    def dimension(self) -> int:
        return len(self.basis)

    @property
    def radius(self) -> float:
        return math.sqrt(self.mean.size) / 2.0

    def _encode(self, answers: Array) -> NDArray[np.float64]:
        flat = np.clip(np.asarray(answers, dtype=np.float64).reshape(len(answers), -1), 0.0, 1.0)
        return np.asarray((flat - 0.5) @ self.basis.T)

    def _decode(self, codes: NDArray[np.float64], noise: float) -> Array:
        departures = codes - (self.mean - 0.5) @ self.basis.T
        flat = self.mean + departures @ self.basis
        return flat.reshape(len(codes), *self.shape).astype(np.float32)

    def tensors(self) -> dict[str, Array]:
        return {"mean": self.mean, "basis": self.basis}

    def settings(self) -> dict[str, Any]:
        return {"components": self.dimension}
