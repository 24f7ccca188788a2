"""Layers and attention inside vmap: called once, on all rows, by the engine's own kernels.

Inside `torch.vmap` a tensor of one row, (1, ...), is a physical one of (rows, 1, ...). A recorded
layer treats rows by themselves, so it takes the physical tensor without the 1, outside of vmap, and
its output goes back in. Cost: two views.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import torch._C._functorch as functorch  # what torch.vmap is made of
import torch.nn.functional as F
from torch import Tensor, nn
from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack

from privet.gradients.device import autocast_enabled
from privet.gradients.layer_protocol import RecordedLayer
from privet.gradients.tape import Tape


def is_batched(t: Tensor) -> bool:
    """Whether a tensor has a value for each row."""
    return functorch.is_batchedtensor(t)


def all_rows(t: Tensor, rows: int) -> Tensor:
    """The physical tensor, rows in front; of a constant, one that repeats it."""
    if not is_batched(t):
        return t.unsqueeze(0).expand(rows, *t.shape)
    return functorch.get_unwrapped(t).movedim(functorch.maybe_get_bdim(t), 0)


def _merge(t: Tensor, rows: int, axis: int = 0) -> Tensor:
    """The physical tensor with the rows at `axis`, where that of one row has length 1."""
    t = all_rows(t, rows).squeeze(axis + 1)
    return t if axis == 0 else t.movedim(0, axis)


def _split(t: Tensor, axis: int = 0) -> Tensor:
    """What vmap takes for the tensor of one row, of a physical one with the rows at `axis`."""
    t = (t if axis == 0 else t.movedim(axis, 0)).unsqueeze(axis + 1)
    return put_inside(t)


def put_inside(t: Tensor) -> Tensor:
    """What vmap takes for the tensor of one row, of a physical one with rows in front."""
    return functorch._add_batch_dim(t, 0, functorch.current_level())


def attend(query: Tensor, key: Tensor, value: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """F.scaled_dot_product_attention of all rows at once: vmap has no rule for its kernels."""
    rest = dict(zip(("attn_mask", "dropout_p", "is_causal"), args, strict=False)) | kwargs
    mask, three = rest.pop("attn_mask", None), (query, key, value)
    rows = next((all_rows(t, 0).shape[0] for t in three if is_batched(t)), None)
    deep = mask is not None and mask.dim() == 4 and mask.shape[0] != 1
    if rows is None or deep or any(t.dim() != 4 or t.shape[0] != 1 for t in three):
        return F.scaled_dot_product_attention(*three, attn_mask=mask, **rest)
    query, key, value = (_merge(t, rows) for t in three)
    if mask is not None and is_batched(mask):
        narrow = 4 - mask.dim()
        mask = all_rows(mask, rows)
        mask = mask.squeeze(1) if narrow == 0 else mask[(slice(None), *[None] * (narrow - 1))]
    with temporarily_clear_interpreter_stack():
        out = F.scaled_dot_product_attention(query, key, value, attn_mask=mask, **rest)
    return _split(out)


@final
@dataclass(frozen=True, eq=False)
class LayerCall:
    """A recorded layer, called on all rows at once."""

    module: nn.Module
    layer: RecordedLayer

    def suits(self, args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
        """Whether the recorded form takes these arguments of one row.

        If not, for instance frames of a film that a convolution takes for examples, torch's own
        form is used, with a copy of the parameters a row.
        """
        module = self.module
        if isinstance(module, nn.RNNBase | nn.MultiheadAttention):
            axis = _row_axis(module)
            inputs = [a for a in args[:3] if isinstance(a, Tensor)]
            if isinstance(module, nn.RNNBase):
                inputs = inputs[:1]
            elif len(inputs) != 3:
                return False
            return bool(inputs) and all(t.dim() == 3 and t.shape[axis] == 1 for t in inputs)
        if len(args) != 1 or kwargs or not isinstance(args[0], Tensor):
            return False
        x, places = args[0], _places(module)
        if places is not None:
            return x.dim() >= places
        least, most = _dimensions(module)
        return least <= x.dim() <= most and x.shape[0] == 1

    def run(self, tape: Tape, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """The output of one row, inside vmap."""
        module = self.module
        rows = tape.rows
        assert rows is not None
        if isinstance(module, nn.RNNBase):
            return self._recur(tape, rows, *args, **kwargs)
        if isinstance(module, nn.MultiheadAttention):
            return self._attend(tape, rows, *args, **kwargs)
        (x,) = args
        places = _places(module)
        apart = places is None or (x.dim() > places and x.shape[0] == 1)
        y = self._call(tape, _merge(x, rows) if apart else all_rows(x, rows))
        return _split(y) if apart else put_inside(y)

    def _call(self, tape: Tape, *args: Any, **kwargs: Any) -> Any:
        tape.used_autocast = tape.used_autocast or autocast_enabled(args[0].device)
        with temporarily_clear_interpreter_stack():
            return self.layer.forward(tape, *args, **kwargs)

    def _recur(self, tape: Tape, rows: int, input: Tensor, hx: Any = None) -> Any:
        axis = _row_axis(self.module)
        start = tuple(_merge(h, rows, 1) for h in hx) if isinstance(hx, tuple) else None
        if isinstance(hx, Tensor):
            start = _merge(hx, rows, 1)  # type: ignore[assignment]
        y, last = self._call(tape, _merge(input, rows, axis), start)
        state = tuple(_split(h, 1) for h in last) if isinstance(last, tuple) else _split(last, 1)
        return _split(y, axis), state

    def _attend(
        self,
        tape: Tape,
        rows: int,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> Any:
        axis, heads = _row_axis(self.module), int(self.module.num_heads)  # type: ignore[arg-type]
        if key_padding_mask is not None:
            key_padding_mask = _merge(key_padding_mask, rows)
        if attn_mask is not None and (is_batched(attn_mask) or attn_mask.dim() == 3):
            each = all_rows(attn_mask, rows)
            each = each if each.dim() == 4 else each.unsqueeze(1).expand(-1, heads, -1, -1)
            attn_mask = each.flatten(0, 1)
        three = [_merge(t, rows, axis) for t in (query, key, value)]
        out, weights = self._call(
            tape, *three, key_padding_mask, need_weights, attn_mask, average_attn_weights,
            is_causal,
        )  # fmt: skip
        return _split(out, axis), None if weights is None else _split(weights)


def _row_axis(module: Any) -> int:
    return 0 if module.batch_first else 1


def _places(module: Any) -> int | None:
    """How many last dimensions a layer works on, where it takes any number before; else None."""
    if isinstance(module, nn.LayerNorm | nn.RMSNorm):
        return len(module.normalized_shape)
    if isinstance(module, nn.Embedding):
        return 0
    if isinstance(module, nn.Linear) or type(module).__name__ == "Conv1D":  # of transformers
        return 1
    return None


def _dimensions(module: Any) -> tuple[int, int]:
    """The dimensions that an input may have, with that of the rows."""
    if isinstance(module, nn.GroupNorm):
        return 2, 8  # any: more than eight nobody has
    for suffix in (1, 2, 3):
        if type(module).__name__.endswith(f"{suffix}d"):
            return suffix + 2, suffix + 2
    return 0, -1  # another kind: never
