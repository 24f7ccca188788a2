"""Residual networks with perturbed blocks, for pictures and for tables, and ensembles of them."""

from __future__ import annotations

from collections.abc import Iterable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from privet import _check
from privet.errors import InvalidArgument
from privet.networks.residual.perturbation import (
    Perturbation,
    ResidualNoise,
    Strategy,
    standard_normal,
)


class ResNet(nn.Module):
    """Three stages of n residual blocks on 16, 32 and 64 channels: depth 6n + 2.

    x^0 = x + pi n; a convolution; then x^{i+1} = relu(x^i + F(x^i) + noise), and a dense layer on
    the channels' means. Where a stage halves the picture, the skip takes every second pixel and
    pads channels with zeros (option A of He et al.), so that skips have no parameters.

    - `depth`: 8, 14, 20, 32, 44, 56, 110, ...
    - `perturbation`: the blocks' noise; `input_noise`: pi, in training and in test.
    - `skip`: False leaves the skips out, x^{i+1} = relu(F(x^i) + noise): the paper's ablation.
    - `normalisation`: "batch", or "group" for training that must not mix examples.

    **Guarantee** none by itself; see `privet.methods.noisy_inputs.served_model`.

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
                blocks.append(ResNetBlock(before, after, stride, law, skip=skip, how=normalisation))
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


class ResNetBlock(nn.Module):
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


class PictureResNet(nn.Module):
    """A ResNet that takes pictures (height, width) or (height, width, colours), or rows of them.

    >>> import torch
    >>> PictureResNet(shape=(8, 8), classes=3)(torch.zeros(2, 64)).shape
    torch.Size([2, 3])
    """

    def __init__(
        self,
        *,
        shape: tuple[int, ...],
        classes: int,
        depth: int = 8,
        perturbation: Perturbation | None = None,
    ) -> None:
        super().__init__()
        if len(shape) not in (2, 3):
            raise InvalidArgument("shape", shape, "(height, width) or (height, width, colours)")
        law = Perturbation() if perturbation is None else perturbation
        self.description = {
            "name": "Pictures", "shape": list(shape), "classes": classes, "depth": depth,
            "perturbation": law.to_dict(),
        }  # fmt: skip
        self.shape = (*shape, 1) if len(shape) == 2 else tuple(shape)
        self.net = ResNet(channels=self.shape[2], classes=classes, depth=depth, perturbation=law)

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        pictures = x.reshape(-1, *self.shape).permute(0, 3, 1, 2).contiguous()
        logits: Tensor = self.net(pictures)
        return logits


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


class Ensemble(nn.Module):
    """The mean of members' probabilities over `noise_draws` draws; gives its logarithm.

    Members are trained by themselves (the paper does not say; Wang, Shi and Osher 2019, whom it
    follows, train them together). `input_noise` is added to what members are asked, at each draw.

    >>> net = Ensemble([nn.Linear(2, 3), nn.Linear(2, 3)])
    >>> net(torch.zeros(4, 2)).exp().sum(1).round(decimals=5).tolist()
    [1.0, 1.0, 1.0, 1.0]
    """

    def __init__(
        self, members: Iterable[nn.Module], *, input_noise: float = 0.0, noise_draws: int = 1
    ) -> None:
        super().__init__()
        self.members = nn.ModuleList(members)
        if not len(self.members):
            raise InvalidArgument("members", 0, "at least one network")
        self.input_noise = _check.non_negative("input_noise", input_noise)
        self.noise_draws = _check.count("noise_draws", noise_draws)

    def forward(self, x: Tensor) -> Tensor:
        """Logarithms of the averaged probabilities."""
        answers = []
        for _ in range(self.noise_draws):
            for member in self.members:
                inputs = x
                if self.input_noise > 0.0:
                    inputs = torch.add(x, standard_normal(x), alpha=self.input_noise)
                answers.append(member(inputs).log_softmax(1))
        total = torch.stack(answers).logsumexp(0)
        return total - torch.log(torch.tensor(float(len(answers))))


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


def shortcut(x: Tensor, *, stride: int, added: int) -> Tensor:
    """Option A of He et al.: every `stride`-th pixel, and `added` channels of zeros.

    >>> shortcut(torch.ones(1, 2, 4, 4), stride=2, added=2).shape
    torch.Size([1, 4, 2, 2])
    """
    if stride > 1:
        x = x[:, :, ::stride, ::stride]
    return F.pad(x, (0, 0, 0, 0, 0, added)) if added else x


def _normalisation(how: str, channels: int) -> nn.Module:
    match how:
        case "batch":
            return nn.BatchNorm2d(channels)
        case "group":
            return nn.GroupNorm(max(1, channels // 4), channels)
        case _:
            raise InvalidArgument("normalisation", how, "batch or group")
