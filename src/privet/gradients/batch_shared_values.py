"""Values that all rows share: position embeddings looked up once, relative positions, and the like.

Such a value Z is made from parameters and constants, never from rows, and has no axis of rows. It
is computed by plain autograd and carried as a `SharedTensor` until it meets rows, in an addition
or the like. There every row gets a copy of its own: row i's gradient with respect to its copy, G_i,
is l_i's gradient with respect to Z, and the vector-Jacobian product of Z gives the rest.

Nothing can slip through. The graph of Z ends where the copies begin, so a shared value that is used
in any other way sends its gradient to the parameter itself, and the engine refuses that. Copies are
watched by the check that no row's loss reaches another row's copy, like any layer's output.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, final

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_map_only, tree_unflatten

from privet.errors import InvalidArgument
from privet.gradients.embedding import EmbeddingHandler
from privet.gradients.layer_protocol import (
    BackwardCall,
    LayerHandler,
    LayerProblem,
    ParameterSlice,
    fold_views,
)
from privet.gradients.linear import LinearHandler
from privet.gradients.tape import Tape

_ARITHMETIC = ("add", "sub", "mul", "truediv")
_BROADCASTING = frozenset(
    [f"__{prefix}{name}__" for name in _ARITHMETIC for prefix in ("", "r")]
    + [f"__i{name}__" for name in _ARITHMETIC[:3]]
    + ["add", "add_", "sub", "sub_", "rsub", "mul", "mul_", "div", "where", "maximum", "minimum"]
    + ["expand_as", "masked_fill", "scaled_dot_product_attention", "matmul", "__matmul__"]
)
"""Operations that broadcast all their tensors over the leading axes."""
_EXPANSIONS = frozenset(("expand", "expand_as", "repeat"))


class SharedTensor(Tensor):
    """A value without an axis of rows; becomes one copy a row where it meets rows."""

    tape: Tape
    origin: tuple[LayerHandler, Tensor] | None
    """The layer that made it and its input, as long as nothing else was done to it."""

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        leaves, spec = tree_flatten((args, kwargs or {}))
        mine = [x for x in leaves if isinstance(x, SharedTensor)]
        tape = mine[0].tape
        name = getattr(func, "__name__", "")
        rest = [x for x in leaves if isinstance(x, Tensor) and not isinstance(x, SharedTensor)]
        axes = max(x.dim() for x in map(unmark, mine))
        rows = [x for x in rest if _has_rows(x, tape, axes, name)]
        if rest:
            tape.events.append((name, axes, len(rows)))
        if rows:
            most = max(x.dim() for x in rest)
            if name not in _BROADCASTING or (name.endswith("matmul__") and most < 3):
                raise _not_broadcasting(name, mine[0])
            lead = max((x.shape[0] for x in rest if x.dim() == most), default=0)
            operands = [
                copy_to_rows(x, most, name, lead) if isinstance(x, SharedTensor) else x
                for x in leaves
            ]
            args, kwargs = tree_unflatten(operands, spec)
            return func(*args, **kwargs)
        with torch._C.DisableTorchFunctionSubclass():
            out = func(*args, **(kwargs or {}))
        if name in _EXPANSIONS and _becomes_rows(mine[0], out, tape):
            tape.events.append((name, axes, -1))
            return copy_to_rows(mine[0], out.dim(), name).expand(out.shape)
        return tree_map_only(Tensor, lambda t: mark(t, tape), out)


def unmark(t: Tensor) -> Tensor:
    """Take the mark off a tensor that all rows share."""
    return t.as_subclass(Tensor) if isinstance(t, SharedTensor) else t


def mark(t: Tensor, tape: Tape, origin: tuple[LayerHandler, Tensor] | None = None) -> Tensor:
    """The tensor with its mark, if gradients matter."""
    if not t.requires_grad:
        return unmark(t)
    marked = unmark(t).as_subclass(SharedTensor)
    marked.tape, marked.origin = tape, origin
    return marked


def _has_rows(t: Tensor, tape: Tape, axes: int, name: str) -> bool:
    """Whether a tensor has rows; a constant of as many lines as there are rows is remembered."""
    if t.requires_grad or t.dim() < max(axes, 1):
        return t.requires_grad
    if t.shape[0] != tape.rows:
        tape.constants.add((name, axes, t.shape))
    return (name, axes, t.shape) not in tape.constants


def _becomes_rows(before: SharedTensor, after: Tensor, tape: Tape) -> bool:
    """Whether an expansion made the axis of rows, and nothing else was repeated."""
    old, new = unmark(before).shape, after.shape
    rest = (*(1 for _ in range(len(new) - len(old))), *old)
    fits = all(a in (1, b) for a, b in zip(rest[1:], new[1:], strict=True))
    return new[0] == tape.rows and rest[0] == 1 and fits


def copy_to_rows(value: SharedTensor, axes: int, name: str, lead: int = 0) -> Tensor:
    """One copy of a shared value a row, of so many axes; its gradient is the per-row one.

    `lead` is the first length of what it meets: a multiple of the rows where a model splits them
    into parts (windows), which follow each other row by row.
    """
    tape, z = value.tape, unmark(value)
    if tape.rows is None:
        raise InvalidArgument(
            "rows", None, "the number of rows, where a model begins with what all rows share",
            "with engine.recording(len(x)): ...",
        )  # fmt: skip
    z = z[(None,) * (axes - z.dim())] if z.dim() < axes else z
    if z.shape[0] != 1:
        raise _not_broadcasting(name, value)
    z = z[0]
    if value.origin is not None:
        handler, a = value.origin
        calls = [tape.note(handler, a.expand(tape.rows, *a.shape), (), tape.rows)]
    else:
        alike = z.detach().expand(tape.rows, *z.shape)
        calls = [
            tape.note(SharedValueHandler(p, z), alike, (), tape.rows) for p in leaf_parameters(z)
        ]
    copies = tape.copy_to_rows(z.detach(), calls)
    parts = lead // tape.rows if tape.rows and lead % tape.rows == 0 else 1
    return copies.repeat_interleave(parts, 0) if parts > 1 else copies


def leaf_parameters(z: Tensor) -> list[nn.Parameter]:
    """The parameters that a value was made from."""

    def walk(node: Any, visited: set[Any]) -> Iterator[nn.Parameter]:
        if node is None or node in visited:
            return
        visited.add(node)
        if (variable := getattr(node, "variable", None)) is not None:
            yield variable
        for following, _ in node.next_functions:
            yield from walk(following, visited)

    return list(walk(z.grad_fn, set())) if z.grad_fn is not None else [z]  # type: ignore[list-item]


@final
class SharedValueHandler(LayerHandler):
    """A parameter that made a shared value Z; per-row gradients are J^T G_i, one row at a time."""

    def __init__(self, parameter: nn.Parameter, z: Tensor) -> None:
        super().__init__("a value shared by all rows", [ParameterSlice(parameter)])
        self.parameter, self.z = parameter, z

    def per_example(self, call: BackwardCall) -> list[Tensor]:
        folded = fold_views(call.g, call.views)
        pulled = [
            torch.autograd.grad(self.z, self.parameter, g.to(self.z.dtype), retain_graph=True)[0]
            for g in folded
        ]
        return [torch.stack(pulled)]


def origin_of(
    handlers: tuple[LayerHandler, ...], a: Tensor | None
) -> tuple[LayerHandler, Tensor] | None:
    """A layer's handler and input, where the handler's own kernels can take copies of the input."""
    if (
        len(handlers) == 1
        and isinstance(handlers[0], EmbeddingHandler | LinearHandler)
        and a is not None
    ):
        return handlers[0], a.detach()
    return None


def _not_broadcasting(name: str, value: Tensor) -> LayerProblem:
    return LayerProblem(
        "",
        f"{name or 'an operation'} of a value that all rows share",
        f"of shape {tuple(unmark(value).shape)}",
        "one that broadcasts over the rows (an addition, a product, expand)",
        "or name the module that does it in through_func=[...] ('' is the whole model)",
    )
