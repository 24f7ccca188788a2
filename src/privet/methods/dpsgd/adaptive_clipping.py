"""Adaptive clipping: a bound that follows a quantile of the gradient norms, by noisy counts."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

from privet import _check
from privet.errors import InvalidArgument


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
        _check.clipping_bound("initial", self.initial)
        _check.open_unit("quantile", self.quantile)
        _check.positive("learning_rate", self.learning_rate)
        if self.count_noise is not None:
            _check.positive("count_noise", self.count_noise)

    def noise_of_count(self, z: float, expected_batch: float) -> float:
        """The standard deviation of the noise on the count."""
        # a twentieth: the fraction is then good to .05 a step (Andrew et al. 2021)
        return max(expected_batch / 20.0, z) if self.count_noise is None else self.count_noise

    def gradient_multiplier(self, z: float, expected_batch: float) -> float:
        """z_g, so that gradient and count together cost what z says."""
        left = z**-2 - (2.0 * self.noise_of_count(z, expected_batch)) ** -2
        if left <= 0.0:
            raise InvalidArgument(
                "count_noise", self.count_noise, f"more than half the noise multiplier, {z / 2:g}"
            )
        return 1.0 / math.sqrt(left) * (1.0 + 2.0**-48)  # 32 roundings: `left` is a difference

    def next(self, bound: float, noisy_sum: float, expected_batch: float) -> float:
        """C_{t+1} from C_t and the released count, held within a factor of 1e6 of the start.

        It never falls below the least bound that rounding is proved for.
        """
        fraction = noisy_sum / expected_batch + 0.5
        moved = bound * math.exp(-self.learning_rate * (fraction - self.quantile))
        least = max(1e-6 * self.initial, _check.SMALLEST_CLIPPING_BOUND)
        return min(max(moved, least), 1e6 * self.initial)
