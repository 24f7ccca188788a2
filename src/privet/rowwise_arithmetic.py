"""Arithmetic on rows whose result is a function of the row alone, on every processor.

A matrix product is rounded by the order in which its terms are added. That order is the library's
affair: it changes with the number of rows, with the place of a row among the others and with the
processor. One unit in the last place is enough to break a guarantee, because rows are cut to a grid
afterwards and the cut makes a whole step of it, for as many records as an attacker likes.

Two ways around it are here, and nothing else is used on private rows:

- **Products without rounding** (`Product`). Both factors lie on dyadic grids s Z and t Z, chosen so
  that sum_j |x_j| |m_jk| <= 2^53 s t for every column k. Then every product and every partial sum,
  in any order and any grouping, fused or not, is a multiple of st of at most 2^53 st: a float64. No
  operation rounds, so all orders agree.
- **Sums in one order** (`row_sums`). Additions of whole arrays, element by element, in an order
  that is fixed by the number of columns.

Everything else is done element by element with +, -, *, /, square root, maximum and comparison,
which IEEE 754 rounds correctly: vector units and their scalar tails agree to the last bit. The
proof is in docs/theory/rows.md.

**Assumes** of the processor: IEEE 754 double precision, rounding to nearest; of the library: that
a matrix product is a sum of products of entries (not Strassen's).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from privet.errors import InvalidArgument

Array = NDArray[np.float64]

MANTISSA = 53
"""Whole numbers up to 2^53 are float64 numbers."""
_BLOCK = 2**19  # entries of a block of rows: 4 MB, to bound what is held at a time


def row_blocks(rows: int, columns: int, *, numbers: int = 2**20) -> Iterator[slice]:
    """Slices of so many rows that a block holds about `numbers` numbers (8 MB in float64).

    Memory of this size is used again from block to block; larger is given back to the system.

    >>> list(row_blocks(5, 10, numbers=20))
    [slice(0, 2, None), slice(2, 4, None), slice(4, 6, None)]
    """
    size = max(1, numbers // max(1, columns))
    for start in range(0, rows, size):
        yield slice(start, start + size)


def power_of_two_at_least(value: float) -> float:
    """The smallest power of two of at least `value` > 0.

    >>> power_of_two_at_least(0.3), power_of_two_at_least(4.0)
    (0.5, 4.0)
    """
    mantissa, exponent = math.frexp(value)
    return math.ldexp(1.0, exponent - 1 if mantissa == 0.5 else exponent)


def round_to_grid(values: NDArray[Any], step: float, *, out: Array | None = None) -> Array:
    """The nearest multiples of `step`, a power of two, for |values| <= 2^51 step.

    Adding 1.5 * 2^52 step leaves no room for smaller digits, and subtracting it is exact. Never
    -0.0, which would let the order of a sum show in its sign.

    >>> round_to_grid(np.array([0.3, -0.8]), 0.25).tolist()
    [0.25, -0.75]
    """
    # within 2^51 steps of it, float64 has the multiples of `step` alone
    shift = 1.5 * 2.0**52 * step
    out = np.add(values, shift, out=out, dtype=np.float64)
    out -= shift
    return out


@final
class Product:
    """x -> x M for a public matrix M, without any rounding after x and M are cut to their grids.

    The grids share the 53 bits of a float64, `bits` of them for M (half of what is left after the
    sum over rows, by default). With `reach` None, each record is first scaled
    by a power of two to entries of at most 1, so that records of any size fit; a record that is not
    finite becomes NaN. With `reach`, the caller proves that ||x||_2 <= reach for every row x.

    **Guarantee**: row i of the result is a function of record i alone, to the last bit, whatever
    the other records, their number, the processor and the number of threads.

    >>> twice = Product(np.array([[2.0], [1.0]]))
    >>> twice(np.array([[1.0, 0.5], [2.0**90, 0.0]])).tolist()
    [[2.5], [2.4758800785707605e+27]]
    """

    def __init__(
        self, matrix: NDArray[Any], *, reach: float | None = None, bits: int | None = None
    ) -> None:
        matrix = np.asarray(matrix, dtype=np.float64)
        if matrix.ndim != 2 or not len(matrix) or not np.isfinite(matrix).all():
            raise InvalidArgument("matrix", matrix.shape, "a finite matrix")
        d = len(matrix)
        top = power_of_two_at_least(float(np.abs(matrix).max(initial=0.0)) or 1.0)
        size = 1.0 if reach is None else power_of_two_at_least(reach)
        # what |x| M can reach, with the rounding of both factors on top: at most one step, which is
        # 2^-16 of the largest entry or less (`bits` is at least 16)
        if reach is None:
            columns = (np.abs(matrix) + 2.0**-16 * top).sum(axis=0).max(initial=top)
            largest = float(columns) * (1 + 2.0**-16)
        else:
            squares = ((np.abs(matrix) + 2.0**-16 * top) ** 2).sum(axis=0).max(initial=top**2)
            largest = math.sqrt(squares) * (1.0 + 2.0**-16 * math.sqrt(d))
        # 2^-20 is more than log2 and the sum above err by
        room = MANTISSA - math.ceil(math.log2(largest / top) + 2.0**-20)
        bits = room // 2 if bits is None else bits
        if min(bits, room - bits) < 16:
            raise InvalidArgument("matrix", matrix.shape, "at most about a million rows")
        self.step = size * 2.0 ** (bits - room)
        self.matrix = round_to_grid(matrix, top * 2.0**-bits)
        self.scaled = reach is None

    def __call__(self, x: NDArray[Any]) -> Array:
        """x M over the last axis; the first axis counts records."""
        x = np.asarray(x)
        out = np.empty((*x.shape[:-1], self.matrix.shape[1]))
        many = max(1, _BLOCK // max(math.prod(x.shape[1:]), 1))
        for start in range(0, len(x), many):
            part = x[start : start + many]
            if not self.scaled:
                out[start : start + many] = self.of_cut(round_to_grid(part, self.step))
                continue
            part, size = scale_by_power_of_two(part)
            np.multiply(
                self.of_cut(round_to_grid(part, self.step)), size, out=out[start : start + many]
            )
        return out

    def of_cut(self, x: Array) -> Array:
        """x M for an x that is on the grid of `step` already."""
        flat = x.reshape(-1, x.shape[-1]) @ self.matrix
        flat += 0.0  # no -0.0: its sign would depend on the order
        return flat.reshape(*x.shape[:-1], -1)

    def along_first(self, x: Array, *, out: Array | None = None) -> Array:
        """M^T x over the first axis, for an x within reach, which is cut in place."""
        flat = round_to_grid(x, self.step, out=x).reshape(len(x), -1)
        found: Array = np.matmul(self.matrix.T, flat, out=out)
        return found.reshape(-1, *x.shape[1:])

    def along_last(self, x: Array, *, out: Array | None = None) -> Array:
        """x M over the last axis, for an x within reach, which is cut in place."""
        flat = round_to_grid(x, self.step, out=x).reshape(-1, x.shape[-1])
        found: Array = np.matmul(flat, self.matrix, out=out)
        return found.reshape(*x.shape[:-1], -1)


def scale_by_power_of_two(records: NDArray[Any]) -> tuple[Array, Array]:
    """Each record over a power of two that brings its entries to at most 1, and that power.

    Records that are not finite, or beyond 2^1000, become 0, over NaN.

    >>> [part.tolist() for part in scale_by_power_of_two(np.array([[3.0, -1.0], [np.inf, 1.0]]))]
    [[[0.75, -0.25], [0.0, 0.0]], [[4.0], [nan]]]
    """
    axes = tuple(range(1, records.ndim))
    largest = np.abs(records).max(axis=axes, keepdims=True, initial=0.0).astype(np.float64)
    usable = largest < 2.0**1000  # not NaN, not infinite
    _, exponent = np.frexp(np.where(usable, largest, 0.0))
    exponent = np.maximum(exponent, -1000)  # 2^1000 is a float64, 2^1024 is not
    part = np.multiply(records, np.ldexp(1.0, -exponent), dtype=np.float64)
    if not usable.all():
        part[~usable.reshape(-1)] = 0.0
    return part, np.where(usable, np.ldexp(1.0, exponent), np.nan)


def row_sums(values: NDArray[Any]) -> Array:
    """Sums over the last axis in float64, by halves: one order, fixed by the number of columns.

    >>> row_sums(np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])).tolist()
    [6.0, 15.0]
    """
    return _folded(np.array(values, dtype=np.float64))


def row_norms(values: NDArray[Any]) -> Array:
    """Euclidean lengths over the last axis, in the same order on every processor.

    Infinite where squares are beyond float64, and NaN with NaN.

    >>> row_norms(np.array([[3.0, 4.0]])).tolist()
    [5.0]
    """
    with np.errstate(over="ignore", invalid="ignore"):
        return np.sqrt(_folded(np.multiply(values, values, dtype=np.float64)))


def _folded(total: Array) -> Array:
    """The sums, in the memory of the terms."""
    width = total.shape[-1]
    if width == 0:
        return np.zeros(total.shape[:-1])
    while width > 1:
        half = (width + 1) // 2
        total[..., : width - half] += total[..., half:width]
        width = half
    return np.ascontiguousarray(total[..., 0])


# log 2 in two parts (Cody and Waite): the first has 32 bits, so that k times it is exact.
_LOG2 = 0.6931471805599453
_LOG2_HIGH, _LOG2_LOW = 0.693147180369123816490, 1.90821492927058770002e-10
# 14 terms: with |r| <= (log 2) / 2 the next is below 1e-19, under half a last bit.
_INVERSE_FACTORIALS = tuple(1.0 / math.factorial(k) for k in range(14, 0, -1))


def tanh(values: NDArray[Any]) -> Array:
    """Hyperbolic tangents to a few units in the last place, of +, *, / and rounding alone.

    numpy's own is another function on another processor, and may be on the last entries of an
    array. With 2|x| = k log 2 + r,  e^(2|x|) - 1 = 2^k (1 + p) - 1 for p = e^r - 1 by its Taylor
    series, and tanh |x| = m / (m + 2) for this m.

    >>> tanh(np.array([0.5, -1e-9, 40.0])).round(12).tolist()
    [0.46211715726, -1e-09, 1.0]
    """
    x = np.asarray(values, dtype=np.float64)
    twice = 2.0 * np.minimum(np.abs(x), 20.0)  # tanh 20 is 1 to the last bit
    k = np.rint(np.where(np.isnan(twice), 0.0, twice) / _LOG2)
    r = (twice - k * _LOG2_HIGH) - k * _LOG2_LOW
    p = np.full(x.shape, _INVERSE_FACTORIALS[0])
    for coefficient in _INVERSE_FACTORIALS[1:]:
        p *= r
        p += coefficient
    p *= r
    power = np.ldexp(1.0, k.astype(np.int64))
    m = power * p + (power - 1.0)
    out: Array = np.copysign(m / (m + 2.0), x)
    return out
