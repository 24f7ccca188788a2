"""A convolutional autoencoder for maps of class probabilities, in two or three dimensions."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import final

import torch
from torch import Tensor, nn

from privet import _check
from privet.errors import InvalidArgument
from privet.networks.bounded_layers import UnitBall

_CONVOLUTION = {2: nn.Conv2d, 3: nn.Conv3d}
_TRANSPOSED = {2: nn.ConvTranspose2d, 3: nn.ConvTranspose3d}
_POOL = {2: nn.MaxPool2d, 3: nn.MaxPool3d}


@final
class ConvolutionalAutoencoder(nn.Module):
    """Maps (records, classes, *shape) to codes in the unit ball and back to logits.

    Encoder: 3-wide convolutions with ReLU, each followed by max-pooling to half the size (rounded
    up), then a dense layer and `UnitBall`. Decoder: a dense layer, then 3-wide convolutions with
    ReLU, each followed by a transposed convolution to twice the size (cut to the encoder's), then a
    1-wide convolution to one logit a class; a softmax over classes makes probabilities of them.

    **Guarantee** codes have length at most 1: see `UnitBall`.

    >>> net = ConvolutionalAutoencoder(shape=(9, 6), classes=3, dimension=4, widths=(4, 8))
    >>> maps = torch.rand(2, 3, 9, 6).softmax(dim=1)
    >>> net.encode(maps).shape, net.decode(net.encode(maps)).shape
    (torch.Size([2, 4]), torch.Size([2, 3, 9, 6]))

    Fay, Sjoelund and Oechtering (2020), section "Nonlinear dimensionality reduction in PATE".
    """

    def __init__(
        self,
        *,
        shape: tuple[int, ...],
        classes: int,
        dimension: int,
        widths: tuple[int, ...] = (8, 16, 32),
    ) -> None:
        super().__init__()
        if len(shape) not in _CONVOLUTION:
            raise InvalidArgument("shape", shape, "two or three sizes in space")
        if not widths:
            raise InvalidArgument("widths", widths, "at least one number of feature maps")
        self.shape = tuple(_check.count("shape", n) for n in shape)
        self.classes = _check.count("classes", classes, minimum=2)
        self.dimension = _check.count("dimension", dimension)
        self.widths = tuple(_check.count("widths", w) for w in widths)
        d = len(shape)
        sizes = [self.shape]
        for _ in widths:
            sizes.append(tuple((n + 1) // 2 for n in sizes[-1]))
        self.sizes = sizes
        channels = (self.classes, *self.widths)
        self.down = nn.ModuleList(
            _CONVOLUTION[d](a, b, 3, padding=1) for a, b in pairwise(channels)
        )
        self.pool = _POOL[d](2, ceil_mode=True)
        flat = self.widths[-1] * math.prod(sizes[-1])
        self.narrow = nn.Linear(flat, self.dimension + 1)
        self.ball = UnitBall()
        self.wide = nn.Linear(self.dimension, flat)
        back = (*self.widths[::-1], self.widths[0])
        self.mix = nn.ModuleList(_CONVOLUTION[d](w, w, 3, padding=1) for w in back[:-1])
        self.up = nn.ModuleList(_TRANSPOSED[d](a, b, 2, stride=2) for a, b in pairwise(back))
        self.logits = _CONVOLUTION[d](self.widths[0], self.classes, 1)

    def encode(self, maps: Tensor) -> Tensor:
        """(records, classes, *shape) to (records, dimension), of length at most 1."""
        x = maps
        for convolution in self.down:
            x = self.pool(convolution(x).relu())
        code: Tensor = self.ball(self.narrow(x.flatten(1)))
        return code

    def decode(self, codes: Tensor) -> Tensor:
        """(records, dimension) to logits (records, classes, *shape)."""
        x = self.wide(codes).reshape(len(codes), self.widths[-1], *self.sizes[-1])
        for mix, up, size in zip(self.mix, self.up, self.sizes[-2::-1], strict=True):
            x = up(mix(x).relu())[(..., *(slice(n) for n in size))]
        out: Tensor = self.logits(x)
        return out

    def forward(self, maps: Tensor, noise: float = 0.0) -> Tensor:
        """Logits after a round trip, with normal noise on the codes."""
        codes = self.encode(maps)
        return self.decode(codes + noise * torch.randn_like(codes))
