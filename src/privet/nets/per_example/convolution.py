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
    KEEP_BYTES,
    Captured,
    Kernel,
    Measured,
    Target,
    add_bias,
    chunks,
    kept,
    silenced,
    squared_norms,
    weighted_rows,
)
from privet.nets.per_example.sites import Site, fold_views


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
            return [Kernel("bias", 0.0, lambda: kept(bias[None], lambda total: [total[0]]))]
        x, dy = self._operands(seen)
        geometry, views = self.geometry, seen.views
        out = []
        for kernel in conv_kernels.INSTANTIATING:
            if kernel.fits(x, dy, self.shape, geometry):
                cost = kernel.cost(x, dy, self.shape, geometry)
                run = functools.partial(self._instantiate, kernel, seen)
                out.append(Kernel(kernel.name, cost, run))
        if views == 1 and conv_kernels.gram_fits(x, dy, self.shape, geometry):
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

    def _instantiate(self, kernel: conv_kernels.Instantiating, seen: Captured) -> Measured:
        x, dy = self._operands(seen)
        shape, geometry, views = self.shape, self.geometry, seen.views
        width = shape.numel() * x.element_size()
        examples = x.shape[0] // views
        if examples * width > KEEP_BYTES:
            norms = self._exact_norms(kernel, x, dy, views)
            return self._contraction(seen, norms)
        values = kernel.run(x, dy, shape, geometry, views)
        return kept(
            values,
            lambda total: [kernel.finish(total, shape).reshape(self.weight_shape)],
            self._bias(seen) if self.has_bias else None,
        )

    def _exact_norms(
        self, kernel: conv_kernels.Instantiating, x: Tensor, dy: Tensor, views: int
    ) -> Tensor:
        norms = []
        for part in chunks(x.shape[0] // views, self.shape.numel() * x.element_size()):
            rows = slice(part.start * views, part.stop * views)
            values = kernel.run(x[rows], dy[rows], self.shape, self.geometry, views)
            norms.append(torch.stack([squared_norms(v) for v in values]).sum(0))
        return torch.cat(norms)

    def _gram(self, seen: Captured) -> Measured:
        x, dy = self._operands(seen)
        norms, vague = conv_kernels.gram(x, dy, self.shape, self.geometry)
        if len(vague):
            exact = conv_kernels.INSTANTIATING[0]
            norms[vague] = self._exact_norms(exact, x[vague], dy[vague], 1)
        return self._contraction(seen, norms)

    def _contraction(self, seen: Captured, norms: Tensor) -> Measured:
        bias = self._bias(seen) if self.has_bias else None
        if bias is not None:
            norms = norms + squared_norms(bias)

        def add_weighted(weights: Tensor, bad: Tensor | None, into: Sequence[Tensor]) -> None:
            x, dy = self._operands(seen)
            rows = weights if seen.views == 1 else weights.repeat_interleave(seen.views)
            bad_rows = None
            if bad is not None:
                offsets = torch.arange(seen.views)
                bad_rows = (bad.unsqueeze(1) * seen.views + offsets).view(-1)
            x, dy = silenced(x, bad_rows), silenced(dy, bad_rows)
            if x[0].numel() < dy[0].numel():
                x = weighted_rows(x, rows)
            else:
                dy = weighted_rows(dy, rows)
            weight = conv_kernels.weight_gradient(x, dy, self.shape, self.geometry)
            into[0].add_(weight.reshape(self.weight_shape))
            add_bias(bias, weights, bad, into)

        return Measured(norms, add_weighted)
