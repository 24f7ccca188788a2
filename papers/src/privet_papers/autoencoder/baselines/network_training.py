"""What the deep models that are not private share: inputs, batches and an output layer (torch)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from privet.methods.autoencoder.behaviour.examples import Examples
from privet.methods.autoencoder.behaviour.graph import adjacency_matrix
from privet.papers.checks import counts

Array = NDArray[np.float64]

BATCH = 256


def mean_influence(examples: Examples) -> Array:
    """The plain mean over friends, as in the paper: nothing here needs a bound."""
    graph = adjacency_matrix(examples.edges, examples.users)
    return np.asarray(graph / np.maximum(graph.sum(axis=0, keepdims=True), 1.0))


def tensor(x: Array) -> Tensor:
    """As float32."""
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
    """Adam on random batches; `loss` is told which rows."""
    counts(0, steps=steps)
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
    """Biases."""
    return nn.Parameter(torch.zeros(size))


def probabilities(logits: Any) -> Array:
    """sigmoid as float64 numpy."""
    return np.asarray(torch.sigmoid(logits).detach().numpy(), dtype=np.float64)
