"""Several uses of the same parameters: instantiate each, add, and take the norm of the sum."""

from __future__ import annotations

from collections.abc import Sequence

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

    whole = {id(t.parameter) for t in seen[0][0].targets if t.rows is None} == targets.keys()

    def instantiate(which: slice) -> Tensor:
        sizes = [shape.numel() for shape in shapes]
        out = first.g.new_empty(which.stop - which.start, sum(sizes))
        if not whole:
            out.zero_()
        parts = zip(targets, out.split(sizes, 1), shapes, strict=True)
        gradients = {key: part.unflatten(1, shape) for key, part, shape in parts}
        for k, (site, captured) in enumerate(seen):
            into = [t.of(gradients[id(t.parameter)], batched=True) for t in site.targets]
            site.add_per_example(captured.examples(which), into, fresh=whole and k == 0)
        return out[None]

    def finish(total: Tensor) -> list[Tensor]:
        parts = total[0].split([shape.numel() for shape in shapes])
        return [part.view(shape) for part, shape in zip(parts, shapes, strict=True)]

    apart = finish if len(targets) > 1 else None
    return in_chunks(examples, width, instantiate, apart), tuple(targets.values())
