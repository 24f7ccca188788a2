"""Moment generating functions of one Poisson-sampled release, on a line of the complex plane.

Q is the law without the unit, P the law with it when it is sampled, and r = 1 - q + q dP/dQ. Then

    remove:       L =  log r under r Q,   E[e^(z L)] = E_Q[r^(z+1)]
    add:          L = -log r under Q,     E[e^(z L)] = E_Q[r^(-z)]
    replace one:  L = log r+ - log r-,    E[e^(z L)] = E_Q[r+^(z+1) r-^(-z)]

The first and the last grow without bound where their probability is hopelessly small, so that they
are multiplied by a soft cut-off chi(u) = Phi((c - u) / s), s = 1/2: with probability 1 - chi(u) a
release counts as a failure instead, and c is such that this has probability at most `cut`.

For Gaussian noise the expectation is a trapezoid sum over the real line, with a step that makes its
error at most e^-41 (bound in docs/theory/contour.md); for Laplace noise two atoms and a
Gauss-Legendre sum on [0, 1].
"""

from __future__ import annotations

import math

import numpy as np
from numpy.polynomial.legendre import leggauss
from scipy.special import log_ndtr, ndtri

from privet.loss.base import Array, Direction, Quadrature
from privet.loss.gaussian import log_deltas

_ROUND = 2.3e-16
_NEGLIGIBLE = 46.0
_SOFT = 0.5
_FARTHEST = 2e4
"""Orders over the noise multiplier beyond which a moment is not worth its cost."""
_CHUNK = 2_000_000
_ONE_THREAD = 60_000
"""Products of matrices up to this size stay on one thread in OpenBLAS; waking a second costs more
than it gives."""


def log_ratio(q: Array, t: Array) -> Array:
    """log(1 - q + q e^t), accurate for small q and for large t.

    >>> float(log_ratio(np.array(1e-12), np.array(0.5)))  # doctest: +ELLIPSIS
    6.487...e-13
    """
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        middle = np.log1p(q * np.expm1(np.minimum(t, 30.0)))
        left = np.log((1.0 - q) + q * np.exp(np.minimum(t, 0.0)))
        right = np.log(q) + t + np.log1p((1.0 - q) / q * np.exp(-np.maximum(t, 30.0)))
    cancels = (t < -1.0) & (q > 0.5)
    return np.where(q == 1.0, t, np.where(t >= 30.0, right, np.where(cancels, left, middle)))


def _turns(angle: Array, count: int) -> Array:
    """e^(i k angle) for k = 0 .. count-1, by doubling: one rounding for each binary digit of k."""
    out = np.empty((len(angle), count, angle.shape[1]), dtype=complex)
    out[:, 0] = 1.0
    have = 1
    while have < count:
        more = min(have, count - have)
        np.multiply(
            out[:, :more], np.exp(1j * have * angle)[:, None], out=out[:, have : have + more]
        )
        have += more
    return out


def _characteristic(
    log_weight: Array, loss: Array, magnitude: Array, line: Quadrature
) -> tuple[Array, Array]:
    """log sum_j e^(log_weight_j + i w_k loss_j) for each row, with a bound of the absolute error.

    With w_k = (B a + b) spacing the table of phases factors, so B + count/B exponentials a node
    suffice.
    """
    top = np.max(log_weight, axis=1, keepdims=True)
    weight = np.exp(log_weight - top)
    fixed = np.sum(weight * (40.0 + magnitude), axis=1, keepdims=True)
    if line.count == 1:
        real = np.sum(weight, axis=1, keepdims=True)
        return np.log(real) + top, _ROUND * fixed / real
    block = math.isqrt(line.count)
    strides = math.ceil(line.count / block)
    right = _turns(line.spacing * loss, block)
    left = _turns(line.spacing * block * loss, strides) * weight[:, None, :]
    table = np.zeros((len(loss), strides, block), dtype=complex)
    piece = max(16, _ONE_THREAD // (strides * block))
    for j in range(0, loss.shape[1], piece):
        table += left[:, :, j : j + piece] @ np.swapaxes(right[:, :, j : j + piece], 1, 2)
    values = table.reshape(len(loss), -1)[:, : line.count]
    size = np.maximum(np.abs(values), 1e-290)
    moving = np.sum(weight * np.abs(loss), axis=1, keepdims=True)
    errors = _ROUND * (fixed + line.frequencies * moving) / size
    return np.log(np.where(values == 0, 1e-290, values)) + top, errors


def _gaussian_exponent(
    u: Array, q: Array, z: Array, order: Array, end: Array, direction: Direction | None
) -> tuple[Array, Array, Array]:
    """(log of the real integrand, loss, magnitude of the summands) at u = x / noise multiplier."""
    ell = log_ratio(q, u / z - 0.5 / z**2)
    base = -0.5 * u * u
    if direction is not Direction.ADD:
        base = base + log_ndtr((end - u) / _SOFT)
    if direction is Direction.REMOVE:
        return base + (order + 1.0) * ell, ell, -base + (order + 1.0) * np.abs(ell)
    if direction is Direction.ADD:
        return base - order * ell, -ell, -base + order * np.abs(ell)
    other = log_ratio(q, -u / z - 0.5 / z**2)
    exponent = base + (order + 1.0) * ell - order * other
    return exponent, ell - other, -base + (order + 1.0) * np.abs(ell) + order * np.abs(other)


def _cut_off(q: Array, z: Array, cut: float) -> Array:
    """The c for which (1-q) P[u > c] + q P[u + 1/z > c] <= cut, u ~ N(0, 1 + s^2)."""
    if cut <= 0.0:
        return np.full(len(q), math.inf)
    wide = math.sqrt(1.0 + _SOFT**2)
    with np.errstate(divide="ignore"):
        bulk = -ndtri(np.minimum(0.5 * cut / np.maximum(1.0 - q, 1e-300), 1.0))
        moved = -ndtri(np.minimum(0.5 * cut / q, 1.0))
    return np.asarray(
        np.maximum(wide * np.maximum(bulk, 0.0), 1.0 / z + wide * np.maximum(moved, 0.0))
    )


def _gaussian_step(z: Array, order: Array, last: float, direction: Direction | None) -> Array:
    """The trapezoid step for which 2 e^(w v/z + v^2/2 + v^2/2s^2 - order log cos(v/2z) - 2 pi v/h)
    <= e^-41."""
    v = np.geomspace(0.05, 12.0, 48)[None, :]
    angle = v / z[:, None]
    phase = last * angle * (2.0 if direction is None else 1.0)
    turned = angle < (math.pi if direction is Direction.REMOVE else 0.98 * math.pi)
    soft = 0.0 if direction is Direction.ADD else 0.5 / _SOFT**2
    cost = phase + (0.5 + soft) * v * v + 42.0
    if direction is not Direction.REMOVE:
        cost = cost - order[:, None] * np.log(np.cos(np.where(turned, angle, 0.0) / 2.0))
    need = np.where(turned, cost / v, math.inf)
    best = np.min(need, axis=1)
    # the narrowest strip is always allowed, for very small noise too
    narrow = 0.9 * math.pi * z
    fallback = (last * 0.9 * math.pi * 2.0 + (0.5 + soft) * narrow**2 + 42.0 + 1.9 * order) / narrow
    return 2.0 * math.pi / np.where(np.isfinite(best), best, fallback)


def sampled_gaussian(
    q: Array, z: Array, line: Quadrature, direction: Direction | None, cut: float
) -> tuple[Array, Array]:
    """log E[e^(x L)] on the line for each pair (rate, noise multiplier); direction None is replace-
    one."""
    return _sampled_gaussian(q, z, np.full(len(q), line.order), line, direction, cut)


def sampled_gaussian_real(
    q: Array, z: Array, orders: Array, direction: Direction | None, cut: float
) -> tuple[Array, Array]:
    """The same at real orders: a row for each pair, a column for each order."""
    point = Quadrature(order=0.0, spacing=1.0, count=1)
    shape = (len(q), len(orders))
    rows = (np.repeat(q, len(orders)), np.repeat(z, len(orders)), np.tile(orders, len(q)))
    values, errors = np.full((len(rows[0]), 1), math.inf), np.zeros((len(rows[0]), 1))
    useful = rows[2] / rows[1] < _FARTHEST  # beyond, the cut-off tail rules: infinity is a bound
    if np.any(useful):
        a, b, t = (r[useful] for r in rows)
        found, doubt = _sampled_gaussian(a, b, t, point, direction, cut)
        values[useful], errors[useful] = found.real, doubt
    return values.reshape(shape), errors.reshape(shape)


def _sampled_gaussian(
    q: Array,
    z: Array,
    order: Array,
    line: Quadrature,
    direction: Direction | None,
    cut: float,
) -> tuple[Array, Array]:
    out = np.empty((len(q), line.count), dtype=complex)
    err = np.empty((len(q), line.count))
    step = _gaussian_step(z, order, float(line.frequencies[-1]), direction)
    low = np.full(len(q), -12.0)
    if direction is Direction.ADD:  # r^-order <= (1-q)^-order, so that the normal density wins soon
        with np.errstate(divide="ignore"):
            flat = np.sqrt(2.0 * (72.0 - order * np.log1p(-q)))
        low = -np.minimum(12.0 + order / z, flat)
    peak = {Direction.REMOVE: order + 1.0, Direction.ADD: 0.0 * order, None: 2.0 * order + 1.0}
    shift = peak[direction] / z
    end = _cut_off(q, z, cut)
    stop = np.where(np.isfinite(end), end, 0.0)
    held = np.maximum(stop, (_SOFT**2 * shift + stop) / (1.0 + _SOFT**2))
    high = 12.0 + np.where(np.isfinite(end), np.minimum(shift, held), shift)
    by_size = np.argsort((high - low) / step)
    for start in range(0, len(q), 64):
        rows = by_size[start : start + 64]
        lo, hi = _active(q[rows], z[rows], low[rows], high[rows], order[rows], end[rows], direction)
        m = math.ceil(float(np.max((hi - lo) / step[rows]))) + 1
        fit = max(1, _CHUNK // (m * (2 * math.isqrt(line.count) + 2)))
        for i in range(0, len(rows), fit):
            now, a, b = rows[i : i + fit, None], lo[i : i + fit, None], hi[i : i + fit, None]
            h = (b - a) / (m - 1)
            u = a + h * np.arange(m)[None, :]
            g, loss, magnitude = _gaussian_exponent(
                u, q[now], z[now], order[now], end[now], direction
            )
            g = g + np.log(h) - 0.5 * math.log(2.0 * math.pi)
            out[now[:, 0]], err[now[:, 0]] = _characteristic(g, loss, magnitude, line)
    return out, err


def _active(
    q: Array,
    z: Array,
    low: Array,
    high: Array,
    order: Array,
    end: Array,
    direction: Direction | None,
) -> tuple[Array, Array]:
    """Where the integrand is within e^-46 of its peak, found on a coarse grid."""
    m = max(64, math.ceil(2.0 * float(np.max(high - low))))
    u = low[:, None] + (high - low)[:, None] * np.linspace(0.0, 1.0, m)[None, :]
    g, _, _ = _gaussian_exponent(u, q[:, None], z[:, None], order[:, None], end[:, None], direction)
    alive = g > np.max(g, axis=1, keepdims=True) - _NEGLIGIBLE
    first = np.maximum(np.argmax(alive, axis=1) - 1, 0)
    last = np.minimum(m - np.argmax(alive[:, ::-1], axis=1), m - 1)
    rows = np.arange(len(q))
    return u[rows, first], u[rows, last]


def sampled_laplace(
    q: Array, z: Array, line: Quadrature, direction: Direction
) -> tuple[Array, Array]:
    """The same for Laplace noise of scale z times the L1 sensitivity."""
    out = np.empty((len(q), line.count), dtype=complex)
    err = np.empty((len(q), line.count))
    x32, w32 = leggauss(32)
    sign = 1.0 if direction is Direction.REMOVE else -1.0
    power = line.order + 1.0 if direction is Direction.REMOVE else line.order
    for i in range(len(q)):
        s = 1.0 / z[i]
        turn = 2.0 * s * (1.0 + float(line.frequencies[-1]) + power)
        panels = max(1, math.ceil(turn / 16.0))
        edges = np.linspace(0.0, 1.0, panels + 1)
        x = (edges[:-1, None] + 0.5 / panels * (x32 + 1.0)[None, :]).ravel()
        log_w = np.log(np.tile(w32, panels) * 0.25 * s / panels) - s * x
        t = np.concatenate([[-s], s * (2.0 * x - 1.0), [s]])
        log_mass = np.concatenate([[math.log(0.5)], log_w, [math.log(0.5) - s]])
        ell = log_ratio(q[i : i + 1], t)
        g = (log_mass + sign * power * ell)[None, :]
        magnitude = (np.abs(log_mass) + power * np.abs(ell))[None, :]
        out[i : i + 1], err[i : i + 1] = _characteristic(g, sign * ell[None, :], magnitude, line)
    return out, err


def fixed_size_gaussian(q: Array, z: Array, line: Quadrature) -> tuple[Array, Array]:
    """The same for the profile of a batch of fixed size under replace-one.

    For any profile E[e^(x L)] = x (x+1) * integral of e^(x e) delta(e) de. Here delta(-e) = 1 -
    e^-e + e^-e delta(e), so

        E[e^(x L)] = 1 + x (x+1) * integral over e > 0 of (e^(x e) + e^(-(x+1) e)) delta(e) de,

    with delta(e) = q d(y), e = log(1 + q (e^y - 1)) and d the Gaussian profile at mu = 2/z.
    """
    out = np.empty((len(q), line.count), dtype=complex)
    err = np.empty((len(q), line.count))
    nodes, weights = leggauss(32)
    x = line.points
    for i in range(len(q)):
        mu = 2.0 / z[i]
        top = mu * (mu * (1.0 + line.order) + 13.0)
        turn = top * (1.0 / min(mu, 1.0) + float(line.frequencies[-1]) / 8.0 + 1.0)
        panels = max(4, math.ceil(turn / 4.0))
        y = (top / panels) * (np.arange(panels)[:, None] + 0.5 * (nodes + 1.0)[None, :])
        y, w = y.ravel(), np.tile(weights, panels) * 0.5 * top / panels
        e = log_ratio(q[i : i + 1], y)
        log_w = np.log(w * q[i]) + y - e + np.log(q[i]) + log_deltas(mu, y)
        up, up_error = _characteristic(
            (log_w + line.order * e)[None], e[None], np.abs(log_w)[None], line
        )
        down, down_error = _characteristic(
            (log_w - (line.order + 1.0) * e)[None], -e[None], np.abs(log_w)[None], line
        )
        top = max(0.0, float(up[0, 0].real))
        rise, fall = np.exp(up[0] - top), np.exp(down[0] - top)
        value = math.exp(-top) + x * (x + 1.0) * (rise + fall)
        doubt = np.abs(x * (x + 1.0)) * (
            np.abs(rise) * (up_error[0] + 1e-14) + np.abs(fall) * down_error[0]
        )
        out[i] = np.log(value) + top
        err[i] = (doubt + 1e-15 * math.exp(-top)) / np.maximum(np.abs(value), 1e-290)
    return out, err
