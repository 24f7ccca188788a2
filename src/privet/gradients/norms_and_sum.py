"""What a layer gives after the backward pass: squared norms, and the weighted sum on demand.

Most layers instantiate per-example gradients. They are kept where they fit; where they do not, they
are built twice, a chunk of examples at a time: for the norms, and when the weights are known.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from privet.gradients.float64_sums import add_, squared_norms, weigh_into, weighted_total

# Per-example gradients of one layer are kept up to this size. More would save the second pass over
# larger layers, at that much more memory for every layer that is waiting for its weights.
KEEP_BYTES = 64 * 2**20

Finish = Callable[[Tensor], Sequence[Tensor]]
"""Brings a weighted sum (parts, width) to the shapes of the parameters."""


AddWeighted = Callable[[Tensor, Tensor | None, Sequence[Tensor]], None]


@dataclass
class NormsAndSum:
    """Squared norms (examples,) in float64, and the weighted sum of per-example gradients.

    `add_weighted(weights, bad, into)` adds it to `into`, one float64 tensor a target; rows listed
    in `bad` are set to zero before they are multiplied, so that 0 * NaN never reaches the sum.
    `write_weighted` does the same over what `into` held, where the layer can do that at no cost.
    """

    squared_norms: Tensor
    add_weighted: AddWeighted
    write_weighted: AddWeighted | None = None

    def add_to(
        self, weights: Tensor, bad: Tensor | None, into: Sequence[Tensor], stale: Sequence[bool]
    ) -> None:
        """Add to the targets, of which the stale ones count as zero."""
        if self.write_weighted is not None and all(stale):
            self.write_weighted(weights, bad, into)
            return
        for target, is_stale in zip(into, stale, strict=True):
            if is_stale:
                target.zero_()
        self.add_weighted(weights, bad, into)


def from_gradients(
    values: Tensor,
    finish: Finish | None,
    bias: Tensor | None = None,
    norms: Tensor | None = None,
) -> NormsAndSum:
    """Norms and sum of instantiated per-example gradients, with their squared norms if known.

    `values` is (parts, examples, width): every part holds a slice of each example's gradient;
    `finish` turns the weighted sum (parts, width) into parameter shapes, None: it lies like the
    first target. `bias` (examples, outputs) is the gradient of one more target.

    Cost: 2 flops a number for the norm and 2 for the sum; every number is read twice.
    """
    norms = _with_bias(_norms_of(values) if norms is None else norms, bias)

    def add_weighted(weights: Tensor, bad: Tensor | None, into: Sequence[Tensor]) -> None:
        assert finish is not None
        _add(finish(weighted_total(weights, _zero_examples(values, bad))), into)
        add_bias(bias, weights, bad, into)

    def put(fresh: bool, weights: Tensor, bad: Tensor | None, into: Sequence[Tensor]) -> None:
        weigh_into(weights, _zero_examples(values, bad), into[0], fresh=fresh)
        add_bias(bias, weights, bad, into, fresh=fresh)

    if finish is not None:
        return NormsAndSum(norms, add_weighted)
    return NormsAndSum(norms, partial(put, False), partial(put, True))


def from_gradients_by_target(gradients: Sequence[Tensor]) -> NormsAndSum:
    """Norms and sum of per-example gradients (examples, *shape), one tensor for each target.

    Cost: 2 flops a number for the norm and 2 for the sum; every number is read twice.
    """
    rows = [(g.flatten(1) if g.dim() > 1 else g[:, None]).contiguous() for g in gradients]

    def put(fresh: bool, weights: Tensor, bad: Tensor | None, into: Sequence[Tensor]) -> None:
        for values, target in zip(rows, into, strict=True):
            weigh_into(weights, zero_rows(values, bad)[None], target, fresh=fresh)

    return NormsAndSum(_norms_of(rows), partial(put, False), partial(put, True))


def from_chunks(
    examples: int,
    bytes_each: int,
    instantiate: Callable[[slice], Tensor],
    finish: Finish | None,
    bias: Tensor | None = None,
    norms: Tensor | None = None,
) -> NormsAndSum:
    """Like `from_gradients`, with `instantiate(examples)` called for all at once if they fit.

    Otherwise they are made a chunk at a time, and again when the weights are known. `norms` are
    squared norms that `instantiate` fills in by itself.
    """
    parts = example_chunks(examples, bytes_each)
    if len(parts) <= 1:
        return from_gradients(instantiate(slice(0, examples)), finish, bias, norms)
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
            addend = weighted_total(weights[part], _zero_examples(instantiate(part), inside))
            total = addend if total is None else add_(total, addend)
        assert total is not None
        _add([total.view(into[0].shape)] if finish is None else finish(total), into)
        add_bias(bias, weights, bad, into)

    return NormsAndSum(_with_bias(norms, bias), add_weighted)


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
        weigh_into(weights, zero_rows(bias, bad)[None], into[-1], fresh=fresh)


def zero_rows(tensor: Tensor, bad: Tensor | None) -> Tensor:
    """The tensor with the listed rows set to zero (a copy if there are any)."""
    return tensor if bad is None else tensor.index_fill(0, bad, 0.0)


def example_chunks(examples: int, bytes_each: int, budget: int = KEEP_BYTES) -> list[slice]:
    """Slices of the examples such that each holds at most `budget` bytes."""
    size = max(1, budget // max(1, bytes_each))
    return [slice(start, min(start + size, examples)) for start in range(0, examples, size)]


def _norms_of(parts: Tensor | Sequence[Tensor]) -> Tensor:
    first, *rest = [squared_norms(part) for part in parts]
    return sum(rest, start=first)


def _with_bias(norms: Tensor, bias: Tensor | None) -> Tensor:
    return norms if bias is None else norms + squared_norms(bias)


def _zero_examples(values: Tensor, bad: Tensor | None) -> Tensor:
    return values if bad is None else values.index_fill(1, bad, 0.0)


def _add(sums: Sequence[Tensor], into: Sequence[Tensor]) -> None:
    """Add to the first targets; a bias has one more."""
    for target, value in zip(into, sums, strict=False):
        add_(target, value)
