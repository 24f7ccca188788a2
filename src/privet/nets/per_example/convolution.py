"""Convolutions of one to three dimensions, and their transposes.

The weight gradient of example i is the correlation of its input with its output gradient. A
transposed convolution is the adjoint of a convolution, so its weight gradient is that of the
convolution with input and output gradient exchanged. Conv1d is Conv2d on images of height one.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import final

import torch
from torch import Tensor, nn

from privet.nets.per_example import conv_kernels
from privet.nets.per_example.conv_kernels import Geometry
from privet.nets.per_example.measured import (
    Captured,
    Kernel,
    Measured,
    Target,
    add_bias,
    in_chunks,
    kept,
    silenced,
)
from privet.nets.per_example.sites import Site, fold_views
from privet.nets.per_example.wide import add_, squared_norms


@final
class ConvolutionSite(Site):
    """Any convolution; `transposed` exchanges the roles of input and output gradient."""

    def __init__(
        self,
        name: str,
        weight: nn.Parameter | None,
        bias: nn.Parameter | None,
        weight_shape: torch.Size,
        geometry: Geometry,
        transposed: bool,
    ) -> None:
        super().__init__(name, [Target(p) for p in (weight, bias) if p is not None])
        self.has_weight, self.has_bias = weight is not None, bias is not None
        self.weight_shape = weight_shape
        flat = len(weight_shape) == 3
        self.shape = torch.Size((*weight_shape[:2], 1, weight_shape[2])) if flat else weight_shape
        self.geometry = geometry.lifted() if flat else geometry
        self.transposed = transposed

    def key(self, seen: Captured) -> str:
        return f"{super().key(seen)}:{'x'.join(map(str, self.shape))}:{self.geometry.key()}"

    def _operands(self, seen: Captured) -> tuple[Tensor, Tensor]:
        x, dy = (seen.g, seen.a) if self.transposed else (seen.a, seen.g)
        return (x.unsqueeze(2), dy.unsqueeze(2)) if x.dim() == 3 else (x, dy)

    def _bias(self, seen: Captured) -> Tensor:
        return fold_views(seen.g.flatten(2).sum(2), seen.views)

    def kernels(self, seen: Captured) -> list[Kernel]:
        if not self.has_weight:
            bias = self._bias(seen)
            return [Kernel("bias", 0.0, lambda: kept(bias[None], None))]
        x, dy = self._operands(seen)
        geometry = self.geometry
        out = []
        for kernel in conv_kernels.INSTANTIATING:
            if kernel.fits(x, dy, self.shape, geometry):
                cost = kernel.cost(x, dy, self.shape, geometry)
                run = functools.partial(self._instantiate, kernel, seen)
                out.append(Kernel(kernel.name, cost, run))
        few = seen.views == 1 and not seen.wide
        if few and conv_kernels.gram_fits(x, dy, self.shape, geometry):
            cost = conv_kernels.gram_cost(x, dy, self.shape, geometry)
            out.append(Kernel("gram", cost, lambda: self._gram(seen)))
        return out

    def per_example(self, seen: Captured) -> list[Tensor]:
        out = []
        if self.has_weight:
            x, dy = self._operands(seen)
            values = conv_kernels.loop(x, dy, self.shape, self.geometry, seen.views)
            out.append(values[0].view(-1, *self.weight_shape))
        return out + ([self._bias(seen)] if self.has_bias else [])

    def instance_size(self, a: torch.Size, y: torch.Size, views: int) -> int:
        return self.shape.numel() if self.has_weight else 0

    def _gram(self, seen: Captured) -> Measured:
        x, dy = self._operands(seen)
        bias = self._bias(seen) if self.has_bias else None
        norms = conv_kernels.gram(x, dy, self.shape, self.geometry)

        def add_weighted(weights: Tensor, bad: Tensor | None, into: Sequence[Tensor]) -> None:
            each = weights.to(dy.dtype).view(-1, *[1] * (dy.dim() - 1))
            some_x, some_dy = silenced(x, bad), silenced(dy, bad) * each
            total = conv_kernels.contraction(some_x, some_dy, self.shape, self.geometry)
            whole = conv_kernels.finish_unfolded(total, self.shape)
            add_(into[0], whole.reshape(self.weight_shape))
            add_bias(bias, weights, bad, into)

        return Measured(norms if bias is None else norms + squared_norms(bias), add_weighted)

    def _instantiate(self, kernel: conv_kernels.Instantiating, seen: Captured) -> Measured:
        x, dy = self._operands(seen)
        shape, geometry, views = self.shape, self.geometry, seen.views

        def run(which: slice) -> Tensor:
            rows = slice(which.start * views, which.stop * views)
            return kernel.run(x[rows], dy[rows], shape, geometry, views)

        return in_chunks(
            x.shape[0] // views,
            shape.numel() * x.element_size(),
            run,
            lambda total: [kernel.finish(total, shape).reshape(self.weight_shape)],
            self._bias(seen) if self.has_bias else None,
        )
