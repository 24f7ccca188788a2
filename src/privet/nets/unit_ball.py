"""An activation that maps onto the unit ball, whatever comes in."""

from __future__ import annotations

import math
from typing import final

import torch
from torch import Tensor, nn

from privet.errors import InvalidArgument

_STEEPNESS = math.sqrt(8.0 / math.pi)


@final
class UnitBall(nn.Module):
    """l + 1 numbers to a point of the l-dimensional unit ball, nearly uniform for normal inputs.

    phi(o_0, ..., o_l) = (1 + exp(-o_0 sqrt(8/pi)))^(-1/l) o_{1:l} / ||o_{1:l}||. The direction of
    normal inputs is uniform on the sphere; the logistic function of o_0 sqrt(8/pi) is close to the
    normal distribution function (never more than .018 off), and U^(1/l) is the law of the radius.

    **Guarantee** ||phi|| <= 1 in exact arithmetic on the returned numbers, for float64, float32,
    float16 and bfloat16 and *any* input: *enforced*. The printed formula is computed in float64 and
    made shorter by one part in 1/eps of the returned type, more than rounding can add. A direction
    of length zero gives the centre; infinities count as the largest number of their type, NaN as 0.

    **Assumes** nothing.

    >>> ball = UnitBall()
    >>> ball(torch.tensor([[0.0, 3.0, 4.0]])).norm().round(decimals=4).item()  # (1/2)^(1/2)
    0.707099974155426
    >>> ball(torch.tensor([[float("inf"), float("inf"), 0.0], [1.0, 0.0, 0.0]])).round(decimals=4)
    tensor([[1., 0.],
            [0., 0.]])

    Fay, Sjoelund and Oechtering, "Private Learning for High-Dimensional Targets with PATE" (2020),
    section "Nonlinear dimensionality reduction in PATE" and appendix.
    """

    def forward(self, o: Tensor) -> Tensor:
        """Map (..., l + 1) to (..., l)."""
        if o.dim() < 1 or o.shape[-1] < 2:
            raise InvalidArgument("o", tuple(o.shape), "of shape (..., l + 1) with l at least 1")
        dimension = o.shape[-1] - 1
        largest = torch.finfo(o.dtype).max
        wide = torch.nan_to_num(o, nan=0.0, posinf=largest, neginf=-largest).double()
        radius = (nn.functional.logsigmoid(_STEEPNESS * wide[..., :1]) / dimension).exp()
        direction = wide[..., 1:]
        # dividing by the largest entry first keeps squares from overflowing or vanishing; the
        # result does not depend on it, so no gradient flows through it
        scale = direction.detach().abs().amax(dim=-1, keepdim=True)
        scale = torch.where(scale == 0.0, torch.ones_like(scale), scale)
        direction = direction / scale
        length = direction.square().sum(dim=-1, keepdim=True)
        length = torch.where(length == 0.0, torch.ones_like(length), length).sqrt()
        shorter = 1.0 - torch.finfo(o.dtype).eps - (dimension + 16) * 2.0**-52
        return (direction / length * (radius * shorter)).to(o.dtype)
