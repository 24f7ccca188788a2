"""Several uses of the same parameters: instantiate each, add, and take the norm of the sum."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from privet.nets.per_example.measured import (
    KEEP_BYTES,
    Captured,
    Measured,
    Target,
    chunks,
    squared_norms,
)
from privet.nets.per_example.sites import Site

Seen = Sequence[tuple[Site, Captured]]


def measure_together(seen: Seen) -> tuple[Measured, tuple[Target, ...]]:
    """Measure the sum of the uses; the targets are the whole parameters they share."""
    first = seen[0][1]
    examples = first.g.shape[0] // first.views
    targets = {id(t.parameter): Target(t.parameter) for s, _ in seen for t in s.targets}
    width = sum(t.parameter.numel() * t.parameter.element_size() for t in targets.values())
    parts = chunks(examples, width)
    if examples * width <= KEEP_BYTES:
        gradients = _instantiate(seen, targets)
        return _measured(gradients), tuple(targets.values())
    norms = [
        _norms(_instantiate([(s, c.examples(part)) for s, c in seen], targets)) for part in parts
    ]

    def add_weighted(weights: Tensor, bad: Tensor | None, into: Sequence[Tensor]) -> None:
        for part in parts:
            some = _instantiate([(s, c.examples(part)) for s, c in seen], targets)
            inside = None
            if bad is not None:
                inside = bad[(bad >= part.start) & (bad < part.stop)] - part.start
            _add(some, weights[part], inside, into)

    return Measured(torch.cat(norms), add_weighted), tuple(targets.values())


def _instantiate(seen: Seen, targets: dict[int, Target]) -> list[Tensor]:
    first = seen[0][1]
    examples = first.g.shape[0] // first.views
    gradients = {key: first.g.new_zeros(examples, *t.parameter.shape) for key, t in targets.items()}
    for site, captured in seen:
        for target, value in zip(site.targets, site.per_example(captured), strict=True):
            target.of(gradients[id(target.parameter)], batched=True).add_(value)
    return list(gradients.values())


def _norms(gradients: list[Tensor]) -> Tensor:
    return torch.stack([squared_norms(g.view(g.shape[0], -1)) for g in gradients]).sum(0)


def _add(
    gradients: list[Tensor], weights: Tensor, bad: Tensor | None, into: Sequence[Tensor]
) -> None:
    for g, target in zip(gradients, into, strict=True):
        usable = g if bad is None else g.index_fill(0, bad, 0.0)
        target.add_(torch.tensordot(weights.to(g.dtype), usable, dims=1))


def _measured(gradients: list[Tensor]) -> Measured:
    return Measured(_norms(gradients), lambda w, bad, into: _add(gradients, w, bad, into))
