"""Several uses of the same parameters: instantiate each, add, and take the norm of the sum."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from privet.nets.per_example.measured import Captured, Measured, Target, in_chunks
from privet.nets.per_example.sites import Site

Seen = Sequence[tuple[Site, Captured]]


def measure_together(seen: Seen) -> tuple[Measured, tuple[Target, ...]]:
    """Measure the sum of the uses; the targets are the whole parameters they share."""
    first = seen[0][1]
    examples = first.g.shape[0] // first.views
    targets = {id(t.parameter): Target(t.parameter) for s, _ in seen for t in s.targets}
    shapes = [t.parameter.shape for t in targets.values()]
    width = sum(t.parameter.numel() * t.parameter.element_size() for t in targets.values())

    def instantiate(which: slice) -> Tensor:
        gradients = {
            key: first.g.new_zeros(which.stop - which.start, *t.parameter.shape)
            for key, t in targets.items()
        }
        for site, captured in seen:
            values = site.per_example(captured.examples(which))
            for target, value in zip(site.targets, values, strict=True):
                target.of(gradients[id(target.parameter)], batched=True).add_(value)
        return torch.cat([g.flatten(1) for g in gradients.values()], 1)[None]

    def finish(total: Tensor) -> list[Tensor]:
        parts = total[0].split([shape.numel() for shape in shapes])
        return [part.view(shape) for part, shape in zip(parts, shapes, strict=True)]

    return in_chunks(examples, width, instantiate, finish), tuple(targets.values())
