"""Kernels that instantiate the per-example weight gradients of a convolution.

Symbols: x (N, C, *in) the input, dy (N, O, *out) the output gradient, k the kernel sizes. An
instantiating kernel returns values (parts, examples, width), the per-example gradients in whatever
order is cheapest, and `finish` brings a weighted sum of them to (O, C/groups, *k).
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from privet.gradients.norms_and_sum import example_chunks

# Examples in one grouped call: torch prepares groups one by one, so that more gain nothing, and the
# copy of their inputs stays small.
_EXAMPLES_PER_GROUPED_CALL = 32
# Unfolded images held at a time: half of a usual second-level cache, the rest of it for others.
_PATCH_BYTES = 2**20


class Geometry(NamedTuple):
    """Stride, padding (both sides alike), dilation and groups."""

    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int

    def with_height(self) -> Geometry:
        """A one-dimensional geometry as a two-dimensional one of height one."""
        return Geometry((1, *self.stride), (0, *self.padding), (1, *self.dilation), self.groups)

    def key(self) -> str:
        """The geometry as a short string."""
        return f"s{self.stride}p{self.padding}d{self.dilation}g{self.groups}".replace(" ", "")


def weight_gradient(x: Tensor, dy: Tensor, shape: torch.Size, geometry: Geometry) -> Tensor:
    """The weight gradient summed over rows, by torch's own kernel.

    Cost: 2 O C k out flops a row.
    """
    stride, padding, dilation, groups = geometry
    like = x.new_empty(shape)
    gradients: tuple[Tensor, ...] = torch.ops.aten.convolution_backward(
        dy, x, like, None, stride, padding, dilation, False, [0] * len(stride), groups,
        [False, True, False],
    )  # fmt: skip
    return gradients[1]


def by_loop(x: Tensor, dy: Tensor, shape: torch.Size, geometry: Geometry, views: int) -> Tensor:
    """Call torch's weight gradient once for each example.

    Cost: 2 O C k out flops an example, and a call's overhead (about 0.1 ms) each.
    """
    out = x.new_empty(x.shape[0] // views, *shape)
    halve = views == 1 and _halving_pays(dy, shape, geometry)
    if halve:
        x, geometry = _pad_first_axis(x, geometry)
    for i in range(out.shape[0]):
        rows = slice(i * views, (i + 1) * views)
        some_x, some_dy = x[rows], dy[rows]
        if halve:
            some_x, some_dy = _halves(some_x, some_dy, shape, geometry)
        out[i] = weight_gradient(some_x, some_dy, shape, geometry)
    return out.view(1, out.shape[0], -1)


def _halving_pays(dy: Tensor, shape: torch.Size, geometry: Geometry) -> bool:
    """torch sends a single image through a slow path (no oneDNN), except for large kernels."""
    small = min(shape[-2:]) <= 3
    return small and geometry.groups == 1 and dy.shape[2] % 2 == 0


def _pad_first_axis(x: Tensor, geometry: Geometry) -> tuple[Tensor, Geometry]:
    first, *rest = geometry.padding
    if first == 0:
        return x, geometry
    padded = F.pad(x, [0, 0] * len(rest) + [first, first])
    return padded, geometry._replace(padding=(0, *rest))


def _halves(x: Tensor, dy: Tensor, shape: torch.Size, geometry: Geometry) -> tuple[Tensor, Tensor]:
    """One image as a batch of two: its upper and lower half (of the output), with their borders."""
    half = dy.shape[2] // 2
    step, reach = geometry.stride[0], geometry.dilation[0] * (shape[2] - 1) + 1
    span = (half - 1) * step + reach
    upper, lower = x[:, :, :span], x[:, :, half * step : half * step + span]
    return torch.cat([upper, lower]), torch.cat([dy[:, :, :half], dy[:, :, half:]])


def by_groups(x: Tensor, dy: Tensor, shape: torch.Size, geometry: Geometry, views: int) -> Tensor:
    """Examples as the groups of one grouped weight-gradient call, a few at a time.

    Cost: 2 O C k out flops an example, and a copy of x and dy where they are channels-last.
    """
    examples = x.shape[0] // views
    out = x.new_empty(examples, shape.numel())
    for start in range(0, examples, _EXAMPLES_PER_GROUPED_CALL):
        stop = min(start + _EXAMPLES_PER_GROUPED_CALL, examples)
        n = stop - start
        rows = slice(start * views, stop * views)
        per_example = geometry._replace(groups=n * geometry.groups)
        grouped_shape = torch.Size((n * shape[0], *shape[1:]))
        summed = weight_gradient(
            _examples_as_channels(x[rows], views),
            _examples_as_channels(dy[rows], views),
            grouped_shape,
            per_example,
        )
        out[start:stop] = summed.reshape(n, -1)
    return out.unsqueeze(0)


def _examples_as_channels(t: Tensor, views: int) -> Tensor:
    """Reshape (examples * views, C, ...) to (views, examples * C, ...)."""
    t = t.contiguous()
    if views == 1:
        return t.view(1, -1, *t.shape[2:])
    return t.view(-1, views, *t.shape[1:]).transpose(0, 1).flatten(1, 2)


def pixels_last(t: Tensor) -> Tensor:
    """Bring (N, C, *space) to a contiguous (N, *space, C); free for channels-last tensors."""
    return t.movedim(1, -1).contiguous()


def padded_pixels(x: Tensor, geometry: Geometry) -> Tensor:
    """Pixels with their channels last, zeros around them as the geometry pads."""
    sides = [side for p in reversed(geometry.padding) for side in (p, p)]
    pixels = pixels_last(x)
    return F.pad(pixels, [0, 0, *sides]) if any(sides) else pixels


def by_unfolding(
    x: Tensor, dy: Tensor, shape: torch.Size, geometry: Geometry, views: int
) -> Tensor:
    """im2col in channels-last order, then one batched matmul; a few examples at a time.

    Cost: 2 O C k out flops an example, and C k out numbers written and read for the patches.
    """
    examples, (o, channels, *kernel) = x.shape[0] // views, shape
    space = dy.shape[2:]
    out = x.new_empty(examples, o, prod(kernel) * channels)
    parts = example_chunks(
        examples, views * prod(space) * out.shape[2] * x.element_size(), _PATCH_BYTES
    )
    room = x.new_empty(parts[0].stop * views, *space, *kernel, channels)
    for s in parts:
        rows, n = slice(s.start * views, s.stop * views), s.stop - s.start
        patches = unfold_patches(x[rows], room, geometry)
        g = pixels_last(dy[rows]).view(n, views * prod(space), o)
        torch.bmm(g.transpose(1, 2), patches.view(n, views * prod(space), -1), out=out[s])
    return out.view(1, examples, -1)


def finish_unfolding(total: Tensor, shape: torch.Size) -> Tensor:
    """Reshape a weighted sum of `by_unfolding`, (1, O * k * C), to (O, C, *k)."""
    o, c, *kernel = shape
    return total.view(o, *kernel, c).movedim(-1, 1)


def by_kernel_rows(
    x: Tensor, dy: Tensor, shape: torch.Size, geometry: Geometry, views: int
) -> Tensor:
    """Unfold the width only; every kernel row is then a view of it, and one batched matmul.

    Cost: 2 O C k out flops an example; of patches k_w (not k_h k_w) times the input is written.
    """
    (o, channels, k_h, k_w), (out_h, out_w) = shape, dy.shape[2:]
    rows = x.shape[0]
    height, width = (size + 2 * p for size, p in zip(x.shape[2:], geometry.padding, strict=True))
    out = x.new_empty(k_h, rows, o * k_w * channels)
    parts = example_chunks(rows, height * out_w * k_w * channels * x.element_size(), _PATCH_BYTES)
    room = x.new_empty(parts[0].stop, height, out_w, k_w, channels)
    strides = (
        height * width * channels,
        width * channels,
        geometry.stride[1] * channels,
        geometry.dilation[1] * channels,
        1,
    )
    for s in parts:
        n = s.stop - s.start
        pixels = padded_pixels(x[s], geometry)
        columns = room[:n].copy_(pixels.as_strided((n, *room.shape[1:]), strides))
        g = pixels_last(dy[s]).view(n, out_h * out_w, o)
        for i in range(k_h):
            top = i * geometry.dilation[0]
            lines = columns[:, top : top + out_h].view(n, out_h * out_w, k_w * channels)
            left, right = (lines, g) if _narrow(shape) else (g, lines)
            into = out[i, s].view(n, left.shape[2], right.shape[2])
            torch.bmm(left.transpose(1, 2), right, out=into)
    if views > 1:
        out = out.view(k_h, rows // views, views, -1).sum(2)
    return out


def finish_kernel_rows(total: Tensor, shape: torch.Size) -> Tensor:
    """Reshape a weighted sum of `by_kernel_rows` to (O, C, k_h, k_w).

    It is (k_h, O * k_w * C), or (k_h, k_w * C * O) if that is narrow.
    """
    o, c, k_h, k_w = shape
    if _narrow(shape):
        return total.view(k_h, k_w, c, o).permute(3, 2, 0, 1)
    return total.view(k_h, o, k_w, c).permute(1, 3, 0, 2)


def _narrow(shape: torch.Size) -> bool:
    """Whether a kernel row has fewer inputs than the layer has outputs; the longer goes last."""
    return shape[1] * shape[3] < shape[0]


class InstantiatingKernel(NamedTuple):
    """A kernel that instantiates per-example gradients.

    `cost` is in nanoseconds; its numbers (multiplications a nanosecond, nanoseconds a number moved
    or a call) were fitted to timings on one core of an AMD EPYC. They need only order the kernels.
    """

    name: str
    run: Callable[[Tensor, Tensor, torch.Size, Geometry, int], Tensor]
    finish: Callable[[Tensor, torch.Size], Tensor]
    fits: Callable[[Tensor, Tensor, torch.Size, Geometry], bool]
    cost: Callable[[Tensor, Tensor, torch.Size, Geometry], float]


def count_multiplications(x: Tensor, dy: Tensor, shape: torch.Size) -> int:
    """How many multiplications all per-example weight gradients take together."""
    return dy.shape[0] * prod(dy.shape[2:]) * shape.numel()


def _as_is(total: Tensor, shape: torch.Size) -> Tensor:
    return total.view(shape)


def _one_group(x: Tensor, dy: Tensor, shape: torch.Size, geometry: Geometry) -> bool:
    return geometry.groups == 1


INSTANTIATING = (
    InstantiatingKernel(
        "loop", by_loop, _as_is,
        fits=lambda x, dy, shape, geometry: True,
        cost=lambda x, dy, shape, geometry: (
            count_multiplications(x, dy, shape) / 90 + x.shape[0] * (1e5 + shape.numel() * 2)
        ),
    ),
    InstantiatingKernel(
        "grouped", by_groups, _as_is,
        fits=lambda x, dy, shape, geometry: True,
        cost=lambda x, dy, shape, geometry: (
            count_multiplications(x, dy, shape) / 50 + x.numel() + dy.numel()
            + x.shape[0] * shape.numel() * 4
        ),
    ),
    InstantiatingKernel(
        "rowwise", by_kernel_rows, finish_kernel_rows,
        fits=lambda x, dy, shape, geometry: (
            len(geometry.stride) == 2 and geometry.stride[0] == 1 and geometry.groups == 1
        ),
        cost=lambda x, dy, shape, geometry: (
            count_multiplications(x, dy, shape) / (85 * min(1, shape[1] * shape[3] / 48))
            + x.numel() * shape[3] + x.shape[0] * shape.numel() / 3
        ),
    ),
    InstantiatingKernel(
        "unfolded", by_unfolding, finish_unfolding,
        fits=_one_group,
        cost=lambda x, dy, shape, geometry: (
            count_multiplications(x, dy, shape) / (50 * min(1, shape[1:].numel() / 48))
            + x.numel() * prod(shape[2:]) / 2 / prod(geometry.stride)
            + x.shape[0] * shape.numel() / 3
        ),
    ),
)  # fmt: skip


def unfold_patches(x: Tensor, room: Tensor, geometry: Geometry) -> Tensor:
    """Every output pixel's patch in channels-last order, in given memory.

    Cost: C k out numbers written, each pixel read k times (from the cache where an image fits it).
    """
    pixels = padded_pixels(x, geometry)
    steps = pixels.stride()[1:-1]
    strides = [k * step for k, step in zip(geometry.stride, steps, strict=True)]
    taps = [k * step for k, step in zip(geometry.dilation, steps, strict=True)]
    some = room[: x.shape[0]]
    return some.copy_(pixels.as_strided(some.shape, (pixels.stride(0), *strides, *taps, 1)))
