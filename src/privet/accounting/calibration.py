"""Settings for a target epsilon: monotone searches that only return what was seen to meet it.

Every search keeps a bracket: one end known to be over the target, the other known to meet it. The
end that meets it is returned, with the epsilon that was computed for it, so that an accountant that
is not perfectly smooth can make a result a little less tight but never too weak. Between the ends
the search takes log epsilon to be nearly linear in the log of the setting (false position, Illinois
variant).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from privet import _check
from privet.accounting.closed_form import closed_form_ratio
from privet.accounting.poisson_sampling import SampledGaussian
from privet.accounting.privacy_loss import Array, PrivacyLoss
from privet.errors import InvalidArgument, Unattainable
from privet.guarantee import Adjacency

RELATIVE_TOLERANCE = 1e-4
"""How close to the target a search tries to come, relative to epsilon."""
_MOST_EVALUATIONS = 80
"""Of one search, which mostly takes five to ten: a guard for an epsilon that is not smooth."""
NOISE_LIMITS = (1e-3, 1e7)
"""Noise multipliers that are searched: at the lower end one unsampled step costs an epsilon of 5e5,
at the upper one the noise is the sum of ten million records."""
BUDGET_MARGIN = 1.0 - 2.0**-40
"""Shares of a budget are multiplied by this, 2^13 roundings, so that rounding never carries the
sum of what they pay for over the budget."""
LEAST_START = 0.4
"""The least noise multiplier that a search begins with: with less, epsilon grows like 1 / z^2 and
the closed form that the start is taken from is far off. Only the time of a search depends on it."""
_SMALLEST_RATE = 1e-12
"""Sample rates that are searched: below, no data set is large enough to be sampled."""
_MOST_STEPS = 10**12
"""Steps that are searched: more than anybody can run, and well below what is counted exactly."""
_FEW = 150
"""A schedule with more distinct steps than this is searched through a stand-in.

Up to `poisson_sampling._MOST_EXACT` = 192 an evaluation costs in proportion to them; the stand-in
has at most 144."""
_STAND_IN = 12
"""Ranks of rates, and of noises, that the stand-in tells apart."""


@dataclass(frozen=True, kw_only=True)
class CalibratedSetting:
    """A setting that meets a target: its value, and the epsilon and loss it really has."""

    value: float
    epsilon: float
    delta: float
    loss: PrivacyLoss

    def to_dict(self) -> dict[str, Any]:
        """A JSON-ready mapping."""
        return {"value": self.value, "epsilon": self.epsilon, "delta": self.delta}


def search(
    loss_of: Callable[[float], PrivacyLoss],
    *,
    epsilon: float,
    delta: float,
    start: float,
    limits: tuple[float, float],
    more_is_private: bool = True,
) -> CalibratedSetting:
    """The setting x nearest to the target, where epsilon(loss_of(x)) falls (or rises) with x.

    With `more_is_private` the smallest x that meets the target is sought, otherwise the largest.

    **Guarantee**: the epsilon of the result, as computed by the loss itself, is at most the target.
    **Assumes**: monotone (else the result may be far from the best, but still meets the target).

    >>> from privet.accounting import Gaussian
    >>> setting = search(
    ...     lambda z: Gaussian(mu=1.0 / z), epsilon=1.0, delta=1e-5, start=1.0, limits=(1e-3, 1e3)
    ... )
    >>> setting.epsilon <= 1.0, round(setting.value, 2)
    (True, 3.73)
    """
    target, delta = _check.positive("epsilon", epsilon), _check.delta_or_zero("delta", delta)
    evaluations: dict[float, CalibratedSetting] = {}

    def excess(x: float) -> float:
        loss = loss_of(x)
        e = loss.epsilon(delta)
        evaluations[x] = CalibratedSetting(value=x, epsilon=e, delta=delta, loss=loss)
        # an epsilon of 0 counts as e^-30 of the target, a little less than the 1e-12 beside it
        return math.log(max(e, 1e-12 * target) / target) if e > 0 else -30.0

    x, met = nearest_setting(excess, start=start, limits=limits, more_is_private=more_is_private)
    if not met:
        worst = evaluations[x]
        raise Unattainable(
            f"epsilon {target:g} at delta {delta:g} is out of reach: {worst.value:g}, "
            f"the end of the search, still gives epsilon {worst.epsilon:.4g}"
        )
    return evaluations[x]


def nearest_setting(
    excess: Callable[[float], float],
    *,
    start: float,
    limits: tuple[float, float],
    more_is_private: bool = True,
) -> tuple[float, bool]:
    """Search for the setting nearest to a target: (it, True) if one met it, else (the last, False).

    `excess` is the log of what a setting costs over the target: above 0 the target is passed.
    """
    sign = 1.0 if more_is_private else -1.0

    def at(s: float) -> float:
        return min(max(math.exp(sign * s), limits[0]), limits[1])

    def look(s: float) -> float:
        return excess(at(s))

    ends = sorted(sign * math.log(x) for x in limits)
    good, bad = _bracket(look, sign * math.log(start), ends[0], ends[1])
    if good is None:
        return at(ends[1]), False
    if bad is not None:
        good = _narrow(look, good, bad)
    return at(good[0]), True


Point = tuple[float, float]


def _bracket(
    look: Callable[[float], float], start: float, low: float, high: float
) -> tuple[Point | None, Point | None]:
    """Find a point that meets the target and one that does not; None where the limits have none."""
    # e^.1: as close is a quarter of the starts (40 tried)
    s, step = min(max(start, low), high), 0.1
    value = look(s)
    here = (s, value)
    if value > 0:
        while s < high:
            # epsilon falls at least like 1/x, so a step of `value` should suffice
            # (up to e^2 at a time: far out, where it falls faster, a full step would pass the root)
            s, step = min(high, s + max(step, min(value, 2.0))), 2.0 * step
            bad, value = here, look(s)
            here = (s, value)
            if value <= 0:
                return here, bad
        return None, here
    while s > low:
        # and rises at least like that: a longer step would only leave the useful range
        s, step = max(low, s - min(step, max(-value, 0.05))), 2.0 * step
        good, value = here, look(s)
        here = (s, value)
        if value > 0:
            return good, here
    return here, None


def _narrow(look: Callable[[float], float], good: Point, bad: Point) -> Point:
    # numbers by trial: with .1 or .001 for .02, and .05 or .8 for .3, settings differ by less than
    # 5e-5 and the evaluations by one or two
    weight = {True: 1.0, False: 1.0}
    last: bool | None = None
    for _ in range(_MOST_EVALUATIONS):
        if good[1] > -RELATIVE_TOLERANCE or abs(good[0] - bad[0]) < 1e-9:
            break  # 1e-9: epsilon jumps here, and no setting between is closer
        a, b = weight[True] * good[1], weight[False] * bad[1]
        # aim a little inside the target, so that the step lands on the side that counts
        share = (-0.3 * RELATIVE_TOLERANCE - a) / (b - a) if b > a else 0.5
        share = min(max(share, 0.02), 0.98)  # away from the ends, for the sake of a kink
        s = good[0] + share * (bad[0] - good[0])
        value = look(s)
        met = value <= 0
        if met:
            good = (s, value)
        else:
            bad = (s, value)
        weight = {met: 1.0, not met: weight[not met] / 2.0 if last is met else 1.0}
        last = met
    return good


def noise_multiplier(
    *,
    epsilon: float,
    delta: float,
    sample_rate: float,
    steps: int,
    adjacency: Adjacency = Adjacency.ADD_REMOVE,
) -> CalibratedSetting:
    """The least noise multiplier for which Poisson-sampled Gaussian steps meet the target.

    **Guarantee**: the loss it returns has epsilon at most the target at `delta` (exact accounting).
    **Assumes**: what `privet.accounting.SampledGaussian` assumes.

    >>> setting = noise_multiplier(epsilon=1.0, delta=1e-5, sample_rate=0.01, steps=1000)
    >>> setting.epsilon <= 1.0, setting.epsilon > 0.999, round(setting.value, 2)
    (True, True, 1.41)
    """
    q, t = _rate(sample_rate), _check.count("steps", steps)
    target = _check.positive("epsilon", epsilon)
    u = closed_form_ratio(target, _check.open_unit("delta", delta))

    def loss_of(z: float) -> PrivacyLoss:
        return SampledGaussian(sample_rate=q, noise_multiplier=z, steps=t, adjacency=adjacency)

    try:
        return search(
            loss_of,
            epsilon=target,
            delta=delta,
            start=min(max(q * math.sqrt(t) / u, LEAST_START), 0.1 * NOISE_LIMITS[1]),
            limits=NOISE_LIMITS,
        )
    except Unattainable as e:
        raise Unattainable(
            f"no noise multiplier up to {NOISE_LIMITS[1]:g} reaches epsilon {target:g} at delta "
            f"{delta:g} with sample rate {q:g} and {t} steps; take fewer steps, a smaller sample "
            f"rate or a larger epsilon"
        ) from e


def steps(
    *,
    epsilon: float,
    delta: float,
    sample_rate: float,
    noise_multiplier: float,
    adjacency: Adjacency = Adjacency.ADD_REMOVE,
) -> CalibratedSetting:
    """The most steps that fit under the target, a whole number (to 1 in 10^5 where it is large).

    >>> setting = steps(epsilon=1.0, delta=1e-5, sample_rate=0.01, noise_multiplier=1.41)
    >>> setting.epsilon <= 1.0, 950 < setting.value < 1050
    (True, True)
    """
    q, z = _rate(sample_rate), _check.positive("noise_multiplier", noise_multiplier)
    target, delta = _check.positive("epsilon", epsilon), _check.open_unit("delta", delta)

    def at(t: int) -> CalibratedSetting:
        loss = SampledGaussian(sample_rate=q, noise_multiplier=z, steps=t, adjacency=adjacency)
        return CalibratedSetting(value=t, epsilon=loss.epsilon(delta), delta=delta, loss=loss)

    good = at(1)
    if good.epsilon > target:
        enough = _one_step_noise(target, delta, q, adjacency)
        raise Unattainable(
            f"one step with sample rate {q:g} and noise multiplier {z:g} already costs epsilon "
            f"{good.epsilon:.4g}, over {target:g}; a noise multiplier of {enough:.4g} allows one"
        )
    guess = (closed_form_ratio(target, delta) * z / q) ** 2
    bad: CalibratedSetting | None = None
    t = int(min(max(2.0, guess), _MOST_STEPS))
    while bad is None:
        setting = at(t)
        if setting.epsilon > target:
            bad = setting
        else:
            good, t = setting, int(t * 1.5) + 1  # the answer is at most 1.7 guesses (40 tried)
            if t > _MOST_STEPS:
                return good
    while bad.value - good.value > max(1.0, 1e-5 * good.value):  # a tenth of the tolerance
        a, b = math.log(good.value), math.log(bad.value)
        # 1e-9 and 1e-12 keep a guess finite where epsilon is 0 or the same at both ends
        low, high = math.log(max(good.epsilon, 1e-9)), math.log(bad.epsilon)
        share = (math.log(target) - low) / max(high - low, 1e-12)
        t = round(math.exp(a + min(max(share, 0.05), 0.95) * (b - a)))
        setting = at(int(min(max(t, good.value + 1), bad.value - 1)))
        good, bad = (setting, bad) if setting.epsilon <= target else (good, setting)
    return good


def sample_rate(
    *,
    epsilon: float,
    delta: float,
    noise_multiplier: float,
    steps: int,
    adjacency: Adjacency = Adjacency.ADD_REMOVE,
) -> CalibratedSetting:
    """The largest sample rate that meets the target.

    >>> setting = sample_rate(epsilon=1.0, delta=1e-5, noise_multiplier=1.41, steps=1000)
    >>> setting.epsilon <= 1.0, round(setting.value, 3)
    (True, 0.01)
    """
    z, t = _check.positive("noise_multiplier", noise_multiplier), _check.count("steps", steps)
    target, delta = _check.positive("epsilon", epsilon), _check.open_unit("delta", delta)

    def loss_of(q: float) -> PrivacyLoss:
        return SampledGaussian(sample_rate=q, noise_multiplier=z, steps=t, adjacency=adjacency)

    guess = closed_form_ratio(target, delta) * z / math.sqrt(t)
    try:
        return search(
            loss_of,
            epsilon=target,
            delta=delta,
            start=min(guess, 1.0),
            limits=(_SMALLEST_RATE, 1.0),
            more_is_private=False,
        )
    except Unattainable as e:
        raise Unattainable(
            f"no sample rate above {_SMALLEST_RATE:g} reaches epsilon {target:g} at delta "
            f"{delta:g} with noise multiplier {z:g} and {t} steps; raise the noise or take fewer"
        ) from e


def scale_schedule(*, epsilon: float, delta: float, schedule: SampledGaussian) -> CalibratedSetting:
    """The least factor on every noise multiplier of a schedule that meets the target.

    `value` is the factor and `loss` the scaled schedule. The form of the schedule stays: rates, and
    noise relative between steps, are yours.

    >>> plan = SampledGaussian(sample_rate=[0.01, 0.02], noise_multiplier=[1.0, 2.0], steps=500)
    >>> setting = scale_schedule(epsilon=1.0, delta=1e-5, schedule=plan)
    >>> setting.epsilon <= 1.0, setting.value > 1.0
    (True, True)
    """
    if not isinstance(schedule, SampledGaussian):
        raise InvalidArgument("schedule", type(schedule).__name__, "a SampledGaussian")
    q, z, n = schedule.groups
    if len(q) == 0:
        raise InvalidArgument("schedule", "every sample rate 0", "a schedule that reads the data")
    target = _check.positive("epsilon", epsilon)
    u = closed_form_ratio(target, _check.open_unit("delta", delta))

    def loss_of(factor: float) -> PrivacyLoss:
        return SampledGaussian(
            sample_rate=q, noise_multiplier=factor * z, steps=n, adjacency=schedule.adjacency
        )

    smallest = float(np.min(z))
    start = max(math.sqrt(float(np.sum(n * (q / z) ** 2))) / u, LEAST_START / smallest)
    limits = (NOISE_LIMITS[0] / smallest, NOISE_LIMITS[1] / smallest)
    try:
        if len(q) <= _FEW:
            return search(loss_of, epsilon=target, delta=delta, start=start, limits=limits)
        return _by_stand_in(
            loss_of, schedule, epsilon=target, delta=delta, start=start, limits=limits
        )
    except Unattainable as e:
        raise Unattainable(
            f"no factor up to {limits[1]:g} brings the schedule to epsilon {target:g} at delta "
            f"{delta:g}; take fewer steps, smaller rates or a larger epsilon"
        ) from e


def _by_stand_in(
    loss_of: Callable[[float], PrivacyLoss],
    schedule: SampledGaussian,
    *,
    epsilon: float,
    delta: float,
    start: float,
    limits: tuple[float, float],
) -> CalibratedSetting:
    """Search on a small stand-in of a long schedule, corrected by a few looks at the real one.

    The stand-in proves nothing: only a factor whose epsilon was computed for the real schedule is
    returned.
    """
    q, z, n = _stand_in(schedule)
    # aim a little inside the target, as `_narrow` does
    aim, best = epsilon * (1.0 - 0.3 * RELATIVE_TOLERANCE), None
    for _ in range(6):  # two have been enough for all schedules tried; a guard
        guess = search(
            lambda f: SampledGaussian(
                sample_rate=q, noise_multiplier=f * z, steps=n, adjacency=schedule.adjacency
            ),
            epsilon=aim,
            delta=delta,
            start=start,
            limits=limits,
        )
        loss = loss_of(guess.value)
        setting = CalibratedSetting(
            value=guess.value, epsilon=loss.epsilon(delta), delta=delta, loss=loss
        )
        if setting.epsilon <= epsilon and (best is None or setting.value < best.value):
            best = setting
        if best is not None and best.epsilon >= epsilon * (1.0 - 2.0 * RELATIVE_TOLERANCE):
            return best
        aim, start = guess.epsilon * epsilon / setting.epsilon, setting.value
        aim *= 1.0 - 0.5 * RELATIVE_TOLERANCE
    if best is not None:
        return best
    return search(loss_of, epsilon=epsilon, delta=delta, start=start, limits=limits)


def _stand_in(schedule: SampledGaussian) -> tuple[Array, Array, Array]:
    """At most 12 x 12 groups of similar steps, each at its mean rate and root-mean-square noise.

    144 of them are below `_FEW`, so that an evaluation costs what its distinct steps cost.
    """
    q, z, n = schedule.groups
    cells: dict[tuple[int, int], list[int]] = {}
    by_rate = np.argsort(np.argsort(q, kind="stable")) * _STAND_IN // len(q)
    by_noise = np.argsort(np.argsort(z, kind="stable")) * _STAND_IN // len(z)
    for i, key in enumerate(zip(by_rate.tolist(), by_noise.tolist(), strict=True)):
        cells.setdefault(key, []).append(i)
    groups = [np.array(members) for members in cells.values()]
    total = np.array([np.sum(n[g]) for g in groups])
    rate = np.array([np.average(q[g], weights=n[g]) for g in groups])
    inverse = np.array([np.average((q[g] / z[g]) ** 2, weights=n[g]) for g in groups])
    return rate, rate / np.sqrt(inverse), total


def _rate(value: float) -> float:
    q = _check.unit("sample_rate", value)
    if q == 0.0:
        raise InvalidArgument(
            "sample_rate", value, "a number in (0, 1]", "a rate of 0 costs nothing"
        )
    return q


def _one_step_noise(epsilon: float, delta: float, q: float, adjacency: Adjacency) -> float:
    return noise_multiplier(
        epsilon=epsilon, delta=delta, sample_rate=q, steps=1, adjacency=adjacency
    ).value


def noise_multiplier_from_sigma(
    *, sigma: float, sample_rate: float, records: int, clip: float
) -> float:
    """z = sigma q N / C: the paper's sigma is the noise on the *averaged* gradient.

    The average divides a sum whose sensitivity is C by q N, so its own sensitivity is C / (q N).

    >>> noise_multiplier_from_sigma(sigma=0.25, sample_rate=0.0625, records=1024, clip=4.0)
    4.0
    """
    q = _rate(sample_rate)
    n = _check.count("records", records)
    return _check.positive("sigma", sigma) * q * n / _check.positive("clip", clip)
