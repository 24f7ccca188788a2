"""Dirac canaries: records whose whole gradient lies on a coordinate that nothing else touches.

The model is given m parameters more, one a canary, that no output depends on. The loss of canary j
is a multiple of parameter j, so its clipped gradient is C e_j: the most that one record may do, in
a place where only the noise can hide it. Everything else is the run itself: its sampler, its
engine, its clipping, its noise, its accounting.

Symbols: m canaries, q_t, C_t, z_t as in `schedule`; x_t the noisy sum on the canary's coordinate
over C_t, so N(0, z_t^2) without it and N(1, z_t^2) when it was drawn.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from privet.errors import InvalidArgument
from privet.methods.dpsgd.dataset_rows import Batch, as_tensor
from privet.methods.dpsgd.private import Training, private
from privet.methods.dpsgd.private_options import Charging, Sampling
from privet.methods.dpsgd.schedule import Schedule
from privet.noise import Source

_STEEP = 1e3
"""The slope of a canary's loss over C: its gradient is always clipped."""

Losses = Callable[[nn.Module, Tensor, Tensor], Tensor]
"""A model, rows and targets to one loss a row."""


def cross_entropy_per_example(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """The cross-entropy of each example."""
    return functional.cross_entropy(model(x), y, reduction="none")


class _WithDeadCoordinates(nn.Module):
    def __init__(self, model: nn.Module, canaries: int) -> None:
        super().__init__()
        self.model = model
        self.dead = nn.Embedding(canaries + 1, 1)  # the last belongs to all who are no canary
        nn.init.zeros_(self.dead.weight)


@final
@dataclass(frozen=True, kw_only=True)
class CanaryRun:
    """What is known after a run to someone who sees every noisy sum.

    `observations[t, j]` is x_t of canary j, `in_batch[t, j]` whether it was in the batch of step t
    (known to the audit of single steps only), `included` whether it was in the data set at all.
    """

    observations: NDArray[np.float64]
    in_batch: NDArray[np.bool_]
    included: NDArray[np.bool_]
    training: Training

    @property
    def scores(self) -> NDArray[np.float64]:
        """The log likelihood ratio of "in" against "out", from all steps:

        sum_t log(1 - q_t + q_t e^((2 x_t - 1) / (2 z_t^2))).
        """
        s = self.training.schedule
        total = np.zeros(self.observations.shape[1])
        for x, q, z in zip(self.observations, s.rates, s.noise_multipliers, strict=True):
            ratio = (2.0 * x - 1.0) / (2.0 * z * z)
            with np.errstate(divide="ignore"):
                total += np.logaddexp(np.log1p(-q), np.log(q) + ratio)
        return total

    def account(self, noise_multiplier: float) -> float:
        """epsilon of this run, had every step had this noise multiplier: by its own sampler."""
        steps = self.training.schedule.steps
        loss = self.training.sampler.loss(np.full(steps, noise_multiplier))
        return loss.epsilon(self.training.delta)


def train_with_canaries(
    model: nn.Module,
    data: tuple[Any, Any],
    schedule: Schedule,
    *,
    included: NDArray[np.bool_],
    rng: Source,
    delta: float = 1e-5,
    learning_rate: float = 0.5,
    copies: int = 1,
    losses: Losses = cross_entropy_per_example,
) -> CanaryRun:
    """Train on the records and the canaries that are included; note what every step releases.

    `included` are the coins, one a canary: draw them fairly before (`fair_coins`) for an audit in
    one run. `copies`: each included canary is there so many times. The divisor counts half of the
    canaries, whatever the coins say. The model is trained in place, by plain gradient descent.

    **Guarantee**: none that matters: it is a run for the owner of the data, with records that are
    not theirs. `CanaryRun.training.guarantee` is what is proved of it.

    >>> from privet.noise import seeded
    >>> x, y = torch.rand(50, 3), torch.randint(0, 2, (50,))
    >>> found = train_with_canaries(
    ...     nn.Linear(3, 2), (x, y), Schedule(steps=4, sample_rate=1.0, noise_multiplier=0.1),
    ...     included=np.array([True, False]), rng=seeded(0))
    >>> (found.observations.mean(0) > 0.5).tolist(), found.in_batch.all(0).tolist()
    ([True, False], [True, False])
    """
    x, y = as_tensor(data[0]).float(), as_tensor(data[1])
    coins = np.asarray(included, dtype=bool)
    if coins.ndim != 1 or len(coins) == 0:
        raise InvalidArgument("included", coins.shape, "one coin a canary, at least one")
    if schedule.adaptive is not None:
        raise InvalidArgument("schedule", "an adaptive bound", "one with bounds that are fixed")
    m, n = len(coins), len(x)
    inside = np.repeat(np.flatnonzero(coins), copies)
    which = torch.cat([torch.full((n,), m), torch.from_numpy(inside)])
    rows = torch.cat([x, x.new_zeros((len(inside), *x.shape[1:]))])
    targets = torch.cat([y, y.new_zeros((len(inside), *y.shape[1:]))])
    whole = _WithDeadCoordinates(model, m)
    optimizer = torch.optim.SGD(whole.parameters(), lr=learning_rate)
    observations, in_batch = (
        np.zeros((schedule.steps, m)),
        np.zeros((schedule.steps, m), dtype=bool),
    )

    def with_slopes(_: nn.Module, batch: Batch) -> Tensor:
        canary = batch.tensors[2]
        slope = _STEEP * training.bound * whole.dead(canary)[:, 0]
        return torch.where(canary < m, slope, losses(model, batch.x, batch.y))

    with private(
        whole, optimizer, (rows, targets, which), schedule, delta=delta, rng=rng,
        sampling=Sampling(n_public=n + max(1, m * copies // 2)),
        charging=Charging(block=schedule.steps),
    ) as training:  # fmt: skip
        training.check(with_slopes)
        for batch in training:
            training.step(with_slopes(whole, batch))
            canary = batch.tensors[2]
            in_batch[batch.step, canary[canary < m].numpy()] = True
            if batch.last:
                released = whole.dead.weight.grad
                assert released is not None
                divisor = training.sampler.expected_batch(batch.step)
                unit = divisor / float(schedule.bounds[batch.step])
                observations[batch.step] = unit * released[:m, 0].double().numpy()
    return CanaryRun(
        observations=observations, in_batch=in_batch, included=coins, training=training
    )


def fair_coins(canaries: int, rng: Source) -> NDArray[np.bool_]:
    """Draw one exactly fair and independent coin for each canary."""
    return rng.child("coins").bernoulli(canaries, 0.5)
