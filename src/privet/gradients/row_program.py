"""A loss function as a fixed list of torch operations on one row, run on all rows of a batch.

`row_tracing` calls the function of a user once, on one made-up row, and notes what torch was asked
to do: the program. On records only the program runs, never the function. A layer that the engine
knows runs by its own kernels, everything else by `torch.vmap`, which gives every row the value that
it has alone. So the loss of a row is a function of that row, of the parameters and of coins of its
own, whatever the function was: what it counts, keeps in Python or draws with numpy has seen no
record. The backward pass is autograd's of these operations; no hook of anybody is in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby
from typing import Any, NamedTuple, final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from privet.gradients.any_module import CopiedParameterHandler, look_up
from privet.gradients.device import autocast_enabled
from privet.gradients.find_layers import ModelLayers
from privet.gradients.row_layers import LayerCall, attend
from privet.gradients.tape import Tape

_UNDER_VMAP: dict[Any, Callable[..., Any]] = {
    F.scaled_dot_product_attention: attend,
    F.embedding: look_up,
}
"""What runs in place of functions that vmap has no rule for, or a wrong one."""


class Slot(NamedTuple):
    """The place of a value that depends on the row or on a trained parameter."""

    number: int


class Mode(NamedTuple):
    """What torch was set to when an operation was called."""

    gradients: bool
    autocast: torch.dtype | None

    @classmethod
    def current(cls, device: str) -> Mode:
        """How torch is set now."""
        lowered = autocast_enabled(torch.device(device))
        return cls(torch.is_grad_enabled(), torch.get_autocast_dtype(device) if lowered else None)

    @contextmanager
    def set(self, device: str) -> Iterator[None]:
        """Inside, torch is set to this."""
        lowered = self.autocast is not None
        with (
            torch.set_grad_enabled(self.gradients),
            torch.autocast(device, self.autocast, enabled=lowered),
        ):
            yield


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Operation:
    """One call: of a function of torch, or of a recorded layer; `Slot`s stand for values."""

    call: Callable[..., Any] | LayerCall
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    inputs: frozenset[int]
    outputs: tuple[int, ...]
    mode: Mode
    last_uses: list[int] = field(default_factory=list)
    """Slots that nothing needs afterwards."""

    def perform(self, values: list[Any], tape: Tape) -> None:
        """Put the outputs in their slots."""
        args = [_fill(a, values) for a in self.args]
        kwargs = {name: _fill(a, values) for name, a in self.kwargs.items()}
        call = self.call
        if isinstance(call, LayerCall):
            out = call.run(tape, args, kwargs)
        else:
            out = _UNDER_VMAP.get(call, call)(*args, **kwargs)
        for slot, value in zip(self.outputs, tensors_in(out), strict=False):
            values[slot] = value
        for slot in self.last_uses:
            values[slot] = None


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class RowProgram:
    """Operations that make the loss of one row; the first slots are the columns of the row.

    `parameters` are those that operations use outside of a recorded layer, by slot: every row gets
    a copy of its own, whose gradient is the row's. `writes`: columns are changed in place.
    """

    layers: ModelLayers
    columns: int
    slots: int
    parameters: dict[int, nn.Parameter]
    operations: tuple[Operation, ...]
    result: int
    writes: bool
    device: str

    def run(self, tape: Tape, tensors: Sequence[Tensor]) -> Tensor:
        """The losses of rows, one each, with what their gradients need on the tape."""
        rows = len(tensors[0])
        copies = {
            slot: tape.copy_parameter(p, self._handler(p), rows)
            for slot, p in self.parameters.items()
        }
        usual = Mode.current(self.device)

        def one(row: list[Tensor], own: dict[int, Tensor]) -> Tensor:
            values: list[Any] = [column.unsqueeze(0) for column in row]
            values += [None] * (self.slots - len(row))
            for slot, copy in own.items():
                values[slot] = copy
            for mode, operations in self._segments:
                if mode == usual:
                    for operation in operations:
                        operation.perform(values, tape)
                else:
                    with mode.set(self.device):
                        for operation in operations:
                            operation.perform(values, tape)
            loss: Tensor = values[self.result].reshape(())
            return loss

        own = [t.clone() if self.writes else t for t in tensors]
        with torch._C.DisableTorchFunction():  # modes that somebody entered would see all rows
            losses: Tensor = torch.vmap(one, randomness="different")(own, copies)
        return losses

    @cached_property
    def _segments(self) -> list[tuple[Mode, list[Operation]]]:
        return [(mode, list(some)) for mode, some in groupby(self.operations, lambda o: o.mode)]

    def _handler(self, parameter: nn.Parameter) -> CopiedParameterHandler:
        for handler in self.layers.handlers:
            mine = handler.targets[0].parameter is parameter
            if mine and isinstance(handler, CopiedParameterHandler):
                return handler
        return CopiedParameterHandler(self.layers.parameter_names[id(parameter)], parameter)


def mark_last_uses(operations: Sequence[Operation], result: int) -> None:
    """Let each operation know which values nothing needs after it."""
    needed = {result}
    for operation in reversed(operations):
        for slot in {*operation.inputs, *operation.outputs} - needed:
            operation.last_uses.append(slot)
            needed.add(slot)


def _fill(value: Any, values: list[Any]) -> Any:
    """An argument with values in place of slots."""
    kind = type(value)
    if kind is Slot:
        return values[value.number]
    if kind is tuple or kind is list:
        return kind(_fill(v, values) for v in value)
    if kind is dict:
        return {k: _fill(v, values) for k, v in value.items()}
    if kind is slice:
        return slice(*(_fill(v, values) for v in (value.start, value.stop, value.step)))
    return value


def tensors_in(value: Any) -> list[Tensor]:
    """The tensors of nested tuples and lists, in order."""
    if isinstance(value, Tensor):
        return [value]
    if not isinstance(value, tuple | list):
        return []
    return [t for v in value for t in tensors_in(v)]
