"""How far a sum in floating point can be from the exact one, whatever the order: proved bounds.

The proofs are in docs/theory/summation.md. Symbols: u the unit roundoff (2^-24 in float32, 2^-53 in
float64), K the number of terms, C the norm that no term exceeds.
"""

from __future__ import annotations

import math

import torch

# Rows of a matrix product that are added up in float32; blocks are added up in float64. Longer ones
# are cheaper (1.27, 1.22, 1.19 plain steps with 128, 256, 512 for the benchmark's MLP), but leave
# more rounding for the noise to cover: .0011, .0046, .018 (docs/theory/summation.md).
BLOCK_ROWS = 256
# Pixels, and examples, of a block of a convolution's contraction: as long as the rows above, of few
# examples, since the bound grows with the root of their number.
BLOCK_PIXELS, BLOCK_IMAGES = 256, 4
# R: norms below (sum_p ||g_p||^2 ||U_p||^2)^(1/2) over R count as that where one contracts. The
# bound grows with R, while a small R would clip examples that cancel no more than usual.
CANCELLING = 4.0
# Inputs and output gradients of a layer with a larger squared norm count as not finite, where they
# are multiplied in float32: weighted ones would fall below its normal numbers (from 2^-126 on).
LARGEST_SQUARE = 2.0**80

# More than these formulas are rounded by themselves: 2^13 roundings.
_FORMULA = 1.0 + 2.0**-40
# The unit roundoff: half the distance from 1 to the next number.
UNIT = {torch.float32: 2.0**-24, torch.float64: 2.0**-53}


def any_order(terms: int, unit: float) -> float:
    """E with ||computed - sum|| <= E C, for K products a_ij b_ij added in any order, FMA or not.

    Every coordinate may be added along a tree of its own. A leaf at depth d is rounded at most d+1
    times (its product, and every sum above it), so coordinate j is off by at most
    sum_i gamma_(d_ij + 1) |c_ij|. By Cauchy-Schwarz over i, with the caterpillar as the deepest of
    trees, the squared error is at most sum_i gamma_(d_i + 1)^2 sum_i ||c_i||^2.

    >>> round(any_order(256, 2.0**-24), 6)
    0.002275
    >>> any_order(1, 2.0**-24) <= 2.0**-24 * (1 + 1e-6)
    True
    """
    return math.sqrt(terms) * _longest_chain(terms, unit)


def any_order_of_pixels(pixels: int, examples: int, unit: float) -> float:
    """The same for products of `pixels` pixels of so many examples, with Q_i <= R C for each.

    Here sum_ip ||leaf_ip||^2 = sum_i w_i^2 Q_i^2 takes the place of sum_i ||c_i||^2.

    >>> round(any_order_of_pixels(256, 4, 2.0**-24), 6)
    0.001138
    """
    return CANCELLING * math.sqrt(examples) * _longest_chain(pixels, unit)


def _longest_chain(terms: int, unit: float) -> float:
    """The root of sum_i gamma_(d_i + 1)^2 over the leaves of the deepest tree."""
    if terms <= 0:
        return 0.0
    rounded = [*range(2, terms + 1), terms]  # depths 1, ..., K-1, K-1, and one for the product
    squares = math.fsum(_gamma(r, unit) ** 2 for r in rounded)
    return math.sqrt(squares) * _FORMULA


def in_sequence(additions: float, terms: float, unit: float) -> float:
    """E with ||computed - sum|| <= E C, where no term is rounded more than `additions` times.

    The cruder gamma_a sum_i ||c_i||, for float64, where it is small enough.

    >>> in_sequence(1000, 60_000, 2.0**-53) < 1e-8
    True
    """
    return _gamma(additions, unit) * terms * _FORMULA


def _gamma(k: float, unit: float) -> float:
    """An upper bound of (1 + u)^k - 1, what k roundings do: k u / (1 - k u)."""
    if k * unit >= 0.5:
        return math.inf
    return k * unit / (1.0 - k * unit)
