"""Moment generating functions of one Poisson-sampled release, on a line of the complex plane.

Q is the law without the unit, P the law with it when it is sampled, and r = 1 - q + q dP/dQ. Then

    remove:       L =  log r under r Q,   E[e^(z L)] = E_Q[r^(z+1)]
    add:          L = -log r under Q,     E[e^(z L)] = E_Q[r^(-z)]
    replace one:  L = log r+ - log r-,    E[e^(z L)] = E_Q[r+^(z+1) r-^(-z)]

The first and the last grow without bound where their probability is hopelessly small, so that they
are multiplied by a soft cut-off chi(u) = Phi((c - u) / s), s = 1/2: with probability 1 - chi(u) a
release counts as a failure instead, and c is such that this has probability at most `cut`.

For Gaussian noise the expectation is a trapezoid sum over the real line, with a step that makes its
error at most e^-41 (bound in docs/theory/contour.md). Laplace noise, and batches of fixed size, are
in `privet.loss.panels`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import log_ndtr, ndtri

from privet.loss.base import Array, Direction, Quadrature
from privet.loss.mixture import log_ratio
from privet.loss.phases import CHUNK, UNIT, characteristic, passed_on, too_dear

_NEGLIGIBLE = 46.0
_SOFT = 0.5
_FARTHEST = 2e4
"""Orders over the noise multiplier beyond which a moment is not worth its cost."""


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
        off = passed_on(self.logs[0], q, size)
        for other in self.logs[1:]:
            off = off + passed_on(other, q, size)
        doubt = 8.0 * UNIT * (4.0 + u * u) + (order + 1.0) * off
        if self.soft is not None:
            x, soft = self.soft
            size_of = np.abs(soft)
            # x is off by roundings of u and end; the slope of log Phi is at most the first factor
            slope = np.minimum(1.0, (1.0 + np.abs(x)) * size_of) + np.maximum(-x, 0.0)
            doubt = doubt + 8.0 * UNIT * slope * (np.abs(x) + 2.0 * np.abs(u))
            doubt = doubt + UNIT * (4096.0 * np.minimum(size_of, 1.0) + 64.0 * size_of)
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
        x = np.minimum((end - u) / _SOFT, 1e9)
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
) -> tuple[Array, Array] | None:
    """log E[e^(x L)] on the line for each pair (rate, noise multiplier); None if it is too dear.

    Direction None is replace-one.
    """
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
        answer = _sampled_gaussian(a, b, t, point, direction, cut)
        if answer is not None:
            values[useful], errors[useful] = answer[0].real, answer[1]
    return values.reshape(shape), errors.reshape(shape)


def _sampled_gaussian(
    q: Array,
    z: Array,
    order: Array,
    line: Quadrature,
    direction: Direction | None,
    cut: float,
) -> tuple[Array, Array] | None:
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
    groups, nodes = [], 0.0
    for start in range(0, len(q), 64):
        rows = by_size[start : start + 64]
        lo, hi, gone = _active(
            q[rows], z[rows], low[rows], high[rows], order[rows], end[rows], direction
        )
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
            lost = (missing + math.exp(-41.0)) * 1.01
            rise = np.exp(np.minimum(found[:, :1].real - found.real, 700.0))
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
    m = max(64, math.ceil(2.0 * float(np.max(high - low))))
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
        left = np.where(-low >= 11.9 + order / z, left, flat)
    gone = np.logaddexp(dropped, np.logaddexp(left, g[:, -1]))
    return u[rows, first], u[rows, last], gone
