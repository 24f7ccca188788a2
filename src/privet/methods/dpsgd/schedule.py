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

from privet import _check, calibrate
from privet.errors import InvalidArgument, Unattainable
from privet.guarantee import Adjacency
from privet.loss import Gaussian, PrivacyLoss, gaussian_mu
from privet.loss.closed_form import closed_form_ratio
from privet.methods.dpsgd.sampling import poisson_loss

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
@dataclass(frozen=True, kw_only=True)
class AdaptiveBound:
    """A clipping bound that follows a quantile of the gradient norms, privately.

    Every step also releases how many of its examples were *not* clipped: with b_i = 1 if
    ||g_i|| <= C_t, else 0, the sum of (b_i - 1/2) has sensitivity 1/2; it gets Gaussian noise of
    standard deviation s = `count_noise`, and

        C_{t+1} = C_t exp(-eta (noisy sum / expected batch + 1/2 - quantile)).

    **Guarantee**: the count is part of the same Gaussian release on the same sample. One example
    moves (gradient / noise, count / noise) by at most sqrt(1/z_g^2 + 1/(2s)^2) = 1/z in L2, so the
    step costs what the schedule's noise multiplier z says; the gradient pays for it with
    z_g = (1/z^2 - 1/(2s)^2)^(-1/2), which is a little more than z.

    `count_noise` None: a twentieth of the expected batch, and at least z. (Andrew, Thakkar, McMahan
    and Ramaswamy, *Differentially Private Learning with Adaptive Clipping*, 2021.)

    >>> round(AdaptiveBound(initial=1.0, count_noise=5.0).gradient_multiplier(1.0, 100.0), 4)
    1.005
    """

    initial: float
    quantile: float = 0.5
    learning_rate: float = 0.2
    count_noise: float | None = None

    def __post_init__(self) -> None:
        _check.positive("initial", self.initial)
        _check.open_unit("quantile", self.quantile)
        _check.positive("learning_rate", self.learning_rate)
        if self.count_noise is not None:
            _check.positive("count_noise", self.count_noise)

    def noise_of_count(self, z: float, expected_batch: float) -> float:
        """The standard deviation of the noise on the count."""
        return max(expected_batch / 20.0, z) if self.count_noise is None else self.count_noise

    def gradient_multiplier(self, z: float, expected_batch: float) -> float:
        """z_g, so that gradient and count together cost what z says."""
        left = z**-2 - (2.0 * self.noise_of_count(z, expected_batch)) ** -2
        if left <= 0.0:
            raise InvalidArgument(
                "count_noise", self.count_noise, f"more than half the noise multiplier, {z / 2:g}"
            )
        return 1.0 / math.sqrt(left) * (1.0 + 2.0**-48)

    def next(self, bound: float, noisy_sum: float, expected_batch: float) -> float:
        """C_{t+1} from C_t and the released count, held within a factor of 1e6 of the start."""
        fraction = noisy_sum / expected_batch + 0.5
        moved = bound * math.exp(-self.learning_rate * (fraction - self.quantile))
        return min(max(moved, 1e-6 * self.initial), 1e6 * self.initial)


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
    adaptive: AdaptiveBound | None = field(init=False, repr=False)
    """The rule of the bound, if it follows a private quantile."""

    def __post_init__(self) -> None:
        given = self.clipping_bound
        object.__setattr__(self, "adaptive", given if isinstance(given, AdaptiveBound) else None)
        if (wrong := self.rates[~((self.rates > 0.0) & (self.rates <= 1.0))]).size:
            raise InvalidArgument("sample_rate", float(wrong[0]), "a number in (0, 1]")
        for name, x in (
            ("noise_multiplier", self.noise_multipliers),
            ("clipping_bound", self.bounds),
        ):
            if (wrong := x[~((x > 0.0) & np.isfinite(x))]).size:
                raise InvalidArgument(name, float(wrong[0]), "a finite number above 0")

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
        beside: Sequence[PrivacyLoss] = (),
    ) -> PrivacyLoss:
        """The cost of it all under Poisson sampling (to plan with; a run asks its sampler).

        `beside`: what else is released with it, and paid for.
        """
        return poisson_loss(self.rates, self.noise_multipliers, adjacency, beside=beside)

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
        beside: PrivacyLoss | None = None,
    ) -> Self:
        """The least noise with which all steps together are (epsilon, delta)-private.

        z_t = z * noise_shape_t with the smallest z found; `beside` is what else the same budget has
        to pay for.

        >>> s = Schedule.for_budget(epsilon=1.0, delta=1e-5, steps=25)
        >>> round(float(s.noise_multipliers[0]), 3), s.loss().epsilon(1e-5) <= 1.0
        (18.653, True)
        """
        q = values("sample_rate", sample_rate, steps)
        shape = values("noise_shape", noise_shape, steps)

        def cost(z: float) -> PrivacyLoss:
            loss = poisson_loss(q, z * shape, adjacency)
            return loss if beside is None else beside + loss

        if np.all(q == 1.0) and (beside is None or isinstance(beside, Gaussian)):
            spent = 0.0 if beside is None else beside.mu
            mu = gaussian_mu(epsilon, delta) * (1.0 - 2.0**-40)
            if spent >= mu:
                raise Unattainable(f"what is beside takes all of epsilon {epsilon:g}")
            mu = math.sqrt(mu**2 - spent**2)
            unit = 1.0 if adjacency is Adjacency.ADD_REMOVE else 2.0
            z = unit * math.sqrt(math.fsum(shape**-2.0)) / mu
        else:
            ratio = math.sqrt(math.fsum((q / shape) ** 2)) / closed_form_ratio(epsilon, delta)
            start = min(max(ratio, 0.4), 1e6)
            z = calibrate.search(
                cost, epsilon=epsilon, delta=delta, start=start, limits=(1e-3, 1e7)
            ).value
        return cls(
            steps=steps,
            sample_rate=q,
            noise_multiplier=z * shape,
            clipping_bound=clipping_bound,
        )
