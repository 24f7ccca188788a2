"""A residual network with bounded mappings, and what one answer of it costs (Strategy II)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor, nn

from privet import _check
from privet import accounting as losses
from privet.errors import InvalidArgument
from privet.guarantee import Adjacency
from privet.mechanisms.mechanism import ratio_up
from privet.networks.residual import Perturbation, ResidualNoise, Strategy
from privet.networks.residual.perturbation import standard_normal
from privet.networks.residual.resnets import shortcut
from privet.noise import Source
from privet.noise.torch_noise import gaussian_

_UP = 1.0 + 2.0**-16  # margin of float32 norms and products: 2^8 units of their last place
_ROUND_UP = 1.0 + 2.0**-40  # margin of products and roots of float64


@final
@dataclass(frozen=True, kw_only=True)
class QueryCost:
    """What one answer of a model with multiplicative noise (Strategy II) really costs.

    Given x^i, two training sets move x^{i+1} by at most 2B in L2 while each coordinate has noise of
    at least gamma eta; the last layer moves by 2 a ||x^M|| under noise pi ||x^M||. As M + 1
    adaptive Gaussian releases,
        mu = 2 sqrt(M B^2 / (gamma eta)^2 + a^2 / pi^2),
    and k answers cost sqrt(k) mu.

    **Guarantee** for any two training sets, however different: a fortiori for neighbours.

    **Assumes** what `QueryNet` enforces: mappings clipped to B,
    ||W|| <= a, nothing else trained.

    >>> QueryCost(mappings=4, bound=1.0, floor=1.0, gamma=4.0, last=1.0, output_noise=4.0).mu
    1.118...
    """

    mappings: int
    bound: float
    floor: float
    gamma: float
    last: float
    output_noise: float

    def __post_init__(self) -> None:
        _check.count("mappings", self.mappings)
        for name in ("bound", "floor", "gamma", "last", "output_noise"):
            _check.positive(name, getattr(self, name))

    @property
    def mu(self) -> float:
        """The Gaussian mu of one answer."""
        block = ratio_up(self.bound * _ROUND_UP, self.gamma * self.floor)
        head = ratio_up(self.last * _ROUND_UP, self.output_noise)
        return 2.0 * math.sqrt(self.mappings * block**2 + head**2) * _ROUND_UP

    def loss(
        self, queries: int = 1, *, adjacency: Adjacency = Adjacency.ADD_REMOVE
    ) -> losses.Gaussian:
        """What so many answers cost."""
        one = losses.Gaussian(mu=self.mu, adjacency=adjacency)
        return one.repeat(_check.count("queries", queries))


def _mapping(before: int, after: int, stride: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(before, after, 3, stride=stride, padding=1, bias=False),
        nn.BatchNorm2d(after),
        nn.ReLU(),
        nn.Conv2d(after, after, 3, padding=1, bias=False),
        nn.BatchNorm2d(after),
    )


class QueryNet(nn.Module):
    """A residual network in which every trained part is bounded, as Strategy II's proof needs.

    x^0 is the input, its channels padded with zeros; x^{i+1} = s(x^i) + clip_B(F_i(x^i)) + gamma x~
    (.) n with s the parameter-free skip of He et al.; the output is W h + pi ||h|| n with h the
    channels' means of x^M (and no bias), ||W||_F <= a. In training as in use.

    Anything that the data could shape sits inside F_i (held to L2 norm B for each example) or in W:
    that is what `QueryCost` counts. BatchNorm inside F_i is therefore allowed.

    >>> net = QueryNet(channels=1, classes=10, bound=8.0, floor=0.5, gamma=2.0, last=4.0,
    ...                output_noise=1.0)
    >>> net(torch.zeros(2, 1, 8, 8)).shape, net.cost.mappings
    (torch.Size([2, 10]), 4)

    residual-perturbation, F_2 and equation (10), with projections and biases left out.
    """

    def __init__(
        self,
        *,
        channels: int,
        classes: int,
        bound: float,
        floor: float,
        gamma: float,
        last: float,
        output_noise: float,
        widths: Sequence[int] = (16, 16, 32, 64),
    ) -> None:
        super().__init__()
        self.cost = QueryCost(
            mappings=len(widths),
            bound=bound,
            floor=floor,
            gamma=gamma,
            last=last,
            output_noise=output_noise,
        )
        law = Perturbation(strategy=Strategy.MULTIPLICATIVE, gamma=gamma, floor=floor)
        self.added, self.strides = [], []
        blocks, before = [], _check.count("channels", channels)
        for i, after in enumerate(widths):
            if after < before:
                raise InvalidArgument("widths", tuple(widths), f"not below {before} channels")
            stride = 2 if i and after > before else 1
            blocks.append(_mapping(before, after, stride))
            self.added.append(after - before)
            self.strides.append(stride)
            before = after
        self.blocks = nn.ModuleList(blocks)
        self.noises = nn.ModuleList(ResidualNoise(law) for _ in widths)
        self.weight = nn.Parameter(
            torch.randn(_check.count("classes", classes), before) / before**0.5
        )
        self.source: Source | None = None

    def forward(self, x: Tensor) -> Tensor:
        """Noisy logits."""
        for block, noise, stride, added in zip(
            self.blocks, self.noises, self.strides, self.added, strict=True
        ):
            skip = shortcut(x, stride=stride, added=added)
            x = noise(skip + _clip_examples(block(x), self.cost.bound), skip)
        h = x.mean((2, 3))
        size = h.norm(dim=1, keepdim=True)
        weight = self.weight * (self.cost.last / _UP / self.weight.norm()).clamp(max=1.0)
        logits = h @ weight.t()
        noisy: Tensor = logits + self.cost.output_noise * size * self.draw(logits)
        return noisy

    def draw(self, like: Tensor) -> Tensor:
        """Normal noise: from the secret source when there is one, from torch in training."""
        if self.source is None:
            return standard_normal(like)
        return gaussian_(torch.empty(like.shape, dtype=like.dtype), 1.0, self.source)

    def use(self, source: Source) -> None:
        """From now on draw all noise from this source."""
        self.source = source
        for module in self.noises:
            assert isinstance(module, ResidualNoise)
            module.draw = self.draw


def _clip_examples(x: Tensor, bound: float) -> Tensor:
    """Each example scaled down to L2 norm `bound`, a NaN or infinite one to 0."""
    size = x.flatten(1).norm(dim=1).view(-1, 1, 1, 1)
    scaled = x * (bound / _UP / size.clamp(min=bound / _UP))
    return torch.where(torch.isfinite(size), scaled, torch.zeros_like(x))
