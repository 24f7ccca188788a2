"""DP-SGD on the U-Net of the PATE experiment: a record is a volume, or a whole teacher shard."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, final

import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from privet.gradients import AutomaticClipping, PerExampleGradients, PerLayerClipping
from privet.guarantee import Adjacency, Guarantee, Unit
from privet.methods.dpsgd import (
    Batch,
    PoissonSampler,
    Sampling,
    Schedule,
    StepOptions,
    private,
)
from privet.networks.segmentation import Recipe, dice_and_entropy, random_patch, volumes_of
from privet.noise import Source

Array = NDArray[Any]


@final
@dataclass(frozen=True, kw_only=True)
class PrivateRecipe:
    """How DP-SGD trains a U-Net: Adam, every gradient scaled to length `bound`, Poisson samples.

    A record's gradient is the mean over `views` random patches of it.
    """

    steps: int
    sample_rate: float
    learning_rate: float
    views: int = 1
    bound: float = 1.0
    loss: str = "dice"
    """Or that of the teachers, "dice and entropy"."""
    start: str = "class frequencies"
    """What the last biases start at, or "random" as those of the teachers."""
    channels: tuple[int, ...] | None = None
    """Of the U-Net; None: those of the teachers."""
    variance: float | None = None
    """As the paper's baseline: each *layer* clipped to `bound`, noise of so many squared bounds on
    each; what that costs follows. None: noise by the budget."""


@final
@dataclass(frozen=True, kw_only=True)
class DPSGDBudget:
    """What a run may spend, and for whom: neighbours and the unit that its records are."""

    epsilon: float
    delta: float
    adjacency: Adjacency
    unit: Unit


def records(images: Array, maps: Array, *, volumes: int = 1) -> Tensor:
    """Records of so many volumes in a row, (records, volumes, channels + classes, x, y, z)."""
    packed = torch.cat([volumes_of(images), torch.as_tensor(maps, dtype=torch.float32)], dim=1)
    return torch.stack(packed.split(volumes))


def one_less_dice(logits: Tensor, targets: Tensor) -> Tensor:
    """For each volume: 1 - mean soft Dice of all classes.

    Without cross-entropy, whose gradient is at first that of calling everything background: scaled
    to length 1 and repeated for as many steps as a budget allows, that is all that is learned. With
    the background among the classes, or one of the others takes its place.
    """
    axes = (2, 3, 4)
    probabilities = logits.softmax(1)
    both = (probabilities * targets).sum(axes)
    dice = (2.0 * both + 1.0) / (probabilities.sum(axes) + targets.sum(axes) + 1.0)
    out: Tensor = 1.0 - dice.mean(1)
    return out


LOSSES = {"dice": one_less_dice, "dice and entropy": dice_and_entropy}


def start_at_frequencies(network: nn.Module, frequencies: Array) -> nn.Module:
    """The U-Net whose last biases are the logarithms of public class frequencies.

    So that no step, and no privacy, is spent on learning that most voxels are background.
    """
    last = list(network.parameters())[-1]
    with torch.no_grad():
        last.copy_(torch.as_tensor(frequencies).clamp(min=1e-6).log())
    return network


def schedule_of(recipe: PrivateRecipe, budget: DPSGDBudget, layers: int) -> Schedule:
    """The steps of a recipe, its noise from the budget or as printed.

    A record that is in moves each of L layers by up to C, all of them by C sqrt(L): noise of
    standard deviation C sqrt(v) is a noise multiplier of sqrt(v / L). With `layers` 1 it is that of
    a reading that counts the layers once, sqrt(v): the paper's claim, as far as one follows.
    """
    if recipe.variance is None:
        return Schedule.for_budget(
            epsilon=budget.epsilon, delta=budget.delta, steps=recipe.steps,
            sample_rate=recipe.sample_rate, clipping_bound=recipe.bound, adjacency=budget.adjacency,
        )  # fmt: skip
    return Schedule(
        steps=recipe.steps, sample_rate=recipe.sample_rate,
        noise_multiplier=math.sqrt(recipe.variance / layers),
        clipping_bound=recipe.bound * math.sqrt(layers),
    )  # fmt: skip


def train_privately(
    network: nn.Module,
    data: Tensor,
    recipe: PrivateRecipe,
    budget: DPSGDBudget,
    *,
    patches: Recipe,
    rng: Source,
    inputs: int = 1,
) -> Guarantee:
    """Train the network in place on `records`, and say what that promises.

    Every view of a record is a random patch of one of its volumes; a record's gradient is the mean
    over its views, scaled to the recipe's bound.
    """
    schedule = schedule_of(recipe, budget, len(PerExampleGradients(network).layers))
    kind: Any = AutomaticClipping if recipe.variance is None else PerLayerClipping
    count = len(data)
    sampler = PoissonSampler(
        n=count, rates=schedule.rates, rng=rng, n_public=count, adjacency=budget.adjacency
    )
    optimizer = torch.optim.Adam(network.parameters(), lr=recipe.learning_rate)

    def cut(numbers: Tensor, generator: torch.Generator) -> Tensor:
        which = torch.randint(data.shape[1], (len(numbers),), generator=generator)
        return torch.stack(
            [
                random_patch(data[i, j], patches, generator, inputs)
                for i, j in zip(numbers, which, strict=True)
            ]
        )

    def losses(model: nn.Module, batch: Batch) -> Tensor:
        if not len(batch):
            return torch.zeros(0)  # of an empty sample, from which nothing was cut
        return LOSSES[recipe.loss](model(batch.x[:, :inputs]), batch.x[:, inputs:])

    with private(
        network.train(), optimizer, torch.arange(count), schedule, losses=losses,
        delta=budget.delta, rng=rng,
        sampling=Sampling(sampler=sampler, augment=cut, views=recipe.views),
        step=StepOptions(
            clipping=lambda c: kind(bound=c), micro_batch=max(8 // recipe.views, 1),
            independence="assumed",  # records are numbers here, which no made-up row stands for
        ),
    ) as training:  # fmt: skip
        for _ in training:
            pass
    network.eval()
    return replace(training.guarantee, unit=budget.unit)
