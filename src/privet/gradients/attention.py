"""nn.MultiheadAttention: its four projections are linear layers, the rest is plain autograd.

What is recorded, norms and sums are those of `linear`; nothing between the projections has
parameters. Cost: as of four linear layers.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from privet.gradients.layer_protocol import RecordedLayer, constant, require_dimensions
from privet.gradients.linear import LinearHandler
from privet.gradients.tape import Tape


def is_supported_attention(module: nn.Module) -> bool:
    """Whether it is an attention with none of the rare options, which `any_module` handles."""
    if not isinstance(module, nn.MultiheadAttention):
        return False
    plain = type(module).forward is nn.MultiheadAttention.forward
    out = type(module.out_proj) is nn.modules.linear.NonDynamicallyQuantizableLinear
    parametrised = any("parametrizations" in m._modules for m in module.modules())
    return plain and out and not parametrised and module.bias_k is None and not module.add_zero_attn


def record_attention(name: str, module: nn.MultiheadAttention) -> RecordedLayer:
    """The recorded form: separate query, key and value projections, then the usual attention."""
    e = module.embed_dim
    packed = module.in_proj_weight is not None
    rows = [slice(i * e, (i + 1) * e) for i in range(3)]
    bias = module.in_proj_bias
    separate_biases: list[LinearHandler | None] = [None] * 3
    if packed:
        projections = [LinearHandler.of(name, module.in_proj_weight, bias, r) for r in rows]
    else:
        weights = (module.q_proj_weight, module.k_proj_weight, module.v_proj_weight)
        projections = [LinearHandler.of(name, w, None) for w in weights]
        separate_biases = [LinearHandler.of(name, None, bias, r) for r in rows]
    output_projection = LinearHandler.of(
        f"{name}.out_proj", module.out_proj.weight, module.out_proj.bias
    )

    def project(tape: Tape, x: Tensor, which: int) -> Tensor:
        if packed:
            w = constant(module.in_proj_weight)[rows[which]]
        else:
            w = constant((module.q_proj_weight, module.k_proj_weight, module.v_proj_weight)[which])
        b = None if bias is None else constant(module.in_proj_bias)[rows[which]]
        return tape.tap(tape.product(x, w, b, projections[which]), separate_biases[which], x)

    def forward(
        tape: Tape,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        require_dimensions(name, query, 3)
        inputs = [t if module.batch_first else t.transpose(0, 1) for t in (query, key, value)]
        heads = module.num_heads
        q, k, v = (
            project(tape, x, i).unflatten(2, (heads, -1)).transpose(1, 2)
            for i, x in enumerate(inputs)
        )
        scores = (q / math.sqrt(e // heads)) @ k.transpose(2, 3)
        if attn_mask is not None:
            mask = _additive(attn_mask, scores)
            scores = scores + (mask.view(-1, heads, *mask.shape[1:]) if mask.dim() == 3 else mask)
        if key_padding_mask is not None:
            scores = scores + _additive(key_padding_mask, scores)[:, None, None, :]
        weights = scores.softmax(-1)
        attended = F.dropout(weights, module.dropout, module.training) @ v
        joined = attended.transpose(1, 2).flatten(2)
        output = module.out_proj
        out = tape.product(
            joined, constant(output.weight), constant(output.bias), output_projection
        )
        out = out if module.batch_first else out.transpose(0, 1)
        if not need_weights:
            return out, None
        return out, weights.mean(1) if average_attn_weights else weights

    return RecordedLayer.of(forward, *projections, *separate_biases, output_projection)


def _additive(mask: Tensor, like: Tensor) -> Tensor:
    """A boolean mask (true means hidden) as an additive one."""
    if mask.dtype != torch.bool:
        return mask
    return torch.zeros_like(mask, dtype=like.dtype).masked_fill_(mask, -math.inf)
