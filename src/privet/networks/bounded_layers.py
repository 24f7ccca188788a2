"""Layers with bounded outputs: local response normalisation, min-max, the unit ball."""

from __future__ import annotations

import math
from typing import final

import torch
from torch import Tensor, nn

from privet import _check
from privet.errors import InvalidArgument

_LARGEST = 1e18  # float32 ends at 3.4e38: squares of larger values would be infinite
_STEEPNESS = math.sqrt(8.0 / math.pi)  # the logistic curve of this slope meets the normal one at 0


@final
class LocalResponseNorm(nn.Module):
    """Local response normalisation over neighbouring feature maps, as the paper writes it.

    y^k = h^k / max(h^k, (q + alpha sum_m (h^m)^2)^beta), the sum over the window of maps
    max(0, k - l/2) to min(N-1, k + l/2), l/2 rounded down. For h >= 0 (after a ReLU) and q >= 1 the
    result lies in [0, 1]: the divisor is at least h and at least 1. It is not torch's
    `LocalResponseNorm`, which has no maximum, divides alpha by l and starts from 1.

    **Guarantee** none about privacy. 0 <= y <= 1 for 0 <= h, whatever the weights: *enforced*.

    **Assumes** h >= 0, as the paper does; negative values are not bounded below, so put it after a
    ReLU.

    >>> layer = LocalResponseNorm()
    >>> layer(torch.tensor([[[[0.0]], [[1.0]], [[50.0]]]])).flatten().round(decimals=4).tolist()
    [0.0, 0.5443000197410583, 1.0]

    Adaptive Laplace Mechanism, eq. 22 (q = 2, l = 5, alpha = 1e-4, beta = .75).
    """

    def __init__(
        self, *, q: float = 2.0, size: int = 5, alpha: float = 1e-4, beta: float = 0.75
    ) -> None:
        super().__init__()
        self.q = _check.positive("q", q)
        if self.q < 1.0:
            raise InvalidArgument("q", q, "at least 1, or small values are not bounded by 1")
        self.size = _check.count("size", size)
        self.alpha = _check.non_negative("alpha", alpha)
        self.beta = _check.positive("beta", beta)

    def forward(self, h: Tensor) -> Tensor:
        """Normalise (records, maps, ...)."""
        if h.dim() < 2:
            raise InvalidArgument("h", tuple(h.shape), "of shape (records, maps, ...)")
        maps = torch.arange(h.shape[1], device=h.device)
        near = ((maps[:, None] - maps).abs() <= self.size // 2).to(h.dtype)
        pixels = math.prod(h.shape[2:])  # said, since no records leave no size to infer
        squares = h.clamp(max=_LARGEST).square().reshape(len(h), len(maps), pixels)
        window = (near @ squares).reshape(h.shape)
        return (h * (self.q + self.alpha * window).pow(-self.beta)).clamp(max=1.0)


@final
class MinMax(nn.Module):
    """Each neuron scaled by its smallest and largest value: (h - low) / (high - low), in [0, 1].

    The paper reads low and high off the batch that is being trained on. So do we in training, and a
    running range (the widest seen in training) serves in evaluation.

    **Guarantee** none: the range is read from the data, so one record moves all the others. It is
    here to build the paper's networks, and `mixes_records` says what it does.

    >>> layer = MinMax(1)
    >>> layer(torch.tensor([[1.0], [3.0], [2.0]])).flatten().tolist()
    [0.0, 1.0, 0.5]
    >>> layer.eval()(torch.tensor([[5.0], [2.0]])).flatten().tolist()
    [1.0, 0.5]

    Adaptive Laplace Mechanism, section III-B (dense layers).
    """

    low: Tensor
    high: Tensor
    mixes_records = True

    def __init__(self, features: int) -> None:
        super().__init__()
        k = _check.count("features", features)
        self.register_buffer("low", torch.full((k,), torch.inf))
        self.register_buffer("high", torch.full((k,), -torch.inf))

    def forward(self, h: Tensor) -> Tensor:
        """Normalise (records, neurons)."""
        if self.training:
            low, high = h.detach().amin(0), h.detach().amax(0)
            torch.minimum(self.low, low, out=self.low)
            torch.maximum(self.high, high, out=self.high)
        else:
            low, high = self.low, self.high
        width = (high - low).clamp(min=1e-12)  # a neuron that never moved: 0/0 is 0
        return ((h - low) / width).clamp(0.0, 1.0)


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
        # room for the rounding to the output's precision, and of norm and quotient in float64
        shorter = 1.0 - torch.finfo(o.dtype).eps - (dimension + 16) * 2.0**-52
        return (direction / length * (radius * shorter)).to(o.dtype)
