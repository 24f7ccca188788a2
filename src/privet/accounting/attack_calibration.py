"""The least noise for what attackers may reach: an advantage, or a TPR at an FPR.

As in `privet.accounting.calibration`, only what was seen to meet the target is returned. Rates are
compared on the scale of mu, the Gaussian release that would reach them, which is nearly
proportional to 1 / noise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

from scipy.special import ndtri

from privet import _check
from privet.accounting.calibration import LEAST_START, NOISE_LIMITS, nearest_setting
from privet.accounting.poisson_sampling import SampledGaussian
from privet.errors import InvalidArgument, Unattainable
from privet.guarantee import Adjacency


@final
@dataclass(frozen=True, kw_only=True)
class AttackTarget:
    """The largest TPR that an attack may reach at an FPR; without an FPR, TPR - FPR at any.

    >>> AttackTarget(most=0.05).reached(SampledGaussian(
    ...     sample_rate=0.01, noise_multiplier=2.0, steps=100)) < 0.05
    True
    """

    most: float
    fpr: float | None = None

    def __post_init__(self) -> None:
        _check.open_unit("advantage" if self.fpr is None else "tpr", self.most)
        if self.fpr is not None and not _check.open_unit("fpr", self.fpr) < self.most:
            raise InvalidArgument(
                "tpr", self.most, f"more than the fpr, {self.fpr:g}", "a coin finds as many"
            )

    def reached(self, loss: SampledGaussian) -> float:
        """What no attack on these releases exceeds."""
        return loss.delta(0.0) if self.fpr is None else loss.trade_off().tpr(self.fpr)[1]

    def mu(self, reached: float) -> float:
        """The mu of a Gaussian release that reaches as much."""
        if self.fpr is None:
            return 2.0 * float(ndtri(0.5 * (1.0 + reached)))
        return float(ndtri(reached) - ndtri(self.fpr))

    def __str__(self) -> str:
        if self.fpr is None:
            return f"an advantage of {self.most:g}"
        return f"a TPR of {self.most:g} at an FPR of {self.fpr:g}"


@final
@dataclass(frozen=True, kw_only=True)
class AttackSetting:
    """A noise multiplier (or a factor on those of a schedule) that keeps attackers below a target.

    `reached` is what no attack exceeds.
    """

    value: float
    reached: float
    loss: SampledGaussian


def noise_multiplier(
    target: AttackTarget,
    *,
    sample_rate: float,
    steps: int,
    adjacency: Adjacency = Adjacency.ADD_REMOVE,
) -> AttackSetting:
    """The least noise multiplier of Poisson-sampled Gaussian steps that keeps attackers below it.

    **Guarantee**: what attacks reach with the loss it returns is at most the target, by the bound
    from above. **Assumes**: what `privet.accounting.SampledGaussian` assumes.

    >>> found = noise_multiplier(AttackTarget(most=0.05), sample_rate=0.01, steps=1000)
    >>> found.reached <= 0.05, round(found.value, 2)
    (True, 2.61)
    """
    plain = SampledGaussian(
        sample_rate=sample_rate, noise_multiplier=1.0, steps=steps, adjacency=adjacency
    )
    return scale_schedule(target, schedule=plain)


def scale_schedule(target: AttackTarget, *, schedule: SampledGaussian) -> AttackSetting:
    """The least factor on every noise multiplier of a schedule that keeps attackers below it."""
    q, z, n = schedule.groups
    if len(q) == 0:
        raise InvalidArgument("schedule", "every sample rate 0", "a schedule that reads the data")
    settings: dict[float, AttackSetting] = {}
    aim = target.mu(target.most)

    def excess(factor: float) -> float:
        loss = SampledGaussian(
            sample_rate=q, noise_multiplier=factor * z, steps=n, adjacency=schedule.adjacency
        )
        reached = target.reached(loss)
        settings[factor] = AttackSetting(value=factor, reached=reached, loss=loss)
        # 1 - 1e-16 has a finite mu, 1e-12 of the aim a finite logarithm: no root is near either
        log = math.log(max(target.mu(min(reached, 1.0 - 1e-16)), 1e-12 * aim) / aim)
        # the sign is that of the rates themselves, whatever rounding made of the logarithm
        return min(log, 0.0) if reached <= target.most else max(log, 1e-12)

    smallest = float(z.min())
    start = max(math.sqrt(float((n * (q / z) ** 2).sum())) / aim, LEAST_START / smallest)
    x, met = nearest_setting(
        excess,
        start=min(start, NOISE_LIMITS[1] / smallest),
        limits=(NOISE_LIMITS[0] / smallest, NOISE_LIMITS[1] / smallest),
    )
    if not met:
        raise Unattainable(
            f"no noise up to {NOISE_LIMITS[1]:g} keeps attackers below {target}: "
            f"{settings[x].reached:.4g} is reached; take fewer steps or a smaller sample rate"
        )
    return settings[x]
