"""What a layer knows after the backward pass: squared norms, and the weighted sum on demand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

KEEP_BYTES = 32 * 2**20
"""Per-example gradients of a layer are kept up to this size, and taken in chunks above it."""

_BLOCK = 1024
_UNIT_ROUNDOFF = {torch.float32: 2.0**-24, torch.float64: 2.0**-53}
TOLERATED = 1e-5
"""Largest relative uncertainty of a squared Gram norm before the row is recomputed exactly."""


class Target(NamedTuple):
    """A parameter, or the rows of one, that a layer's gradient belongs to."""

    parameter: nn.Parameter
    rows: slice | None = None

    def of(self, tensor: Tensor, *, batched: bool = False) -> Tensor:
        """The part of `tensor` (shaped like the parameter, after a batch axis) that is meant."""
        if self.rows is None:
            return tensor
        return tensor[:, self.rows] if batched else tensor[self.rows]


class Captured(NamedTuple):
    """What a site saw: its input, the gradient of its output, and statistics of a normalisation.

    Rows are example-major: with `views` = K, rows iK ... iK+K-1 belong to example i.
    """

    a: Tensor
    g: Tensor
    views: int
    statistics: tuple[Tensor, ...] = ()

    def examples(self, which: slice) -> Captured:
        """The part that belongs to some of the examples."""
        rows = slice(which.start * self.views, which.stop * self.views)
        return Captured(
            self.a[rows], self.g[rows], self.views, tuple(s[rows] for s in self.statistics)
        )


@dataclass
class Measured:
    """Squared norms (examples,) in float64, and the weighted sum of per-example gradients.

    `weighted_sum(weights, bad)` returns one tensor a target; rows listed in `bad` are silenced
    before they are multiplied, so that 0 * NaN never reaches the sum.
    """

    squared_norms: Tensor
    weighted_sum: Callable[[Tensor, Tensor | None], Sequence[Tensor]]


class Kernel(NamedTuple):
    """One way to measure a layer; `cost` is a rough estimate in nanoseconds from shapes alone."""

    name: str
    cost: float
    run: Callable[[], Measured]


def squared_norms(rows: Tensor) -> Tensor:
    """Squared L2 norm of each row of a matrix, summed in two levels: short in float32, long in float64.

    The float32 part runs over at most 1024 terms, which holds the relative error near 1e-7.
    """
    examples, width = rows.shape
    if width <= _BLOCK:
        return torch.linalg.vector_norm(rows, dim=1).double().square()
    whole = width - width % _BLOCK
    parts = torch.linalg.vector_norm(rows[:, :whole].view(examples, -1, _BLOCK), dim=2)
    total = parts.double().square().sum(1)
    if whole < width:
        total += torch.linalg.vector_norm(rows[:, whole:], dim=1).double().square()
    return total


def silenced(tensor: Tensor, bad: Tensor | None) -> Tensor:
    """The tensor with the listed rows set to zero (a copy if there are any)."""
    return tensor if bad is None else tensor.index_fill(0, bad, 0.0)


def weighted_rows(tensor: Tensor, weights: Tensor) -> Tensor:
    """Row i of the tensor times weights[i]."""
    return tensor * weights.to(tensor.dtype).view(-1, *[1] * (tensor.dim() - 1))


def gram_squared_norms(first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
    """<A_i, B_i> for Gram matrices (examples, T, T), rounded up, and the rows it is too vague for.

    With A = U U^T and B = G G^T, <A, B> = ||U^T G||^2. Rounding perturbs an entry A_pq by about
    u ||U_p|| ||U_q||, hence A by at most u tr(A) in Frobenius norm, and <A, B> by at most
    u (tr(A) ||B|| + ||A|| tr(B)) (Cauchy-Schwarz). That is added, so the norm is an over-estimate;
    where it is not small beside <A, B> (the terms cancel) the caller must compute the row exactly.

    **Assumes** that the rounding errors of one inner product do not all point the same way.
    """
    examples = first.shape[0]
    trace_first = first.diagonal(dim1=1, dim2=2).sum(1).double()
    trace_second = second.diagonal(dim1=1, dim2=2).sum(1).double()
    a, b = first.reshape(examples, -1), second.reshape(examples, -1)
    inner = (first * second).sum(2).double().sum(1)
    unit = _UNIT_ROUNDOFF.get(first.dtype, 2.0**-8)
    size_a = torch.linalg.vector_norm(a, dim=1).double()
    size_b = torch.linalg.vector_norm(b, dim=1).double()
    error = unit * (trace_first * size_b + size_a * trace_second)
    vague = error > TOLERATED * inner
    return inner + error, vague.nonzero().view(-1)


def kept(
    values: Tensor, finish: Callable[[Tensor], Sequence[Tensor]], more: Tensor | None = None
) -> Measured:
    """Measured from instantiated per-example gradients.

    `values` is (parts, examples, width): every part holds a slice of each example's gradient;
    `finish` turns the weighted sum (parts, width) into parameter shapes. `more` adds squared norms.
    """
    total = sum((squared_norms(part) for part in values), start=values.new_zeros(()).double())
    if more is not None:
        total = total + more

    def weighted_sum(weights: Tensor, bad: Tensor | None) -> Sequence[Tensor]:
        usable = values if bad is None else values.index_fill(1, bad, 0.0)
        return finish(torch.matmul(weights.to(values.dtype), usable))

    return Measured(total, weighted_sum)


def chunks(examples: int, bytes_each: int, budget: int = KEEP_BYTES) -> list[slice]:
    """Slices of the examples such that each holds at most `budget` bytes."""
    size = max(1, budget // max(1, bytes_each))
    return [slice(start, min(start + size, examples)) for start in range(0, examples, size)]
