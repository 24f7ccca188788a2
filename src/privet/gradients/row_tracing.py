"""Traces a loss function on one made-up row: what it asks of torch becomes a `RowProgram`.

The row is a batched tensor of `torch.vmap`: it has shapes and types, but a value that Python could
look at, compare or turn into a number is refused by torch itself. So nothing that the function does
in Python depends on the row, and the list of operations is the same for every record.

What depends neither on the row nor on a trained parameter (masks, positions, weights of classes,
coins of numpy) is computed here, once, and is a constant of the program.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, final

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack
from torch._ops import OpOverload, OpOverloadPacket
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_flatten, tree_map_only

from privet.errors import InvalidArgument, PrivetError
from privet.gradients.any_module import CopiedParameterHandler
from privet.gradients.custom_layer import RuleHandler
from privet.gradients.find_layers import ModelLayers
from privet.gradients.layer_protocol import RecordedLayer
from privet.gradients.row_layers import LayerCall, all_rows, attend, is_batched, put_inside
from privet.gradients.row_program import (
    Mode,
    Operation,
    RowProgram,
    Slot,
    mark_last_uses,
    tensors_in,
)
from privet.gradients.tape import Tape

_PLAIN = (
    bool, int, float, complex, str, type(None), type(Ellipsis), range, torch.Size, torch.dtype,
    torch.device, torch.layout, torch.memory_format, np.generic,
)  # fmt: skip
"""Arguments that hold no code and no tensor."""
_REFUSED = frozenset(("backward", "register_hook", "apply_", "map_", "map2_", "set_", "numpy"))
"""Functions that run code of the caller, or that leave torch."""
_GRADIENT: Any = vars(torch._C.TensorBase)["grad"].__get__
_DRAWS = (torch.rand, torch.randn, torch.randint)
_NAMESPACES = ("aten", "prims", "prim", "_C")
"""Whose operators are torch's own; those that others register may run any code."""


class HoldsRecords(InvalidArgument):
    """A loss function that looks at the data set itself, past the row that it was given."""


class Untraceable(PrivetError):
    """A loss function that does not come down to a list of torch operations."""


def trace(
    function: Callable[[tuple[Tensor, ...]], Tensor],
    columns: Sequence[Tensor],
    layers: ModelLayers,
    device: torch.device,
    outputs: dict[Any, Any],
    is_private: Callable[[Tensor], bool] = lambda t: False,
) -> RowProgram:
    """The program of `function`, which gets the columns of one made-up row and gives its loss.

    `outputs` are those of layers in earlier traces, by shape. A function that uses a tensor that
    `is_private` is refused.
    """
    if any(isinstance(handler, RuleHandler) for handler in layers.handlers):
        raise Untraceable("the rule of a layer is code of its own")
    found: list[RowProgram] = []
    before = [t._version for t in columns]

    def one(*row: Tensor) -> Tensor:
        tracer = _Tracer(layers, device, outputs, is_private)
        inputs = tuple(tracer.add_column(column.unsqueeze(0)) for column in row)
        with _say_tracing(), tracer.swap_forwards(), tracer:
            losses = function(inputs)
        writes = [t._version for t in columns] != before
        found.append(tracer.finish(losses, writes=writes))
        return torch.zeros(())

    torch.vmap(one, randomness="different")(*columns)
    return found[0]


@contextmanager
def _say_tracing() -> Iterator[None]:
    """Inside, `torch.jit.is_tracing()` is true: transformers then does not look into masks."""
    jit: Any = torch.jit
    said, jit.is_tracing = jit.is_tracing, lambda: True
    try:
        yield
    finally:
        jit.is_tracing = said


@final
class _Tracer(TorchFunctionMode):
    """Notes every function of torch that is called on what depends on the row."""

    def __init__(
        self, layers: ModelLayers, device: torch.device, outputs: dict[Any, Any],
        is_private: Callable[[Tensor], bool],
    ) -> None:  # fmt: skip
        super().__init__()
        self._outputs, self._is_private = outputs, is_private
        self._layers, self._device = layers, device.type
        self._trained = {id(p): p for p in layers.parameters.values()}
        self._slots: dict[int, int] = {}
        self._alive: list[Tensor] = []  # so that no id is given twice
        self._constants: list[tuple[Tensor, int]] = []
        self._operations: list[Operation] = []
        self._columns = 0
        self._strange = ""
        self._parameters: dict[int, nn.Parameter] = {}
        self._tape = Tape(1, device=device)

    def add_column(self, value: Tensor) -> Tensor:
        """A column of the row."""
        self._slot(value)
        self._columns += 1
        return value

    @contextmanager
    def swap_forwards(self) -> Iterator[None]:
        """Inside, the recorded layers are noted as a whole."""
        known = [
            (module, layer)
            for module, layer in self._layers.modules
            if not any(isinstance(h, CopiedParameterHandler) for h in layer.handlers)
        ]
        before = [module.__dict__.get("forward") for module, _ in known]
        try:
            for module, layer in known:
                call = functools.partial(self._call_layer, module, layer, module.forward)
                module.__dict__["forward"] = call
            yield
        finally:
            for (module, _), forward in zip(known, before, strict=True):
                module.__dict__.pop("forward", None)
                if forward is not None:
                    module.__dict__["forward"] = forward

    def _call_layer(
        self, module: nn.Module, layer: RecordedLayer, plain: Callable[..., Any],
        *args: Any, **kwargs: Any,
    ) -> Any:  # fmt: skip
        call = LayerCall(module, layer)
        if not call.suits(args, kwargs):
            return plain(*args, **kwargs)
        with torch._C.DisableTorchFunction():
            out = self._output(call, args, kwargs)
        self._note(call, args, kwargs, out)
        return out

    def _output(self, call: LayerCall, args: Any, kwargs: dict[str, Any]) -> Any:
        """What a layer gives; computed once for each shape, since only shapes matter here."""
        leaves, spec = tree_flatten((args, kwargs))
        key = (
            id(call.module), str(spec), Mode.current(self._device),
            *((x.shape, x.dtype) if isinstance(x, Tensor) else x for x in leaves),
        )  # fmt: skip
        if key not in self._outputs:
            out = call.run(self._tape, args, kwargs)
            self._outputs[key] = tree_map_only(Tensor, lambda t: all_rows(t, 1).detach(), out)
        return tree_map_only(Tensor, put_inside, self._outputs[key])

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is Tensor.__iter__:
            return iter(self.__torch_function__(Tensor.unbind, types, args))
        if func == _GRADIENT:  # of a parameter: what the last step released
            return func(*args, **kwargs)
        if func in _DRAWS and _is_one_number(args, kwargs):
            with temporarily_clear_interpreter_stack():
                return func(*args, **kwargs)  # one for the step: a constant, not one for each row
        out = (attend if func is F.scaled_dot_product_attention else func)(*args, **kwargs)
        if out is None or isinstance(out, Tensor | tuple | list):
            self._note(func, args, kwargs, out)
        return out

    def _note(self, call: Any, args: Any, kwargs: dict[str, Any], out: Any) -> None:
        made = tensors_in(out)
        if out is not None and not made:
            return
        inputs: set[int] = set()
        first, self._strange = len(self._constants), ""
        arguments = tuple(self._template(a, inputs) for a in args)
        named = {name: self._template(a, inputs) for name, a in kwargs.items()}
        if not inputs and not any(is_batched(t) for t in made):
            del self._constants[first:]
            return  # a constant, made now and here
        name = getattr(call, "__name__", "")
        if out is None and name == "__get__":
            return  # there is none
        _check_call(call, name)
        if self._strange:
            raise Untraceable(f"{name} of a {self._strange}, which may hold code or secrets")
        if out is None and name != "__setitem__":
            raise Untraceable(f"{name} acts on a value without giving one")
        outputs = tuple(self._slot(t) for t in made)
        self._operations.append(
            Operation(
                call=call,
                args=arguments,
                kwargs=named,
                inputs=frozenset(inputs),
                outputs=outputs,
                mode=Mode.current(self._device),
            )
        )

    def _slot(self, t: Tensor) -> int:
        if id(t) not in self._slots:
            self._alive.append(t)
            self._slots[id(t)] = len(self._slots)
        return self._slots[id(t)]

    def _template(self, value: Any, inputs: set[int]) -> Any:
        """An argument with slots in place of what depends on the row or on parameters."""
        if isinstance(value, Tensor):
            return self._tensor(value, inputs)
        if isinstance(value, _PLAIN):
            return value
        if isinstance(value, np.ndarray) and value.dtype != object:
            return value.copy()
        if isinstance(value, list):
            return [self._template(v, inputs) for v in value]
        if isinstance(value, tuple):
            return tuple(self._template(v, inputs) for v in value)
        if isinstance(value, dict):
            return {k: self._template(v, inputs) for k, v in value.items()}
        if isinstance(value, slice):
            return slice(
                *(self._template(v, inputs) for v in (value.start, value.stop, value.step))
            )
        self._strange = type(value).__name__
        return None

    def _tensor(self, t: Tensor, inputs: set[int]) -> Any:
        if id(t) in self._trained:
            self._parameters[self._slot(t)] = self._trained[id(t)]
        if id(t) in self._slots:
            inputs.add(self._slots[id(t)])
            return Slot(self._slots[id(t)])
        if is_batched(t):
            raise Untraceable(
                "a value of the row that no function of torch made: an autograd.Function of your "
                "own, a nested transform of torch.func, or a value that was held back"
            )
        if self._is_private(t):
            raise HoldsRecords(
                "losses", "a function that holds the data set itself", "one of a row's own columns",
                "declare what all rows share, or pay for it as a release of its own",
            )  # fmt: skip
        if type(t) not in (Tensor, nn.Parameter):
            raise Untraceable(f"a {type(t).__name__}, whose own code torch would run on records")
        self._constants.append((t, t._version))
        return t

    def finish(self, losses: Any, *, writes: bool) -> RowProgram:
        """The program that gives these losses."""
        if not isinstance(losses, Tensor) or losses.shape != (1,):
            shape = tuple(losses.shape) if isinstance(losses, Tensor) else type(losses).__name__
            raise InvalidArgument("losses", shape, "one for each of 1 rows", "reduction='none'")
        if id(losses) not in self._slots:
            raise Untraceable("losses that no function of torch made from the row")
        if any(t._version != version for t, version in self._constants):
            raise Untraceable("a constant that is changed in place after its use")
        result = self._slots[id(losses)]
        mark_last_uses(self._operations, result)
        return RowProgram(
            layers=self._layers,
            columns=self._columns,
            slots=len(self._slots),
            parameters=self._parameters,
            operations=tuple(self._operations),
            result=result,
            writes=writes,
            device=self._device,
        )


def _is_one_number(args: Any, kwargs: dict[str, Any]) -> bool:
    """Whether what is drawn has no dimension, which might be that of the rows."""
    sizes = [a for a in (*args, kwargs.get("size")) if isinstance(a, tuple | list)]
    return len(sizes) == 1 and not sizes[0]


def _check_call(call: Any, name: str) -> None:
    """Refuse to note what is not torch's own."""
    if isinstance(call, LayerCall):
        return
    module = getattr(call, "__module__", None)
    if isinstance(call, OpOverload | OpOverloadPacket):
        own = str(call).split(".")[0] in _NAMESPACES
    else:
        own = module is None or module.split(".")[0] == "torch"
    if name in _REFUSED or not own:
        raise Untraceable(f"{name or call} is no operation of torch on tensors")
