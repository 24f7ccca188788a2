"""Residual networks with pre-activated blocks, as equation (6) writes them.

Equation (6) has no activation behind the sum, so x^i + F(x^i) + gamma n goes on as it is. Blocks
that normalise and activate *inside* F have that form, and the released code of Wang, Shi and Osher
(2019), whose ensembles the paper takes over, has them. The sum is normalised only where the next
block reads it, and nothing fixes its scale, so that weights may outgrow an absolute gamma.
"""

from __future__ import annotations

from typing import final

import torch.nn.functional as F
from torch import Tensor, nn

from privet.errors import InvalidArgument
from privet.networks.residual import Perturbation, ResidualNoise


@final
class PreactivatedResNet(nn.Module):
    """Three stages of n blocks x + W_2 relu(N(W_1 relu(N(x)))) + noise: depth 6n + 2.

    The stem is a convolution alone; where a stage halves the picture the skip is a convolution of
    1x1. Settings are those of `privet.networks.residual.ResNet`.

    >>> import torch
    >>> PreactivatedResNet(channels=1, classes=10)(torch.zeros(2, 1, 28, 28)).shape
    torch.Size([2, 10])

    He, Zhang, Ren and Sun, "Identity Mappings in Deep Residual Networks" (2016).
    """

    def __init__(
        self, *, channels: int, classes: int, depth: int = 8, width: int = 16,
        perturbation: Perturbation | None = None, input_noise: float = 0.0, skip: bool = True,
        normalisation: str = "batch",
    ) -> None:  # fmt: skip
        super().__init__()
        if depth < 8 or depth % 6 != 2:
            raise InvalidArgument("depth", depth, "6n + 2, such as 8, 20, 32, 44, 56 or 110")
        law = Perturbation() if perturbation is None else perturbation
        self.noise = ResidualNoise(Perturbation(gamma=input_noise))
        self.stem = nn.Conv2d(channels, width, 3, padding=1, bias=False)
        blocks, before = [], width
        for stage in range(3):
            for i in range(depth // 6):
                after, stride = width * 2**stage, 2 if stage and not i else 1
                blocks.append(
                    PreactivatedBlock(before, after, stride, law, skip=skip, how=normalisation)
                )
                before = after
        self.blocks = nn.Sequential(*blocks)
        self.normalise = _normalisation(normalisation, before)
        self.head = nn.Linear(before, classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        """Logits of pictures."""
        x = self.blocks(self.stem(self.noise(x, x)))
        logits: Tensor = self.head(F.relu(self.normalise(x)).mean((2, 3)))
        return logits


@final
class PreactivatedBlock(nn.Module):
    """x + F(x) + noise, with normalisation and ReLU inside F."""

    def __init__(
        self, before: int, after: int, stride: int, law: Perturbation, *, skip: bool, how: str
    ) -> None:
        super().__init__()
        self.first_norm, self.second_norm = _normalisation(how, before), _normalisation(how, after)
        self.first = nn.Conv2d(before, after, 3, stride=stride, padding=1, bias=False)
        self.second = nn.Conv2d(after, after, 3, padding=1, bias=False)
        same = before == after and stride == 1
        self.shorter = None if same else nn.Conv2d(before, after, 1, stride=stride, bias=False)
        self.noise, self.skip = ResidualNoise(law), skip

    def forward(self, x: Tensor) -> Tensor:
        """The next features."""
        active = F.relu(self.first_norm(x))
        mapped = self.second(F.relu(self.second_norm(self.first(active))))
        kept = x if self.shorter is None else self.shorter(active)
        out: Tensor = self.noise(kept + mapped if self.skip else mapped, kept)
        return out


@final
class JointEnsemble(nn.Module):
    """En_k trained as one network: the members' outputs are averaged, as Wang et al. do.

    Members that are trained apart are averaged by their probabilities; see `Ensemble`.
    """

    def __init__(self, members: list[nn.Module]) -> None:
        super().__init__()
        self.members = nn.ModuleList(members)

    def forward(self, x: Tensor) -> Tensor:
        """The mean of the members' logits."""
        outputs = [member(x) for member in self.members]
        mean: Tensor = sum(outputs[1:], outputs[0]) / len(outputs)
        return mean


def _normalisation(how: str, channels: int) -> nn.Module:
    if how == "group":
        return nn.GroupNorm(max(1, channels // 4), channels)
    return nn.BatchNorm2d(channels)
