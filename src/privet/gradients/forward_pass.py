"""The forward pass: each layer's forward is swapped for one that records on a tape.

Here it is also decided whether a layer's input runs over the rows of the batch, or is shared by all
of them, such as a table of positions (see `batch_shared_values`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, final

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map_only

from privet.gradients.any_module import CopiedParameterHandler
from privet.gradients.batch_shared_values import SharedTensor, mark, origin_of, unmark
from privet.gradients.device import autocast_enabled
from privet.gradients.find_layers import ModelLayers
from privet.gradients.layer_protocol import LayerProblem, RecordedLayer
from privet.gradients.tape import Tape

_SEQUENCE_FIRST = (nn.RNNBase, nn.MultiheadAttention)
_ANY_AXES = (nn.Linear, nn.Embedding, nn.LayerNorm, nn.RMSNorm)
"""Kinds of one input, of whose axes only the last matters."""


@final
class ForwardRecorder:
    """Runs recorded layers in place of a model's own, and remembers which calls were shared.

    An input without the axis of rows is one of another length in front: a single row, or a table of
    positions. Such a call stays shared for good, so that a later batch that happens to have as many
    rows as there are positions is not taken for another thing; and it must get the same input in
    every pass, so that nothing of the rows can hide in it.
    """

    def __init__(self) -> None:
        self._shared: dict[tuple[int, int], Tensor] = {}
        self._count: dict[int, int] = {}
        self._batch_second: set[int] = set()
        self._constants: set[tuple[str, int, torch.Size]] = set()

    @contextmanager
    def swap_forwards(self, layers: ModelLayers, tape: Tape) -> Iterator[None]:
        """Inside, the model's layers write on the tape."""
        self._count, tape.constants = {}, self._constants
        before = [module.__dict__.get("forward") for module, _ in layers.modules]
        try:
            for module, layer in layers.modules:
                call = functools.partial(self._call, tape, module, layer, module.forward)
                module.__dict__["forward"] = call
            for module, key in layers.shared_parameters:
                module.__dict__[key] = mark(module.get_parameter(key), tape)
            yield
        finally:
            for module, key in layers.shared_parameters:
                module.__dict__.pop(key, None)
            for (module, _), forward in zip(layers.modules, before, strict=True):
                module.__dict__.pop("forward", None)
                if forward is not None:
                    module.__dict__["forward"] = forward

    def _call(
        self,
        tape: Tape,
        module: nn.Module,
        layer: RecordedLayer,
        plain: Callable[..., Any],
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        if len(args) == 1 and not kwargs and isinstance(args[0], Tensor):
            tensors: Sequence[Tensor] = args
        else:
            tensors = [t for t in tree_leaves((args, kwargs)) if isinstance(t, Tensor)]
        if not torch.is_grad_enabled():
            return layer.forward(tape, *args, **kwargs)
        if not tensors:  # a table of relative positions, say
            return self._run_shared(tape, module, layer, plain, args, kwargs)
        if tape.rows is None and tensors[0].dim():
            tape.rows = tensors[0].shape[0]
        tape.used_autocast = tape.used_autocast or autocast_enabled(tensors[0].device)
        if self._is_batch_second(tape, module, tensors):
            tape.regrouped |= {id(handler) for handler in layer.handlers}
            y: Tensor = layer.forward(tape, tensors[0].transpose(0, 1))
            return y.transpose(0, 1)
        if not self._is_shared(tape, module, tensors[0], layer):
            if any(isinstance(t, SharedTensor) for t in tensors) and _is_rowwise(layer):
                raise _mixed_inputs(layer)
            return layer.forward(tape, *args, **kwargs)
        if any(t.requires_grad and not isinstance(t, SharedTensor) for t in tensors):
            raise _mixed_inputs(layer)
        return self._run_shared(tape, module, layer, plain, args, kwargs)

    def _run_shared(
        self,
        tape: Tape,
        module: nn.Module,
        layer: RecordedLayer,
        plain: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        """Run a module as it is, on what all rows share."""
        tape.events.append(("shared", id(module)))
        first = next((t for t in tree_leaves((args, kwargs)) if isinstance(t, Tensor)), None)
        origin = None
        if first is not None and not first.requires_grad:
            origin = origin_of(layer.handlers, first)
        args, kwargs = tree_map_only(Tensor, unmark, (args, kwargs))
        module.__dict__.pop("forward", None)
        try:
            out = plain(*args, **kwargs)
        finally:
            module.__dict__["forward"] = functools.partial(self._call, tape, module, layer, plain)
        return tree_map_only(Tensor, lambda t: mark(t, tape, origin), out)

    def _is_batch_second(self, tape: Tape, module: nn.Module, tensors: Sequence[Tensor]) -> bool:
        """Whether rows run along the second axis, as around a recurrent layer; remembered."""
        x = tensors[0]
        if not isinstance(module, _ANY_AXES) or len(tensors) != 1 or x.dim() < 2 or not tape.rows:
            return False
        number = self._count.get(id(module), 0)
        if isinstance(x, SharedTensor) or (id(module), number) in self._shared:
            return False
        if x.shape[1] == tape.rows and x.shape[0] % tape.rows:
            self._batch_second.add(id(module))
        second = id(module) in self._batch_second and x.shape[1] == tape.rows
        self._count[id(module)] = number + second
        return second

    def _is_shared(
        self, tape: Tape, module: nn.Module, first: Tensor, layer: RecordedLayer
    ) -> bool:
        number = self._count.get(id(module), 0)
        self._count[id(module)] = number + 1
        if isinstance(first, SharedTensor):
            return True
        if tape.rows is None or first.requires_grad or first.dim() == 0:
            return False
        if isinstance(module, nn.EmbeddingBag) and first.dim() == 1:  # offsets say the rows
            return False
        key = (id(module), 0 if tape.replaying else number)
        alone = first.shape[0] == 1 and not isinstance(module, _SEQUENCE_FIRST)
        if first.shape[0] != tape.rows and (alone or not first.is_floating_point()):
            self._shared.setdefault(key, first.detach().clone())
        if key not in self._shared:
            return False
        if not tape.replaying and not torch.equal(self._shared[key], first):
            raise LayerProblem(
                layer.handlers[0].name,
                f"the input of layer {layer.handlers[0].name!r}",
                f"{tuple(first.shape)}, not the same in every pass",
                f"of {tape.rows} rows, or constants such as positions",
                "the first dimension must run over the examples",
            )
        return True


def _is_rowwise(layer: RecordedLayer) -> bool:
    return any(isinstance(handler, CopiedParameterHandler) for handler in layer.handlers)


def _mixed_inputs(layer: RecordedLayer) -> LayerProblem:
    return LayerProblem(
        layer.handlers[0].name,
        f"the inputs of layer {layer.handlers[0].name!r}",
        "some that all rows share and some that they do not",
        "one kind of input",
        "expand the shared one over the rows first: t.expand(rows, ...)",
    )
