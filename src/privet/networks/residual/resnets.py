"""The residual networks of He et al. for small pictures (depth 6n + 2), with perturbed blocks."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from privet import _check
from privet.errors import InvalidArgument
from privet.nets.residual.noise import Perturbation, ResidualNoise, Strategy


class ResNet(nn.Module):
    """Three stages of n residual blocks on 16, 32 and 64 channels: depth 6n + 2.

    x^0 = x + pi n; a convolution; then x^{i+1} = relu(x^i + F(x^i) + noise), and a dense layer on
    the channels' means. Where a stage halves the picture, the skip takes every second pixel and
    pads channels with zeros (option A of He et al.), so that skips have no parameters.

    - `depth`: 8, 14, 20, 32, 44, 56, 110, ...
    - `perturbation`: the blocks' noise; `input_noise`: pi, in training and in test.
    - `skip`: False leaves the skips out, x^{i+1} = relu(F(x^i) + noise): the paper's ablation.
    - `normalisation`: "batch", or "group" for training that must not mix examples.

    **Guarantee** none by itself; see `privet.methods.residual.budgets`.

    >>> net = ResNet(channels=1, classes=10, perturbation=Perturbation(gamma=0.5))
    >>> net(torch.zeros(2, 1, 28, 28)).shape, sum(p.numel() for p in net.parameters())
    (torch.Size([2, 10]), 75002)

    He, Zhang, Ren and Sun, "Deep Residual Learning" (2016), section 4.2; residual-perturbation,
    equations (6) and (8).
    """

    def __init__(
        self,
        *,
        channels: int = 3,
        classes: int = 10,
        depth: int = 8,
        width: int = 16,
        perturbation: Perturbation | None = None,
        input_noise: float = 0.0,
        skip: bool = True,
        normalisation: str = "batch",
    ) -> None:
        super().__init__()
        n, rest = divmod(_check.count("depth", depth, minimum=8) - 2, 6)
        if rest:
            raise InvalidArgument("depth", depth, "6n + 2, such as 8, 20, 32, 44, 56 or 110")
        law = Perturbation() if perturbation is None else perturbation
        self.channels = _check.count("channels", channels)
        self.noise = ResidualNoise(Perturbation(gamma=input_noise))
        self.stem = nn.Conv2d(channels, _check.count("width", width), 3, padding=1, bias=False)
        self.normalise = _normalisation(normalisation, width)
        blocks, before = [], width
        for stage in range(3):
            for i in range(n):
                after, stride = width * 2**stage, 2 if stage and not i else 1
                blocks.append(Block(before, after, stride, law, skip=skip, how=normalisation))
                before = after
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(before, _check.count("classes", classes))
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        x = self.noise(x, x)
        x = F.relu(self.normalise(self.stem(x)))
        logits: Tensor = self.head(self.blocks(x).mean((2, 3)))
        return logits


class Block(nn.Module):
    """relu(x + F(x) + noise), F two convolutions of 3x3 with normalisation."""

    def __init__(
        self, before: int, after: int, stride: int, law: Perturbation, *, skip: bool, how: str
    ) -> None:
        super().__init__()
        self.first = nn.Conv2d(before, after, 3, stride=stride, padding=1, bias=False)
        self.first_norm = _normalisation(how, after)
        self.second = nn.Conv2d(after, after, 3, padding=1, bias=False)
        self.second_norm = _normalisation(how, after)
        self.noise = ResidualNoise(law)
        self.stride, self.added, self.skip = stride, after - before, skip

    def forward(self, x: Tensor) -> Tensor:
        """The next features."""
        mapped = F.relu(self.first_norm(self.first(x)))
        mapped = self.second_norm(self.second(mapped))
        x = shortcut(x, stride=self.stride, added=self.added)
        total = x + mapped if self.skip else mapped
        return F.relu(self.noise(total, x))


def shortcut(x: Tensor, *, stride: int, added: int) -> Tensor:
    """Option A of He et al.: every `stride`-th pixel, and `added` channels of zeros.

    >>> shortcut(torch.ones(1, 2, 4, 4), stride=2, added=2).shape
    torch.Size([1, 4, 2, 2])
    """
    if stride > 1:
        x = x[:, :, ::stride, ::stride]
    return F.pad(x, (0, 0, 0, 0, 0, added)) if added else x


def resnet8(
    *,
    gamma: float = 0.0,
    strategy: Strategy = Strategy.ADDITIVE,
    channels: int = 3,
    classes: int = 10,
    seed: int = 0,
) -> ResNet:
    """The paper's network with pi = gamma / 2 (Strategy I; II has no input noise), from a seed."""
    gamma = _check.non_negative("gamma", gamma)
    pi = gamma / 2.0 if strategy is Strategy.ADDITIVE else 0.0
    with torch.random.fork_rng():
        torch.manual_seed(_check.count("seed", seed, minimum=0))
        return ResNet(
            channels=channels,
            classes=classes,
            perturbation=Perturbation(strategy=strategy, gamma=gamma),
            input_noise=pi,
        )


def _normalisation(how: str, channels: int) -> nn.Module:
    match how:
        case "batch":
            return nn.BatchNorm2d(channels)
        case "group":
            return nn.GroupNorm(max(1, channels // 4), channels)
        case _:
            raise InvalidArgument("normalisation", how, "batch or group")
