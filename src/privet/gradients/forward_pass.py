"""Swap the forwards of recorded layers for those that tap, and tell shared inputs from rows."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, final

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map_only

from privet.errors import InvalidArgument
from privet.nets.per_example.device import autocasting
from privet.nets.per_example.discover import Plan
from privet.nets.per_example.layers import Recorded
from privet.nets.per_example.shared import Shared, origin_of, plain, shared
from privet.nets.per_example.sites import InstantiatedSite
from privet.nets.per_example.tape import Tape

_SEQUENCE_FIRST = (nn.RNNBase, nn.MultiheadAttention)


@final
class Recorder:
    """Runs recorded layers in place of a model's own, and remembers which calls were shared.

    An input without the axis of rows is one of another length in front: a single row, or a table of
    positions. Such a call stays shared for good, so that a later batch that happens to have as many
    rows as there are positions is not taken for another thing; and it must get the same input in
    every pass, so that nothing of the rows can hide in it.
    """

    def __init__(self) -> None:
        self._shared: dict[tuple[int, int], Tensor] = {}
        self._count: dict[int, int] = {}
        self._constants: set[tuple[str, int, torch.Size]] = set()

    @contextmanager
    def swapped(self, plan: Plan, tape: Tape) -> Iterator[None]:
        """Inside, the model's layers write on the tape."""
        self._count, tape.constants = {}, self._constants
        before = [module.__dict__.get("forward") for module, _ in plan.modules]
        try:
            for module, recorded in plan.modules:
                call = functools.partial(self._call, tape, module, recorded, module.forward)
                module.__dict__["forward"] = call
            yield
        finally:
            for (module, _), own in zip(plan.modules, before, strict=True):
                module.__dict__.pop("forward", None)
                if own is not None:
                    module.__dict__["forward"] = own

    def _call(
        self,
        tape: Tape,
        module: nn.Module,
        recorded: Recorded,
        own: Callable[..., Any],
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        if len(args) == 1 and not kwargs and isinstance(args[0], Tensor):
            tensors: Sequence[Tensor] = args
        else:
            tensors = [t for t in tree_leaves((args, kwargs)) if isinstance(t, Tensor)]
        if not tensors or not torch.is_grad_enabled():
            return recorded.forward(tape, *args, **kwargs)
        if tape.rows is None and tensors[0].dim():
            tape.rows = tensors[0].shape[0]
        tape.lowered = tape.lowered or autocasting(tensors[0].device)
        if not self._is_shared(tape, module, tensors[0], recorded):
            if any(isinstance(t, Shared) for t in tensors) and _is_rowwise(recorded):
                raise _refused(recorded)
            return recorded.forward(tape, *args, **kwargs)
        if any(t.requires_grad and not isinstance(t, Shared) for t in tensors):
            raise _refused(recorded)
        tape.events.append(("shared", id(module)))
        args, kwargs = tree_map_only(Tensor, plain, (args, kwargs))
        origin = None
        if not tensors[0].requires_grad:
            origin = origin_of(recorded.sites, tensors[0])
        module.__dict__.pop("forward", None)
        try:
            out = own(*args, **kwargs)
        finally:
            module.__dict__["forward"] = functools.partial(self._call, tape, module, recorded, own)
        return tree_map_only(Tensor, lambda t: shared(t, tape, origin), out)

    def _is_shared(self, tape: Tape, module: nn.Module, first: Tensor, recorded: Recorded) -> bool:
        number = self._count.get(id(module), 0)
        self._count[id(module)] = number + 1
        if isinstance(first, Shared):
            return True
        if tape.rows is None or first.requires_grad or first.dim() == 0:
            return False
        key = (id(module), 0 if tape.replaying else number)
        alone = first.shape[0] == 1 and not isinstance(module, _SEQUENCE_FIRST)
        if first.shape[0] != tape.rows and (alone or not first.is_floating_point()):
            self._shared.setdefault(key, first.detach().clone())
        if key not in self._shared:
            return False
        if not tape.replaying and not torch.equal(self._shared[key], first):
            raise InvalidArgument(
                f"the input of layer {recorded.sites[0].name!r}",
                f"{tuple(first.shape)}, not the same in every pass",
                f"of {tape.rows} rows, or constants such as positions",
                "the first dimension must run over the examples",
            )
        return True


def _is_rowwise(recorded: Recorded) -> bool:
    return any(isinstance(site, InstantiatedSite) for site in recorded.sites)


def _refused(recorded: Recorded) -> InvalidArgument:
    return InvalidArgument(
        f"the inputs of layer {recorded.sites[0].name!r}",
        "some that all rows share and some that they do not",
        "one kind of input",
        "expand the shared one over the rows first: t.expand(rows, ...)",
    )
