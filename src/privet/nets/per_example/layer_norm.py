"""LayerNorm and RMSNorm: y = xhat * gamma + beta with xhat computed along the last axes."""

from __future__ import annotations

from typing import final

import torch
from torch import Tensor, nn

from privet.nets.per_example.measured import Captured, Kernel, Measured, Target, kept
from privet.nets.per_example.sites import Site, fold_views


@final
class LayerNormSite(Site):
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
        super().__init__(name, [Target(p) for p in (weight, bias) if p is not None])
        self.has_weight, self.has_bias = weight is not None, bias is not None
        self.shape = shape

    def kernels(self, seen: Captured) -> list[Kernel]:
        return [Kernel("reduce", 0.0, lambda: self._reduce(seen))]

    def _reduce(self, seen: Captured) -> Measured:
        values = torch.stack([p.flatten(1) for p in self.per_example(seen)])
        return kept(values, lambda total: [part.view(self.shape) for part in total])

    def per_example(self, seen: Captured) -> list[Tensor]:
        x, g, views, statistics = seen.a, seen.g, seen.views, seen.statistics
        axes = tuple(range(1, g.dim() - len(self.shape)))
        parts = []
        if self.has_weight:
            *mean, rstd = statistics
            parts.append((x - mean[0] if mean else x) * rstd * g)
        parts += [g] if self.has_bias else []
        return [fold_views(p.sum(axes) if axes else p, views) for p in parts]
