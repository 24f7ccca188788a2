"""Normalisation layers: y = xhat * gamma + beta with xhat computed within one example.

The per-example gradients are sum g xhat and sum g over every axis that gamma does not have. xhat
is rebuilt from the input and its saved statistics when the gradient arrives, and centred before it
is multiplied: sum g x - mean sum g would cancel.
"""

from __future__ import annotations

from typing import final

import torch
from torch import Tensor, nn

from privet.nets.per_example.measured import Captured, Kernel, Measured, Target, chunks, kept
from privet.nets.per_example.sites import Site, fold_views

_CACHE_BYTES = 2**20


class _AffineSite(Site):
    """Common to all: reduce g xhat and g to the shape of gamma."""

    def __init__(self, name: str, weight: nn.Parameter | None, bias: nn.Parameter | None) -> None:
        super().__init__(name, [Target(p) for p in (weight, bias) if p is not None])
        self.has_weight, self.has_bias = weight is not None, bias is not None

    def kernels(self, seen: Captured) -> list[Kernel]:
        return [Kernel("reduce", 0.0, lambda: self._reduce(seen))]

    def _reduce(self, seen: Captured) -> Measured:
        gradients = self.per_example(seen)
        values = torch.stack([p.flatten(1) for p in gradients])
        shape = gradients[0].shape[1:]
        return kept(values, lambda total: [part.view(shape) for part in total])


@final
class LayerNormSite(_AffineSite):
    """LayerNorm and RMSNorm: gamma spans the last axes; statistics are (mean, rstd) or (rstd,)."""

    def __init__(
        self,
        name: str,
        weight: nn.Parameter | None,
        bias: nn.Parameter | None,
        shape: tuple[int, ...],
    ) -> None:
        super().__init__(name, weight, bias)
        self.shape = shape

    def per_example(self, seen: Captured) -> list[Tensor]:
        x, g, views, statistics = seen
        axes = tuple(range(1, g.dim() - len(self.shape)))
        parts = []
        if self.has_weight:
            *mean, rstd = statistics
            parts.append((x - mean[0] if mean else x) * rstd * g)
        parts += [g] if self.has_bias else []
        return [fold_views(_reduced(p, axes), views) for p in parts]


@final
class GroupNormSite(_AffineSite):
    """GroupNorm and InstanceNorm: gamma is per channel; statistics are (mean, rstd) per group."""

    def per_example(self, seen: Captured) -> list[Tensor]:
        x, g, views, statistics = seen
        axes = tuple(range(2, g.dim()))
        parts = []
        if self.has_weight:
            each = g.shape[1] // statistics[0].shape[1]
            mean, rstd = (s.repeat_interleave(each, 1) for s in statistics)
            centre = mean.view(*mean.shape, *[1] * len(axes))
            some = chunks(x.shape[0], max(1, x[0].numel()) * x.element_size(), _CACHE_BYTES)
            products = [_reduced((x[s] - centre[s]).mul_(g[s]), axes) for s in some]
            parts.append(torch.cat(products) * rstd)
        parts += [_reduced(g, axes)] if self.has_bias else []
        return [fold_views(p, views) for p in parts]


def _reduced(t: Tensor, axes: tuple[int, ...]) -> Tensor:
    return t.sum(axes) if axes else t
