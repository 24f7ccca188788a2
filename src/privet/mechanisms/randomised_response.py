"""Randomised response: every record answers for itself, sometimes falsely."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Self, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from privet import _check
from privet.accounting import Pure
from privet.errors import Incomparable, InvalidArgument
from privet.guarantee import Adjacency
from privet.ledger import Scope
from privet.mechanisms import release_transcript
from privet.mechanisms.mechanism import SupportsCharge
from privet.noise import Source
from privet.sensitivity import Categories

_MOST_EPSILON = 700.0
"""e^700 = 1e304 is a float64, and e^709.79 is not. At 37 a false answer has a chance of 1e-16."""


@final
@dataclass(frozen=True, kw_only=True)
class RandomisedResponse:
    """Tell the true category with probability p, any other one with probability q each.

    p = e^epsilon / (e^epsilon + K - 1) and q = 1 / (e^epsilon + K - 1), so that p / q = e^epsilon.
    The chance of a false answer (K - 1) q is rounded up in float64 and tossed exactly.

    **Guarantee** every answer is epsilon-private, delta = 0, for replaced records. Adding or
    removing a record changes the number of answers, which is not hidden: that adjacency is refused.
    Where places are public, a `null` one answers with all categories alike. Taking a record out of
    its place changes p to 1/K and each q to 1/K, which costs less than another record does:
    max(log K p, -log K q), `epsilon_of_null`; half of epsilon for two classes and small epsilon.

    >>> two = RandomisedResponse(classes=2, epsilon=math.log(3.0))
    >>> round(two.truth, 12), round(two.lie, 12)
    (0.75, 0.25)
    >>> two.debias([60.0, 40.0]).round(6).tolist()
    [70.0, 30.0]

    Warner (1965); Kairouz, Oh and Viswanath, "Extremal Mechanisms for Local Differential Privacy"
    (2014).
    """

    classes: int
    epsilon: float

    def __post_init__(self) -> None:
        # class numbers fit 32 bits
        if _check.count("classes", self.classes, minimum=2) > 2**31:
            raise InvalidArgument("classes", self.classes, "at most 2**31")
        if _check.positive("epsilon", self.epsilon) > _MOST_EPSILON:
            raise InvalidArgument("epsilon", self.epsilon, f"at most {_MOST_EPSILON:g}")

    @classmethod
    def for_null(cls, *, classes: int, epsilon: float) -> Self:
        """The truest answers for which taking a record out of its place costs epsilon.

        With t = e^epsilon: K p <= t and 1 / (K q) <= t are
        e^eps <= t (K - 1) / (K - t), wherever t < K, and e^eps <= K t - K + 1.

        >>> answers = RandomisedResponse.for_null(classes=2, epsilon=0.3)
        >>> round(answers.epsilon, 2), round(answers.epsilon_of_null, 9)
        (0.53, 0.3)
        """
        k, t = _check.count("classes", classes, minimum=2), math.expm1(min(epsilon, _MOST_EPSILON))
        most = [math.log1p(k * t)]
        if t < k - 1:
            most.append(math.log1p(k * t / (k - 1 - t)))
        # down by 256 roundings: `_false` goes up by 32, and functions take some here
        return cls(classes=k, epsilon=min(*most, _MOST_EPSILON) * (1.0 - 2.0**-45))

    @property
    def epsilon_of_null(self) -> float:
        """What taking a record out of its public place costs, rounded up."""
        worst = max(self.classes * self.truth, 1.0 / (self.classes * self.lie))
        return math.log(worst) + 2.0**-40  # far more than the roundings of `lie` and `truth`

    @property
    def theorem(self) -> str:
        """The statement that the loss rests on."""
        return "randomised response (Warner 1965; Kairouz, Oh and Viswanath 2014)"

    @property
    def _false(self) -> float | Fraction:
        """The probability of a false answer, (K - 1) / (e^epsilon + K - 1), rounded up.

        (K - 1) / K at most, exactly: beyond, the truth would be the rarer answer.
        """
        others = self.classes - 1
        # up by 32 roundings: an exponential, a sum and a quotient have some ten
        rounded_up = others / (math.exp(self.epsilon) + others) * (1.0 + 2.0**-48)
        most = Fraction(others, self.classes)
        return rounded_up if rounded_up <= most else most

    @property
    def truth(self) -> float:
        """p, the probability of the true category."""
        return float(1 - self._false)

    @property
    def lie(self) -> float:
        """q, the probability of each other category."""
        return float(self._false / (self.classes - 1))

    def loss(self, *, adjacency: Adjacency = Adjacency.REPLACE_ONE) -> Pure:
        """What the answers of all records cost together: each record answers once."""
        if adjacency is not Adjacency.REPLACE_ONE:
            raise Incomparable(adjacency.value, Adjacency.REPLACE_ONE.value, "adjacency")
        return Pure(epsilon_each=self.epsilon, adjacency=adjacency)

    def release(
        self,
        records: Categories,
        *,
        rng: Source,
        ledger: SupportsCharge | None = None,
        what: str = "",
        null: NDArray[np.bool_] | None = None,
    ) -> NDArray[np.int64]:
        """One answer a record, in the records' order; charged before anything is drawn.

        `null`: places without a record, whose answers are drawn alike from all categories.
        """
        if not isinstance(records, Categories) or records.classes != self.classes:
            raise InvalidArgument(
                "records",
                records,
                f"Categories with {self.classes} classes",
                "use privet.sensitivity.categories",
            )
        if not isinstance(rng, Source):
            raise InvalidArgument("rng", rng, "a noise source", "use privet.noise.secure()")
        if ledger is not None:
            scope = Scope(secret=rng.secret)
            ledger.charge(self.loss(), what=what or type(self).__name__, scope=scope)
        n = len(records.values)
        false = rng.bernoulli(n, self._false)
        shift = 1 + rng.integers(self.classes - 1, n)  # drawn for all, so that time tells less
        known = records.values
        answers = np.where(false, (known + shift) % self.classes, known)
        if null is not None:
            answers = np.where(null, rng.child("null").integers(self.classes, n), answers)
            known = np.where(null, -1, known)
        return release_transcript.record_release(
            self, known, answers, sensitivity=1.0, log_ratio=self.log_ratio
        )

    def log_ratio(self, out: NDArray[Any], first: NDArray[Any], second: NDArray[Any]) -> float:
        """log of the probability of the answers `out` for the truth `first`, less for `second`.

        -1 stands for a place without a record.
        """

        def log_chance(known: NDArray[Any]) -> NDArray[np.float64]:
            with_record = np.where(out == known, math.log(self.truth), math.log(self.lie))
            return np.where(known < 0, -math.log(self.classes), with_record)

        return float((log_chance(first) - log_chance(second)).sum())

    def debias(self, counts: ArrayLike) -> NDArray[np.float64]:
        """Unbiased estimates of the true counts (or one-hot rows) from those of the answers.

        E[c_k] = p n_k + q (n - n_k), hence (c_k - q n) / (p - q); categories are the last axis. The
        estimates may be negative, and they keep the total n.
        """
        c = self._counts(counts)
        return np.asarray((c - self.lie * c.sum(axis=-1, keepdims=True)) / (self.truth - self.lie))

    def variance(self, counts: ArrayLike) -> NDArray[np.float64]:
        """The variance of `debias` for these *true* counts.

        (n_k p (1 - p) + (n - n_k) q (1 - q)) / (p - q)^2.
        """
        n_k, p, q = self._counts(counts), self.truth, self.lie
        rest = n_k.sum(axis=-1, keepdims=True) - n_k
        return np.asarray((n_k * p * (1.0 - p) + rest * q * (1.0 - q)) / (p - q) ** 2)

    def _counts(self, counts: ArrayLike) -> NDArray[np.float64]:
        c = np.asarray(counts, dtype=np.float64)
        if c.ndim == 0 or c.shape[-1] != self.classes or not np.all(np.isfinite(c)):
            raise InvalidArgument("counts", counts, f"finite, with {self.classes} on the last axis")
        return c
