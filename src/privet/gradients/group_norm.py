"""GroupNorm and InstanceNorm: one backward pass gives the input's and every row's own gradients.

y = gamma xhat + beta with xhat = (x - mean) rstd, mean and variance taken within a row and group.
With D_c = sum g xhat and B_c = sum g over the pixels of channel c of one row (its gradients of
gamma and beta), and A the number of values in a group,

    dx = rstd (gamma g - sum_c gamma_c B_c / A - xhat sum_c gamma_c D_c / A),

the sums running over the channels of the group. An ordinary backward pass forms B and D too, adds
them up over the rows and throws them away. x is centred before it is multiplied by g: the
difference of sum g x and mean sum g would cancel.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, final

import torch
from torch import Tensor, nn

from privet.gradients.float64_sums import CACHE_BYTES
from privet.gradients.layer_protocol import (
    BackwardCall,
    LayerHandler,
    ParameterSlice,
    RecordedLayer,
    constant,
    fold_views,
    is_channels_last,
    require_dimensions,
    trainable,
)
from privet.gradients.norms_and_sum import example_chunks
from privet.gradients.tape import ForwardCall, Tape


@final
class GroupNormHandler(LayerHandler):
    """gamma and beta of a GroupNorm; the gradient that arrives is (rows, 2, channels): D and B."""

    def __init__(self, name: str, weight: nn.Parameter | None, bias: nn.Parameter | None) -> None:
        super().__init__(name, [ParameterSlice(p) for p in (weight, bias) if p is not None])
        self.parts = [k for k, p in enumerate((weight, bias)) if p is not None]

    def per_example(self, call: BackwardCall) -> list[Tensor]:
        return [fold_views(call.g[:, k], call.views) for k in self.parts]


def record_group_norm(name: str, module: nn.GroupNorm) -> RecordedLayer:
    """The recorded form of nn.GroupNorm."""
    return _record(name, module, module.num_groups)


def record_instance_norm(name: str, module: Any) -> RecordedLayer:
    """The recorded form of nn.InstanceNorm1d to 3d: a group for each channel."""
    return _record(name, module, module.num_features)


def _record(name: str, module: Any, groups: int) -> RecordedLayer:
    weight, bias = trainable(module.weight), trainable(module.bias)
    handler = (
        GroupNormHandler(name, weight, bias) if weight is not None or bias is not None else None
    )
    fewest = 2 if isinstance(module, nn.GroupNorm) else 3

    def forward(tape: Tape, input: Tensor) -> Tensor:
        if input.dim() < fewest:
            require_dimensions(name, input, fewest)
        return _normalise(
            tape, handler, input, constant(module.weight), constant(module.bias), groups, module.eps
        )

    return RecordedLayer.of(forward, handler)


def _normalise(
    tape: Tape,
    handler: GroupNormHandler | None,
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    groups: int,
    eps: float,
) -> Tensor:
    """The layer's output; the gradients of `handler` arrive on the tape."""
    x = x if is_channels_last(x) else x.contiguous()
    tape.note_size(x, x.shape)
    if handler is None or not torch.is_grad_enabled():
        return _forward(x, weight, bias, groups, eps)[0]
    call = tape.note(handler, x, (), rows=x.shape[0])
    y: Tensor = _GroupNorm.apply(x, tape.anchor, tape, call, weight, bias, groups, eps)  # type: ignore[no-untyped-call]
    return y


def _forward(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, groups: int, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    rows, channels = x.shape[:2]
    space = x[0, 0].numel() if rows else 0
    return torch.native_group_norm(x, weight, bias, rows, channels, space, groups, eps)


class _GroupNorm(torch.autograd.Function):
    """The layer, with the backward pass above."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        anchor: Tensor,
        tape: Tape,
        call: ForwardCall,
        weight: Tensor | None,
        bias: Tensor | None,
        groups: int,
        eps: float,
    ) -> Tensor:
        y, mean, rstd = _forward(x, weight, bias, groups, eps)
        ctx.tape, ctx.call, ctx.weight, ctx.statistics = tape, call, weight, (mean, rstd)
        return y

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        ctx.call.check_unchanged()
        mean, rstd = ctx.statistics
        dx, sums = _backward(ctx.call.a, gradients[0], mean, rstd, ctx.weight)
        ctx.tape.receive(ctx.call, sums)
        return (dx, *[None] * 7)


def _backward(
    x: Tensor, g: Tensor, mean: Tensor, rstd: Tensor, weight: Tensor | None
) -> tuple[Tensor, Tensor]:
    """dx, and (D, B) as one tensor (rows, 2, channels), a cache-sized piece at a time.

    Cost: 9 flops a number of the input, each of x and g read once from memory.
    """
    input_dtype, dtype = x.dtype, torch.promote_types(x.dtype, torch.float32)
    layout = _ChannelsLast(x) if is_channels_last(x) else _ChannelsFirst(x)
    x, g, mean, rstd = (t.to(dtype) for t in (x, g, mean, rstd))
    rows, channels, groups = *x.shape[:2], mean.shape[1]
    each = channels // groups
    gamma = x.new_ones(channels) if weight is None else weight.to(dtype)
    area = x[0].numel() // groups
    centre = layout.spread(mean.repeat_interleave(each, 1))
    slope = layout.spread(rstd.repeat_interleave(each, 1) * gamma)
    factor = torch.stack([rstd.pow(3), rstd], 1).neg_().div_(area)  # (rows, 2, groups)
    pixels, g = layout.planes(x), layout.planes(g)
    dx, sums = torch.empty_like(pixels), x.new_empty(rows, 2, channels)
    pieces = example_chunks(rows, x[0].numel() * x.element_size(), CACHE_BYTES)
    room = torch.empty_like(pixels[pieces[0]])
    for s in pieces:
        out, centred = dx[s], room[: s.stop - s.start]
        torch.sub(pixels[s], centre[s], out=centred)
        layout.totals(torch.mul(centred, g[s], out=out), sums[s, 0])
        layout.totals(g[s], sums[s, 1])
        in_group = (sums[s] * gamma).unflatten(2, (groups, each)).sum(3).mul_(factor[s])
        by_xhat, offset = layout.spread_pair(in_group.repeat_interleave(each, 2))
        torch.addcmul(offset, centred, by_xhat, out=out).addcmul_(g[s], slope[s])
    sums[:, 0] *= rstd.repeat_interleave(each, 1)
    return layout.images(dx).to(input_dtype), sums


class _Layout(ABC):
    """Images (rows, C, *space) as planes (rows, outer, inner), and numbers per channel beside."""

    def __init__(self, like: Tensor) -> None:
        self.shape = like.shape

    @abstractmethod
    def planes(self, t: Tensor) -> Tensor:
        """The images as planes; a view where they lie in this layout."""

    @abstractmethod
    def images(self, planes: Tensor) -> Tensor:
        """Turn planes back into images."""

    @abstractmethod
    def spread(self, per_channel: Tensor) -> Tensor:
        """Spread numbers per channel, (rows, C), so that they can be added to planes."""

    @abstractmethod
    def totals(self, planes: Tensor, out: Tensor) -> None:
        """Sums over the pixels of each channel, (rows, C)."""

    def spread_pair(self, pair: Tensor) -> tuple[Tensor, Tensor]:
        """Both halves of (rows, 2, C), spread."""
        return self.spread(pair[:, 0]), self.spread(pair[:, 1])


@final
class _ChannelsFirst(_Layout):
    """Images stored channel by channel, as planes (rows, C, pixels)."""

    def planes(self, t: Tensor) -> Tensor:
        return t.reshape(*self.shape[:2], -1)

    def images(self, planes: Tensor) -> Tensor:
        return planes.view(self.shape)

    def spread(self, per_channel: Tensor) -> Tensor:
        return per_channel.unsqueeze(2)

    def totals(self, planes: Tensor, out: Tensor) -> None:
        torch.sum(planes, 2, out=out)


@final
class _ChannelsLast(_Layout):
    """Images stored pixel by pixel, as planes (rows, lines, width * C).

    Numbers per channel are repeated along a line: elementwise loops then run over whole lines, and
    would stop at every pixel otherwise.
    """

    def planes(self, t: Tensor) -> Tensor:
        return t.movedim(1, -1).reshape(self.shape[0], -1, self.shape[-1] * self.shape[1])

    def images(self, planes: Tensor) -> Tensor:
        rows, channels, *space = self.shape
        return planes.view(rows, *space, channels).movedim(-1, 1)

    def spread(self, per_channel: Tensor) -> Tensor:
        return per_channel.repeat(1, self.shape[-1]).unsqueeze(1)

    def totals(self, planes: Tensor, out: Tensor) -> None:
        torch.sum(planes.sum(1).unflatten(1, (self.shape[-1], -1)), 1, out=out)
