"""Moment generating functions of one Poisson-sampled release, on a line of the complex plane.

Q is the law without the unit, P the law with it when it is sampled, and r = 1 - q + q dP/dQ. Then

    remove:       L =  log r under r Q,   E[e^(z L)] = E_Q[r^(z+1)]
    add:          L = -log r under Q,     E[e^(z L)] = E_Q[r^(-z)]
    replace one:  L = log r+ - log r-,    E[e^(z L)] = E_Q[r+^(z+1) r-^(-z)]

The first and the last grow without bound where their probability is hopelessly small, so that they
are multiplied by a soft cut-off chi(u) = Phi((c - u) / s), s = 1/2: with probability 1 - chi(u) a
release counts as a failure instead, and c is such that this has probability at most `cut`.

For Gaussian noise the expectation is a trapezoid sum over the real line, with a step that makes its
error at most e^-41 (bound in docs/theory/contour.md). For Laplace noise, and for batches of fixed
size, it is a sum of Gauss rules of 32 points on panels so short that each errs by less than 1e-15.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.polynomial.legendre import leggauss
from scipy.special import log_ndtr, ndtri

from privet.accounting.gaussian import log_deltas
from privet.accounting.privacy_loss import (
    LARGEST_EXPONENT,
    MANY_ROUNDINGS,
    NEXT_TO_ZERO,
    ROUNDOFF,
    TINY,
    Array,
    Direction,
    VerticalLine,
)
from privet.accounting.sampled_likelihood_ratio import log_ratio, log_ratio_error

MOST_PRODUCTS = 5e8
"""Complex products in one evaluation on a line; about half a second."""
CHUNK = 2_000_000
"""Numbers in one array of nodes: 16 MB (32 complex), whatever the number of steps."""
_ONE_THREAD = 60_000
"""Products of matrices up to this size stay on one thread in OpenBLAS; waking a second costs more
than it gives."""
_NEGLIGIBLE = 46.0
"""Where the integrand is e^-46 = 1e-20 of its peak it is left out, and bounded."""
_SOFT = 0.5
"""Width of the soft cut-off: wide enough for a long trapezoid step, narrow enough to cut little."""
_FARTHEST = 2e4
"""Orders over the noise multiplier beyond which a moment is not worth its cost: the integrand
is 2e4 wide there."""
_MOST_PANELS = 2000
"""Of one release, 64,000 nodes: bounds the time; a moment that needs more counts as unknown."""
_RULE = 1e-15
"""Bound of the relative error of a Gauss rule of 32 points on the panels chosen here."""
_NODES, _WEIGHTS = leggauss(32)
_TRAPEZOID = 41.0
"""The trapezoid rule errs by at most e^-41 = 1.6e-18 of the value: a hundredth of a rounding."""
_TAIL = 12.0
"""Deviations beyond the peak where the sum ends: e^-72 = 5e-32 of the density is left."""
_TAIL_FIXED = 13.0
"""The same of the profile of a batch of fixed size: e^(-13^2 / 2) = 2e-37 is left, and added."""


# Sums over nodes


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


def too_dear(nodes: float, line: VerticalLine) -> bool:
    """Whether a sum over so many nodes (of all rows) on the line would take too long."""
    # a node costs some 100 products by itself: its logarithms and its turns
    return nodes * (line.count + 100) > MOST_PRODUCTS


def characteristic(
    log_weight: Array, loss: Array, doubt: Array, line: VerticalLine, loss_doubt: Array
) -> tuple[Array, Array]:
    """log sum_j e^(log_weight_j + i w_k loss_j) for each row, with log(1 + its relative error).

    `doubt` bounds the errors of the log weights and `loss_doubt` those of the losses. With
    w_k = (B a + b) spacing the table of phases factors, so B + count/B exponentials a node suffice.
    """
    top = np.max(log_weight, axis=1, keepdims=True)
    weight = np.exp(log_weight - top)
    nodes = loss.shape[1]
    fixed = np.sum(weight * doubt, axis=1, keepdims=True)
    whole = np.sum(weight, axis=1, keepdims=True)
    if line.count == 1:
        # 8: exponential, logarithm and the sums with `top`; the sum of the nodes in any order
        return np.log(whole) + top, np.log1p(fixed / whole + ROUNDOFF * (8.0 + nodes))
    block = math.isqrt(line.count)
    strides = math.ceil(line.count / block)
    table = np.zeros((len(loss), strides, block), dtype=complex)
    # at least 16 at a time: a product of thinner matrices is all overhead
    piece = min(nodes, max(16, _ONE_THREAD // (strides * block)))
    part = piece * max(1, CHUNK // (len(loss) * (block + strides) * piece))
    for start in range(0, nodes, part):
        now = slice(start, start + part)
        right = _turns(line.spacing * loss[:, now], block)
        left = _turns(line.spacing * block * loss[:, now], strides) * weight[:, None, now]
        for j in range(0, left.shape[2], piece):
            table += left[:, :, j : j + piece] @ np.swapaxes(right[:, :, j : j + piece], 1, 2)
    values = table.reshape(len(loss), -1)[:, : line.count]
    size = np.maximum(np.abs(values), NEXT_TO_ZERO)
    # a product of two turns, each a product of few (three roundings for a complex one), in a sum of
    # `piece` and then of nodes / piece (four for a complex product and its sum); the 4 more are the
    # exponentials that the turns begin with
    deep = 3.0 * (math.log2(block) + math.log2(strides) + 4.0)
    summing = ROUNDOFF * (deep + 4.0 * (piece + nodes / piece + 4.0)) * whole
    moving = np.sum(weight * (loss_doubt + 4.0 * ROUNDOFF * np.abs(loss)), axis=1, keepdims=True)
    errors = np.log1p((fixed + summing + line.frequencies * moving) / size)
    return np.log(np.where(values == 0, NEXT_TO_ZERO, values)) + top, errors


# Poisson-sampled Gaussian releases


@dataclass(frozen=True, kw_only=True)
class _Integrand:
    """The integrand for Gaussian noise at nodes u = x / noise multiplier, and its pieces."""

    log_value: Array
    loss: Array
    logs: tuple[Array, ...]
    """log r at u, and at -u for replace-one."""
    soft: tuple[Array, Array] | None
    """(c - u) / s and log Phi of it, where rare large losses are left out."""

    def roundings(self, u: Array, q: Array, z: Array, order: Array) -> tuple[Array, Array]:
        """Bounds of the errors of the log of the integrand and of the loss.

        They allow for nodes that are off by a rounding of their own size.
        """
        size = np.abs(u / z) + 1.0 / z**2
        off = log_ratio_error(self.logs[0], q, size)
        for other in self.logs[1:]:
            off = off + log_ratio_error(other, q, size)
        # factors of 8: twice the four roundings of docs/theory/contour.md
        doubt = 8.0 * ROUNDOFF * (4.0 + u * u) + (order + 1.0) * off
        if self.soft is not None:
            x, soft = self.soft
            size_of = np.abs(soft)
            # x is off by roundings of u and end; the slope of log Phi is at most the first factor
            slope = np.minimum(1.0, (1.0 + np.abs(x)) * size_of) + np.maximum(-x, 0.0)
            doubt = doubt + 8.0 * ROUNDOFF * slope * (np.abs(x) + 2.0 * np.abs(u))
            # log_ndtr itself: measured from -2e4 to 8, at most 0.07 of this
            doubt = doubt + ROUNDOFF * (4096.0 * np.minimum(size_of, 1.0) + 64.0 * size_of)
        return doubt, off


def _integrand(
    u: Array, q: Array, z: Array, order: Array, end: Array, direction: Direction | None
) -> _Integrand:
    ell = log_ratio(q, u / z - 0.5 / z**2)
    base = -0.5 * u * u
    if direction is Direction.ADD:
        return _Integrand(log_value=base - order * ell, loss=-ell, logs=(ell,), soft=None)
    soft = None
    if np.any(np.isfinite(end)):
        x = np.minimum((end - u) / _SOFT, 1e9)  # finite where there is no end: log Phi is 0
        soft = x, log_ndtr(x)
        base = base + soft[1]
    base = base + (order + 1.0) * ell
    if direction is Direction.REMOVE:
        return _Integrand(log_value=base, loss=ell, logs=(ell,), soft=soft)
    other = log_ratio(q, -u / z - 0.5 / z**2)
    return _Integrand(
        log_value=base - order * other, loss=ell - other, logs=(ell, other), soft=soft
    )


def _cut_off(q: Array, z: Array, cut: float) -> Array:
    """The c for which (1-q) P[u > c] + q P[u + 1/z > c] <= cut, u ~ N(0, 1 + s^2)."""
    if cut <= 0.0:
        return np.full(len(q), math.inf)
    wide = math.sqrt(1.0 + _SOFT**2)
    with np.errstate(divide="ignore"):
        bulk = -ndtri(np.minimum(0.5 * cut / np.maximum(1.0 - q, TINY), 1.0))
        moved = -ndtri(np.minimum(0.5 * cut / q, 1.0))
    return np.asarray(
        np.maximum(wide * np.maximum(bulk, 0.0), 1.0 / z + wide * np.maximum(moved, 0.0))
    )


def _gaussian_step(z: Array, order: Array, last: float, direction: Direction | None) -> Array:
    """The trapezoid step for which 2 e^(w v/z + v^2/2 + v^2/2s^2 - order log cos(v/2z) - 2 pi v/h)
    <= e^-41."""
    # half-widths v of the strip that are tried, an eighth apart: any gives a valid step. Without a
    # phase or a power the best is at 9, where 42 / v + v / 2 is least
    v = np.geomspace(0.05, 12.0, 48)[None, :]
    angle = v / z[:, None]
    phase = last * angle * (2.0 if direction is None else 1.0)
    # r has its zeros at an angle of pi; a negative power of it needs a distance
    turned = angle < (math.pi if direction is Direction.REMOVE else 0.98 * math.pi)
    soft = 0.0 if direction is Direction.ADD else 0.5 / _SOFT**2
    aim = _TRAPEZOID + 1.0  # and more than log 2, for both sides
    cost = phase + (0.5 + soft) * v * v + aim
    if direction is not Direction.REMOVE:
        cost = cost - order[:, None] * np.log(np.cos(np.where(turned, angle, 0.0) / 2.0))
    need = np.where(turned, cost / v, math.inf)
    best = np.min(need, axis=1)
    # the narrowest strip is always allowed, for very small noise too: 1.9 > -log cos(0.45 pi)
    narrow = 0.9 * math.pi * z
    fallback = (last * 0.9 * math.pi * 2.0 + (0.5 + soft) * narrow**2 + aim + 1.9 * order) / narrow
    return 2.0 * math.pi / np.where(np.isfinite(best), best, fallback)


def sampled_gaussian(
    q: Array, z: Array, line: VerticalLine, direction: Direction | None, cut: float
) -> tuple[Array, Array] | None:
    """log E[e^(x L)] on the line for each pair (rate, noise multiplier); None if it is too dear.

    Direction None is replace-one.
    """
    return _sampled_gaussian(q, z, np.full(len(q), line.order), line, direction, cut)


def sampled_gaussian_real(
    q: Array, z: Array, orders: Array, direction: Direction | None, cut: float
) -> tuple[Array, Array]:
    """log E[e^(t L)] at real orders: a row for each pair, a column for each order."""
    point = VerticalLine(order=0.0, spacing=1.0, count=1)
    shape = (len(q), len(orders))
    rows = (np.repeat(q, len(orders)), np.repeat(z, len(orders)), np.tile(orders, len(q)))
    values, errors = np.full((len(rows[0]), 1), math.inf), np.zeros((len(rows[0]), 1))
    useful = rows[2] / rows[1] < _FARTHEST  # beyond, the cut-off tail rules: infinity is a bound
    if np.any(useful):
        a, b, t = (r[useful] for r in rows)
        answer = _sampled_gaussian(a, b, t, point, direction, cut)
        if answer is not None:
            values[useful], errors[useful] = answer[0].real, answer[1]
    return values.reshape(shape), errors.reshape(shape)


def _sampled_gaussian(
    q: Array,
    z: Array,
    order: Array,
    line: VerticalLine,
    direction: Direction | None,
    cut: float,
) -> tuple[Array, Array] | None:
    out = np.empty((len(q), line.count), dtype=complex)
    err = np.empty((len(q), line.count))
    step = _gaussian_step(z, order, float(line.frequencies[-1]), direction)
    low = np.full(len(q), -_TAIL)
    if direction is Direction.ADD:  # r^-order <= (1-q)^-order, so that the normal density wins soon
        with np.errstate(divide="ignore"):
            flat = np.sqrt(2.0 * (0.5 * _TAIL**2 - order * np.log1p(-q)))
        low = -np.minimum(_TAIL + order / z, flat)
    peak = {Direction.REMOVE: order + 1.0, Direction.ADD: 0.0 * order, None: 2.0 * order + 1.0}
    shift = peak[direction] / z
    end = _cut_off(q, z, cut)
    stop = np.where(np.isfinite(end), end, 0.0)
    held = np.maximum(stop, (_SOFT**2 * shift + stop) / (1.0 + _SOFT**2))
    high = _TAIL + np.where(np.isfinite(end), np.minimum(shift, held), shift)
    by_size = np.argsort((high - low) / step)
    groups, nodes = [], 0.0
    for start in range(0, len(q), 64):  # rows of similar length share one number of nodes
        rows = by_size[start : start + 64]
        lo, hi, gone = _active(
            q[rows], z[rows], low[rows], high[rows], order[rows], end[rows], direction
        )
        # 1e12 is too dear anyway
        m = math.ceil(min(1e12, float(np.max((hi - lo) / step[rows])))) + 1
        groups.append((rows, lo, hi, gone, m))
        nodes += len(rows) * m
    if too_dear(nodes, line):
        return None
    for rows, lo, hi, gone, m in groups:
        fit = max(1, CHUNK // m)
        for i in range(0, len(rows), fit):
            now, a, b = rows[i : i + fit, None], lo[i : i + fit, None], hi[i : i + fit, None]
            h = (b - a) / (m - 1)
            u = a + h * np.arange(m)[None, :]
            f = _integrand(u, q[now], z[now], order[now], end[now], direction)
            g, (doubt, off) = f.log_value, f.roundings(u, q[now], z[now], order[now])
            scale = np.log(h) - 0.5 * math.log(2.0 * math.pi)
            found, errors = characteristic(g + scale, f.loss, doubt, line, off)
            # what was left out, and the rule's own e^-41, both relative to the value on the axis
            real = np.log(np.sum(np.exp(g - np.max(g, axis=1, keepdims=True)), axis=1))
            missing = np.exp(gone[i : i + fit] - np.max(g, axis=1) - real - np.log(h[:, 0]))
            lost = (missing + math.exp(-_TRAPEZOID)) * 1.01  # a hundredth for the sum's own errors
            rise = np.exp(np.minimum(found[:, :1].real - found.real, LARGEST_EXPONENT))
            out[now[:, 0]] = found
            err[now[:, 0]] = errors + np.log1p(lost[:, None] * rise)
    return out, err


def _active(
    q: Array,
    z: Array,
    low: Array,
    high: Array,
    order: Array,
    end: Array,
    direction: Direction | None,
) -> tuple[Array, Array, Array]:
    """Where the integrand e^g is within e^-46 of its peak, and log of a bound of all the rest.

    Between two points of a coarse grid d apart, g exceeds the larger of its values there by at most
    (1 + 1/s^2) d^2 / 8 plus what a concave -order ell adds, at most order d min(d / 32 z^2, 1 / z);
    beyond the grid it falls at least as fast as e^(-12 x) (docs/theory/contour.md).
    """
    m = max(64, math.ceil(2.0 * float(np.max(high - low))))  # points at most 1/2 apart
    u = low[:, None] + (high - low)[:, None] * np.linspace(0.0, 1.0, m)[None, :]
    g = _integrand(u, q[:, None], z[:, None], order[:, None], end[:, None], direction).log_value
    peak = np.max(g, axis=1, keepdims=True)
    alive = g > peak - _NEGLIGIBLE
    first = np.maximum(np.argmax(alive, axis=1) - 1, 0)
    last = np.minimum(m - np.argmax(alive[:, ::-1], axis=1), m - 1)
    rows = np.arange(len(q))
    d = (high - low) / (m - 1)
    bulge = (1.0 + 1.0 / _SOFT**2) * d * d / 8.0
    if direction is not Direction.REMOVE:
        bulge = bulge + order * d * np.minimum(d / (32.0 * z * z), 1.0 / z)
    dropped = peak[:, 0] - _NEGLIGIBLE + bulge + np.log(high - low + 1.0)
    left = g[:, 0]
    if direction is Direction.ADD:  # e^g <= (1-q)^-order e^(-u^2/2) there
        with np.errstate(divide="ignore"):
            flat = -order * np.log1p(-q) - 0.5 * low * low
        left = np.where(-low >= _TAIL - 0.1 + order / z, left, flat)  # which one `low` is
    gone = np.logaddexp(dropped, np.logaddexp(left, g[:, -1]))
    return u[rows, first], u[rows, last], gone


# Sampled Laplace releases, and batches of fixed size


def _laplace_nodes(
    q: float, z: float, powers: float, sign: float
) -> tuple[Array, Array, Array, Array] | None:
    """A Gauss rule for powers up to a size: (log masses, log ratios, bounds of their errors).

    Two atoms and panels of half-length at most min(1, 8 / (1 + powers)) in t; None if too many.
    """
    s = 1.0 / z
    panels = max(1, math.ceil(min(s * max(1.0, (1.0 + powers) / 8.0), 1e15)))  # 1e15: too many
    if panels > _MOST_PANELS:
        return None
    edges = np.linspace(0.0, 1.0, panels + 1)
    x = (edges[:-1, None] + 0.5 / panels * (_NODES + 1.0)[None, :]).ravel()
    log_w = np.log(np.tile(_WEIGHTS, panels) * 0.25 * s / panels) - s * x
    t = np.concatenate([[-s], s * (2.0 * x - 1.0), [s]])
    log_mass = np.concatenate([[math.log(0.5)], log_w, [math.log(0.5) - s]])
    ell = log_ratio(np.array([q]), t)
    off = log_ratio_error(ell, np.array([q]), np.full(len(t), 2.0 * s))
    # twice the four roundings of the logarithms, sizes and products in the mass
    return log_mass, sign * ell, ROUNDOFF * 8.0 * (16.0 + s + np.abs(log_mass)) + _RULE, off


def sampled_laplace(
    q: Array, z: Array, line: VerticalLine, direction: Direction
) -> tuple[Array, Array] | None:
    """log E[e^(x L)] on the line for Laplace noise, z = scale / L1 bound; None if too dear."""
    out = np.empty((len(q), line.count), dtype=complex)
    err = np.empty((len(q), line.count))
    sign = 1.0 if direction is Direction.REMOVE else -1.0
    power = line.order + 1.0 if direction is Direction.REMOVE else line.order
    most = power + float(line.frequencies[-1])
    # 32 nodes for each of the panels that `_laplace_nodes` will make, or a little more
    if too_dear(math.ceil(32.0 * float(np.sum(1.0 + (1.0 + most) / (8.0 * z)))), line):
        return None
    for i in range(len(q)):
        nodes = _laplace_nodes(float(q[i]), float(z[i]), most, sign)
        if nodes is None:
            return None
        log_mass, loss, doubt, off = nodes
        out[i : i + 1], err[i : i + 1] = characteristic(
            (log_mass + power * loss)[None],
            loss[None],
            (doubt + power * off)[None],
            line,
            off[None],
        )
    return out, err


def sampled_laplace_real(q: Array, z: Array, orders: Array, direction: Direction) -> Array:
    """An upper bound of log E[e^(t L)]: a row for each pair, a column for each real order."""
    sign = 1.0 if direction is Direction.REMOVE else -1.0
    powers = orders + 1.0 if direction is Direction.REMOVE else orders
    out = np.full((len(q), len(orders)), math.inf)
    order = np.argsort(powers)
    for i in range(len(q)):
        for some in np.array_split(order, 3):  # the largest orders need the most panels
            if not len(some):
                continue
            power = powers[some][:, None]
            nodes = _laplace_nodes(float(q[i]), float(z[i]), float(power[-1, 0]), sign)
            if nodes is None:
                break
            log_mass, loss, doubt, off = nodes
            g = log_mass + power * loss + doubt + power * off
            top = np.max(g, axis=1)
            total = np.sum(np.exp(g - top[:, None]), axis=1)
            out[i, some] = top + np.log(total) + ROUNDOFF * (16.0 + g.shape[1])  # a sum of so many
    return out


def fixed_size_gaussian(q: Array, z: Array, line: VerticalLine) -> tuple[Array, Array] | None:
    """log E[e^(x L)] on the line for a batch of fixed size under replace-one; None if too dear.

    For any profile E[e^(x L)] = x (x+1) * integral of e^(x e) delta(e) de. Here delta(-e) = 1 -
    e^-e + e^-e delta(e), so

        E[e^(x L)] = 1 + x (x+1) * integral over e > 0 of (e^(x e) + e^(-(x+1) e)) delta(e) de,

    with delta(e) = q d(y), e = log(1 + q (e^y - 1)) and d the Gaussian profile at mu = 2/z.
    """
    out = np.empty((len(q), line.count), dtype=complex)
    err = np.empty((len(q), line.count))
    nodes, weights = _NODES, _WEIGHTS
    x = line.points
    mus = 2.0 / z
    tops = mus * (mus * (1.0 + line.order) + _TAIL_FIXED)
    turns = tops * (
        1.0 / np.minimum(mus, 1.0) + float(line.frequencies[-1]) / 8.0 + line.order / 4.0 + 1.0
    )
    # half-lengths with a share of `turns` of at most 2, as docs/theory/contour.md asks for
    panels_of = np.maximum(4.0, np.ceil(turns / 4.0))
    panels_most = float(np.max(panels_of))
    if panels_most > _MOST_PANELS or too_dear(
        math.ceil(2.0 * 32.0 * float(np.sum(panels_of))), line
    ):
        return None
    for i in range(len(q)):
        mu, top, panels = float(mus[i]), float(tops[i]), int(panels_of[i])
        y = (top / panels) * (np.arange(panels)[:, None] + 0.5 * (nodes + 1.0)[None, :])
        y, w = y.ravel(), np.tile(weights, panels) * 0.5 * top / panels
        e = log_ratio(q[i : i + 1], y)
        log_w = np.log(w * q[i]) + y - e + np.log(q[i]) + log_deltas(mu, y)
        off = log_ratio_error(e, q[i : i + 1], np.abs(y))
        # MANY_ROUNDINGS for log_deltas, whose error grows with (y / mu)^2 otherwise
        doubt = MANY_ROUNDINGS + ROUNDOFF * 8.0 * (np.abs(log_w) + (y / mu) ** 2) + _RULE
        up, up_error = characteristic(
            (log_w + line.order * e)[None],
            e[None],
            (doubt + line.order * off)[None],
            line,
            off[None],
        )
        down, down_error = characteristic(
            (log_w - (line.order + 1.0) * e)[None],
            -e[None],
            (doubt + (line.order + 1.0) * off)[None],
            line,
            off[None],
        )
        most = max(0.0, float(up[0, 0].real))
        rise, fall = np.exp(up[0] - most), np.exp(down[0] - most)
        size = np.abs(x * (x + 1.0))
        value = math.exp(-most) + x * (x + 1.0) * (rise + fall)
        # beyond `top` e grows at most like y, and delta falls like a normal tail, faster by 13 / mu
        end = float(log_ratio(q[i : i + 1], np.array([top]))[0])
        far = 0.5 * (mu * (0.5 + line.order) + _TAIL_FIXED) ** 2
        log_tail = line.order * end - far + math.log(q[i] * mu / _TAIL_FIXED) - most
        tail = math.exp(min(log_tail, LARGEST_EXPONENT))
        doubt_of = size * (np.abs(rise) * up_error[0] + np.abs(fall) * down_error[0] + 2.0 * tail)
        doubt_of = doubt_of + 16.0 * ROUNDOFF * (math.exp(-most) + size * np.abs(rise))
        out[i] = np.log(value) + most
        err[i] = np.log1p(doubt_of / np.maximum(np.abs(value), NEXT_TO_ZERO))
    return out, err
