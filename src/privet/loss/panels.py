"""Moments by Gauss rules on panels: sampled Laplace releases, and batches of fixed size.

Panels are so short that a rule of 32 points errs by less than 1e-15 (docs/theory/contour.md).
"""

from __future__ import annotations

import math

import numpy as np
from numpy.polynomial.legendre import leggauss

from privet.loss.base import Array, Direction, Quadrature
from privet.loss.gaussian import log_deltas
from privet.loss.mixture import log_ratio
from privet.loss.phases import UNIT, characteristic, passed_on, too_dear

_MOST_PANELS = 2000
_RULE = 1e-15
"""Bound of the relative error of a Gauss rule of 32 points on the panels chosen here."""
_NODES, _WEIGHTS = leggauss(32)


def _laplace_nodes(
    q: float, z: float, powers: float, sign: float
) -> tuple[Array, Array, Array, Array] | None:
    """(log masses, log ratios, bounds of their errors) of a Gauss rule for powers up to a size.

    Two atoms and panels of half-length at most min(1, 8 / (1 + powers)) in t; None if too many.
    """
    s = 1.0 / z
    panels = max(1, math.ceil(min(s * max(1.0, (1.0 + powers) / 8.0), 1e15)))
    if panels > _MOST_PANELS:
        return None
    edges = np.linspace(0.0, 1.0, panels + 1)
    x = (edges[:-1, None] + 0.5 / panels * (_NODES + 1.0)[None, :]).ravel()
    log_w = np.log(np.tile(_WEIGHTS, panels) * 0.25 * s / panels) - s * x
    t = np.concatenate([[-s], s * (2.0 * x - 1.0), [s]])
    log_mass = np.concatenate([[math.log(0.5)], log_w, [math.log(0.5) - s]])
    ell = log_ratio(np.array([q]), t)
    off = passed_on(ell, np.array([q]), np.full(len(t), 2.0 * s))
    return log_mass, sign * ell, UNIT * 8.0 * (16.0 + s + np.abs(log_mass)) + _RULE, off


def sampled_laplace(
    q: Array, z: Array, line: Quadrature, direction: Direction
) -> tuple[Array, Array] | None:
    """The same for Laplace noise of scale z times the L1 sensitivity."""
    out = np.empty((len(q), line.count), dtype=complex)
    err = np.empty((len(q), line.count))
    sign = 1.0 if direction is Direction.REMOVE else -1.0
    power = line.order + 1.0 if direction is Direction.REMOVE else line.order
    most = power + float(line.frequencies[-1])
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
    """An upper bound of the same at real orders: a row for each pair, a column for each order."""
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
            out[i, some] = top + np.log(total) + UNIT * (16.0 + g.shape[1])
    return out


def fixed_size_gaussian(q: Array, z: Array, line: Quadrature) -> tuple[Array, Array] | None:
    """The same for the profile of a batch of fixed size under replace-one.

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
    tops = mus * (mus * (1.0 + line.order) + 13.0)
    turns = tops * (
        1.0 / np.minimum(mus, 1.0) + float(line.frequencies[-1]) / 8.0 + line.order / 4.0 + 1.0
    )
    panels_of = np.maximum(4.0, np.ceil(turns / 4.0))
    panels_most = float(np.max(panels_of))
    if panels_most > _MOST_PANELS or too_dear(math.ceil(64.0 * float(np.sum(panels_of))), line):
        return None
    for i in range(len(q)):
        mu, top, panels = float(mus[i]), float(tops[i]), int(panels_of[i])
        y = (top / panels) * (np.arange(panels)[:, None] + 0.5 * (nodes + 1.0)[None, :])
        y, w = y.ravel(), np.tile(weights, panels) * 0.5 * top / panels
        e = log_ratio(q[i : i + 1], y)
        log_w = np.log(w * q[i]) + y - e + np.log(q[i]) + log_deltas(mu, y)
        off = passed_on(e, q[i : i + 1], np.abs(y))
        doubt = 1e-12 + UNIT * 8.0 * (np.abs(log_w) + (y / mu) ** 2) + _RULE
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
        far = 0.5 * (mu * (0.5 + line.order) + 13.0) ** 2
        tail = math.exp(min(line.order * end - far + math.log(q[i] * mu / 13.0) - most, 700.0))
        doubt_of = size * (np.abs(rise) * up_error[0] + np.abs(fall) * down_error[0] + 2.0 * tail)
        doubt_of = doubt_of + 16.0 * UNIT * (math.exp(-most) + size * np.abs(rise))
        out[i] = np.log(value) + most
        err[i] = np.log1p(doubt_of / np.maximum(np.abs(value), 1e-290))
    return out, err
