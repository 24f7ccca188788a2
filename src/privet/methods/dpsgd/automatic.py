"""Settings that work without tuning, from public facts alone: sizes and the budget."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

import numpy as np

from privet import _check
from privet.loss import Gaussian, PrivacyLoss, compose, gaussian_mu
from privet.methods.base import PublicFacts
from privet.methods.dpsgd.release import noise_scale
from privet.methods.dpsgd.schedule import Array, Schedule, values


@dataclass(frozen=True, kw_only=True)
class Wishes:
    """What a user wants to set by hand; None leaves it to the rule."""

    steps: int | None = None
    sample_rate: float | None = None
    clipping_bound: float | None = None
    learning_rate: float | None = None
    momentum: float | None = None
    centre: float | None = None

    def __post_init__(self) -> None:
        if self.steps is not None:
            _check.count("steps", self.steps)
        for name in ("sample_rate", "clipping_bound", "learning_rate"):
            if (value := getattr(self, name)) is not None:
                _check.positive(name, value)


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Plan:
    """All settings of a run. Learning rates multiply the averaged gradient divided by C."""

    facts: PublicFacts
    schedule: Schedule
    learning_rates: Array
    momentum: float
    centre_mu: float = 0.0
    """What the private mean costs, as the mu of a Gaussian release; 0 for none."""
    constant: float = 0.0
    """The constant feature of a linear head."""
    ema: float | None = None
    """Decay of a moving average of the weights, which is then what is released."""

    @property
    def loss(self) -> PrivacyLoss:
        """The cost of it all."""
        steps = self.schedule.loss()
        return steps if self.centre_mu == 0.0 else compose([self.centre_loss, steps])

    @property
    def centre_loss(self) -> Gaussian:
        """The cost of the private mean."""
        return Gaussian(mu=self.centre_mu)

    def centre_scale(self, dimension: int) -> float:
        """The noise on the sum of rows of the unit ball that makes it cost `centre_mu`."""
        return noise_scale(
            sensitivity=1.0, noise_multiplier=1.0 / self.centre_mu, dimension=dimension
        )

    @property
    def absolute_learning_rates(self) -> Array:
        """The same rates for a gradient that is not divided by C."""
        return self.learning_rates / self.schedule.bounds


def linear_plan(facts: PublicFacts, wishes: Wishes) -> Plan:
    """Full-batch gradient descent with momentum on rows of the unit ball, after a private mean.

    With mu the Gaussian ratio of the budget, mu n is the signal that the budget leaves of the data;
    the number of steps and the learning rate are powers of it, found on several data sets and
    budgets (benchmarks/mnist.py and docs/methods/dpsgd.md). Small clipping bounds were best
    throughout: near the optimum most gradients are small, and noise is proportional to the bound.

    >>> plan = linear_plan(PublicFacts(records=60_000, features=500, outputs=10,
    ...                                epsilon=1.0, delta=1e-5), Wishes())
    >>> plan.loss.epsilon(1e-5) <= 1.0
    True
    """
    n, budget = facts.records, gaussian_mu(facts.epsilon, facts.delta)
    signal = max(budget * n, 1.0)
    steps = wishes.steps or int(min(400, max(5, math.ceil(1.2 * signal**0.45))))
    share = 0.05 if wishes.centre is None else wishes.centre
    rate = wishes.learning_rate or max(0.1, 0.5 * signal / steps)
    decay = 1.0 - np.arange(steps) / steps
    q = 1.0 if wishes.sample_rate is None else wishes.sample_rate
    centre_mu = budget * math.sqrt(share) if share > 0.0 else 0.0
    schedule = Schedule.for_budget(
        epsilon=facts.epsilon,
        delta=facts.delta,
        steps=steps,
        sample_rate=q,
        clipping_bound=wishes.clipping_bound or 0.1,
        beside=Gaussian(mu=centre_mu) if centre_mu else None,
    )
    return Plan(
        facts=facts,
        schedule=schedule,
        learning_rates=rate * decay,
        momentum=0.9 if wishes.momentum is None else wishes.momentum,
        centre_mu=centre_mu,
        constant=0.1,
    )


def network_plan(facts: PublicFacts, wishes: Wishes) -> Plan:
    """Large Poisson batches with momentum, for a network trained from scratch.

    Batches of 8 sqrt(n) examples, 8 + 2 epsilon epochs (40 at most), clipping at .1, which is small
    against usual gradients, so that every example weighs about alike; learning rate 1 on the mean
    gradient over the bound, falling to 0; a moving average of the weights.

    >>> plan = network_plan(PublicFacts(records=10_000, features=64, outputs=10,
    ...                                 epsilon=2.0, delta=1e-5), Wishes(steps=20))
    >>> round(float(plan.schedule.rates[0]), 3)
    0.08
    """
    n = facts.records
    q = wishes.sample_rate or min(1.0, max(64.0, 8.0 * math.sqrt(n)) / n)
    epochs = min(40.0, 8.0 + 2.0 * facts.epsilon)
    steps = wishes.steps or max(20, round(epochs / q))
    schedule = Schedule.for_budget(
        epsilon=facts.epsilon,
        delta=facts.delta,
        steps=steps,
        sample_rate=q,
        clipping_bound=wishes.clipping_bound or 0.1,
    )
    rate = wishes.learning_rate or 1.0
    return Plan(
        facts=facts,
        schedule=schedule,
        learning_rates=values("learning_rate", lambda t: rate * (1.0 - t / steps), steps),
        momentum=0.9 if wishes.momentum is None else wishes.momentum,
        ema=1.0 - 1.0 / max(4.0, 0.125 * steps),
    )
