"""Networks for students of PATE: for targets of any shape, and for maps on the inputs' grid."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, final

import torch
from torch import Tensor, nn

from privet import _check


@final
class FlatStudent(nn.Module):
    """A linear map (`hidden=0`), or one with a hidden layer, to logits of the target's shape.

    >>> FlatStudent(shape=(4,), targets=(3, 2, 2), hidden=5)(torch.zeros(7, 4)).shape
    torch.Size([7, 3, 2, 2])
    """

    def __init__(
        self, *, shape: tuple[int, ...], targets: tuple[int, ...], hidden: int = 0, seed: int = 0
    ) -> None:
        super().__init__()
        self.description = _described("FlatStudent", shape, targets, hidden)
        inputs, outputs = math.prod(shape), math.prod(targets)
        hidden = _check.count("hidden", hidden, minimum=0)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            body = [nn.Linear(inputs, hidden), nn.ReLU()] if hidden else []
            last = nn.Linear(hidden or inputs, outputs)
        self.layers = nn.Sequential(nn.Flatten(), *body, last, nn.Unflatten(1, tuple(targets)))

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        out: Tensor = self.layers(x)
        return out


@final
class GridStudent(nn.Module):
    """Convolutions for maps on the grid of the inputs: pictures or volumes, one channel or several.

    Four of 3 voxels a side with steps of 1, 2, 4 and 1 voxels between them, so that a voxel's class
    is decided by what lies within eight voxels of it. As many weights for a volume as for a patch.

    >>> GridStudent(shape=(6, 5, 4), targets=(3, 6, 5, 4), hidden=2)(torch.zeros(2, 6, 5, 4)).shape
    torch.Size([2, 3, 6, 5, 4])
    """

    def __init__(
        self, *, shape: tuple[int, ...], targets: tuple[int, ...], hidden: int = 8, seed: int = 0
    ) -> None:
        super().__init__()
        self.description = _described("GridStudent", shape, targets, hidden)
        sides = len(targets) - 1
        self.channels = shape[0] if len(shape) > sides else 1
        layer: Any = nn.Conv3d if sides == 3 else nn.Conv2d
        widths = [self.channels, *[_check.count("hidden", hidden)] * 3]
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            body: list[nn.Module] = []
            for a, b, step in zip(widths, widths[1:], (1, 2, 4), strict=False):
                body += [layer(a, b, 3, padding=step, dilation=step), nn.ReLU()]
            self.layers = nn.Sequential(*body, layer(widths[-1], targets[0], 3, padding=1))

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        sides = x.shape[2:] if x.shape[1] == self.channels and self.channels > 1 else x.shape[1:]
        out: Tensor = self.layers(x.reshape(len(x), self.channels, *sides))
        return out


@final
class VolumeStudent(nn.Module):
    """MONAI's U-Net for volumes of the box [0, 1], which it sees centred; a volume at a time.

    >>> made = VolumeStudent(shape=(8, 8, 8), targets=(3, 8, 8, 8), channels=(2, 4))
    >>> made.eval()(torch.zeros(2, 8, 8, 8)).shape
    torch.Size([2, 3, 8, 8, 8])
    """

    def __init__(
        self,
        *,
        shape: tuple[int, ...],
        targets: tuple[int, ...],
        channels: Sequence[int],
        seed: int = 0,
    ) -> None:
        from privet.nets.segmentation import unet

        super().__init__()
        self.description = {
            "name": "VolumeStudent", "shape": list(shape), "targets": list(targets),
            "channels": list(channels),
        }  # fmt: skip
        self.inputs = shape[0] if len(shape) == 4 else 1
        self.unet = unet(
            classes=targets[0], channels=tuple(channels), seed=seed, inputs=self.inputs
        )

    @staticmethod
    def centred(x: Any) -> Any:
        """From [0, 1] to [-5, 5], as standardised voxels are."""
        return 10.0 * x - 5.0

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        volumes = self.centred(x).reshape(len(x), self.inputs, *x.shape[-3:]).float()
        return torch.cat([self.unet(one) for one in volumes.split(1)])


def on_one_grid(shape: tuple[int, ...], targets: tuple[int, ...]) -> bool:
    """Whether targets are maps (classes, sides) on the grid of the inputs.

    >>> on_one_grid((6, 5, 4), (3, 6, 5, 4)), on_one_grid((2, 6, 5, 4), (3, 6, 5, 4))
    (True, True)
    >>> on_one_grid((4,), (3,)), on_one_grid((2,), (2, 4, 4))
    (False, False)
    """
    sides = targets[1:]
    return len(sides) in (2, 3) and shape in (sides, (*shape[: len(shape) - len(sides)], *sides))


def _described(
    name: str, shape: tuple[int, ...], targets: tuple[int, ...], hidden: int
) -> dict[str, Any]:
    return {"name": name, "shape": list(shape), "targets": list(targets), "hidden": hidden}
