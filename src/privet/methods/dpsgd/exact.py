"""Arithmetic that gives the same bits on every processor, wherever a number stands in a tensor.

Addition, subtraction, multiplication, division, square roots and rounding to an integer are fixed
by IEEE 754, number by number. Library exponentials are not (their vectors and their tails differ),
nor are reductions (their order depends on the place), so both are written out here.

**Assumes** float64 with rounding to nearest, operation by operation: torch evaluates one operation
at a time, so nothing is contracted.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

_LOG2_E = 1.4426950408889634
_LN2_HIGH = 0.6931471803691238  # 32 bits, so that k times it is exact
_LN2_LOW = 1.9082149292705877e-10
_MIDDLE = 1.5 * 2.0**52
_TERMS = 14


def exp(x: Tensor) -> Tensor:
    """e^x for x <= 0 (float64), within 2^-50 of itself; zero below -700.

    x = k ln 2 + r with |r| <= ln 2 / 2; e^r by its Taylor polynomial, and 2^k by exact scaling.

    >>> float(exp(torch.tensor([-1.0], dtype=torch.float64))) == math.exp(-1.0)
    True
    """
    held = x.clamp(min=-700.0)
    k = ((held * _LOG2_E) + _MIDDLE) - _MIDDLE
    r = (held - k * _LN2_HIGH) - k * _LN2_LOW
    p = torch.full_like(r, 1.0 / math.factorial(_TERMS))
    for n in range(_TERMS - 1, -1, -1):
        p = p.mul_(r).add_(1.0 / math.factorial(n))
    return p.mul_(_two_to(k.to(torch.int64))).masked_fill_(x < -700.0, 0.0)


def _two_to(k: Tensor) -> Tensor:
    """2^k from its bits, for -1022 <= k <= 1023: a library's power may be off."""
    return ((k + 1023) << 52).view(torch.float64)


def total(t: Tensor) -> Tensor:
    """Sums over the first axis, halving it again and again: one order, for every column alike.

    >>> total(torch.tensor([[1.0], [2.0], [3.0]]))
    tensor([6.])
    """
    while len(t) > 1:
        half = len(t) // 2
        pairs = t[:half] + t[half : 2 * half]
        t = pairs if len(t) % 2 == 0 else torch.cat([pairs, t[2 * half :]])
    return t[0]


def to_grid(t: Tensor, spacing: float) -> Tensor:
    """The nearest multiples of a power of two, halves to even."""
    return (t / spacing).round_().mul_(spacing)


def power_of_two_above(t: Tensor) -> Tensor:
    """The least power of two that is larger than t >= 0 (1 for zero), from its exponent.

    >>> power_of_two_above(torch.tensor([0.0, 0.75, 1.0, 3.0], dtype=torch.float64)).tolist()
    [1.0, 1.0, 2.0, 4.0]
    """
    exponent = torch.frexp(t).exponent.to(torch.int64)
    return _two_to(exponent.masked_fill(t == 0, 0))
