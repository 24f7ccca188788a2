"""Noise at the addition of a residual block: additive (Strategy I) or multiplicative (II)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any, Self, final

import torch
from torch import Tensor, nn

from privet import _check

Draw = Callable[[Tensor], Tensor]
"""Standard normal numbers in the shape of a tensor."""


class Strategy(Enum):
    """What the noise of a block is multiplied with."""

    ADDITIVE = "additive"
    """gamma n: Strategy I, equation (6)."""
    MULTIPLICATIVE = "multiplicative"
    """gamma x~ (.) n: Strategy II, equation (8)."""


@final
@dataclass(frozen=True, kw_only=True)
class Perturbation:
    """What every block of a network does: x -> x + F(x) + gamma n, or + gamma x~ (.) n.

    - `gamma`: absolute, never scaled by a statistic of the data; 0 is the plain network, bit for
      bit, and draws nothing.
    - `floor`: eta; multiplicative noise uses x~_j = sgn(x_j) max(|x_j|, eta).
    - `cached`: draw once for each block and shape, and use that for every example and call (one
      realisation of the equation); otherwise noise is new for each example and call.

    **Guarantee** none: inside a network this noise regularises. It is drawn from torch's generator
    (`torch.manual_seed` repeats it), not from `privet.noise`.

    >>> Perturbation(gamma=0.5).strategy
    <Strategy.ADDITIVE: 'additive'>
    """

    strategy: Strategy = Strategy.ADDITIVE
    gamma: float = 0.0
    floor: float = 0.0
    cached: bool = False

    def __post_init__(self) -> None:
        _check.non_negative("gamma", self.gamma)
        _check.non_negative("floor", self.floor)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready; `from_dict` reads it back."""
        return {**asdict(self), "strategy": self.strategy.value}

    @classmethod
    def from_dict(cls, d: Mapping[str, Any]) -> Self:
        """The inverse of `to_dict`.

        >>> Perturbation.from_dict(Perturbation(gamma=0.5).to_dict()).gamma
        0.5
        """
        return cls(**{**d, "strategy": Strategy(d["strategy"])})


@final
class ResidualNoise(nn.Module):
    """The noise of one block, in training and in test.

    `forward(total, skip)` takes x + F(x) and x and returns x + F(x) + noise. It has no parameters
    and no buffers, so that state dictionaries of plain and perturbed networks are the same.

    >>> block = ResidualNoise(Perturbation(gamma=0.0))
    >>> x = torch.ones(2, 3)
    >>> block(x, x) is x
    True
    """

    def __init__(self, law: Perturbation, draw: Draw | None = None) -> None:
        super().__init__()
        self.law = law
        self.draw = standard_normal if draw is None else draw
        self._kept: dict[tuple[int, ...], Tensor] = {}

    def forward(self, total: Tensor, skip: Tensor) -> Tensor:
        """x + F(x) with its noise."""
        law = self.law
        if law.gamma == 0.0:
            return total
        noise = self._cached(total) if law.cached else self.draw(total)
        if law.strategy is Strategy.ADDITIVE:
            return torch.add(total, noise, alpha=law.gamma)
        return torch.addcmul(total, away_from_zero(skip, law.floor), noise, value=law.gamma)

    def redraw(self) -> None:
        """Forget cached noise; the next call draws anew."""
        self._kept.clear()

    def _cached(self, total: Tensor) -> Tensor:
        shape = tuple(total.shape[1:])
        if shape not in self._kept:
            self._kept[shape] = self.draw(total[:1].detach())
        return self._kept[shape].expand_as(total)

    def extra_repr(self) -> str:
        """What `print(model)` shows."""
        return f"{self.law.strategy.value}, gamma={self.law.gamma:g}"


def standard_normal(like: Tensor) -> Tensor:
    """Normal numbers in the shape and layout of a tensor, from torch's generator.

    The law of `torch.randn_like`, eight times as fast for channels-last pictures: the memory is
    filled in its own order.
    """
    out = torch.empty_like(like)  # dense, whatever `like` is
    out.as_strided((out.numel(),), (1,)).normal_()
    return out


def away_from_zero(x: Tensor, floor: float) -> Tensor:
    """x~_j = sgn(x_j) max(|x_j|, eta), with sgn(0) = 1.

    >>> away_from_zero(torch.tensor([-3.0, -0.1, 0.0, 2.0]), 0.5).tolist()
    [-3.0, -0.5, 0.5, 2.0]
    """
    if floor == 0.0:
        return x
    return torch.where(x < 0.0, x.clamp(max=-floor), x.clamp(min=floor))


def noise_modules(model: nn.Module) -> Iterator[ResidualNoise]:
    """Every place of a network where noise is added, in the order of its modules."""
    return (m for m in model.modules() if isinstance(m, ResidualNoise))


def redraw(model: nn.Module) -> None:
    """Make every block of the network forget its cached noise."""
    for module in noise_modules(model):
        module.redraw()
