"""Ghost norms of convolutions: squared per-example norms by Gram matrices of patches.

No per-example gradient is instantiated; the clipped sum is one contraction afterwards. Symbols are
those of `convolution_weight_gradients`.
"""

from __future__ import annotations

from math import prod

import torch
from torch import Tensor

from privet.gradients.convolution_weight_gradients import (
    Geometry,
    count_multiplications,
    pixels_last,
    unfold_patches,
)
from privet.gradients.float64_sums import add_
from privet.gradients.norms_and_sum import example_chunks
from privet.gradients.rounding import (
    BLOCK_IMAGES,
    BLOCK_PIXELS,
    CANCELLING,
    LARGEST_SQUARE,
)

# Gram matrices held at a time: two of them and their product stay within a third-level cache.
_GRAM_BYTES = 4 * 2**20


def gram_fits(x: Tensor, dy: Tensor, shape: torch.Size, geometry: Geometry) -> bool:
    """One group, and so few pixels that a block of the contraction holds two examples or more."""
    pixels = prod(x.shape[2:]), prod(dy.shape[2:])
    return geometry.groups == 1 and max(pixels) <= BLOCK_PIXELS // 2


def gram_cost(x: Tensor, dy: Tensor, shape: torch.Size, geometry: Geometry) -> float:
    """Nanoseconds: two Gram matrices, box sums over the kernel, and the contraction after them.

    25 and 60 multiplications a nanosecond (in float64 and in float32), and one addition of the box
    sums, are fitted as those of `InstantiatingKernel`.
    """
    n, pixels_in, pixels_out = x.shape[0], prod(x.shape[2:]), prod(dy.shape[2:])
    products = n * (pixels_in**2 * shape[1] + pixels_out**2 * shape[0]) / 25
    boxes = n * max(pixels_in, pixels_out) ** 2 * sum(shape[2:])
    return products + boxes + count_multiplications(x, dy, shape) / 60


def gram_norms(x: Tensor, dy: Tensor, shape: torch.Size, geometry: Geometry) -> Tensor:
    """Squared norms from pixel Gram matrices in float64, or what the contraction asks for instead.

    ||sum_p dy_p U_p^T||^2 = sum_pq <dy_p, dy_q> <U_p, U_q> with U_p the patch under p, and
    <U_p, U_q> = sum over kernel offsets o of <x_(sp+o), x_(sq+o)>: a box sum along the diagonals of
    the pixels' Gram matrix, taken one axis at a time. No patch is ever built.

    The contraction is off by a multiple of Q = (sum_p ||dy_p||^2 ||U_p||^2)^(1/2), so a norm below
    Q / `CANCELLING` counts as that: an example that cancels so much is clipped a little harder.

    Cost: 2 (in^2 C + out^2 O) flops an example and sum(k) max(in, out)^2 for the box sums.
    """
    each = 8 * max(prod(x.shape[2:]), prod(dy.shape[2:])) ** 2
    out = []
    for part in example_chunks(x.shape[0], each, _GRAM_BYTES):
        boxes = _patch_gram(x[part].double(), dy.shape[2:], shape[2:], geometry)
        g = pixels_last(dy[part]).flatten(1, -2).double()
        other = torch.bmm(g, g.transpose(1, 2))
        norms = (boxes * other).flatten(1).sum(1)
        diagonals = [t.diagonal(dim1=1, dim2=2) for t in (boxes, other)]
        q = (diagonals[0] * diagonals[1]).sum(1)
        large = torch.maximum(diagonals[0].amax(1), diagonals[1].amax(1)) > LARGEST_SQUARE
        out.append(torch.maximum(norms, q / CANCELLING**2).masked_fill(large, torch.inf))
    return torch.cat(out)


def contract(x: Tensor, dy: Tensor, shape: torch.Size, geometry: Geometry) -> Tensor:
    """The weight gradient summed over rows, (1, O * k * C) in float64.

    Blocks of at most `BLOCK_PIXELS` pixels of `BLOCK_IMAGES` examples are products of matrices in
    the given precision; they are added up in float64. Cost: 2 O C k out flops an example.
    """
    (o, channels, *kernel), space = shape, dy.shape[2:]
    size = min(BLOCK_IMAGES, BLOCK_PIXELS // prod(space))
    total = torch.zeros(o, prod(kernel) * channels, dtype=torch.float64, device=x.device)
    room = x.new_empty(size, *space, *kernel, channels)
    product = x.new_empty(total.shape)
    for start in range(0, x.shape[0], size):
        rows = slice(start, start + size)
        g = pixels_last(dy[rows]).view(-1, o)
        patches = unfold_patches(x[rows], room, geometry).view(len(g), -1)
        add_(total, torch.mm(g.t(), patches, out=product))
    return total.view(1, -1)


def _patch_gram(x: Tensor, out: torch.Size, kernel: torch.Size, geometry: Geometry) -> Tensor:
    """The Gram matrix (n, prod(out), prod(out)) of the patches under the output pixels.

    Cost: 2 in^2 C flops an example, and a box sum for each axis.
    """
    pixels = pixels_last(x)
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
    """Sum over taps j of table[..., s p + d j - padding, ..., s q + d j - padding, ...].

    Cost: an addition a tap for each number of the result.
    """
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
