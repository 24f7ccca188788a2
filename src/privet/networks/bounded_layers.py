"""Layers that keep hidden values in [0, 1]: local response normalisation and min-max."""

from __future__ import annotations

from typing import final

import torch
from torch import Tensor, nn

from privet import _check
from privet.errors import InvalidArgument

_LARGEST = 1e18  # squares of larger ones are beyond single precision


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
        squares = h.clamp(max=_LARGEST).square().reshape(len(h), len(maps), -1)
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
        width = (high - low).clamp(min=1e-12)
        return ((h - low) / width).clamp(0.0, 1.0)
