"""What a layer knows after the backward pass: squared norms, and the weighted sum on demand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

KEEP_BYTES = 64 * 2**20
"""Per-example gradients of a layer are kept up to this size, and taken in chunks above it."""

_BLOCK = 1024
_UNIT_ROUNDOFF = {torch.float32: 2.0**-24, torch.float64: 2.0**-53}
TOLERATED = 1e-5
"""Largest relative uncertainty of a squared Gram norm before the row is recomputed exactly."""
_DEVIATIONS = 16.0


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


AddWeighted = Callable[[Tensor, Tensor | None, Sequence[Tensor]], None]


@dataclass
class Measured:
    """Squared norms (examples,) in float64, and the weighted sum of per-example gradients.

    `add_weighted(weights, bad, into)` adds it to `into`, one tensor a target; rows listed in `bad`
    are silenced before they are multiplied, so that 0 * NaN never reaches the sum.
    `write_weighted` does the same over what `into` held, where the layer can do that at no cost.
    """

    squared_norms: Tensor
    add_weighted: AddWeighted
    write_weighted: AddWeighted | None = None

    def put(
        self, weights: Tensor, bad: Tensor | None, into: Sequence[Tensor], outdated: Sequence[bool]
    ) -> None:
        """Add to the targets, of which the outdated ones count as zero."""
        if self.write_weighted is not None and all(outdated):
            self.write_weighted(weights, bad, into)
            return
        for target, old in zip(into, outdated, strict=True):
            if old:
                target.zero_()
        self.add_weighted(weights, bad, into)


class Kernel(NamedTuple):
    """One way to measure a layer; `cost` is a rough estimate in nanoseconds from shapes alone."""

    name: str
    cost: float
    run: Callable[[], Measured]


def squared_norms(rows: Tensor) -> Tensor:
    """Squared L2 norm of each row of a matrix: short sums in float32, the rest in float64.

    The float32 part runs over at most 1024 terms, which holds the relative error near 1e-7.
    """
    examples, width = rows.shape
    if width <= _BLOCK:
        return _norms(rows, 1).square()
    whole = width - width % _BLOCK
    total = _norms(rows[:, :whole].view(examples, -1, _BLOCK), 2).square().sum(1)
    if whole < width:
        total += _norms(rows[:, whole:], 1).square()
    return total


def _norms(t: Tensor, dim: int) -> Tensor:
    norms: Tensor = torch.linalg.vector_norm(t, dim=dim)
    return norms.double()


def silenced(tensor: Tensor, bad: Tensor | None) -> Tensor:
    """The tensor with the listed rows set to zero (a copy if there are any)."""
    return tensor if bad is None else tensor.index_fill(0, bad, 0.0)


def weighted_rows(tensor: Tensor, weights: Tensor) -> Tensor:
    """Row i of the tensor times weights[i]."""
    return tensor * weights.to(tensor.dtype).view(-1, *[1] * (tensor.dim() - 1))


def gram_squared_norms(first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
    """<A_i, B_i> for Gram matrices (examples, T, T), rounded up, and the rows it is too vague for.

    With A = U U^T and B = G G^T, <A, B> = ||U^T G||^2. Rounding perturbs an entry A_pq by some
    u ||U_p|| ||U_q||. Were all these errors to conspire, <A, B> would be off by up to
    u (tr(A) ||B|| + ||A|| tr(B)) (Cauchy-Schwarz); being independent they add up to about
    u (max diag(A) ||B|| + ||A|| max diag(B)). The former is added, up to a relative `TOLERATED`, so
    the norm is an over-estimate; where sixteen times the latter exceeds that (the terms cancel),
    the caller must compute the row exactly.

    **Assumes** that the rounding errors of different entries are independent.
    """
    examples = first.shape[0]
    inner = (first * second).sum(2).double().sum(1)
    unit = _UNIT_ROUNDOFF.get(first.dtype, 2.0**-8)
    size = [
        torch.linalg.vector_norm(m.reshape(examples, -1), dim=1).double() for m in (first, second)
    ]
    diagonal = [m.diagonal(dim1=1, dim2=2).double() for m in (first, second)]
    worst = unit * (diagonal[0].sum(1) * size[1] + size[0] * diagonal[1].sum(1))
    usual = unit * (diagonal[0].amax(1) * size[1] + size[0] * diagonal[1].amax(1))
    vague = _DEVIATIONS * usual > TOLERATED * inner
    return inner + torch.minimum(worst, TOLERATED * inner), vague.nonzero().view(-1)


def kept(
    values: Tensor,
    finish: Callable[[Tensor], Sequence[Tensor]],
    bias: Tensor | None = None,
) -> Measured:
    """Measured from instantiated per-example gradients.

    `values` is (parts, examples, width): every part holds a slice of each example's gradient;
    `finish` turns the weighted sum (parts, width) into parameter shapes. `bias` (examples, outputs)
    is the gradient of one more target.
    """
    total = sum((squared_norms(part) for part in values), start=values.new_zeros(()).double())
    if bias is not None:
        total = total + squared_norms(bias)

    def add_weighted(weights: Tensor, bad: Tensor | None, into: Sequence[Tensor]) -> None:
        usable = values if bad is None else values.index_fill(1, bad, 0.0)
        sums = finish(torch.matmul(weights.to(values.dtype), usable))
        for target, value in zip(into, sums, strict=bias is None):
            target.add_(value)
        add_bias(bias, weights, bad, into)

    return Measured(total, add_weighted)


def add_bias(
    bias: Tensor | None, weights: Tensor, bad: Tensor | None, into: Sequence[Tensor]
) -> None:
    """Add the weighted sum of per-example bias gradients, if there are any, to the last target."""
    if bias is not None:
        into[-1].add_(weights.to(bias.dtype) @ silenced(bias, bad))


def chunks(examples: int, bytes_each: int, budget: int = KEEP_BYTES) -> list[slice]:
    """Slices of the examples such that each holds at most `budget` bytes."""
    size = max(1, budget // max(1, bytes_each))
    return [slice(start, min(start + size, examples)) for start in range(0, examples, size)]
