"""What a mechanism is: frozen, it states its loss and its theorem, and it pays before it draws.

Those that add noise do so on a grid of floats, or exactly on multiples of a step.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import ClassVar, Literal, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from privet import _check, premises
from privet.accounting import PrivacyLoss
from privet.errors import InvalidArgument, Unattainable
from privet.guarantee import Adjacency, Guarantee, Premise, Unit
from privet.ledger import Scope
from privet.mechanisms import release_transcript
from privet.noise import Source, grid
from privet.sensitivity import BoundedValue

ADD_REMOVE = Adjacency.ADD_REMOVE
Values = NDArray[np.float64]
Norm = Literal["l1", "l2"]


class SupportsCharge(Protocol):
    """What a mechanism needs of a ledger."""

    def charge(self, loss: PrivacyLoss, *, what: str, scope: Scope) -> object:
        """Write down the cost of a release that is about to happen, or raise."""


class Mechanism(ABC):
    """Noise for a `BoundedValue` value; the subclasses are frozen and final.

    Where a method takes `of`, it is a `BoundedValue` value, or a bare sensitivity (a number) for
    `dimension` arbitrary reals. Only public things are read from a value: its sensitivity,
    dimension and spacing.
    """

    @property
    @abstractmethod
    def theorem(self) -> str:
        """The statement that the loss rests on, and where it is proved."""

    @property
    def name(self) -> str:
        """What a ledger calls a release that nobody named, such as "Gaussian"."""
        return type(self).__name__.removesuffix("Mechanism")

    @property
    def law(self) -> Premise:
        """How we know that the noise has the law that the theorem speaks of."""
        return premises.EXACT_LAW

    @abstractmethod
    def sensitivity(
        self, of: BoundedValue | float, *, adjacency: Adjacency = ADD_REMOVE, dimension: int = 1
    ) -> float:
        """The sensitivity of what is released, in this mechanism's norm, after rounding."""

    @abstractmethod
    def loss(
        self, of: BoundedValue | float, *, adjacency: Adjacency = ADD_REMOVE, dimension: int = 1
    ) -> PrivacyLoss:
        """What one release costs."""

    @abstractmethod
    def _perturb(self, value: NDArray[np.float64], rng: Source) -> NDArray[np.float64]:
        """Draw noise and add it to the value."""

    def guarantee(
        self,
        of: BoundedValue | float,
        *,
        delta: float = 0.0,
        adjacency: Adjacency = ADD_REMOVE,
        dimension: int = 1,
        rng: Source | None = None,
    ) -> Guarantee:
        """What one release promises at `delta`; with noise of `rng`, which states who knows it.

        Without a source it is a plan, which assumes that a secure one will be used.
        """
        bound = premises.stated_bound("the sensitivity is as stated")
        unit = of.unit if isinstance(of, BoundedValue) else Unit.RECORD
        stated = self.loss(of, adjacency=adjacency, dimension=dimension).guarantee(
            delta, theorem=self.theorem, unit=unit
        )
        first = of.premise if isinstance(of, BoundedValue) else bound
        key = premises.SECRET_KEY if rng is None else rng.premise
        return replace(stated, premises=(first, self.law, key))

    def release(
        self,
        bounded: BoundedValue,
        *,
        rng: Source,
        ledger: SupportsCharge | None = None,
        what: str = "",
        adjacency: Adjacency = ADD_REMOVE,
    ) -> NDArray[np.float64]:
        """The value with noise, charged to the ledger before anything is drawn.

        **Guarantee** `self.guarantee(bounded, rng=rng, ...)`. If the ledger refuses, nothing is
        drawn.

        **Assumes** a secure `rng`; a seeded one is accepted, for experiments. Without a ledger
        nothing keeps account: add up `loss` yourself.
        """
        if not isinstance(bounded, BoundedValue):
            raise InvalidArgument(
                "bounded",
                bounded,
                "a BoundedValue",
                "make one with privet.sensitivity, such as clip_l2",
            )
        if not isinstance(rng, Source):
            raise InvalidArgument("rng", rng, "a noise source", "use privet.noise.secure()")
        sensitivity = self.sensitivity(bounded, adjacency=adjacency)  # refuses an infinite one
        if ledger is not None:
            loss = self.loss(bounded, adjacency=adjacency)
            scope = Scope(unit=bounded.unit, secret=rng.secret)
            ledger.charge(loss, what=what or self.name, scope=scope)
        noisy = self._perturb(bounded.value, rng)
        if release_transcript.active_transcript.get() is None:
            return noisy
        return release_transcript.record_release(
            self, bounded.value, noisy, sensitivity=sensitivity, log_ratio=self.log_ratio
        )

    def log_ratio(self, out: Values, first: Values, second: Values) -> float:
        """log of the density of `out` around `first`, less that around `second`; NaN: not known."""
        return math.nan


@dataclass(frozen=True, kw_only=True)
class AdditiveMechanism(Mechanism):
    """Noise of a scale, drawn in steps of a grid and added to the value rounded to that grid."""

    norm: ClassVar[Norm]
    theorem: ClassVar[str]
    scale: float

    @abstractmethod
    def _step(self) -> float:
        """The spacing of the grid, a power of two."""

    @abstractmethod
    def _units(self, shape: tuple[int, ...], rng: Source) -> NDArray[np.int64]:
        """The noise, in steps of the grid."""

    def sensitivity(
        self, of: BoundedValue | float, *, adjacency: Adjacency = ADD_REMOVE, dimension: int = 1
    ) -> float:
        return sensitivity_after_rounding(
            of, norm=self.norm, adjacency=adjacency, dimension=dimension, step=self._step()
        )

    def _perturb(self, value: NDArray[np.float64], rng: Source) -> NDArray[np.float64]:
        return grid.add(value, self._units(value.shape, rng), step=self._step())


@dataclass(frozen=True, kw_only=True)
class GridMechanism(AdditiveMechanism):
    """Real noise of a scale, rounded to the public grid of `privet.noise.grid` and added there."""

    def __post_init__(self) -> None:
        self._step()

    def _step(self) -> float:
        return grid.spacing(self.scale)

    @classmethod
    def _least(
        cls, of: BoundedValue | float, *, ratio: float, adjacency: Adjacency, dimension: int
    ) -> Self:
        """The least noise with sensitivity / scale <= ratio."""

        def needed(scale: float) -> float:
            own = cls(scale=scale).sensitivity(of, adjacency=adjacency, dimension=dimension)
            return ratio_up(own, ratio)

        bare = bare_sensitivity(of, adjacency, cls.norm)
        return cls(scale=grid.smallest_scale(needed, ratio_up(bare, ratio)))


@dataclass(frozen=True, kw_only=True)
class PureGridMechanism(GridMechanism):
    """Noise whose epsilon is sensitivity / scale, with delta = 0."""

    @classmethod
    def for_budget(
        cls,
        of: BoundedValue | float,
        *,
        epsilon: float,
        adjacency: Adjacency = ADD_REMOVE,
        dimension: int = 1,
    ) -> Self:
        """The least noise that is epsilon-private for this value or sensitivity."""
        ratio = _check.positive("epsilon", epsilon)
        return cls._least(of, ratio=ratio, adjacency=adjacency, dimension=dimension)


@dataclass(frozen=True, kw_only=True)
class DiscreteMechanism(AdditiveMechanism):
    """Integer noise times `step`, sampled exactly; the value is rounded to multiples of it."""

    step: float = 1.0

    def __post_init__(self) -> None:
        self._ratio()

    def _step(self) -> float:
        return self.step

    def _ratio(self) -> Fraction:
        """scale / step as an exact fraction, for a step that is a power of two."""
        _check.positive("scale", self.scale)
        _check.positive("step", self.step)
        if grid.power_of_two_at_most(self.step) != self.step:
            raise InvalidArgument("step", self.step, "a power of two")
        ratio = Fraction(self.scale) / Fraction(self.step)
        # the range that the exact samplers are made for (`privet.noise.source`)
        if not Fraction(1, 2**40) <= ratio <= 2**40:
            raise InvalidArgument("scale", self.scale, "between 2**-40 and 2**40 steps")
        return ratio


def sensitivity_after_rounding(
    of: BoundedValue | float, *, norm: str, adjacency: Adjacency, dimension: int, step: float
) -> float:
    """The L1 or L2 sensitivity after rounding to multiples of `step`."""
    widen = grid.l1_after_rounding if norm == "l1" else grid.l2_after_rounding
    if not isinstance(of, BoundedValue):
        exact = _check.non_negative("sensitivity", of)
        if _check.count("dimension", dimension) > 2**53:  # a float64 holds it
            raise InvalidArgument("dimension", dimension, "at most 2**53")
        return widen(exact, dimension=int(dimension), step=step)
    both = of.sensitivity(adjacency)
    exact = both.l1 if norm == "l1" else both.l2
    if math.isinf(exact):
        raise InvalidArgument("bounded", of, f"a value with a finite {norm.upper()} sensitivity")
    if of.spacing >= step:  # both are powers of two: the value is on the grid already
        return exact
    return widen(exact, dimension=max(of.dimension, 1), step=step)


def bare_sensitivity(of: BoundedValue | float, adjacency: Adjacency, norm: str) -> float:
    """The sensitivity before rounding, above 0."""
    if isinstance(of, BoundedValue):
        both = of.sensitivity(adjacency)
        of = both.l1 if norm == "l1" else both.l2
    return _check.positive("sensitivity", of)


def float64_at_least(x: Fraction) -> float:
    """The smallest float64 number that is not below x.

    >>> float64_at_least(Fraction(1, 2)), float64_at_least(Fraction(1, 3)) > 1 / 3
    (0.5, True)
    """
    try:
        y = float(x)
    except OverflowError:
        raise Unattainable("sensitivity and scale are too far apart for float64") from None
    return y if Fraction(y) >= x else math.nextafter(y, math.inf)


def ratio_up(above: float, below: float) -> float:
    """Divide two numbers, rounded up."""
    return float64_at_least(Fraction(above) / Fraction(below))
