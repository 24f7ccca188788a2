"""The networks of the step benchmark, each with a fixed random batch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from benchmarks.transformer_networks import (
    LENGTH,
    WORDS,
    bert_mini,
    gpt2_lora,
    gpt2_mini,
    vit_tiny,
)


@dataclass(frozen=True, kw_only=True)
class Case:
    """A network, the shape of its inputs, the batch, and a micro-batch to force on the engine."""

    name: str
    network: Callable[[], nn.Module]
    shape: tuple[int, ...]
    classes: int
    batch: int
    micro_batch: int | None = None
    dense_targets: bool = False
    words: int = 0
    """Inputs are words, so many of them; none: numbers."""

    def build(self) -> tuple[nn.Module, Tensor, Tensor]:
        """The model, inputs and targets; the same for every method."""
        torch.manual_seed(0)
        model = self.network()
        shape = (self.batch, *self.shape)
        x = torch.randint(self.words, shape) if self.words else torch.randn(shape)
        inner = self.shape if self.words else self.shape[1:]
        where = (self.batch, *inner) if self.dense_targets else (self.batch,)
        return model, x, torch.randint(0, self.classes, where)


def mnist_cnn() -> nn.Module:
    """5x5x32, 5x5x64, fully connected 25, after the paper on adaptive Laplace noise."""
    return nn.Sequential(
        nn.Conv2d(1, 32, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(64 * 7 * 7, 25), nn.ReLU(), nn.Linear(25, 10),
    )  # fmt: skip


def cifar_cnn() -> nn.Module:
    """3x3x128, 5x5x128, 5x5x256, fully connected 30."""
    return nn.Sequential(
        nn.Conv2d(3, 128, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(128, 128, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(128, 256, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(256 * 4 * 4, 30), nn.ReLU(), nn.Linear(30, 10),
    )  # fmt: skip


class Residual(nn.Module):
    """Two 3x3 convolutions with GroupNorm and a shortcut."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.norm1 = nn.GroupNorm(8, outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.norm2 = nn.GroupNorm(8, outputs)
        same = stride == 1 and inputs == outputs
        self.shortcut: nn.Module = (
            nn.Identity() if same else nn.Conv2d(inputs, outputs, 1, stride, bias=False)
        )

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(self.norm1(self.conv1(x)))
        return torch.relu(self.norm2(self.conv2(y)) + self.shortcut(x))


def resnet8() -> nn.Module:
    """Three residual blocks of 16, 32 and 64 channels."""
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1, bias=False), nn.GroupNorm(8, 16), nn.ReLU(),
        Residual(16, 16, 1), Residual(16, 32, 2), Residual(32, 64, 2),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10),
    )  # fmt: skip


def mlp() -> nn.Module:
    """784-1000-1000-10."""
    return nn.Sequential(
        nn.Flatten(), nn.Linear(784, 1000), nn.ReLU(),
        nn.Linear(1000, 1000), nn.ReLU(), nn.Linear(1000, 10),
    )  # fmt: skip


class UNet3d(nn.Module):
    """A 3-D U-Net of three levels with 8, 16 and 32 channels."""

    def __init__(self, base: int = 8) -> None:
        super().__init__()
        self.down1, self.down2 = _double(1, base), _double(base, 2 * base)
        self.bottom = _double(2 * base, 4 * base)
        self.pool = nn.MaxPool3d(2)
        self.up2 = nn.ConvTranspose3d(4 * base, 2 * base, 2, stride=2)
        self.merge2 = _double(4 * base, 2 * base)
        self.up1 = nn.ConvTranspose3d(2 * base, base, 2, stride=2)
        self.merge1 = _double(2 * base, base)
        self.head = nn.Conv3d(base, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        a = self.down1(x)
        b = self.down2(self.pool(a))
        c = self.bottom(self.pool(b))
        b = self.merge2(torch.cat([self.up2(c), b], 1))
        a = self.merge1(torch.cat([self.up1(b), a], 1))
        head: Tensor = self.head(a)
        return head


def _double(inputs: int, outputs: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv3d(inputs, outputs, 3, padding=1), nn.GroupNorm(4, outputs), nn.ReLU(),
        nn.Conv3d(outputs, outputs, 3, padding=1), nn.GroupNorm(4, outputs), nn.ReLU(),
    )  # fmt: skip


CASES = {
    case.name: case
    for case in (
        Case(name="mnist-256", network=mnist_cnn, shape=(1, 28, 28), classes=10, batch=256),
        Case(name="mnist-1800", network=mnist_cnn, shape=(1, 28, 28), classes=10, batch=1800),
        Case(name="cifar-64", network=cifar_cnn, shape=(3, 32, 32), classes=10, batch=64),
        Case(name="resnet8-128", network=resnet8, shape=(3, 32, 32), classes=10, batch=128),
        Case(name="mlp-512", network=mlp, shape=(1, 28, 28), classes=10, batch=512),
        Case(
            name="unet3d-4", network=UNet3d, shape=(1, 32, 32, 32), classes=2, batch=4,
            dense_targets=True,
        ),
        Case(name="bert-16", network=bert_mini, shape=(LENGTH,), words=WORDS, classes=2, batch=16),
        Case(
            name="gpt2-8", network=gpt2_mini, shape=(LENGTH,), words=WORDS, classes=WORDS, batch=8,
            dense_targets=True,
        ),
        Case(
            name="gpt2-lora-8", network=gpt2_lora, shape=(LENGTH,), words=WORDS, classes=WORDS,
            batch=8, dense_targets=True,
        ),
        Case(name="vit-32", network=vit_tiny, shape=(3, 32, 32), classes=10, batch=32),
    )
}  # fmt: skip
