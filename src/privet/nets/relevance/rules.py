"""The stabiliser rule as a modified gradient: what each layer does to relevance on its way back.

Write the relevance of a neuron as its value times a coefficient, R_p = p c_p. Then the rule of
eqs. 4-7, R_p = sum_m p W_pm / (z_m +- mu) R_m with R_m = z_m c_m, says

    c_p = sum_m W_pm  c_m  z_m / (z_m +- mu),

which is the gradient of the layer with one factor for each output. Between a sum z and its
activation y relevance does not change, so c_z = c_y y / z. Additions, reshapes, concatenations and
max pooling have the right coefficients already: those of the ordinary gradient. So relevance is one
backward pass with two kinds of nodes put in, whatever the network looks like.

Symbols: z a sum before its activation, y after it, c a coefficient, mu the stabiliser.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from privet import _check

TINY = 1e-20
"""Sums nearer to 0 count as this far from it, so that no division is by 0."""


@dataclass(frozen=True, kw_only=True)
class StabiliserRule:
    """The rule of eqs. 4-9: ratios of local to global sums, kept finite by `stabiliser` (mu).

    mu = 0 is allowed: then a sum near 0 has wild relevance. A larger mu takes more of it away.
    """

    stabiliser: float = 1e-2

    def __post_init__(self) -> None:
        _check.non_negative("stabiliser", self.stabiliser)


@dataclass
class Tally:
    """What biases and stabilisers took, one number a record; filled in by the backward pass."""

    taken: list[Tensor] = field(default_factory=list)

    def total(self, records: int) -> Tensor:
        """The sum over layers."""
        return sum(self.taken, start=torch.zeros(records, dtype=torch.float64))


class Stabilise(torch.autograd.Function):
    """The identity on sums z; backwards the coefficient is multiplied by z / (z +- mu).

    `offset` is the part of z that comes from no input (the bias), broadcast against z; it is only
    needed for the tally.
    """

    @staticmethod
    def forward(
        ctx: Any, z: Tensor, mu: float, offset: Tensor | float, tally: Tally | None
    ) -> Tensor:
        size = z.abs().clamp_(min=TINY)
        ctx.ratio = size.div_(size + max(mu, TINY))
        ctx.tally, ctx.offset = tally, offset
        if tally is not None:
            ctx.z = z.detach().clone()
        ctx.mark_dirty(z)
        return z

    @staticmethod
    def backward(ctx: Any, c: Tensor) -> tuple[Tensor, None, None, None]:
        scaled = c * ctx.ratio
        if ctx.tally is not None:
            z, b = ctx.z.double(), ctx.offset
            b = b.double() if isinstance(b, Tensor) else b
            took = z * c.double() - (z - b) * scaled.double()
            ctx.tally.taken.append(took.flatten(1).sum(1))
        return scaled, None, None, None


class Ratio(torch.autograd.Function):
    """The value y of an activation of z; backwards the coefficient is multiplied by y / z."""

    @staticmethod
    def forward(ctx: Any, z: Tensor, y: Tensor) -> Tensor:
        away = z.abs().clamp_(min=TINY)
        ctx.ratio = torch.where(z < 0, -away, away).reciprocal_().mul_(y)
        return y.detach().clone()

    @staticmethod
    def backward(ctx: Any, c: Tensor) -> tuple[Tensor, None]:
        return c * ctx.ratio, None


class Standardise(torch.autograd.Function):
    """(x - mean) / spread within groups, the spread held fixed: a linear map, so it has a rule.

    `x` has its groups in the second dimension: (records, groups, values).
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, eps: float) -> Tensor:
        variance, mean = torch.var_mean(x, dim=2, correction=0, keepdim=True)
        ctx.scale = variance.add_(eps).rsqrt_()
        out: Tensor = (x - mean) * ctx.scale
        return out

    @staticmethod
    def backward(ctx: Any, c: Tensor) -> tuple[Tensor, None]:
        return (c - c.mean(dim=2, keepdim=True)) * ctx.scale, None


class Scale(torch.autograd.Function):
    """x times a factor that is held fixed."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, factor: Tensor) -> Tensor:
        ctx.factor = factor
        return x * factor

    @staticmethod
    def backward(ctx: Any, c: Tensor) -> tuple[Tensor, None]:
        return c * ctx.factor, None
