"""Ordinary training: what happens after the noise, and therefore costs nothing."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from privet import _check

EpochWatcher = Callable[[int, nn.Module], None]
"""Called with the number of the epoch that ended, and the network."""


@final
@dataclass(frozen=True, kw_only=True)
class PlainTraining:
    """SGD with momentum and a learning rate that rises for a tenth of the time and falls to 0.

    `seed` fixes the order of examples and the noise inside the network. What the examples are
    is the caller's matter: `epoch_inputs(e)` gives those of epoch e.

    **Guarantee** none: whatever the inputs are worth, training on them is post-processing.
    """

    epochs: int = 30
    batch_size: int = 64
    learning_rate: float = 0.1
    momentum: float = 0.9
    weight_decay: float = 1e-4
    seed: int = 0

    def __post_init__(self) -> None:
        _check.count("epochs", self.epochs)
        _check.count("batch_size", self.batch_size)
        _check.positive("learning_rate", self.learning_rate)

    def run(
        self,
        network: nn.Module,
        epoch_inputs: Callable[[int], Tensor],
        labels: Tensor,
        watcher: EpochWatcher | None = None,
    ) -> nn.Module:
        """Train the network in place; returns it in evaluation mode.

        The generator of torch is left as it was.
        """
        n = len(labels)
        batches = max(1, round(n / self.batch_size))
        descent = _NesterovSGD(network, momentum=self.momentum, weight_decay=self.weight_decay)
        with torch.random.fork_rng():
            torch.manual_seed(self.seed)
            for epoch in range(self.epochs):
                network.train()
                inputs = epoch_inputs(epoch)
                for i, batch in enumerate(torch.randperm(n).tensor_split(batches)):
                    network.zero_grad()
                    F.cross_entropy(network(inputs[batch]), labels[batch]).backward()
                    descent.step(self._rate((epoch + i / batches) / self.epochs))
                if watcher is not None:
                    watcher(epoch + 1, network)
        return network.eval()

    def _rate(self, done: float) -> float:
        """The learning rate: linear up for a tenth of the way, then half a cosine to 0."""
        # a tenth of warming up is usual; no trial was recorded
        factor = done / 0.1 if done < 0.1 else 0.5 * (1.0 + math.cos(math.pi * (done - 0.1) / 0.9))
        return self.learning_rate * max(factor, 1e-3)  # above 0, where momentum goes on anyway


@final
class _NesterovSGD:
    """SGD with Nesterov's momentum; torch.optim's would take seconds to import its compiler."""

    def __init__(self, network: nn.Module, *, momentum: float, weight_decay: float) -> None:
        self.parameters = [p for p in network.parameters() if p.requires_grad]
        self.speed = [torch.zeros_like(p) for p in self.parameters]
        self.momentum, self.weight_decay = momentum, weight_decay

    @torch.no_grad()
    def step(self, rate: float) -> None:
        """One step along the gradients that the parameters hold."""
        for p, v in zip(self.parameters, self.speed, strict=True):
            if p.grad is None:
                continue
            g = p.grad.add_(p, alpha=self.weight_decay)
            v.mul_(self.momentum).add_(g)
            p.sub_(g.add_(v, alpha=self.momentum), alpha=rate)


@torch.no_grad()
def mean_probabilities(
    network: nn.Module, inputs: Tensor, *, draws: int = 1, seed: int | None = None
) -> NDArray[np.float64]:
    """Probabilities of the classes, averaged over so many draws of the network's noise.

    With a seed the same noise is drawn at every call; torch's generator is left as it was.
    """
    network.eval()
    with torch.random.fork_rng(enabled=seed is not None):
        if seed is not None:
            torch.manual_seed(seed)
        # 500 rows at a time, to bound memory
        total: Any = sum(
            torch.cat([network(part).double().softmax(1) for part in inputs.split(500)])
            for _ in range(_check.count("draws", draws))
        )
    return np.asarray((total / draws).numpy())
