"""The paper's network: a vanilla 3-D U-Net, two convolutions a level, max-pooling between."""

from __future__ import annotations

from itertools import pairwise
from typing import final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from privet.errors import InvalidArgument


@final
class PooledUNet(nn.Module):
    """One level for each number of channels, the first at full resolution; poolings are one fewer.

    Every level is two convolutions of 3x3x3, each with instance normalisation (no statistics are
    shared by examples, so that DP-SGD can train it) and a ReLU. On the way up features are
    interpolated, which leaves no checkerboard, and joined with those of the same level.

    >>> net = PooledUNet(classes=3, channels=(2, 4, 4, 4, 4))
    >>> tuple(net(torch.zeros(1, 1, 32, 32, 32)).shape)
    (1, 3, 32, 32, 32)
    >>> sum(isinstance(m, nn.MaxPool3d) for m in net.modules())
    4

    Cicek, Abdulkadir, Lienkamp, Brox and Ronneberger, "3D U-Net" (2016).
    """

    def __init__(self, *, classes: int, channels: tuple[int, ...], inputs: int = 1) -> None:
        super().__init__()
        if len(channels) < 2:
            raise InvalidArgument("channels", channels, "at least two levels")
        down = [_two_convolutions(inputs, channels[0])]
        for before, after in pairwise(channels):
            down.append(nn.Sequential(nn.MaxPool3d(2), *_two_convolutions(before, after)))
        self.down = nn.ModuleList(down)
        self.up = nn.ModuleList(
            _two_convolutions(below + here, here) for here, below in pairwise(channels)
        )
        self.head = nn.Conv3d(channels[0], classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Logits of volumes (n, channels, x, y, z)."""
        levels = []
        for level in self.down:
            x = level(x)
            levels.append(x)
        for level, skip in zip(reversed(self.up), reversed(levels[:-1]), strict=True):
            raised = F.interpolate(x, size=skip.shape[2:], mode="trilinear", align_corners=False)
            x = level(torch.cat([raised, skip], dim=1))
        logits: Tensor = self.head(x)
        return logits


def _two_convolutions(before: int, after: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv3d(before, after, 3, padding=1), nn.InstanceNorm3d(after), nn.ReLU(),
        nn.Conv3d(after, after, 3, padding=1), nn.InstanceNorm3d(after), nn.ReLU(),
    )  # fmt: skip
