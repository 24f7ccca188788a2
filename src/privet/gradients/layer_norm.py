"""LayerNorm and RMSNorm: y = xhat * gamma + beta with xhat computed along the last axes."""

from __future__ import annotations

import math
from typing import final

import torch
from torch import Tensor, nn

from privet.nets.per_example.measured import Captured, Kernel, Measured, Target, kept_apart
from privet.nets.per_example.sites import Site, fold_views
from privet.nets.per_example.wide import normalised_sums


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
        values = self._sums(seen)
        if values is None:
            values = torch.stack([p.flatten(1) for p in self.per_example(seen)])
        return kept_apart(values)

    def _sums(self, seen: Captured) -> Tensor | None:
        """Both sums in one pass over memory, where that is possible."""
        rows, width = len(seen.g), math.prod(self.shape)
        if seen.views != 1 or not (self.has_weight and rows):
            return None
        *mean, rstd = seen.statistics
        x, g, *lines = (
            t.reshape(rows, -1, n)
            for t, n in ((seen.a, width), (seen.g, width), *((s, 1) for s in (rstd, *mean)))
        )
        sums = normalised_sums(x, lines[1] if mean else None, lines[0], g)
        return sums if sums is None or self.has_bias else sums[:1]

    def per_example(self, seen: Captured) -> list[Tensor]:
        x, g, views, statistics = seen.a, seen.g, seen.views, seen.statistics
        axes = tuple(range(1, g.dim() - len(self.shape)))
        parts = []
        if self.has_weight:
            *mean, rstd = statistics
            parts.append((x - mean[0] if mean else x) * rstd * g)
        parts += [g] if self.has_bias else []
        return [fold_views(p.sum(axes) if axes else p, views) for p in parts]
