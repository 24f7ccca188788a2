"""A stand-in for an accelerator: real numbers that the host cannot read and must not mix with.

Tensors of this device say "cuda:0" where `fake_cuda` has been loaded, else "meta", so that code for
"not the host" runs; inside they hold numbers on the host. Every operation goes through a mode that
refuses what a GPU would: tensors of both kinds in one operation (numbers without dimensions apart),
or `.numpy()`. Under "cuda:0" torch's own fake tensors judge it too: each kind of call (operation,
devices of its inputs) is first made with fake "cuda" tensors, which raise where the real ones
would, and say where the answer lies.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch._subclasses import FakeTensorMode, fake_tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map_only, tree_unflatten

from privet.gradients import batch_shared_values, forward_pass

AWAY = torch.device("cuda", 0) if torch.backends.cuda.is_built() else torch.device("meta")
_MOVES = (torch.ops.aten._to_copy.default, torch.ops.aten.copy_.default)


class Away(torch.Tensor):
    @staticmethod
    def __new__(cls, inner):
        return torch.Tensor._make_wrapper_subclass(
            cls, inner.shape, strides=inner.stride(), storage_offset=inner.storage_offset(),
            dtype=inner.dtype, device=AWAY, requires_grad=False,
        )  # fmt: skip

    def __init__(self, inner):
        self.inner = inner

    def __repr__(self, **_):
        return f"Away({tuple(self.shape)})"

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        return run(func, args, kwargs or {})


class SharedAway(batch_shared_values.SharedTensor, Away):
    """The engine's mark for values without rows: torch refuses a second subclass otherwise."""


class _As(torch.autograd.Function):
    """The same value as another kind of tensor."""

    @staticmethod
    def forward(ctx, t, kind):
        return kind(t.inner)

    @staticmethod
    def backward(ctx, g):
        return g, None


def _unmark(t):
    return _As.apply(t, Away) if isinstance(t, SharedAway) else _MARKS[0](t)


def _mark(t, tape, origin=None):
    if not isinstance(t, Away) or not t.requires_grad:
        return _MARKS[1](t, tape, origin)
    marked = _As.apply(t, SharedAway)
    marked.tape, marked.origin = tape, origin
    return marked


_MARKS = batch_shared_values.unmark, batch_shared_values.mark
for module in (batch_shared_values, forward_pass):
    module.unmark, module.mark = _unmark, _mark


class Elsewhere(TorchDispatchMode):
    """Inside, tensors can be made on the stand-in device."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return run(func, args, kwargs or {})


def run(func, args, kwargs):
    if func is torch.ops.aten._pin_memory.default:  # there is no such memory without a driver
        return args[0].clone()
    tensors = [t for t in tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)]
    away = [t for t in tensors if isinstance(t, Away)]
    wanted = kwargs.get("device")
    if not away and (wanted is None or torch.device(wanted) != AWAY):
        return func(*args, **kwargs)
    here = [t for t in tensors if not isinstance(t, Away) and t.dim()]
    if away and here and func not in _MOVES:
        raise RuntimeError(f"{func}: expected all tensors on the same device")
    places = judged(func, args, kwargs) if AWAY.type == "cuda" else None
    kwargs = {**kwargs, **({"device": torch.device("cpu")} if wanted is not None else {})}
    inside = tree_map_only(Away, lambda t: t.inner, (args, kwargs))
    out = func(*inside[0], **inside[1])
    if func is torch.ops.aten.copy_.default or (func._schema.name.endswith("_") and tensors):
        return args[0]
    if any(a.alias_info is not None and a.alias_info.is_write for a in func._schema.arguments):
        given = [kwargs[a.name] for a in func._schema.arguments if a.name in kwargs and a.is_out]
        if given:
            return given[0] if len(given) == 1 else tuple(given)
    if places is not None:
        leaves, spec = tree_flatten(out)
        if len(set(places)) == 1:  # the number of answers may depend on sizes
            places = places[:1] * len(leaves)
        placed = zip(leaves, places, strict=True)
        return tree_unflatten([Away(t) if place == AWAY else t for t, place in placed], spec)
    if (
        func is torch.ops.aten._to_copy.default
        and wanted is not None
        and torch.device(wanted) != AWAY
    ):
        return out
    return tree_map_only(torch.Tensor, Away, out)


_JUDGED: dict[Any, list[Any] | None] = {}
_NO_ANSWER = (
    fake_tensor.DataDependentOutputException,
    fake_tensor.DynamicOutputShapeException,
    fake_tensor.UnsupportedOperatorException,
)


def judged(func, args, kwargs) -> list[Any] | None:
    """Where fake "cuda" tensors say that the answers lie; None where that depends on the data."""
    leaves, spec = tree_flatten((args, kwargs))
    key = (func, tuple(map(_kind, leaves)), spec)
    if key not in _JUDGED:
        with FakeTensorMode() as mode:
            shells = [_shell(mode, x) if isinstance(x, torch.Tensor) else x for x in leaves]
            again, named = tree_unflatten(shells, spec)
            try:
                answer = tree_leaves(func(*again, **named))
                _JUDGED[key] = [t.device if isinstance(t, torch.Tensor) else None for t in answer]
            except _NO_ANSWER:
                _JUDGED[key] = None
    return _JUDGED[key]


def _kind(x):
    """All that the answer's device may depend on, and what makes a call another call."""
    if isinstance(x, torch.Tensor):
        return isinstance(x, Away), x.dim(), x.dtype
    return x if isinstance(x, (torch.device, torch.dtype, bool)) else type(x)


def _shell(mode, t):
    like = torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device="meta")
    return fake_tensor.FakeTensor(mode, like, AWAY if isinstance(t, Away) else torch.device("cpu"))


def sent_away(model: nn.Module) -> nn.Module:
    """The model with its parameters and buffers on the stand-in device."""
    done: dict[int, nn.Parameter] = {}
    for module in model.modules():
        for name, p in module._parameters.items():
            if p is not None:
                if id(p) not in done:
                    done[id(p)] = nn.Parameter(Away(p.detach().clone()), p.requires_grad)
                module._parameters[name] = done[id(p)]
        for name, b in module._buffers.items():
            if b is not None:
                module._buffers[name] = Away(b.detach().clone())
    return model
