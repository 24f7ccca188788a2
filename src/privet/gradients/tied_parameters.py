"""Tied parameters: the gradients of all calls that use one are added before the norm is taken.

A parameter may be used by several layers, or by one layer several times. The norm that counts is
that of the sum, so each call's gradients are instantiated into the same memory.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from privet.gradients.layer_protocol import (
    BackwardCall,
    LayerHandler,
    ParameterSlice,
)
from privet.gradients.norms_and_sum import NormsAndSum, from_chunks


def group_tied_handlers(handlers: Sequence[LayerHandler]) -> dict[int, int]:
    """The number of each handler's group, by its id; handlers that share a parameter share it.

    That is: the same rows of it, or any rows if one handler has the whole.
    """
    whole = {id(t.parameter) for h in handlers for t in h.targets if t.rows is None}
    owner: dict[tuple[int, int], int] = {}
    parent = list(range(len(handlers)))

    def root(i: int) -> int:
        while parent[i] != i:
            i = parent[i]
        return i

    for i, handler in enumerate(handlers):
        for target in handler.targets:
            part = -1 if target.rows is None or id(target.parameter) in whole else target.rows.start
            key = (id(target.parameter), part)
            if key in owner:
                parent[root(i)] = root(owner[key])
            owner[key] = i
    return {id(handler): root(i) for i, handler in enumerate(handlers)}


def sum_tied_calls(
    calls: Sequence[tuple[LayerHandler, BackwardCall]],
) -> tuple[NormsAndSum, tuple[ParameterSlice, ...]]:
    """Norms and sum of what several calls give together, and the whole parameters they share.

    Cost: as of instantiating each call, and as many additions.
    """
    first_handler, first = calls[0]
    examples = first.g.shape[0] // first.views
    targets = {id(t.parameter): ParameterSlice(t.parameter) for h, _ in calls for t in h.targets}
    shapes = [t.parameter.shape for t in targets.values()]
    sizes = [shape.numel() for shape in shapes]
    bytes_each = sum(t.parameter.numel() * t.parameter.element_size() for t in targets.values())
    first_writes_all = {
        id(t.parameter) for t in first_handler.targets if t.rows is None
    } == targets.keys()

    def instantiate(which: slice) -> Tensor:
        out = first.g.new_empty(which.stop - which.start, sum(sizes))
        if not first_writes_all:
            out.zero_()
        parts = zip(targets, out.split(sizes, 1), shapes, strict=True)
        gradients = {key: part.unflatten(1, shape) for key, part, shape in parts}
        for k, (handler, call) in enumerate(calls):
            into = [t.of(gradients[id(t.parameter)], batched=True) for t in handler.targets]
            handler.add_per_example(call.select(which), into, fresh=first_writes_all and k == 0)
        return out[None]

    def finish(total: Tensor) -> list[Tensor]:
        parts = total[0].split(sizes)
        return [part.view(shape) for part, shape in zip(parts, shapes, strict=True)]

    by_target = finish if len(targets) > 1 else None
    return from_chunks(examples, bytes_each, instantiate, by_target), tuple(targets.values())
