"""Everything of ours that conforms: mechanisms, sampler, clipped sums, noisy steps."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import nn

from privet import sensitivity
from privet.accounting import gaussian_epsilon
from privet.audit.conformance import (
    MechanismSubject,
    NoiseSubject,
    PoissonSubject,
    Subject,
    SumSubject,
    gaussian_cdf,
    laplace_cdf,
)
from privet.data.records import PublicFacts
from privet.gradients import Clipping, FlatClipping, PerExampleGradients
from privet.ledger import Ledger
from privet.mechanisms import (
    DiscreteGaussianMechanism,
    DiscreteLaplaceMechanism,
    GaussianMechanism,
    LaplaceMechanism,
)
from privet.methods.contract import ReleaseContext
from privet.methods.dpsgd import LinearDPSGD, Sampling, Schedule, StepOptions, private
from privet.methods.dpsgd.linear_head import LinearHead
from privet.methods.dpsgd.samplers import PoissonSampler
from privet.noise import seeded


def pure(sensitivity: float, scale: float, delta: float) -> float:
    """delta(t) = 1 - e^((t - epsilon)/2) of the Laplace mechanism, solved for t."""
    return max(sensitivity / scale + 2.0 * math.log1p(-delta), 0.0)


def concentrated(sensitivity: float, scale: float, delta: float) -> float:
    """The discrete Gaussian is no worse than rho-zCDP says, and no better than the Gaussian."""
    return gaussian_epsilon(sensitivity / scale, delta)


def discrete_laplace_cdf(scale: float) -> Any:
    """At the middle of cells: P[|k| > m] = 2 a^(m+1) / (1 + a), a = e^(-1/scale)."""

    def cdf(x: Any) -> Any:
        m = np.floor(np.abs(x) * scale)
        beyond = np.exp(-(m + 1) / scale) / (1 + math.exp(-1 / scale))
        return np.where(x < 0, beyond, 1.0 - beyond)

    return cdf


def discrete_gaussian_cdf(scale: float) -> Any:
    k = np.arange(-200, 201)
    mass = np.exp(-(k**2) / (2 * scale**2))
    cumulated = np.cumsum(mass) / mass.sum()

    def cdf(x: Any) -> Any:
        place = np.clip(np.floor(np.asarray(x) * scale).astype(int) + 200, 0, 400)
        return cumulated[place]

    return cdf


def l1(rows: Any) -> Any:
    return sensitivity.clip_l1(rows, 1.0).sum()


def l2(rows: Any) -> Any:
    return sensitivity.clip_l2(rows, 1.0).sum()


def boxed(rows: Any) -> Any:
    return sensitivity.clip_range(rows, 0.0, 1.0).sum()


def averaged(rows: Any) -> Any:
    return sensitivity.clip_l2(rows, 1.0).mean(records=50)


class BatchMeanClipping(Clipping):
    """A user's rule, which scales a batch by the mean of the norms that it sees."""

    def weights(self, squared_norms: Any, layers: Any) -> Any:
        norm = squared_norms.sum(0).sqrt().mean()
        return torch.ones_like(squared_norms) * (1.0 / norm).clamp(max=1.0)

    def sensitivity(self, layers: Any) -> float:
        return 1.0


def gradients(rows: Any, clipping: Clipping | None = None) -> Any:
    """The engine's clipped sum for a linear model whose per-example gradient is the row itself."""
    model = nn.Linear(4, 1, bias=False)
    engine = PerExampleGradients(model, clipping=clipping or FlatClipping(bound=1.0))
    with np.errstate(over="ignore"):
        x = torch.from_numpy(np.asarray(rows, dtype=np.float32))
    with engine.recording():
        losses = model(x)[:, 0]
    return engine.clipped_sum(losses).flat.double().numpy().copy()


def updates(seed: int, steps: int, rate: float, micro_batch: int) -> Any:
    """Train on losses without gradients; every update is noise."""
    model = nn.Linear(40, 50, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    schedule = Schedule(steps=steps, sample_rate=rate, clipping_bound=0.5, noise_multiplier=2.0)
    seen, last = [], model.weight.detach().double().clone()
    with private(
        model, optimizer, (torch.zeros(10, 40),), schedule, rng=seeded(seed), delta=1e-5,
        losses=lambda model, batch: model(batch.x).sum(1), sampling=Sampling(n_public=10),
        step=StepOptions(micro_batch=micro_batch),
    ) as training:  # fmt: skip
        for _ in training:
            now = model.weight.detach().double().clone()
            seen.append((last - now).ravel().numpy() * rate * 10 / (2.0 * 0.5))
            last = now
    return np.array(seen)


class PrivateMean:
    """The mean that DP-SGD on rows releases before its steps."""

    def __init__(self, features: int) -> None:
        self.method = LinearDPSGD(steps=1, centre=0.5)
        facts = PublicFacts(records=50, features=features, outputs=2, epsilon=2.0, delta=1e-5)
        self.plan, self.features = self.method.plan(facts), features

    def released(self, rows: Any, seed: int) -> Any:
        """The noisy sum of these rows and a row of zeros, and what was charged for it as mu."""
        with np.errstate(over="ignore"):
            x = np.concatenate([np.zeros((1, self.features)), rows]).astype(np.float32)
        head = LinearHead(features=self.features, outputs=2, constant=1.0)
        ledger = Ledger.in_memory(cap_epsilon=2.0, cap_delta=1e-5)
        context = ReleaseContext(ledger=ledger, rng=seeded(seed), plan=self.plan, run="one")
        self.method._centre(head, torch.from_numpy(x), self.plan, context, None)
        charged = ledger.entries()[0]  # the second is for the measure of confidence
        return head.mean.double().numpy() * 50, charged.loss.mu

    def total(self, rows: Any) -> Any:
        """Without the noise, which is the same in both: replayed, up to rounding to float32."""
        return self.released(rows, 1)[0] - self.released(rows[:0], 1)[0]

    def updates(self, seed: int, steps: int, rate: float, micro_batch: int) -> Any:
        """One release a step; the noise times the mu that was charged is standard normal."""
        none = np.zeros((0, self.features))
        each = (self.released(none, 100 * seed + k) for k in range(steps))
        return np.array([noise * mu for noise, mu in each])


SUBJECTS: tuple[Subject, ...] = (
    MechanismSubject(name="Laplace", make=lambda s: LaplaceMechanism(scale=s), bound=l1, cdf=laplace_cdf, epsilon=pure, norm=1),
    MechanismSubject(name="Gaussian", make=lambda s: GaussianMechanism(scale=s), bound=l2, cdf=gaussian_cdf, epsilon=concentrated, norm=2),
    MechanismSubject(name="Gaussian of a mean", make=lambda s: GaussianMechanism(scale=s), bound=averaged, cdf=gaussian_cdf, epsilon=concentrated, norm=2),
    MechanismSubject(name="Laplace of a box", make=lambda s: LaplaceMechanism(scale=s), bound=boxed, cdf=laplace_cdf, epsilon=pure, norm=1),
    MechanismSubject(name="DiscreteLaplace", make=lambda s: DiscreteLaplaceMechanism(scale=s), bound=l1, cdf=discrete_laplace_cdf(3.0), epsilon=pure, norm=1, spacing=1.0),
    MechanismSubject(name="DiscreteGaussian", make=lambda s: DiscreteGaussianMechanism(scale=s), bound=l2, cdf=discrete_gaussian_cdf(3.0), epsilon=concentrated, norm=2, spacing=1.0),
    PoissonSubject(name="PoissonSampler", make=lambda n, public, q, steps, rng: PoissonSampler(n=n, n_public=public, rates=[q] * steps, rng=rng)),
    SumSubject(name="clipped gradients", total=gradients, bound=1.0, width=4),
    SumSubject(name="a user's clipping rule", total=lambda rows: gradients(rows, BatchMeanClipping()), bound=1.0, width=4),
    NoiseSubject(name="DP-SGD steps", updates=updates),
    SumSubject(name="the private mean of DP-SGD", total=PrivateMean(4).total, bound=1.0, width=4, slack=3e-6),
    NoiseSubject(name="noise of the private mean", updates=PrivateMean(4000).updates),
)  # fmt: skip
