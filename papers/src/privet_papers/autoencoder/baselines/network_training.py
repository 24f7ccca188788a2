"""What the deep models that are not private share: inputs, batches and an output layer (torch)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from privet_papers.argument_checks import check_counts
from privet_papers.autoencoder.behaviour.examples import Examples
from privet_papers.autoencoder.behaviour.social_influence import adjacency_matrix

Array = NDArray[np.float64]

BATCH = 256
"""Rows in a batch of Adam: more make a step steadier and slower."""


def mean_influence(examples: Examples) -> Array:
    """The plain mean over friends, as in the paper: nothing here needs a bound."""
    graph = adjacency_matrix(examples.edges, examples.users)
    return np.asarray(graph / np.maximum(graph.sum(axis=0, keepdims=True), 1.0))


def tensor(x: Array) -> Tensor:
    """The array as a float32 tensor."""
    return torch.from_numpy(np.ascontiguousarray(x, dtype=np.float32))


def train(
    parameters: Iterable[nn.Parameter],
    loss: Callable[[Tensor], Tensor],
    *,
    rows: int,
    steps: int,
    learning_rate: float,
    generator: torch.Generator,
) -> None:
    """Adam on random batches; `loss` gets the numbers of the rows."""
    check_counts(0, steps=steps)
    optimiser = torch.optim.Adam(list(parameters), lr=learning_rate, fused=True)  # a fifth faster
    for _ in range(steps):
        batch = torch.randint(rows, (min(BATCH, rows),), generator=generator)
        optimiser.zero_grad()
        loss(batch).backward()
        optimiser.step()


def generator_for(seed: int | None) -> torch.Generator:
    """A torch generator; a seed of its own without one given."""
    generator = torch.Generator()
    if seed is None:
        generator.seed()
    else:
        generator.manual_seed(seed)
    return generator


def weight_matrix(inputs: int, outputs: int, generator: torch.Generator) -> nn.Parameter:
    """Normal with the variance of Glorot and Bengio (2010)."""
    scale = (2.0 / (inputs + outputs)) ** 0.5
    return nn.Parameter(scale * torch.randn(inputs, outputs, generator=generator))


def zeros(size: int) -> nn.Parameter:
    """Biases that start at zero."""
    return nn.Parameter(torch.zeros(size))


def probabilities(logits: Any) -> Array:
    """The sigmoid of logits, as a float64 array."""
    return np.asarray(torch.sigmoid(logits).detach().numpy(), dtype=np.float64)
