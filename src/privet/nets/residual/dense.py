"""A perturbed residual network for rows of numbers."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from privet import _check
from privet.nets.residual.noise import Perturbation, ResidualNoise


class DenseResidual(nn.Module):
    """x^{i+1} = x^i + V tanh(U x^i) + noise on `width` units, `blocks` times; for tables.

    >>> DenseResidual(features=4, classes=2)(torch.zeros(3, 4)).shape
    torch.Size([3, 2])
    """

    def __init__(
        self,
        *,
        features: int,
        classes: int,
        width: int = 32,
        blocks: int = 2,
        perturbation: Perturbation | None = None,
    ) -> None:
        super().__init__()
        law = Perturbation() if perturbation is None else perturbation
        self.description = {
            "name": "DenseResidual", "features": features, "classes": classes, "width": width,
            "blocks": blocks, "perturbation": law.to_dict(),
        }  # fmt: skip
        _check.count("width", width)
        self.stem = nn.Linear(_check.count("features", features), width)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(width, width), nn.Tanh(), nn.Linear(width, width))
            for _ in range(_check.count("blocks", blocks))
        )
        self.noises = nn.ModuleList(ResidualNoise(law) for _ in range(blocks))
        self.head = nn.Linear(width, _check.count("classes", classes))

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        x = self.stem(x.flatten(1))
        for block, noise in zip(self.blocks, self.noises, strict=True):
            x = noise(x + block(x), x)
        logits: Tensor = self.head(torch.tanh(x))
        return logits
