"""Any other module: run it with a copy of its parameters per row, under vmap or row by row.

Every row gets its own copy of each parameter (a stride-zero expansion, no memory), so the gradient
of the copies is the per-row gradient. This works for whatever torch.func can batch, and otherwise
one row at a time.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

from privet.errors import InvalidArgument
from privet.nets.per_example.layers import Recorded
from privet.nets.per_example.sites import InstantiatedSite
from privet.nets.per_example.tape import Tape


def fallback(name: str, module: nn.Module) -> Recorded:
    """The recorded form of a module the engine has no kernels for."""
    sites = {
        key: InstantiatedSite(name, p) for key, p in module.named_parameters() if p.requires_grad
    }
    plain = module.forward
    runner = _Runner(name, module)

    def forward(tape: Tape, *args: Any, **kwargs: Any) -> Any:
        rows = _rows(name, tape.rows, args, kwargs)
        if not torch.is_grad_enabled():
            return plain(*args, **kwargs)
        parameters = dict(module.named_parameters())
        copies = {key: tape.copies(parameters[key], site, rows) for key, site in sites.items()}
        return runner.run(copies, args, kwargs, rows)

    return Recorded(forward, tuple(sites.values()))


def _rows(name: str, told: int | None, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    """The number of rows: that of the batch, or the first dimension of the first tensor."""
    leaves = tree_flatten((args, kwargs))[0]
    lengths = [x.shape[0] for x in leaves if isinstance(x, Tensor) and x.dim() > 0]
    if lengths:
        return told if told in lengths else lengths[0]
    raise InvalidArgument(
        f"the input of layer {name!r}", "no tensor", "a tensor with one row an example"
    )


class _Runner:
    """Runs a module row-wise, and checks that this is what the module itself computes.

    Once for each way to tell rows from constants. A constant is an argument of another length than
    the batch; its shape is remembered, so that a mask of (5, 5) stays one in a batch of 5 rows.
    """

    def __init__(self, name: str, module: nn.Module) -> None:
        self.name, self.module = name, module
        self.vectorised = True
        self.checked: set[tuple[bool, ...]] = set()
        self.constants: set[tuple[int, torch.Size]] = set()

    def run(self, copies: dict[str, Tensor], args: Any, kwargs: Any, rows: int) -> Any:
        """The module's output, computed with a copy of the parameters per row."""
        own = self.module.__dict__.pop(
            "forward", None
        )  # the module's own forward, not the recorded one
        try:
            way = tuple(self._are_rows(tree_flatten((args, kwargs))[0], rows))
            if way not in self.checked:
                self._check(args, kwargs, rows)
                self.checked.add(way)
            return self._rowwise(copies, args, kwargs, rows)
        finally:
            if own is not None:
                self.module.__dict__["forward"] = own

    def _are_rows(self, leaves: list[Any], rows: int) -> list[bool]:
        """Which arguments have a row for each example."""
        tensors = [(k, x.shape) for k, x in enumerate(leaves) if isinstance(x, Tensor) and x.dim()]
        self.constants |= {(k, shape) for k, shape in tensors if shape[0] != rows}
        found = {k for k, shape in tensors if (k, shape) not in self.constants}
        return [k in found for k in range(len(leaves))]

    def _one(self, copies: dict[str, Tensor], args: Any, kwargs: Any) -> Any:
        return functional_call(self.module, copies, args, kwargs)

    def _rowwise(self, copies: dict[str, Tensor], args: Any, kwargs: Any, rows: int) -> Any:
        leaves, spec = tree_flatten((args, kwargs))
        per_row = self._are_rows(leaves, rows)

        def one(copies: dict[str, Tensor], *some: Tensor) -> Any:
            fill = iter(some)
            full = [
                next(fill).unsqueeze(0) if is_row else leaf
                for leaf, is_row in zip(leaves, per_row, strict=True)
            ]
            a, k = tree_unflatten(full, spec)
            return tree_map(lambda t: t.squeeze(0), self._one(copies, a, k))

        batched = [x for x, is_row in zip(leaves, per_row, strict=True) if is_row]
        if self.vectorised:
            try:
                return torch.vmap(one, randomness="different")(copies, *batched)
            except (RuntimeError, ValueError, NotImplementedError):
                self.vectorised = False
        return _stacked(
            [
                one({k: c[i] for k, c in copies.items()}, *[x[i] for x in batched])
                for i in range(rows)
            ]
        )

    def _check(self, args: Any, kwargs: Any, rows: int) -> None:
        """Refuse a module whose output for a row depends on the other rows."""
        training = [m for m in self.module.modules() if m.training]
        self.module.eval()  # nothing may be drawn at random
        try:
            with torch.no_grad():
                expected = self.module(*args, **kwargs)
                copies = {
                    k: p.detach().expand(rows, *p.shape) for k, p in self.module.named_parameters()
                }
                found = self._rowwise(copies, args, kwargs, rows)
        finally:
            for m in training:
                m.training = True
        pairs = zip(tree_flatten(expected)[0], tree_flatten(found)[0], strict=True)
        for whole, apart in pairs:
            same = whole.shape == apart.shape and torch.allclose(
                whole, apart, rtol=1e-3, atol=1e-4 * float(whole.abs().nan_to_num(0, 0, 0).amax())
                if whole.numel() else 0.0, equal_nan=True,
            )  # fmt: skip
            if not same:
                raise InvalidArgument(
                    f"layer {self.name!r}",
                    type(self.module).__name__,
                    "a module that treats every row (first dimension) by itself",
                    "its output for a batch differs from its outputs row by row",
                )


def _stacked(outputs: list[Any]) -> Any:
    """A list of output trees as one tree of stacked tensors."""
    flat = [tree_flatten(out)[0] for out in outputs]
    spec = tree_flatten(outputs[0])[1]
    return tree_unflatten([torch.stack(parts) for parts in zip(*flat, strict=True)], spec)
