"""Ways to the per-example weight gradient of a convolution, or only to its norm.

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

from privet.nets.per_example.measured import chunks
from privet.nets.per_example.rounding import (
    BLOCK_IMAGES,
    BLOCK_PIXELS,
    CANCELLING,
    LARGEST_SQUARE,
)
from privet.nets.per_example.wide import add_

_GROUPED_CHUNK = 32
_GRAM_BYTES = 4 * 2**20
_PATCH_BYTES = 2**20
"""Unfolded images held at a time: half of a usual second-level cache, the rest of it for others."""


class Geometry(NamedTuple):
    """Stride, padding (both sides alike), dilation and groups."""

    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int

    def lifted(self) -> Geometry:
        """A one-dimensional geometry as a two-dimensional one of height one."""
        return Geometry((1, *self.stride), (0, *self.padding), (1, *self.dilation), self.groups)

    def key(self) -> str:
        """The geometry as a short string."""
        return f"s{self.stride}p{self.padding}d{self.dilation}g{self.groups}".replace(" ", "")


def weight_gradient(x: Tensor, dy: Tensor, shape: torch.Size, geometry: Geometry) -> Tensor:
    """The weight gradient summed over rows."""
    stride, padding, dilation, groups = geometry
    like = x.new_empty(shape)
    gradients: tuple[Tensor, ...] = torch.ops.aten.convolution_backward(
        dy, x, like, None, stride, padding, dilation, False, [0] * len(stride), groups,
        [False, True, False],
    )  # fmt: skip
    return gradients[1]


def loop(x: Tensor, dy: Tensor, shape: torch.Size, geometry: Geometry, views: int) -> Tensor:
    """One weight-gradient call an example."""
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


def grouped(x: Tensor, dy: Tensor, shape: torch.Size, geometry: Geometry, views: int) -> Tensor:
    """Examples as the groups of one grouped weight-gradient call, a few at a time."""
    examples = x.shape[0] // views
    out = x.new_empty(examples, shape.numel())
    for start in range(0, examples, _GROUPED_CHUNK):
        stop = min(start + _GROUPED_CHUNK, examples)
        n = stop - start
        rows = slice(start * views, stop * views)
        wide = geometry._replace(groups=n * geometry.groups)
        many = torch.Size((n * shape[0], *shape[1:]))
        summed = weight_gradient(
            _examples_as_channels(x[rows], views),
            _examples_as_channels(dy[rows], views),
            many,
            wide,
        )
        out[start:stop] = summed.reshape(n, -1)
    return out.unsqueeze(0)


def _examples_as_channels(t: Tensor, views: int) -> Tensor:
    """(examples * views, C, ...) to (views, examples * C, ...)."""
    t = t.contiguous()
    if views == 1:
        return t.view(1, -1, *t.shape[2:])
    return t.view(-1, views, *t.shape[1:]).transpose(0, 1).flatten(1, 2)


def _pixels(t: Tensor) -> Tensor:
    """(N, C, *space) to a contiguous (N, *space, C); free for channels-last tensors."""
    return t.movedim(1, -1).contiguous()


def _padded_pixels(x: Tensor, geometry: Geometry) -> Tensor:
    sides = [side for p in reversed(geometry.padding) for side in (p, p)]
    pixels = _pixels(x)
    return F.pad(pixels, [0, 0, *sides]) if any(sides) else pixels


def unfolded(x: Tensor, dy: Tensor, shape: torch.Size, geometry: Geometry, views: int) -> Tensor:
    """im2col in channels-last order, then one batched matmul; a few examples at a time."""
    examples, (o, channels, *kernel) = x.shape[0] // views, shape
    space = dy.shape[2:]
    out = x.new_empty(examples, o, prod(kernel) * channels)
    parts = chunks(examples, views * prod(space) * out.shape[2] * x.element_size(), _PATCH_BYTES)
    room = x.new_empty(parts[0].stop * views, *space, *kernel, channels)
    for s in parts:
        rows, n = slice(s.start * views, s.stop * views), s.stop - s.start
        patches = _patches(x[rows], room, geometry)
        g = _pixels(dy[rows]).view(n, views * prod(space), o)
        torch.bmm(g.transpose(1, 2), patches.view(n, views * prod(space), -1), out=out[s])
    return out.view(1, examples, -1)


def finish_unfolded(total: Tensor, shape: torch.Size) -> Tensor:
    """(1, O * k * C) to (O, C, *k)."""
    o, c, *kernel = shape
    return total.view(o, *kernel, c).movedim(-1, 1)


def rowwise(x: Tensor, dy: Tensor, shape: torch.Size, geometry: Geometry, views: int) -> Tensor:
    """Unfold the width only; every kernel row is then a view of it, and one batched matmul."""
    (o, channels, k_h, k_w), (out_h, out_w) = shape, dy.shape[2:]
    rows = x.shape[0]
    height, width = (size + 2 * p for size, p in zip(x.shape[2:], geometry.padding, strict=True))
    out = x.new_empty(k_h, rows, o * k_w * channels)
    parts = chunks(rows, height * out_w * k_w * channels * x.element_size(), _PATCH_BYTES)
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
        pixels = _padded_pixels(x[s], geometry)
        columns = room[:n].copy_(pixels.as_strided((n, *room.shape[1:]), strides))
        g = _pixels(dy[s]).view(n, out_h * out_w, o)
        for i in range(k_h):
            top = i * geometry.dilation[0]
            lines = columns[:, top : top + out_h].view(n, out_h * out_w, k_w * channels)
            left, right = (lines, g) if _narrow(shape) else (g, lines)
            into = out[i, s].view(n, left.shape[2], right.shape[2])
            torch.bmm(left.transpose(1, 2), right, out=into)
    if views > 1:
        out = out.view(k_h, rows // views, views, -1).sum(2)
    return out


def finish_rowwise(total: Tensor, shape: torch.Size) -> Tensor:
    """(k_h, O * k_w * C), or (k_h, k_w * C * O) if that is narrow, to (O, C, k_h, k_w)."""
    o, c, k_h, k_w = shape
    if _narrow(shape):
        return total.view(k_h, k_w, c, o).permute(3, 2, 0, 1)
    return total.view(k_h, o, k_w, c).permute(1, 3, 0, 2)


def _narrow(shape: torch.Size) -> bool:
    """Whether a kernel row has fewer inputs than the layer has outputs; the longer goes last."""
    return shape[1] * shape[3] < shape[0]


class Instantiating(NamedTuple):
    """A kernel that instantiates per-example gradients."""

    name: str
    run: Callable[[Tensor, Tensor, torch.Size, Geometry, int], Tensor]
    finish: Callable[[Tensor, torch.Size], Tensor]
    fits: Callable[[Tensor, Tensor, torch.Size, Geometry], bool]
    cost: Callable[[Tensor, Tensor, torch.Size, Geometry], float]


def _multiplications(x: Tensor, dy: Tensor, shape: torch.Size) -> int:
    return dy.shape[0] * prod(dy.shape[2:]) * shape.numel()


def _as_is(total: Tensor, shape: torch.Size) -> Tensor:
    return total.view(shape)


def _one_group(x: Tensor, dy: Tensor, shape: torch.Size, geometry: Geometry) -> bool:
    return geometry.groups == 1


INSTANTIATING = (
    Instantiating(
        "loop", loop, _as_is,
        fits=lambda x, dy, shape, geometry: True,
        cost=lambda x, dy, shape, geometry: (
            _multiplications(x, dy, shape) / 90 + x.shape[0] * (1e5 + shape.numel() * 2)
        ),
    ),
    Instantiating(
        "grouped", grouped, _as_is,
        fits=lambda x, dy, shape, geometry: True,
        cost=lambda x, dy, shape, geometry: (
            _multiplications(x, dy, shape) / 50 + x.numel() + dy.numel()
            + x.shape[0] * shape.numel() * 4
        ),
    ),
    Instantiating(
        "rowwise", rowwise, finish_rowwise,
        fits=lambda x, dy, shape, geometry: (
            len(geometry.stride) == 2 and geometry.stride[0] == 1 and geometry.groups == 1
        ),
        cost=lambda x, dy, shape, geometry: (
            _multiplications(x, dy, shape) / (85 * min(1, shape[1] * shape[3] / 48))
            + x.numel() * shape[3] + x.shape[0] * shape.numel() / 3
        ),
    ),
    Instantiating(
        "unfolded", unfolded, finish_unfolded,
        fits=_one_group,
        cost=lambda x, dy, shape, geometry: (
            _multiplications(x, dy, shape) / (50 * min(1, shape[1:].numel() / 48))
            + x.numel() * prod(shape[2:]) / 2 / prod(geometry.stride)
            + x.shape[0] * shape.numel() / 3
        ),
    ),
)  # fmt: skip


def gram_fits(x: Tensor, dy: Tensor, shape: torch.Size, geometry: Geometry) -> bool:
    """One group, and so few pixels that a block of the contraction holds two examples or more."""
    pixels = prod(x.shape[2:]), prod(dy.shape[2:])
    return geometry.groups == 1 and max(pixels) <= BLOCK_PIXELS // 2


def gram_cost(x: Tensor, dy: Tensor, shape: torch.Size, geometry: Geometry) -> float:
    """Nanoseconds: two Gram matrices, box sums over the kernel, and the contraction after them."""
    n, pixels_in, pixels_out = x.shape[0], prod(x.shape[2:]), prod(dy.shape[2:])
    products = n * (pixels_in**2 * shape[1] + pixels_out**2 * shape[0]) / 25
    boxes = n * max(pixels_in, pixels_out) ** 2 * sum(shape[2:])
    return products + boxes + _multiplications(x, dy, shape) / 60


def gram(x: Tensor, dy: Tensor, shape: torch.Size, geometry: Geometry) -> Tensor:
    """Squared norms from pixel Gram matrices in float64, or what the contraction asks for instead.

    ||sum_p dy_p U_p^T||^2 = sum_pq <dy_p, dy_q> <U_p, U_q> with U_p the patch under p, and
    <U_p, U_q> = sum over kernel offsets o of <x_(sp+o), x_(sq+o)>: a box sum along the diagonals of
    the pixels' Gram matrix, taken one axis at a time. No patch is ever built.

    The contraction is off by a multiple of Q = (sum_p ||dy_p||^2 ||U_p||^2)^(1/2), so a norm below
    Q / `CANCELLING` counts as that: an example that cancels so much is clipped a little harder.
    """
    each = 8 * max(prod(x.shape[2:]), prod(dy.shape[2:])) ** 2
    out = []
    for part in chunks(x.shape[0], each, _GRAM_BYTES):
        boxes = _patch_gram(x[part].double(), dy.shape[2:], shape[2:], geometry)
        g = _pixels(dy[part]).flatten(1, -2).double()
        other = torch.bmm(g, g.transpose(1, 2))
        norms = (boxes * other).flatten(1).sum(1)
        diagonals = [t.diagonal(dim1=1, dim2=2) for t in (boxes, other)]
        q = (diagonals[0] * diagonals[1]).sum(1)
        large = torch.maximum(diagonals[0].amax(1), diagonals[1].amax(1)) > LARGEST_SQUARE
        out.append(torch.maximum(norms, q / CANCELLING**2).masked_fill(large, torch.inf))
    return torch.cat(out)


def contraction(x: Tensor, dy: Tensor, shape: torch.Size, geometry: Geometry) -> Tensor:
    """The weight gradient summed over rows, (1, O * k * C) in float64.

    Blocks of at most `BLOCK_PIXELS` pixels of `BLOCK_IMAGES` examples are products of matrices in
    the given precision; they are added up in float64.
    """
    (o, channels, *kernel), space = shape, dy.shape[2:]
    size = min(BLOCK_IMAGES, BLOCK_PIXELS // prod(space))
    total = torch.zeros(o, prod(kernel) * channels, dtype=torch.float64, device=x.device)
    room = x.new_empty(size, *space, *kernel, channels)
    product = x.new_empty(total.shape)
    for start in range(0, x.shape[0], size):
        rows = slice(start, start + size)
        g = _pixels(dy[rows]).view(-1, o)
        patches = _patches(x[rows], room, geometry).view(len(g), -1)
        add_(total, torch.mm(g.t(), patches, out=product))
    return total.view(1, -1)


def _patches(x: Tensor, room: Tensor, geometry: Geometry) -> Tensor:
    """Every output pixel's patch in channels-last order, in given memory."""
    pixels = _padded_pixels(x, geometry)
    steps = pixels.stride()[1:-1]
    strides = [k * step for k, step in zip(geometry.stride, steps, strict=True)]
    taps = [k * step for k, step in zip(geometry.dilation, steps, strict=True)]
    some = room[: x.shape[0]]
    return some.copy_(pixels.as_strided(some.shape, (pixels.stride(0), *strides, *taps, 1)))


def _patch_gram(x: Tensor, out: torch.Size, kernel: torch.Size, geometry: Geometry) -> Tensor:
    """The Gram matrix (n, prod(out), prod(out)) of the patches under the output pixels."""
    pixels = _pixels(x)
    n, space = pixels.shape[0], pixels.shape[1:-1]
    flat = pixels.flatten(1, -2)
    table = torch.bmm(flat, flat.transpose(1, 2)).view(n, *space, *space)
    axes = len(space)
    for axis in reversed(range(axes)):
        table = _box_sum(
            table, 1 + axis, 1 + axes + axis, out[axis], kernel[axis],
            geometry.stride[axis], geometry.padding[axis], geometry.dilation[axis],
        )  # fmt: skip
    return table.reshape(n, prod(out), prod(out))


def _box_sum(
    table: Tensor,
    first: int,
    second: int,
    out: int,
    kernel: int,
    stride: int,
    padding: int,
    dilation: int,
) -> Tensor:
    """Sum over taps j of table[..., s p + d j - padding, ..., s q + d j - padding, ...]."""
    size = table.shape[first]
    shape = list(table.shape)
    shape[first] = shape[second] = out
    if (out, kernel, stride, padding) == (size, 1, 1, 0):
        return table
    total = table.new_zeros(shape)
    for j in range(kernel):
        shift = dilation * j - padding
        low = max(0, -(shift // stride))  # the first p with stride * p + shift >= 0
        high = min(out, (size - 1 - shift) // stride + 1)
        if low >= high:
            continue
        start = stride * low + shift
        stop = stride * (high - 1) + shift + 1
        source, target = [slice(None)] * table.dim(), [slice(None)] * table.dim()
        for axis in (first, second):
            source[axis], target[axis] = slice(start, stop, stride), slice(low, high)
        total[tuple(target)] += table[tuple(source)]
    return total
