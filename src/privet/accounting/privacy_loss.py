"""What a privacy loss is: something with an epsilon for every delta, that adds up.

Every loss is a sum of independent *parts*. A part describes a dominating pair (P, Q) of output
laws, one for each direction of the neighbouring relation, through three views that the accountants
use: its moment generating function, its privacy profile, and its largest possible loss.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from privet import _check
from privet.errors import Incomparable, InvalidArgument
from privet.guarantee import Adjacency, Guarantee, Standing, Unit

if TYPE_CHECKING:
    from privet.accounting.privacy_loss_histograms import LossHistogram
    from privet.accounting.trade_off import TradeOff

Array = NDArray[Any]

ROUNDOFF = 2.0**-53
"""The largest relative error of one rounding in double precision."""
FEW_ROUNDINGS = 1e-15
"""Nine roundings, relatively: more than a function of the library (within 4 units in the last
place, which is eight) and the operation after it."""
MANY_ROUNDINGS = 1e-12
"""Nine thousand roundings, relatively: more than the last steps of an answer and their sums."""
LARGEST_EXPONENT = 700.0
"""Exponents are held at this: e^700 = 1e304 is a float64, and e^709.79 is not."""
NEXT_TO_ZERO = 1e-290
"""Stands for 0 in logarithms and below quotients: an error over it means that nothing is known, and
is a float64 still."""
TINY = 1e-300
"""Stands for 0 where no delta can feel it: float64's least normal number is 2e-308."""


class Direction(Enum):
    """Which of two neighbours the first law belongs to."""

    REMOVE = "remove"
    """P has the unit, Q has not."""
    ADD = "add"
    """P has not, Q has."""


@dataclass(frozen=True, kw_only=True)
class VerticalLine:
    """Equidistant points order + i k spacing, k = 0 .. count-1, on a vertical line of the complex
    plane."""

    order: float
    spacing: float
    count: int

    @property
    def frequencies(self) -> Array:
        return self.spacing * np.arange(self.count)

    @property
    def points(self) -> Array:
        return self.order + 1j * self.frequencies


class PrivacyLoss(ABC):
    """What one or many releases cost.

    With L = log dP/dQ under P, delta(epsilon) = E[(1 - e^(epsilon - L))_+], and losses of
    independent or adaptively composed releases add. `epsilon` and `delta` round towards less
    privacy.
    """

    @property
    @abstractmethod
    def parts(self) -> tuple[LossPart, ...]:
        """The independent parts that this loss is the sum of."""

    adjacency: Adjacency
    """The neighbouring relation that the loss is stated for."""

    def suprema(self, direction: Direction) -> list[float]:
        """The largest loss that each part can have."""
        return [part.supremum(direction) for part in self.parts]

    def epsilon(self, delta: float) -> float:
        """The smallest epsilon at which this loss is known to be (epsilon, delta)-private."""
        from privet.accounting import accountant_choice

        return accountant_choice.epsilon(self, _check.delta_or_zero("delta", delta))

    def delta(self, epsilon: float) -> float:
        """The smallest delta at which this loss is known to be (epsilon, delta)-private."""
        from privet.accounting import accountant_choice

        return accountant_choice.delta(self, _check.non_negative("epsilon", epsilon))

    def epsilon_bounds(self, delta: float) -> tuple[float, float]:
        """An interval that holds the exact epsilon of this loss at `delta`: (low, high).

        `high` is what `epsilon` states. The exact epsilon is that of the composed dominating pairs:
        no accountant that knows the same of each release can state less than `low`.
        """
        from privet.accounting import accountant_choice

        return accountant_choice.epsilon_bounds(self, _check.delta_or_zero("delta", delta))

    def delta_bounds(self, epsilon: float) -> tuple[float, float]:
        """An interval that has the exact delta at `epsilon`: (low, high), `high` is stated."""
        from privet.accounting import accountant_choice

        return accountant_choice.delta_bounds(self, _check.non_negative("epsilon", epsilon))

    def trade_off(self) -> TradeOff:
        """What this loss leaves an attacker at every false-positive rate, from both sides."""
        from privet.accounting.trade_off import trade_off

        return trade_off(self)

    def guarantee(self, delta: float, *, theorem: str = "", unit: Unit = Unit.RECORD) -> Guarantee:
        """The proved guarantee at `delta`."""
        epsilon = self.epsilon(delta)
        return Guarantee(
            epsilon=epsilon,
            delta=delta,
            adjacency=self.adjacency,
            unit=unit,
            standing=Standing.PROVED if math.isfinite(epsilon) else Standing.NONE,
            theorem=theorem or "composition of " + ", ".join(type(p).__name__ for p in self.parts),
        )

    def __add__(self, other: PrivacyLoss) -> PrivacyLoss:
        return compose((self, other))

    def to_dict(self) -> dict[str, Any]:
        """A JSON-ready description; `privet.accounting.from_dict` reads it back."""
        return {
            "adjacency": self.adjacency.value,
            "parts": [{"kind": type(p).__name__, **p.fields()} for p in self.parts],
        }


@dataclass(frozen=True, kw_only=True)
class ComposedLoss(PrivacyLoss):
    """A sum of parts; build it with `+` or `compose`."""

    members: tuple[LossPart, ...]
    adjacency: Adjacency = Adjacency.ADD_REMOVE

    def __post_init__(self) -> None:
        for part in self.members:
            if part.adjacency is not self.adjacency:
                raise Incomparable(self.adjacency.value, part.adjacency.value, "losses")

    @property
    def parts(self) -> tuple[LossPart, ...]:
        return self.members


class LossPart(PrivacyLoss):
    """A loss that is not a sum of others; frozen dataclasses with a field `adjacency`."""

    @property
    def parts(self) -> tuple[LossPart, ...]:
        return (self,)

    @abstractmethod
    def merge(self, other: LossPart) -> LossPart | None:
        """Join two parts into one where that is exact and simpler; otherwise None."""

    @abstractmethod
    def repeat(self, times: int) -> LossPart:
        """This part, `times` times over."""

    @property
    @abstractmethod
    def symmetric(self) -> bool:
        """Whether both directions have the same law of the loss."""

    @property
    def releases(self) -> int:
        """How many elementary releases this part stands for (1: `profile` is its whole profile)."""
        return 1

    def elementary_releases(self) -> list[tuple[LossPart, int]]:
        """The distinct elementary releases and how often each occurs."""
        return [(self, 1)]

    def simplify(self) -> tuple[LossPart, ...]:
        """The same loss in parts that are quicker to account for, exactly."""
        return (self,)

    def lower_bound(self) -> LossPart:
        """A part that costs no more than this one and whose moments are known as they are.

        Itself for most; the bounds from below are taken of it.
        """
        return self

    @property
    def free(self) -> bool:
        """Whether nothing about a unit can be learned from it."""
        return self.failure == 0.0 and all(self.supremum(d) == 0.0 for d in Direction)

    @property
    def distinct(self) -> int:
        """How many distinct elementary releases there are."""
        return 1

    @property
    def failure(self) -> float:
        """The probability of an unbounded loss, kept apart from the rest (0 for most)."""
        return 0.0

    @abstractmethod
    def supremum(self, direction: Direction) -> float:
        """The largest loss that can occur; its epsilon at delta = 0."""

    def tail(self, direction: Direction, cut: float) -> float:
        """A bound of the probability that `log_mgf(..., cut=cut)` leaves out, at most `releases *
        cut`."""
        return 0.0

    @abstractmethod
    def log_mgf(self, orders: Array, direction: Direction, cut: float = 0.0) -> Array:
        """log E[e^(order L)] (or an upper bound of it) at real orders above 0.

        A part may leave out its largest losses, of probability at most `cut` a release, and report
        them in `tail`:
        a few huge but hopelessly rare losses would otherwise rule the transform.
        """

    @abstractmethod
    def log_mgf_on(
        self, line: VerticalLine, direction: Direction, cut: float = 0.0
    ) -> tuple[Array, Array] | None:
        """log E[e^(z L)] on a vertical line, and bounds e of its errors; None if unknown or dear.

        With M = e^value and the true M*, |M* - M| <= (e^e - 1) |M|. Bounds of products add.
        """

    @abstractmethod
    def profile(self, epsilon: Array, direction: Direction) -> Array | None:
        """delta of ONE elementary release at any real epsilons; None if there is no single one."""

    @abstractmethod
    def histogram(self, direction: Direction, ends: Array) -> LossHistogram | None:
        """Where the loss of ONE elementary release falls between increasing `ends`; None if it is
        not known so well (`privet.accounting.privacy_loss_histograms`)."""

    @abstractmethod
    def fields(self) -> dict[str, Any]:
        """The JSON-ready settings of the part, without its adjacency."""


def compose(losses: Iterable[PrivacyLoss], *, adjacency: Adjacency | None = None) -> PrivacyLoss:
    """The loss of all of them together, in any order and adaptively chosen.

    >>> from privet.accounting import Gaussian, Pure
    >>> compose([Gaussian(mu=3.0), Gaussian(mu=4.0)]).parts
    (Gaussian(mu=5.0, adjacency=<Adjacency.ADD_REMOVE: 'add-remove'>),)
    >>> compose([]).epsilon(1e-6)
    0.0
    """
    merged: list[LossPart] = []
    for loss in losses:
        if adjacency is None:
            adjacency = loss.adjacency
        elif loss.adjacency is not adjacency:
            raise Incomparable(
                adjacency.value, loss.adjacency.value, "losses of different adjacency"
            )
        for part in loss.parts:
            if part.free:
                continue
            for i, present in enumerate(merged):
                if type(present) is type(part) and (both := present.merge(part)) is not None:
                    merged[i] = both
                    break
            else:
                merged.append(part)
    if len(merged) == 1:
        return merged[0]
    return ComposedLoss(members=tuple(merged), adjacency=adjacency or Adjacency.ADD_REMOVE)


def from_dict(d: Mapping[str, Any]) -> PrivacyLoss:
    """The inverse of `PrivacyLoss.to_dict`."""
    from privet import accounting

    adjacency = Adjacency(d["adjacency"])
    kinds: dict[str, type[LossPart]] = {k.__name__: k for k in accounting.KINDS}
    parts = []
    for fields in d["parts"]:
        settings = {k: v for k, v in fields.items() if k != "kind"}
        if fields["kind"] not in kinds:
            raise InvalidArgument("kind", fields["kind"], f"one of {', '.join(sorted(kinds))}")
        build: Any = kinds[fields["kind"]]
        parts.append(build(adjacency=adjacency, **settings))
    return parts[0] if len(parts) == 1 else compose(parts, adjacency=adjacency)
