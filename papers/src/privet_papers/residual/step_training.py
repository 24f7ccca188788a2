"""Training as He et al. and the paper have it: rates that fall in steps, crops and flips."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from privet_papers.argument_checks import check_counts, check_positive

SCHEDULES = {
    "tenths": (0.1, (0.5, 0.75)),
    "quarters": (0.25, (0.2, 0.4, 0.6, 0.8)),
}
"""The factor of each step and where in training the steps are: He et al.'s (32,000 and 48,000 of
64,000 iterations), and the paper's for IDC and DP-SGD (epochs 20, 40, 60 and 80 of 100)."""
AUGMENTATIONS = ("none", "crops", "crops and flips")
"""He et al. pad four pixels of 32, crop, and flip; digits are not flipped."""


def rate_at(schedule: str, done: float) -> float:
    """What the first learning rate is multiplied by at this share of training.

    >>> [rate_at("tenths", done) for done in (0.0, 0.5, 0.9)]
    [1.0, 0.1, 0.010000000000000002]
    >>> rate_at("quarters", 0.85)
    0.00390625
    """
    factor, steps = SCHEDULES[schedule]
    return float(factor ** sum(done >= at for at in steps))


@final
@dataclass(frozen=True, kw_only=True)
class StepTraining:
    """SGD with momentum .9 (not Nesterov's) and weight decay 1e-4 at a rate that falls in steps.

    He, Zhang, Ren and Sun, "Deep Residual Learning for Image Recognition" (2016), section 4.2.
    """

    epochs: int
    batch_size: int
    learning_rate: float
    schedule: str
    augmentation: str = "none"
    seed: int = 0

    def __post_init__(self) -> None:
        check_counts(epochs=self.epochs, batch_size=self.batch_size)
        check_positive(learning_rate=self.learning_rate)

    def run(self, network: nn.Module, inputs: Tensor, labels: Tensor) -> nn.Module:
        """Train the network in place; torch's generator is left as it was."""
        batches = max(1, round(len(labels) / self.batch_size))
        descent = torch.optim.SGD(
            network.parameters(), lr=self.learning_rate, momentum=0.9, weight_decay=1e-4
        )
        network.train()
        with torch.random.fork_rng():
            torch.manual_seed(self.seed)
            for epoch in range(self.epochs):
                for i, batch in enumerate(torch.randperm(len(labels)).tensor_split(batches)):
                    done = (epoch + i / batches) / self.epochs
                    descent.param_groups[0]["lr"] = self.learning_rate * rate_at(
                        self.schedule, done
                    )
                    descent.zero_grad()
                    F.cross_entropy(network(self._augment(inputs[batch])), labels[batch]).backward()
                    descent.step()
        return network.eval()

    def _augment(self, x: Tensor) -> Tensor:
        if self.augmentation == "none":
            return x
        x = random_crops(x)
        if self.augmentation == "crops":
            return x
        return torch.where(torch.rand(len(x), 1, 1, 1) < 0.5, x.flip(3), x)


def random_crops(x: Tensor) -> Tensor:
    """Each picture moved by up to an eighth of its side, what comes in being grey (0)."""
    n, channels, height, width = x.shape
    pad = max(1, height // 8)  # four pixels of 32
    padded = F.pad(x, (pad,) * 4)
    rows, columns = (
        torch.randint(2 * pad + 1, (n, 1)) + torch.arange(side) for side in (height, width)
    )
    return padded[
        torch.arange(n)[:, None, None, None], torch.arange(channels)[None, :, None, None],
        rows[:, None, :, None], columns[:, None, None, :],
    ]  # fmt: skip
