"""Sums in float64 of numbers in float32, in compiled loops: one pass over memory, in one order.

torch has these too, but converts first or adds number by number; here nothing is converted in
memory, so that norms and sums in float64 cost about what they cost in float32.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from privet.gradients.device import on_host
from privet.noise.torch_noise import compile_on_first_use

# Partial sums of squares that run side by side: 1 kB of float64, which stays in the first-level
# cache while the compiler fills its vector registers from it.
_LANES = 128
# Columns of a weighted sum added up at a time: 16 kB of float64, half of a first-level cache.
_COLUMNS = 2048
# What is worked on at a time elsewhere, so that it stays in the second-level cache of a core.
CACHE_BYTES = 2**20

Floats = NDArray[np.float64]


def squared_norms(rows: Tensor) -> Tensor:
    """Squared L2 norm of each row of a matrix, squared and added up in float64.

    Cost: 2 flops a number, each read once.
    """
    if not on_host(rows):
        return _squares_by_torch(rows)
    out = np.empty(rows.shape[0])
    _square(rows.detach().contiguous().numpy(), out, np.empty(_LANES))
    return torch.from_numpy(out)


def _squares_by_torch(rows: Tensor) -> Tensor:
    """Squared norms of rows by torch itself, for rows on a device."""
    return rows.detach().double().square().sum(1)


def products(left: Tensor, right: Tensor, norms: Tensor) -> Tensor:
    """The products of two stacks of matrices, and the squared norm of each put into `norms`.

    On the host they are squared a few at a time, right after they were made, in the cache.
    Cost: 2 n k m flops a product of (n, k) and (k, m), and 2 n m for its norm.
    """
    n, *shape = left.shape[0], left.shape[1], right.shape[2]
    out = left.new_empty(n, *shape)
    if not on_host(out):
        norms.copy_(_squares_by_torch(torch.bmm(left, right, out=out).flatten(1)))
        return out
    some = max(1, CACHE_BYTES // max(1, shape[0] * shape[1] * out.element_size()))
    rows, into, lanes = out.view(n, -1).numpy(), norms.numpy(), np.empty(_LANES)
    parts = [(left, right, out)]
    if some < n:
        parts = list(zip(left.split(some), right.split(some), out.split(some), strict=True))
    for k, (a, b, product) in enumerate(parts):
        torch.bmm(a, b, out=product)
        _square(rows[k * some : (k + 1) * some], into[k * some : (k + 1) * some], lanes)
    return out


def normalised_sums(x: Tensor, mean: Tensor | None, rstd: Tensor, g: Tensor) -> Tensor | None:
    """sum_t g xhat and sum_t g of each row of (rows, t, width), (2, rows, width) in float64.

    xhat = (x - mean) rstd, with one mean and one rstd for each t. None where that cannot be done.
    Cost: 5 flops a number of x, which is read once, like g.
    """
    each = (rstd,) if mean is None else (mean, rstd)
    plain = all(t.is_contiguous() and t.dtype == x.dtype for t in (x, g, *each))
    if not (plain and on_host(x) and x.dtype in (torch.float32, torch.float64)):
        return None
    out = torch.zeros(2, *x.shape[::2], dtype=torch.float64)
    means = torch.zeros_like(rstd) if mean is None else mean
    centre, scale = means.view(x.shape[:2]).numpy(), rstd.view(x.shape[:2]).numpy()
    _normalise(x.numpy(), centre, scale, g.numpy(), out.numpy())
    return out


def weighted_total(weights: Tensor, values: Tensor) -> Tensor:
    """sum_i w_i v_i over the examples of (parts, examples, width), in float64.

    Cost: as of `weigh_into`; on a device a copy of all in float64.
    """
    if not on_host(values):
        return torch.einsum("i,piw->pw", weights.double(), values.detach().double())
    parts, _, width = values.shape
    return weigh_into(weights, values, weights.new_empty(parts, width, dtype=torch.float64))


def weigh_into(weights: Tensor, values: Tensor, into: Tensor, *, fresh: bool = True) -> Tensor:
    """The weighted sum put into, or unless `fresh` added to, float64 numbers that lie alike.

    Cost: 2 flops a number of `values`, each read once.
    """
    if not (on_host(values) and into.is_contiguous()):
        total = weighted_total(weights, values).view(into.shape)
        return into.copy_(total) if fresh else into.add_(total)
    values = values.detach().contiguous()
    out = into.view(values.shape[0], values.shape[2]).numpy()
    _weigh(weights.double().contiguous().numpy(), values.numpy(), out, fresh, np.empty(_COLUMNS))
    return into


def add_(into: Tensor, value: Tensor) -> Tensor:
    """into += value, where `into` is float64 and both lie alike; returns `into`.

    Cost: a flop a number; 20 bytes of memory traffic for a value in float32.
    """
    if on_host(into) and into.is_contiguous() and value.is_contiguous():
        _add(into.view(-1).numpy(), value.view(-1).numpy())
        return into
    return into.add_(value)


def put_pair_(into: Tensor, first: Tensor, second: Tensor) -> Tensor:
    """into = first + second, over whatever it held; returns `into`.

    Cost: a flop a number; 16 bytes of memory traffic (to set to zero and add twice has 48).
    """
    if on_host(into) and into.is_contiguous():
        _pair(into.view(-1).numpy(), first.view(-1).numpy(), second.view(-1).numpy())
        return into
    return into.copy_(first).add_(second)


def divide_into(total: Tensor, divisor: float, out: Tensor) -> Tensor:
    """out = total / divisor, rounded to the precision of `out` once more; returns `out`.

    Cost: a division a number; 12 bytes of memory traffic for float32.
    """
    if not on_host(total):
        return out.copy_(total / divisor)
    narrow = out.dtype in (torch.float16, torch.bfloat16)  # numpy does not know all of them
    if total.is_contiguous() and out.is_contiguous() and not narrow:
        _divide(total.view(-1).numpy(), divisor, out.view(-1).numpy())
        return out
    return out.copy_(total / divisor)


def compile_loops() -> None:
    """Compile the loops now, so that what can fail there fails before a budget is charged."""
    for dtype in (torch.float32, torch.float64):
        rows = torch.zeros(2, 3, dtype=dtype)
        squared_norms(rows)
        total = add_(weighted_total(torch.ones(2), rows[None]), rows[:1])
        put_pair_(total, rows[:1], rows[1:])
        divide_into(total, 2.0, rows[:1])
        products(rows[None], rows.t()[None].contiguous(), torch.zeros(1, dtype=torch.float64))
        normalised_sums(
            rows[None], rows[None, :, :1].contiguous(), rows[None, :, :1].contiguous(), rows[None]
        )


@compile_on_first_use
def _square(rows: Floats, out: Floats, lanes: Floats) -> None:
    width, n = rows.shape[1], len(lanes)
    fours, whole = width - width % (4 * n), width - width % n
    for i in range(rows.shape[0]):
        lanes[:] = 0.0
        row = rows[i]
        for start in range(0, fours, 4 * n):  # four at a time: lanes are loaded less often
            a, b = row[start : start + n], row[start + n : start + 2 * n]
            c, d = row[start + 2 * n : start + 3 * n], row[start + 3 * n : start + 4 * n]
            for k in range(n):
                x, y = np.float64(a[k]), np.float64(b[k])
                z, u = np.float64(c[k]), np.float64(d[k])
                lanes[k] += (x * x + y * y) + (z * z + u * u)
        for start in range(fours, whole, n):
            a = row[start : start + n]
            for k in range(n):
                lanes[k] += np.float64(a[k]) * np.float64(a[k])
        total = 0.0
        for k in range(n):
            total += lanes[k]
        for j in range(whole, width):
            total += np.float64(row[j]) * np.float64(row[j])
        out[i] = total


@compile_on_first_use
def _normalise(x: Floats, mean: Floats, rstd: Floats, g: Floats, out: Floats) -> None:
    m, r = mean.astype(np.float64), rstd.astype(np.float64)
    length = x.shape[1]
    whole = length - length % 4
    for i in range(x.shape[0]):
        scaled, plain = out[0, i], out[1, i]
        for t in range(0, whole, 4):  # four at a time: the sums are loaded and stored less often
            x0, x1, x2, x3 = x[i, t], x[i, t + 1], x[i, t + 2], x[i, t + 3]
            g0, g1, g2, g3 = g[i, t], g[i, t + 1], g[i, t + 2], g[i, t + 3]
            m0, m1, m2, m3 = m[i, t], m[i, t + 1], m[i, t + 2], m[i, t + 3]
            r0, r1, r2, r3 = r[i, t], r[i, t + 1], r[i, t + 2], r[i, t + 3]
            for j in range(len(scaled)):
                a, b = np.float64(g0[j]), np.float64(g1[j])
                c, d = np.float64(g2[j]), np.float64(g3[j])
                total = (np.float64(x0[j]) - m0) * r0 * a + (np.float64(x1[j]) - m1) * r1 * b
                total += (np.float64(x2[j]) - m2) * r2 * c + (np.float64(x3[j]) - m3) * r3 * d
                scaled[j] += total
                plain[j] += (a + b) + (c + d)
        for t in range(whole, length):
            xs, gs = x[i, t], g[i, t]
            for j in range(len(scaled)):
                each = np.float64(gs[j])
                scaled[j] += (np.float64(xs[j]) - m[i, t]) * r[i, t] * each
                plain[j] += each


@compile_on_first_use
def _weigh(weights: Floats, values: Floats, out: Floats, fresh: bool, room: Floats) -> None:
    width = values.shape[2]
    for p in range(values.shape[0]):
        for start in range(0, width, _COLUMNS):
            stop = min(start + _COLUMNS, width)
            into = room[: stop - start]
            into[:] = 0.0
            whole = values.shape[1] - values.shape[1] % 4
            for i in range(0, whole, 4):  # four at a time: the sum is loaded and stored less often
                w, x, y, z = weights[i], weights[i + 1], weights[i + 2], weights[i + 3]
                a, b = values[p, i, start:stop], values[p, i + 1, start:stop]
                c, d = values[p, i + 2, start:stop], values[p, i + 3, start:stop]
                for j in range(len(into)):
                    total = into[j] + w * np.float64(a[j])
                    total += x * np.float64(b[j])
                    total += y * np.float64(c[j])
                    into[j] = total + z * np.float64(d[j])
            for i in range(whole, values.shape[1]):
                w, a = weights[i], values[p, i, start:stop]
                for j in range(len(into)):
                    into[j] += w * np.float64(a[j])
            whole_sum = out[p, start:stop]
            if fresh:
                whole_sum[:] = into
            else:
                for j in range(len(into)):
                    whole_sum[j] += into[j]


@compile_on_first_use
def _add(into: Floats, value: Floats) -> None:
    for j in range(len(into)):
        into[j] += np.float64(value[j])


@compile_on_first_use
def _pair(into: Floats, first: Floats, second: Floats) -> None:
    for j in range(len(into)):
        into[j] = np.float64(first[j]) + np.float64(second[j])


@compile_on_first_use
def _divide(total: Floats, divisor: float, out: Floats) -> None:
    for j in range(len(out)):
        out[j] = total[j] / divisor
