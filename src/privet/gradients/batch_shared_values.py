"""Values that all rows share: position embeddings looked up once, relative positions, and the like.

Such a value Z is made from parameters and constants, never from rows, and has no axis of rows. It
is computed by plain autograd and carried as a `Shared` tensor until it meets rows, in an addition
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
from privet.nets.per_example.measured import Captured, Kernel, Target, kept
from privet.nets.per_example.sites import EmbeddingSite, LinearSite, Site, fold_views
from privet.nets.per_example.tape import Tape

_MEETINGS = frozenset(
    [
        "add",
        "add_",
        "__add__",
        "__radd__",
        "__iadd__",
        "sub",
        "sub_",
        "__sub__",
        "__rsub__",
        "__isub__",
        "rsub",
        "mul",
        "mul_",
        "__mul__",
        "__rmul__",
        "__imul__",
        "div",
        "__truediv__",
        "__rtruediv__",
        "where",
        "maximum",
        "minimum",
        "masked_fill",
        "scaled_dot_product_attention",
        "matmul",
        "__matmul__",
    ]
)
"""Operations that broadcast all their tensors over the leading axes."""
_EXPANSIONS = frozenset(("expand", "expand_as", "repeat"))


class Shared(Tensor):
    """A value without an axis of rows; becomes one copy a row where it meets rows."""

    tape: Tape
    origin: tuple[Site, Tensor] | None
    """The layer that made it and its input, as long as nothing else was done to it."""

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        leaves, spec = tree_flatten((args, kwargs or {}))
        mine = [x for x in leaves if isinstance(x, Shared)]
        tape = mine[0].tape
        name = getattr(func, "__name__", "")
        others = [x for x in leaves if isinstance(x, Tensor) and not isinstance(x, Shared)]
        axes = max(x.dim() for x in map(plain, mine))
        rows = [x for x in others if _has_rows(x, tape, axes, name)]
        if others:
            tape.events.append((name, axes, len(rows)))
        if rows:
            most = max(x.dim() for x in others)
            if name not in _MEETINGS or (name.endswith("matmul__") and most < 3):
                raise _cannot(name, mine[0])
            given = [copies(x, most, name) if isinstance(x, Shared) else x for x in leaves]
            args, kwargs = tree_unflatten(given, spec)
            return func(*args, **kwargs)
        with torch._C.DisableTorchFunctionSubclass():
            out = func(*args, **(kwargs or {}))
        if name in _EXPANSIONS and _becomes_rows(mine[0], out, tape):
            tape.events.append((name, axes, -1))
            return copies(mine[0], out.dim(), name).expand(out.shape)
        return tree_map_only(Tensor, lambda t: shared(t, tape), out)


def plain(t: Tensor) -> Tensor:
    """The tensor without its mark."""
    return t.as_subclass(Tensor) if isinstance(t, Shared) else t


def shared(t: Tensor, tape: Tape, origin: tuple[Site, Tensor] | None = None) -> Tensor:
    """The tensor with its mark, if gradients matter."""
    if not t.requires_grad:
        return plain(t)
    marked = plain(t).as_subclass(Shared)
    marked.tape, marked.origin = tape, origin
    return marked


def _has_rows(t: Tensor, tape: Tape, axes: int, name: str) -> bool:
    """Whether a tensor has rows; a constant of as many lines as there are rows is remembered."""
    if t.requires_grad or t.dim() < max(axes, 1):
        return t.requires_grad
    if t.shape[0] != tape.rows:
        tape.constants.add((name, axes, t.shape))
    return (name, axes, t.shape) not in tape.constants


def _becomes_rows(before: Shared, after: Tensor, tape: Tape) -> bool:
    """Whether an expansion made the axis of rows, and nothing else was repeated."""
    old, new = plain(before).shape, after.shape
    rest = (*(1 for _ in range(len(new) - len(old))), *old)
    fits = all(a in (1, b) for a, b in zip(rest[1:], new[1:], strict=True))
    return new[0] == tape.rows and rest[0] == 1 and fits


def copies(value: Shared, axes: int, name: str) -> Tensor:
    """One copy of a shared value a row, of so many axes; its gradient is the per-row one."""
    tape, z = value.tape, plain(value)
    assert tape.rows is not None
    z = z[(None,) * (axes - z.dim())] if z.dim() < axes else z
    if z.shape[0] != 1:
        raise _cannot(name, value)
    z = z[0]
    if value.origin is not None:
        site, a = value.origin
        uses = [tape.note(site, a.expand(tape.rows, *a.shape), (), tape.rows)]
    else:
        alike = z.detach().expand(tape.rows, *z.shape)
        uses = [tape.note(SharedSite(p, z), alike, (), tape.rows) for p in leaves_of(z)]
    return tape.copied(z.detach(), uses)


def leaves_of(z: Tensor) -> list[nn.Parameter]:
    """The parameters that a value was made from."""

    def walk(node: Any, seen: set[Any]) -> Iterator[nn.Parameter]:
        if node is None or node in seen:
            return
        seen.add(node)
        if (variable := getattr(node, "variable", None)) is not None:
            yield variable
        for following, _ in node.next_functions:
            yield from walk(following, seen)

    return list(walk(z.grad_fn, set())) if z.grad_fn is not None else [z]  # type: ignore[list-item]


@final
class SharedSite(Site):
    """A parameter that made a shared value Z; per-row gradients are J^T G_i, one row at a time."""

    def __init__(self, parameter: nn.Parameter, z: Tensor) -> None:
        super().__init__("a value shared by all rows", [Target(parameter)])
        self.parameter, self.z = parameter, z

    def kernels(self, seen: Captured) -> list[Kernel]:
        (gradients,) = self.per_example(seen)
        values = gradients.reshape(1, len(gradients), -1)
        return [Kernel("pulled back", 0.0, lambda: kept(values, None))]

    def per_example(self, seen: Captured) -> list[Tensor]:
        folded = fold_views(seen.g, seen.views)
        pulled = [
            torch.autograd.grad(self.z, self.parameter, g.to(self.z.dtype), retain_graph=True)[0]
            for g in folded
        ]
        return [torch.stack(pulled)]


def origin_of(sites: tuple[Site, ...], given: Tensor | None) -> tuple[Site, Tensor] | None:
    """A layer's site and input, where the site's own kernels can take copies of the input."""
    if len(sites) == 1 and isinstance(sites[0], EmbeddingSite | LinearSite) and given is not None:
        return sites[0], given.detach()
    return None


def _cannot(name: str, value: Tensor) -> InvalidArgument:
    return InvalidArgument(
        f"{name or 'an operation'} of a value that all rows share",
        f"of shape {tuple(plain(value).shape)}",
        "one that broadcasts over the rows (an addition, a product, expand)",
        "or name the module that does it in through_func=[...] ('' is the whole model)",
    )
