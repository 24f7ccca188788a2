"""What a layer knows after the backward pass: squared norms, and the weighted sum on demand.

Per-example gradients are computed in the model's precision, each from its own row; their norms and
their weighted sums are taken in float64, so that neither depends on the order to more than 2^-53.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn

from privet.nets.per_example.wide import add_, squared_norms, weigh_into, weighted_total

KEEP_BYTES = 64 * 2**20
"""Per-example gradients of a layer are kept up to this size, and made twice in chunks above it."""


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

    Rows are example-major: with `views` = K, rows iK ... iK+K-1 belong to example i. `wide` asks
    for products of matrices in float64.
    """

    a: Tensor
    g: Tensor
    views: int
    statistics: tuple[Tensor, ...] = ()
    wide: bool = False

    def examples(self, which: slice) -> Captured:
        """The part that belongs to some of the examples."""
        rows = slice(which.start * self.views, which.stop * self.views)
        statistics = tuple(s[rows] for s in self.statistics)
        return Captured(self.a[rows], self.g[rows], self.views, statistics, self.wide)


Finish = Callable[[Tensor], Sequence[Tensor]]
AddWeighted = Callable[[Tensor, Tensor | None, Sequence[Tensor]], None]


@dataclass
class Measured:
    """Squared norms (examples,) in float64, and the weighted sum of per-example gradients.

    `add_weighted(weights, bad, into)` adds it to `into`, one float64 tensor a target; rows listed
    in `bad` are silenced before they are multiplied, so that 0 * NaN never reaches the sum.
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


def silenced(tensor: Tensor, bad: Tensor | None) -> Tensor:
    """The tensor with the listed rows set to zero (a copy if there are any)."""
    return tensor if bad is None else tensor.index_fill(0, bad, 0.0)


def kept(
    values: Tensor,
    finish: Finish | None,
    bias: Tensor | None = None,
    norms: Tensor | None = None,
) -> Measured:
    """Measured from instantiated per-example gradients, with their squared norms if known.

    `values` is (parts, examples, width): every part holds a slice of each example's gradient;
    `finish` turns the weighted sum (parts, width) into parameter shapes, None: it lies like the
    first target. `bias` (examples, outputs) is the gradient of one more target.
    """
    norms = _with_bias(_norms_of(values) if norms is None else norms, bias)

    def add_weighted(weights: Tensor, bad: Tensor | None, into: Sequence[Tensor]) -> None:
        assert finish is not None
        _add(finish(weighted_total(weights, _usable(values, bad))), into)
        add_bias(bias, weights, bad, into)

    def put(fresh: bool, weights: Tensor, bad: Tensor | None, into: Sequence[Tensor]) -> None:
        weigh_into(weights, _usable(values, bad), into[0], fresh=fresh)
        add_bias(bias, weights, bad, into, fresh=fresh)

    if finish is not None:
        return Measured(norms, add_weighted)
    return Measured(norms, partial(put, False), partial(put, True))


def kept_apart(values: Tensor) -> Measured:
    """Like `kept`, where every part of (parts, examples, width) is the gradient of a target."""

    def put(fresh: bool, weights: Tensor, bad: Tensor | None, into: Sequence[Tensor]) -> None:
        usable = _usable(values, bad)
        for k, target in enumerate(into):
            weigh_into(weights, usable[k : k + 1], target, fresh=fresh)

    return Measured(_norms_of(values), partial(put, False), partial(put, True))


def in_chunks(
    examples: int,
    bytes_each: int,
    instantiate: Callable[[slice], Tensor],
    finish: Finish | None,
    bias: Tensor | None = None,
    norms: Tensor | None = None,
) -> Measured:
    """Like `kept`, with `instantiate(examples)` called for all at once if they can be kept.

    Otherwise they are made a chunk at a time, and again when the weights are known. `norms` are
    squared norms that `instantiate` fills in by itself.
    """
    parts = chunks(examples, bytes_each)
    if len(parts) <= 1:
        return kept(instantiate(slice(0, examples)), finish, bias, norms)
    if norms is None:
        norms = torch.cat([_norms_of(instantiate(part)) for part in parts])
    else:
        for part in parts:
            instantiate(part)

    def add_weighted(weights: Tensor, bad: Tensor | None, into: Sequence[Tensor]) -> None:
        total = None
        for part in parts:
            inside = None
            if bad is not None:
                inside = bad[(bad >= part.start) & (bad < part.stop)] - part.start
            some = weighted_total(weights[part], _usable(instantiate(part), inside))
            total = some if total is None else add_(total, some)
        assert total is not None
        _add([total.view(into[0].shape)] if finish is None else finish(total), into)
        add_bias(bias, weights, bad, into)

    return Measured(_with_bias(norms, bias), add_weighted)


def _norms_of(values: Tensor) -> Tensor:
    first, *others = [squared_norms(part) for part in values]
    return sum(others, start=first)


def _with_bias(norms: Tensor, bias: Tensor | None) -> Tensor:
    return norms if bias is None else norms + squared_norms(bias)


def _usable(values: Tensor, bad: Tensor | None) -> Tensor:
    return values if bad is None else values.index_fill(1, bad, 0.0)


def _add(sums: Sequence[Tensor], into: Sequence[Tensor]) -> None:
    """Add to the first targets; a bias has one more."""
    for target, value in zip(into, sums, strict=False):
        add_(target, value)


def add_bias(
    bias: Tensor | None,
    weights: Tensor,
    bad: Tensor | None,
    into: Sequence[Tensor],
    *,
    fresh: bool = False,
) -> None:
    """Add (or put) the weighted sum of bias gradients, if there are any, to the last target."""
    if bias is not None:
        weigh_into(weights, silenced(bias, bad)[None], into[-1], fresh=fresh)


def chunks(examples: int, bytes_each: int, budget: int = KEEP_BYTES) -> list[slice]:
    """Slices of the examples such that each holds at most `budget` bytes."""
    size = max(1, budget // max(1, bytes_each))
    return [slice(start, min(start + size, examples)) for start in range(0, examples, size)]
