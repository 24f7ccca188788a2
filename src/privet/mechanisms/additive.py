"""What mechanisms that add noise share: on a grid of floats, or exactly on multiples of a step."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray

from privet import _check
from privet.bounds import Bounded
from privet.guarantee import Adjacency
from privet.mechanisms.base import (
    ADD_REMOVE,
    Mechanism,
    bare_sensitivity,
    exact_ratio,
    ratio_up,
    smallest_scale,
    widened,
)
from privet.noise import Source, grid

Norm = Literal["l1", "l2"]


@dataclass(frozen=True, kw_only=True)
class OnGrid(Mechanism):
    """Real noise of a scale, rounded to the public grid of `privet.noise.grid` and added there."""

    norm: ClassVar[Norm]
    theorem: ClassVar[str]
    scale: float

    def __post_init__(self) -> None:
        grid.spacing(self.scale)

    @abstractmethod
    def _units(self, shape: tuple[int, ...], rng: Source) -> NDArray[np.int64]:
        """The noise, in steps of the grid."""

    def sensitivity(
        self, of: Bounded | float, *, adjacency: Adjacency = ADD_REMOVE, dimension: int = 1
    ) -> float:
        step = grid.spacing(self.scale)
        return widened(of, norm=self.norm, adjacency=adjacency, dimension=dimension, step=step)

    def _perturb(self, value: NDArray[np.float64], rng: Source) -> NDArray[np.float64]:
        return grid.add(value, self._units(value.shape, rng), step=grid.spacing(self.scale))

    @classmethod
    def _least(
        cls, of: Bounded | float, *, ratio: float, adjacency: Adjacency, dimension: int
    ) -> Self:
        """The least noise with sensitivity / scale <= ratio."""

        def needed(scale: float) -> float:
            own = cls(scale=scale).sensitivity(of, adjacency=adjacency, dimension=dimension)
            return ratio_up(own, ratio)

        bare = bare_sensitivity(of, adjacency, cls.norm)
        return cls(scale=smallest_scale(needed, ratio_up(bare, ratio)))


@dataclass(frozen=True, kw_only=True)
class PureOnGrid(OnGrid):
    """Noise whose epsilon is sensitivity / scale, with delta = 0."""

    @classmethod
    def for_budget(
        cls,
        of: Bounded | float,
        *,
        epsilon: float,
        adjacency: Adjacency = ADD_REMOVE,
        dimension: int = 1,
    ) -> Self:
        """The least noise that is epsilon-private for this value or sensitivity."""
        ratio = _check.positive("epsilon", epsilon)
        return cls._least(of, ratio=ratio, adjacency=adjacency, dimension=dimension)


@dataclass(frozen=True, kw_only=True)
class OnMultiples(Mechanism):
    """Integer noise times `step`, sampled exactly; the value is rounded to multiples of it."""

    norm: ClassVar[Norm]
    theorem: ClassVar[str]
    scale: float
    step: float = 1.0

    def __post_init__(self) -> None:
        exact_ratio(self.scale, self.step)

    @abstractmethod
    def _units(self, shape: tuple[int, ...], scale: Fraction, rng: Source) -> NDArray[np.int64]: ...

    def sensitivity(
        self, of: Bounded | float, *, adjacency: Adjacency = ADD_REMOVE, dimension: int = 1
    ) -> float:
        return widened(of, norm=self.norm, adjacency=adjacency, dimension=dimension, step=self.step)

    def _perturb(self, value: NDArray[np.float64], rng: Source) -> NDArray[np.float64]:
        noise = self._units(value.shape, exact_ratio(self.scale, self.step), rng)
        return grid.add(value, noise, step=self.step)
