"""A stand-in for an accelerator: real numbers that the host cannot read and must not mix with.

Tensors of this device say `device="meta"`, so that code for "not the host" runs; inside they hold
numbers on the host. Every operation goes through a mode that refuses what a GPU would: tensors of
both kinds in one operation (numbers without dimensions apart), or `.numpy()`. (Fake "cuda" tensors
need a build of torch that is linked with CUDA.)
"""

from __future__ import annotations

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

AWAY = torch.device("meta")
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


class Elsewhere(TorchDispatchMode):
    """Inside, tensors can be made on the stand-in device."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return run(func, args, kwargs or {})


def run(func, args, kwargs):
    tensors = [t for t in tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)]
    away = [t for t in tensors if isinstance(t, Away)]
    wanted = kwargs.get("device")
    if not away and (wanted is None or torch.device(wanted) != AWAY):
        return func(*args, **kwargs)
    here = [t for t in tensors if not isinstance(t, Away) and t.dim()]
    if away and here and func not in _MOVES:
        raise RuntimeError(f"{func}: expected all tensors on the same device")
    kwargs = {**kwargs, **({"device": torch.device("cpu")} if wanted is not None else {})}
    inside = tree_map_only(Away, lambda t: t.inner, (args, kwargs))
    out = func(*inside[0], **inside[1])
    if func is torch.ops.aten.copy_.default or (func._schema.name.endswith("_") and tensors):
        return args[0]
    if any(a.alias_info is not None and a.alias_info.is_write for a in func._schema.arguments):
        given = [kwargs[a.name] for a in func._schema.arguments if a.name in kwargs and a.is_out]
        if given:
            return given[0] if len(given) == 1 else tuple(given)
    if (
        func is torch.ops.aten._to_copy.default
        and wanted is not None
        and torch.device(wanted) != AWAY
    ):
        return out
    return tree_map_only(torch.Tensor, Away, out)


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
