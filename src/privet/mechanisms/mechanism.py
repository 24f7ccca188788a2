"""What a mechanism is: frozen, it states its loss and its theorem, and it pays before it draws.

Those that add noise do so on a grid of floats, or exactly on multiples of a step.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import ClassVar, Literal, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from privet import _check, premises
from privet.bounds import Bounded
from privet.errors import InvalidArgument, Unattainable
from privet.guarantee import Adjacency, Guarantee, Premise, Unit
from privet.ledger import Scope
from privet.loss import PrivacyLoss
from privet.mechanisms import transcript
from privet.noise import Source, grid

ADD_REMOVE = Adjacency.ADD_REMOVE
Values = NDArray[np.float64]
Norm = Literal["l1", "l2"]


class Charges(Protocol):
    """What a mechanism needs of a ledger."""

    def charge(self, loss: PrivacyLoss, *, what: str, scope: Scope) -> object:
        """Write down the cost of a release that is about to happen, or raise."""


class Mechanism(ABC):
    """Noise for a `Bounded` value; the subclasses are frozen and final.

    Where a method takes `of`, it is a `Bounded` value, or a bare sensitivity (a number) for
    `dimension` arbitrary reals. Only public things are read from a value: its sensitivity,
    dimension and spacing.
    """

    @property
    @abstractmethod
    def theorem(self) -> str:
        """The statement that the loss rests on, and where it is proved."""

    @property
    def law(self) -> Premise:
        """How we know that the noise has the law that the theorem speaks of."""
        return premises.EXACT_LAW

    @abstractmethod
    def sensitivity(
        self, of: Bounded | float, *, adjacency: Adjacency = ADD_REMOVE, dimension: int = 1
    ) -> float:
        """The sensitivity of what is released, in this mechanism's norm, after rounding."""

    @abstractmethod
    def loss(
        self, of: Bounded | float, *, adjacency: Adjacency = ADD_REMOVE, dimension: int = 1
    ) -> PrivacyLoss:
        """What one release costs."""

    @abstractmethod
    def _perturb(self, value: NDArray[np.float64], rng: Source) -> NDArray[np.float64]:
        """The noisy value."""

    def guarantee(
        self,
        of: Bounded | float,
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
        unit = of.unit if isinstance(of, Bounded) else Unit.RECORD
        stated = self.loss(of, adjacency=adjacency, dimension=dimension).guarantee(
            delta, theorem=self.theorem, unit=unit
        )
        first = of.premise if isinstance(of, Bounded) else bound
        key = premises.SECRET_KEY if rng is None else rng.premise
        return replace(stated, premises=(first, self.law, key))

    def release(
        self,
        bounded: Bounded,
        *,
        rng: Source,
        ledger: Charges | None = None,
        what: str = "",
        adjacency: Adjacency = ADD_REMOVE,
    ) -> NDArray[np.float64]:
        """The value with noise, charged to the ledger before anything is drawn.

        **Guarantee** `self.guarantee(bounded, rng=rng, ...)`. If the ledger refuses, nothing is
        drawn.

        **Assumes** a secure `rng`; a seeded one is accepted, for experiments. Without a ledger
        nothing keeps account: add up `loss` yourself.
        """
        if not isinstance(bounded, Bounded):
            raise InvalidArgument(
                "bounded",
                bounded,
                "a Bounded value",
                "make one with privet.bounds, such as clip_l2",
            )
        if not isinstance(rng, Source):
            raise InvalidArgument("rng", rng, "a noise source", "use privet.noise.secure()")
        sensitivity = self.sensitivity(bounded, adjacency=adjacency)  # refuses an infinite one
        if ledger is not None:
            loss = self.loss(bounded, adjacency=adjacency)
            scope = Scope(unit=bounded.unit, secret=rng.secret)
            ledger.charge(loss, what=what or type(self).__name__, scope=scope)
        noisy = self._perturb(bounded.value, rng)
        if transcript.now.get() is None:
            return noisy
        return transcript.note(
            self, bounded.value, noisy, sensitivity=sensitivity, log_ratio=self.log_ratio
        )

    def log_ratio(self, out: Values, first: Values, second: Values) -> float:
        """log of the density of `out` around `first`, less that around `second`; NaN: not known."""
        return math.nan


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
        return cls(scale=grid.smallest_scale(needed, ratio_up(bare, ratio)))


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


Widen = Callable[..., float]


def widened(
    of: Bounded | float, *, norm: str, adjacency: Adjacency, dimension: int, step: float
) -> float:
    """The L1 or L2 sensitivity after rounding to multiples of `step`."""
    widen: Widen = grid.l1_after_rounding if norm == "l1" else grid.l2_after_rounding
    if not isinstance(of, Bounded):
        exact = _check.non_negative("sensitivity", of)
        if _check.count("dimension", dimension) > 2**53:
            raise InvalidArgument("dimension", dimension, "at most 2**53")
        return widen(exact, dimension=int(dimension), step=step)
    both = of.sensitivity(adjacency)
    exact = both.l1 if norm == "l1" else both.l2
    if math.isinf(exact):
        raise InvalidArgument("bounded", of, f"a value with a finite {norm.upper()} sensitivity")
    if of.spacing >= step:  # both are powers of two: the value is on the grid already
        return exact
    return widen(exact, dimension=max(of.dimension, 1), step=step)


def bare_sensitivity(of: Bounded | float, adjacency: Adjacency, norm: str) -> float:
    """The sensitivity before rounding, above 0."""
    if isinstance(of, Bounded):
        both = of.sensitivity(adjacency)
        of = both.l1 if norm == "l1" else both.l2
    return _check.positive("sensitivity", of)


def round_up(x: Fraction) -> float:
    """The smallest float64 number that is not below x.

    >>> round_up(Fraction(1, 2)), round_up(Fraction(1, 3)) > 1 / 3
    (0.5, True)
    """
    try:
        y = float(x)
    except OverflowError:
        raise Unattainable("sensitivity and scale are too far apart for float64") from None
    return y if Fraction(y) >= x else math.nextafter(y, math.inf)


def ratio_up(above: float, below: float) -> float:
    """above / below, rounded up."""
    return round_up(Fraction(above) / Fraction(below))


def exact_ratio(scale: float, step: float) -> Fraction:
    """scale / step as an exact fraction, for a step that is a power of two."""
    _check.positive("scale", scale)
    _check.positive("step", step)
    if grid.power_of_two_below(step) != step:
        raise InvalidArgument("step", step, "a power of two")
    ratio = Fraction(scale) / Fraction(step)
    if not Fraction(1, 2**40) <= ratio <= 2**40:
        raise InvalidArgument("scale", scale, "between 2**-40 and 2**40 steps")
    return ratio
