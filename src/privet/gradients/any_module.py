"""Any other module: run it with a copy of its parameters per row, under vmap or row by row.

Every row gets its own copy of each parameter (a stride-zero expansion, no memory), so the gradient
of the copies is the per-row gradient. This works for whatever torch.func can batch, and otherwise
one row at a time. What a module does to its other arguments (a cache that it fills) stays inside.
"""

from __future__ import annotations

import copy
from typing import Any, final

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_flatten, tree_unflatten

from privet.gradients.layer_protocol import (
    BackwardCall,
    LayerHandler,
    LayerProblem,
    ParameterSlice,
    RecordedLayer,
    fold_views,
)
from privet.gradients.tape import Tape

_TENSOR = object()
"""Stands for a tensor in the form of an output."""


@final
class CopiedParameterHandler(LayerHandler):
    """A parameter given to every row as a copy of its own, so g already is its per-row gradient."""

    def __init__(self, name: str, parameter: nn.Parameter) -> None:
        super().__init__(name, [ParameterSlice(parameter)])

    def per_example(self, call: BackwardCall) -> list[Tensor]:
        return [fold_views(call.g, call.views)]


def record_any_module(name: str, module: nn.Module) -> RecordedLayer:
    """The recorded form of a module the engine has no kernels for.

    Cost: per-example gradients of all its parameters in memory; as of the module under vmap, or of
    one call a row, and once in the first batch of both.
    """
    handlers = {
        key: CopiedParameterHandler(name, p)
        for key, p in module.named_parameters()
        if p.requires_grad
    }
    plain = module.forward
    runner = _Runner(name, module)

    def forward(tape: Tape, *args: Any, **kwargs: Any) -> Any:
        if not torch.is_grad_enabled():
            return plain(*args, **kwargs)
        rows = _rows(name, tape.rows, args, kwargs)
        parameters = dict(module.named_parameters())
        copies = {
            key: tape.copy_parameter(parameters[key], handler, rows)
            for key, handler in handlers.items()
        }
        return runner.run(copies, args, kwargs, rows)

    return RecordedLayer(forward, tuple(handlers.values()))


def _rows(name: str, batch: int | None, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    """The number of rows: that of the batch, or the first dimension of the first tensor."""
    leaves = tree_flatten((args, kwargs))[0]
    lengths = [x.shape[0] for x in leaves if isinstance(x, Tensor) and x.dim() > 0]
    if lengths:
        return batch if batch in lengths else lengths[0]
    raise LayerProblem(
        name, f"the input of layer {name!r}", "no tensor", "a tensor with one row an example"
    )


class _Runner:
    """Runs a module row-wise, and checks that this is what the module itself computes.

    Once for each way to tell rows from constants. A constant is an argument of another length than
    the batch; its shape is remembered, so that a mask of (5, 5) stays one in a batch of 5 rows.
    """

    def __init__(self, name: str, module: nn.Module) -> None:
        self.name, self.module = name, module
        self.vectorised = True
        self.row_axes: dict[tuple[bool, ...], list[int]] = {}
        """The axis of rows of every output, for each way in which it was checked."""
        self.constants: set[tuple[int, torch.Size]] = set()

    def run(self, copies: dict[str, Tensor], args: Any, kwargs: Any, rows: int) -> Any:
        """The module's output, computed with a copy of the parameters per row."""
        recording = self.module.__dict__.pop("forward", None)  # meanwhile the module runs plainly
        try:
            leaves, spec = tree_flatten((args, kwargs))
            way = tuple(self._are_rows(leaves, rows))
            if way not in self.row_axes:
                self.row_axes[way] = self._check(leaves, spec, way, rows)
            outputs, form = self._rowwise(copies, leaves, spec, way, rows)
            joined = map(_join_rows, outputs, self.row_axes[way])
            return _fill(form, joined)
        finally:
            if recording is not None:
                self.module.__dict__["forward"] = recording

    def _are_rows(self, leaves: list[Any], rows: int) -> list[bool]:
        """Which arguments have a row for each example."""
        tensors = [(k, x.shape) for k, x in enumerate(leaves) if isinstance(x, Tensor) and x.dim()]
        self.constants |= {(k, shape) for k, shape in tensors if shape[0] != rows}
        rowwise = {k for k, shape in tensors if (k, shape) not in self.constants}
        return [k in rowwise for k in range(len(leaves))]

    def _rowwise(
        self, copies: dict[str, Tensor], leaves: list[Any], spec: Any, way: tuple[bool, ...],
        rows: int,
    ) -> tuple[list[Tensor], list[Any]]:  # fmt: skip
        """The tensors that come out of each row alone, stacked, and the form of the output."""
        form: list[Any] = []

        def one(copies: dict[str, Tensor], *some: Tensor) -> tuple[Tensor, ...]:
            fill = iter(some)
            full = [
                next(fill).unsqueeze(0) if is_row else _own_copy(leaf)
                for leaf, is_row in zip(leaves, way, strict=True)
            ]
            args, kwargs = tree_unflatten(full, spec)
            out, tree = tree_flatten(functional_call(self.module, copies, args, kwargs))
            form[:] = [tree, [_TENSOR if isinstance(t, Tensor) else t for t in out]]
            return tuple(t for t in out if isinstance(t, Tensor))

        batched = [x for x, is_row in zip(leaves, way, strict=True) if is_row]
        if self.vectorised:
            coins = torch.get_rng_state()
            try:
                with _PaddedLookups():
                    found = torch.vmap(one, randomness="different")(copies, *batched)
                return list(found), form
            except Exception:  # whatever vmap cannot do, one row at a time can
                self.vectorised = False
                torch.set_rng_state(coins)  # as if it had never been tried
        by_row = [
            one({k: c[i] for k, c in copies.items()}, *[x[i] for x in batched]) for i in range(rows)
        ]
        return [torch.stack(parts) for parts in zip(*by_row, strict=True)], form

    def _check(self, leaves: list[Any], spec: Any, way: tuple[bool, ...], rows: int) -> list[int]:
        """Refuse a module whose output for a row depends on the other rows; the axes of rows."""
        training = [m for m in self.module.modules() if m.training]
        self.module.eval()  # nothing may be drawn at random
        try:
            with torch.no_grad():
                args, kwargs = tree_unflatten([_own_copy(leaf) for leaf in leaves], spec)
                out = tree_flatten(self.module(*args, **kwargs))[0]
                copies = {
                    k: p.detach().expand(rows, *p.shape) for k, p in self.module.named_parameters()
                }
                apart = self._rowwise(copies, leaves, spec, way, rows)[0]
        finally:
            for m in training:
                m.training = True
        whole = [t for t in out if isinstance(t, Tensor)]
        axes = list(map(_row_axis, whole, apart))
        if len(whole) != len(apart) or None in axes:
            raise LayerProblem(
                self.name,
                f"layer {self.name!r}",
                type(self.module).__name__,
                "a module that treats every row (first dimension) by itself",
                "its output for a batch differs from its outputs row by row",
            )
        return [axis for axis in axes if axis is not None]


def _row_axis(whole: Tensor, apart: Tensor) -> int | None:
    """The axis along which outputs of single rows, joined, are the output of the batch.

    One row that a module gives for all counts as a row for each. None: there is no such axis.
    """
    for axis in range(apart.dim() - 1):
        joined = _join_rows(apart, axis)
        one_for_all = axis == 0 and whole.shape[:1] == (1,) and whole.shape[1:] == joined.shape[1:]
        if whole.shape == joined.shape or one_for_all:
            a, b = whole.double().expand(joined.shape), joined.double()
            # float32 kernels of other shapes round differently by about 1e-6; rows that mix differ
            # by much more than a thousandth.
            room = 1e-4 * float(a.abs().nan_to_num(0, 0, 0).amax()) if a.numel() else 0.0
            if torch.allclose(a, b, rtol=1e-3, atol=room, equal_nan=True):
                return axis
    return None


def _join_rows(apart: Tensor, axis: int) -> Tensor:
    """Join outputs of single rows, (rows, *shape), to one output with rows along an axis."""
    return apart.movedim(0, axis).flatten(axis, axis + 1)


def _fill(form: list[Any], tensors: Any) -> Any:
    """The output of a module, with tensors in the places where it has some."""
    (tree, leaves), found = form, iter(tensors)
    return tree_unflatten([next(found) if leaf is _TENSOR else leaf for leaf in leaves], tree)


def _own_copy(leaf: Any) -> Any:
    """An argument that is not rows; of things that a module may change, such as caches, a copy."""
    if leaf is None or isinstance(leaf, Tensor | nn.Module | str | int | float) or callable(leaf):
        return leaf
    try:
        return copy.deepcopy(leaf)
    except Exception:
        return leaf


def look_up(
    input: Tensor, weight: Tensor, padding_idx: int | None = None, *args: Any, **kwargs: Any
) -> Tensor:
    """F.embedding where vmap runs it, which forgets `padding_idx`: that row has no gradient."""
    y = F.embedding(input, weight, None, *args, **kwargs)
    if padding_idx is None:
        return y
    is_padding = input == padding_idx % len(weight)
    return torch.where(is_padding.unsqueeze(-1), y.detach(), y)


@final
class _PaddedLookups(TorchFunctionMode):
    """Puts `look_up` in place of F.embedding."""

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        return (look_up if func is F.embedding else func)(*args, **(kwargs or {}))
