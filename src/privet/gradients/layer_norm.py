"""LayerNorm and RMSNorm: y = xhat * gamma + beta with xhat computed along the last axes.

What is recorded: the input, and the statistics of the forward pass. The per-example gradients are
as small as gamma, so they are always instantiated.
"""

from __future__ import annotations

import math
from typing import final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from privet.gradients.float64_sums import normalised_sums
from privet.gradients.layer_protocol import (
    BackwardCall,
    Kernel,
    LayerHandler,
    ParameterSlice,
    RecordedLayer,
    constant,
    fold_views,
    trainable,
)
from privet.gradients.norms_and_sum import NormsAndSum, from_gradients_by_target
from privet.gradients.tape import Tape


@final
class LayerNormHandler(LayerHandler):
    """gamma spans the last axes; statistics are (mean, rstd), or (rstd,) for RMSNorm.

    The per-example gradients are sum g xhat and sum g over every axis that gamma does not have.
    xhat is rebuilt from the input and its saved statistics when the gradient arrives, and centred
    before it is multiplied: sum g x - mean sum g would cancel.
    """

    def __init__(
        self,
        name: str,
        weight: nn.Parameter | None,
        bias: nn.Parameter | None,
        shape: tuple[int, ...],
    ) -> None:
        super().__init__(name, [ParameterSlice(p) for p in (weight, bias) if p is not None])
        self.has_weight, self.has_bias = weight is not None, bias is not None
        self.shape = shape

    def kernels(self, call: BackwardCall) -> list[Kernel]:
        return [Kernel("reduce", 0.0, lambda: self._reduce(call))]

    def _reduce(self, call: BackwardCall) -> NormsAndSum:
        """Norms and sum from both gradients of every row, in one pass where that is possible.

        Cost: 5 flops a number of the input, each of x and g read once.
        """
        sums = self._sums(call)
        return from_gradients_by_target(self.per_example(call) if sums is None else list(sums))

    def _sums(self, call: BackwardCall) -> Tensor | None:
        """Both sums in one pass over memory, where that is possible."""
        rows, width = len(call.g), math.prod(self.shape)
        if call.views != 1 or not (self.has_weight and rows):
            return None
        *mean, rstd = call.statistics
        x, g, *lines = (
            t.reshape(rows, -1, n)
            for t, n in ((call.a, width), (call.g, width), *((s, 1) for s in (rstd, *mean)))
        )
        sums = normalised_sums(x, lines[1] if mean else None, lines[0], g)
        return sums if sums is None or self.has_bias else sums[:1]

    def per_example(self, call: BackwardCall) -> list[Tensor]:
        x, g, views, statistics = call.a, call.g, call.views, call.statistics
        axes = tuple(range(1, g.dim() - len(self.shape)))
        parts = []
        if self.has_weight:
            *mean, rstd = statistics
            parts.append((x - mean[0] if mean else x) * rstd * g)
        parts += [g] if self.has_bias else []
        return [fold_views(p.sum(axes) if axes else p, views) for p in parts]


def record_layer_norm(name: str, module: nn.LayerNorm) -> RecordedLayer:
    """The recorded form of nn.LayerNorm; it keeps mean and rstd of every place."""
    weight, bias = trainable(module.weight), trainable(module.bias)
    shape = tuple(module.normalized_shape)
    some = weight is not None or bias is not None
    handler = LayerNormHandler(name, weight, bias, shape) if some else None

    def forward(tape: Tape, input: Tensor) -> Tensor:
        y, mean, rstd = torch.native_layer_norm(
            input, shape, constant(module.weight), constant(module.bias), module.eps
        )
        return tape.tap(y, handler, input, (mean.detach(), rstd.detach()))

    return RecordedLayer.of(forward, handler)


def record_rms_norm(name: str, module: nn.RMSNorm) -> RecordedLayer:
    """The recorded form of nn.RMSNorm, which has no mean and no bias."""
    weight = trainable(module.weight)
    shape = tuple(module.normalized_shape)
    handler = LayerNormHandler(name, weight, None, shape) if weight is not None else None
    axes = tuple(range(-len(shape), 0))

    def forward(tape: Tape, x: Tensor) -> Tensor:
        y = F.rms_norm(x, shape, constant(module.weight), module.eps)
        eps = torch.finfo(x.dtype).eps if module.eps is None else module.eps
        with torch.no_grad():
            rstd = (x.square().mean(axes, keepdim=True) + eps).rsqrt()
        return tape.tap(y, handler, x, (rstd,))

    return RecordedLayer.of(forward, handler)
