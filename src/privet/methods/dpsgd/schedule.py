"""What may change from step to step: q_t, C_t and the noise.

Symbols: t = 0, ..., T-1 the step, q_t sampling rate, C_t clipping bound, sigma_t the paper's noise
on the *averaged* gradient, z_t = sigma_t q_t N / C_t the noise multiplier.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Self, final

import numpy as np
from numpy.typing import NDArray

from privet import _check
from privet.accounting import Gaussian, PrivacyLoss, calibration, gaussian_mu
from privet.accounting.closed_form import closed_form_ratio
from privet.errors import InvalidArgument, Unattainable
from privet.guarantee import Adjacency
from privet.methods.dpsgd.adaptive_clipping import AdaptiveBound
from privet.methods.dpsgd.samplers import poisson_loss

Array = NDArray[np.float64]
Values = float | Sequence[float] | Array | Callable[[int], float]
"""A constant, one number for each step, or a function of the step (0 is the first)."""


def values(name: str, given: Values, steps: int) -> Array:
    """Any of the three forms as a read-only array with one number for each step.

    >>> values("rate", lambda t: 1 / (t + 1), 3).round(3).tolist()
    [1.0, 0.5, 0.333]
    """
    if not isinstance(steps, int | np.integer) or isinstance(steps, bool) or steps < 1:
        raise InvalidArgument("steps", steps, "a whole number of at least 1")
    if callable(given):
        out = np.array([float(given(t)) for t in range(steps)], dtype=np.float64)
    else:
        out = np.array(given, dtype=np.float64)
        if out.ndim == 0:
            out = np.full(steps, float(out))
    if out.shape != (steps,):
        raise InvalidArgument(
            name, f"shape {out.shape}", f"a number, or one for each of {steps} steps"
        )
    out.flags.writeable = False
    return out


def geometric(first: float, last: float, steps: int) -> Array:
    """From `first` to `last` by equal factors: noise decay, clipping decay, growing batches.

    >>> geometric(4.0, 1.0, 3).round(6).tolist()
    [4.0, 2.0, 1.0]
    """
    first, last = _check.positive("first", first), _check.positive("last", last)
    return np.geomspace(first, last, _check.count("steps", steps))


def linear(first: float, last: float, steps: int) -> Array:
    """From `first` to `last` by equal differences.

    >>> linear(0.01, 0.03, 3).round(6).tolist()
    [0.01, 0.02, 0.03]
    """
    first, last = _check.positive("first", first), _check.positive("last", last)
    return np.linspace(first, last, _check.count("steps", steps))


def cosine(first: float, last: float, steps: int) -> Array:
    """From `first` to `last` along half a cosine, flat at both ends.

    >>> cosine(1.0, 0.5, 3).round(6).tolist()
    [1.0, 0.75, 0.5]
    """
    first, last = _check.positive("first", first), _check.positive("last", last)
    where = np.linspace(0.0, math.pi, _check.count("steps", steps))
    return last + (first - last) * 0.5 * (1.0 + np.cos(where))


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Schedule:
    """q_t, C_t and z_t for T steps, each a constant, a sequence or a function of t.

    The noise multiplier z_t is the standard deviation of the noise on the *sum* over the L2 bound
    of one example's contribution: the only thing, with q_t, that the price depends on.

    >>> s = Schedule(steps=3, sample_rate=0.1, noise_multiplier=geometric(2.0, 1.0, 3))
    >>> s.noise_multipliers.round(3).tolist(), s.bounds.tolist()
    ([2.0, 1.414, 1.0], [1.0, 1.0, 1.0])
    >>> paper = Schedule.absolute(
    ...     steps=3, sample_rate=0.1, sigma=0.02, clipping_bound=2.0, records=1000
    ... )
    >>> paper.noise_multipliers.tolist()
    [1.0, 1.0, 1.0]
    """

    steps: int
    sample_rate: Values
    noise_multiplier: Values
    clipping_bound: Values | AdaptiveBound = 1.0
    delta: float | None = None
    """At which its budget was stated, if it was made for one: `private` takes it from here."""
    adaptive: AdaptiveBound | None = field(init=False, repr=False)
    """The rule of the bound, if it follows a private quantile."""

    def __post_init__(self) -> None:
        given = self.clipping_bound
        object.__setattr__(self, "adaptive", given if isinstance(given, AdaptiveBound) else None)
        if (wrong := self.rates[~((self.rates > 0.0) & (self.rates <= 1.0))]).size:
            raise InvalidArgument("sample_rate", float(wrong[0]), "a number in (0, 1]")
        z = self.noise_multipliers
        if (wrong := z[~((z > 0.0) & np.isfinite(z))]).size:
            raise InvalidArgument("noise_multiplier", float(wrong[0]), "a finite number above 0")
        for bound in set(self.bounds.tolist()):
            _check.clipping_bound("clipping_bound", bound)

    @cached_property
    def rates(self) -> Array:
        """q_t for every step."""
        return values("sample_rate", self.sample_rate, self.steps)

    @cached_property
    def noise_multipliers(self) -> Array:
        """z_t for every step."""
        return values("noise_multiplier", self.noise_multiplier, self.steps)

    @cached_property
    def bounds(self) -> Array:
        """C_t for every step; for an adaptive bound, its start."""
        given = self.clipping_bound
        start = given.initial if isinstance(given, AdaptiveBound) else given
        return values("clipping_bound", start, self.steps)

    def loss(
        self,
        adjacency: Adjacency = Adjacency.ADD_REMOVE,
        *,
        extra_losses: Sequence[PrivacyLoss] = (),
    ) -> PrivacyLoss:
        """The cost of it all under Poisson sampling (to plan with; a run asks its sampler).

        `extra_losses`: of what else is released with it, and paid for.
        """
        return poisson_loss(
            self.rates, self.noise_multipliers, adjacency, extra_losses=extra_losses
        )

    @classmethod
    def absolute(
        cls,
        *,
        steps: int,
        sample_rate: Values,
        sigma: Values,
        clipping_bound: Values,
        records: int,
    ) -> Self:
        """The paper's form: sigma_t on the average over q_t N, hence z_t = sigma_t q_t N / C_t."""
        n = _check.count("records", records)
        q = values("sample_rate", sample_rate, steps)
        c = values("clipping_bound", clipping_bound, steps)
        s = values("sigma", sigma, steps)
        return cls(steps=steps, sample_rate=q, noise_multiplier=s * q * n / c, clipping_bound=c)

    @classmethod
    def for_budget(
        cls,
        *,
        epsilon: float,
        delta: float,
        steps: int,
        sample_rate: Values = 1.0,
        clipping_bound: Values | AdaptiveBound = 1.0,
        noise_shape: Values = 1.0,
        adjacency: Adjacency = Adjacency.ADD_REMOVE,
        extra_loss: PrivacyLoss | None = None,
    ) -> Self:
        """The least noise with which all steps together are (epsilon, delta)-private.

        z_t = z * noise_shape_t with the smallest z found; `extra_loss` is of what else this budget
        has to pay for.

        >>> s = Schedule.for_budget(epsilon=1.0, delta=1e-5, steps=25)
        >>> round(float(s.noise_multipliers[0]), 3), s.loss().epsilon(1e-5) <= 1.0
        (18.653, True)
        """
        q = values("sample_rate", sample_rate, steps)
        shape = values("noise_shape", noise_shape, steps)

        def cost(z: float) -> PrivacyLoss:
            loss = poisson_loss(q, z * shape, adjacency)
            return loss if extra_loss is None else extra_loss + loss

        if np.all(q == 1.0) and (extra_loss is None or isinstance(extra_loss, Gaussian)):
            spent = 0.0 if extra_loss is None else extra_loss.mu
            mu = gaussian_mu(epsilon, delta) * calibration.BUDGET_MARGIN
            if spent >= mu:
                raise Unattainable(f"the extra release takes all of epsilon {epsilon:g}")
            mu = math.sqrt(mu**2 - spent**2)
            unit = 1.0 if adjacency is Adjacency.ADD_REMOVE else 2.0
            z = unit * math.sqrt(math.fsum(shape**-2.0)) / mu
        else:
            ratio = math.sqrt(math.fsum((q / shape) ** 2)) / closed_form_ratio(epsilon, delta)
            start = min(max(ratio, calibration.LEAST_START), 0.1 * calibration.NOISE_LIMITS[1])
            z = calibration.search(
                cost, epsilon=epsilon, delta=delta, start=start, limits=calibration.NOISE_LIMITS
            ).value
        return cls(
            steps=steps,
            sample_rate=q,
            noise_multiplier=z * shape,
            clipping_bound=clipping_bound,
            delta=delta,
        )
