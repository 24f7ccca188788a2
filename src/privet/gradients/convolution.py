"""Convolutions of one to three dimensions, and their transposes.

The weight gradient of example i is the correlation of its input with its output gradient. A
transposed convolution is the adjoint of a convolution, so its weight gradient is that of the
convolution with input and output gradient exchanged. Conv1d is Conv2d on images of height one.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from privet.gradients import convolution_ghost_norms, convolution_weight_gradients
from privet.gradients.convolution_weight_gradients import Geometry
from privet.gradients.float64_sums import add_, squared_norms
from privet.gradients.layer_protocol import (
    BackwardCall,
    Kernel,
    LayerHandler,
    ParameterSlice,
    RecordedLayer,
    constant,
    fold_views,
    require_dimensions,
    trainable,
)
from privet.gradients.norms_and_sum import (
    NormsAndSum,
    add_bias,
    from_chunks,
    from_gradients,
    zero_rows,
)
from privet.gradients.tape import Tape


@final
class ConvolutionHandler(LayerHandler):
    """Any convolution; `transposed` exchanges the roles of input and output gradient."""

    kind = "ConvolutionSite"  # the word in the checkpoints of earlier versions

    def __init__(
        self,
        name: str,
        weight: nn.Parameter | None,
        bias: nn.Parameter | None,
        weight_shape: torch.Size,
        geometry: Geometry,
        transposed: bool,
    ) -> None:
        super().__init__(name, [ParameterSlice(p) for p in (weight, bias) if p is not None])
        self.has_weight, self.has_bias = weight is not None, bias is not None
        self.weight_shape = weight_shape
        flat = len(weight_shape) == 3
        self.shape = torch.Size((*weight_shape[:2], 1, weight_shape[2])) if flat else weight_shape
        self.geometry = geometry.with_height() if flat else geometry
        self.transposed = transposed

    def key(self, call: BackwardCall) -> str:
        return f"{super().key(call)}:{'x'.join(map(str, self.shape))}:{self.geometry.key()}"

    def _operands(self, call: BackwardCall) -> tuple[Tensor, Tensor]:
        x, dy = (call.g, call.a) if self.transposed else (call.a, call.g)
        return (x.unsqueeze(2), dy.unsqueeze(2)) if x.dim() == 3 else (x, dy)

    def _bias(self, call: BackwardCall) -> Tensor:
        return fold_views(call.g.flatten(2).sum(2), call.views)

    def kernels(self, call: BackwardCall) -> list[Kernel]:
        if not self.has_weight:
            bias = self._bias(call)
            return [Kernel("bias", 0.0, lambda: from_gradients(bias[None], None))]
        x, dy = self._operands(call)
        geometry = self.geometry
        out = []
        for kernel in convolution_weight_gradients.INSTANTIATING:
            if kernel.fits(x, dy, self.shape, geometry):
                cost = kernel.cost(x, dy, self.shape, geometry)
                run = functools.partial(self._instantiate, kernel, call)
                out.append(Kernel(kernel.name, cost, run))
        one_product = call.views == 1 and not call.float64_products
        if one_product and convolution_ghost_norms.gram_fits(x, dy, self.shape, geometry):
            cost = convolution_ghost_norms.gram_cost(x, dy, self.shape, geometry)
            out.append(Kernel("gram", cost, lambda: self._gram(call)))
        return out

    def per_example(self, call: BackwardCall) -> list[Tensor]:
        out = []
        if self.has_weight:
            x, dy = self._operands(call)
            values = convolution_weight_gradients.by_loop(
                x, dy, self.shape, self.geometry, call.views
            )
            out.append(values[0].view(-1, *self.weight_shape))
        return out + ([self._bias(call)] if self.has_bias else [])

    def instance_size(self, a: torch.Size, y: torch.Size, views: int) -> int:
        return self.shape.numel() if self.has_weight else 0

    def _gram(self, call: BackwardCall) -> NormsAndSum:
        x, dy = self._operands(call)
        bias = self._bias(call) if self.has_bias else None
        norms = convolution_ghost_norms.gram_norms(x, dy, self.shape, self.geometry)

        def add_weighted(weights: Tensor, bad: Tensor | None, into: Sequence[Tensor]) -> None:
            each = weights.to(dy.dtype).view(-1, *[1] * (dy.dim() - 1))
            finite_x, weighted_dy = zero_rows(x, bad), zero_rows(dy, bad) * each
            total = convolution_ghost_norms.contract(
                finite_x, weighted_dy, self.shape, self.geometry
            )
            whole = convolution_weight_gradients.finish_unfolding(total, self.shape)
            add_(into[0], whole.reshape(self.weight_shape))
            add_bias(bias, weights, bad, into)

        return NormsAndSum(norms if bias is None else norms + squared_norms(bias), add_weighted)

    def _instantiate(
        self, kernel: convolution_weight_gradients.InstantiatingKernel, call: BackwardCall
    ) -> NormsAndSum:
        x, dy = self._operands(call)
        shape, geometry, views = self.shape, self.geometry, call.views

        def run(which: slice) -> Tensor:
            rows = slice(which.start * views, which.stop * views)
            return kernel.run(x[rows], dy[rows], shape, geometry, views)

        return from_chunks(
            x.shape[0] // views,
            shape.numel() * x.element_size(),
            run,
            lambda total: [kernel.finish(total, shape).reshape(self.weight_shape)],
            self._bias(call) if self.has_bias else None,
        )


def _symmetric_padding(module: Any) -> tuple[int, ...] | None:
    """The zero padding if it is the same on both sides of every axis, else None."""
    if module.padding_mode != "zeros":
        return None
    if not isinstance(module.padding, str):
        return tuple(module.padding)
    if module.padding == "valid":
        return (0,) * len(module.kernel_size)
    totals = [d * (k - 1) for d, k in zip(module.dilation, module.kernel_size, strict=True)]
    return tuple(t // 2 for t in totals) if all(t % 2 == 0 for t in totals) else None


def record_convolution(name: str, module: Any) -> RecordedLayer:
    """The recorded form of nn.Conv1d to 3d; padding that differs by side is added to the input."""
    axes = len(module.kernel_size)
    convolve = (F.conv1d, F.conv2d, F.conv3d)[axes - 1]
    padding = _symmetric_padding(module)
    mode = "constant" if module.padding_mode == "zeros" else module.padding_mode
    sides = None if padding is not None else module._reversed_padding_repeated_twice
    geometry = Geometry(module.stride, padding or (0,) * axes, module.dilation, module.groups)
    handler = _handler(name, module, geometry, transposed=False)

    def forward(tape: Tape, input: Tensor) -> Tensor:
        require_dimensions(name, input, axes + 2)
        if sides is not None:
            input = F.pad(input, sides, mode=mode)
        y = convolve(input, constant(module.weight), constant(module.bias), *geometry)
        return tape.tap(y, handler, input)

    return RecordedLayer.of(forward, handler)


def record_transposed_convolution(name: str, module: Any) -> RecordedLayer:
    """The recorded form of nn.ConvTranspose1d to nn.ConvTranspose3d."""
    axes = len(module.kernel_size)
    geometry = Geometry(module.stride, module.padding, module.dilation, module.groups)
    handler = _handler(name, module, geometry, transposed=True)
    convolve = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[axes - 1]

    def forward(tape: Tape, input: Tensor, output_size: list[int] | None = None) -> Tensor:
        require_dimensions(name, input, axes + 2)
        extra = module._output_padding(
            input, output_size, module.stride, module.padding, module.kernel_size, axes,
            module.dilation,
        )  # fmt: skip
        y = convolve(
            input, constant(module.weight), constant(module.bias), module.stride, module.padding,
            extra, module.groups, module.dilation,
        )  # fmt: skip
        return tape.tap(y, handler, input)

    return RecordedLayer.of(forward, handler)


def _handler(
    name: str, module: Any, geometry: Geometry, *, transposed: bool
) -> ConvolutionHandler | None:
    weight, bias = trainable(module.weight), trainable(module.bias)
    if weight is None and bias is None:
        return None
    return ConvolutionHandler(name, weight, bias, module.weight.shape, geometry, transposed)


def channels_last_layouts(model: nn.Module) -> list[tuple[int, torch.memory_format]]:
    """Which inputs, by their number of dimensions, are better in another layout."""
    if _norms_a_constant(model):
        return []
    kinds = {type(m) for m in model.modules()}
    out = []
    if kinds & {nn.Conv2d, nn.ConvTranspose2d}:
        out.append((4, torch.channels_last))
    if kinds & {nn.Conv3d, nn.ConvTranspose3d}:
        out.append((5, torch.channels_last_3d))
    return out


def _norms_a_constant(model: nn.Module) -> bool:
    """Whether a trained GroupNorm may stand where no gradient goes on: first, or behind the frozen.

    torch 2.13.0 ends the whole process (SIGSEGV) in the backward pass of such a norm if its input
    lies channels-last.
    """
    own = [m for m in model.modules() if next(m.parameters(recurse=False), None) is not None]
    norms = [m for m in own if isinstance(m, nn.GroupNorm) and trainable(m.weight) is not None]
    frozen = any(trainable(p) is None for p in model.parameters())
    return bool(norms) and (frozen or own[0] is norms[0])


def arrange(
    tensors: tuple[Tensor, ...], wanted: list[tuple[int, torch.memory_format]]
) -> tuple[Tensor, ...]:
    """Bring tensors to the layouts that are wanted for their number of dimensions."""
    for dimensions, layout in wanted:
        tensors = tuple(
            t.contiguous(memory_format=layout) if t.dim() == dimensions else t for t in tensors
        )
    return tensors
