"""Slow and obvious privacy of two or three releases: their outcomes integrated, nothing transformed.

Nothing here comes from privet. delta of L1 + L2 at epsilon is the expectation over the outcome of
the first release of delta of the second at epsilon - L1 (and again for three). Everything is
positive, so that small values keep their digits. `exact` does it with mpmath to many digits;
`delta_of` in doubles with Gauss-Legendre panels, to about ten digits, for thousands of cells.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import mpmath as mp
import numpy as np
from scipy.special import erfc, erfcx

Array = Any
_X, _W = np.polynomial.legendre.leggauss(12)


@dataclass(frozen=True)
class Release:
    """kind: "gauss" (noise z, rate q), "laplace" (noise z, rate q), "response" (epsilon z).

    relation: "remove", "add", "replace" (both laws are mixtures), "fixed" (batch of fixed size).
    """

    kind: str
    q: float
    z: float
    relation: str


def _tail(x: Array) -> Array:
    """P[N(0,1) > x]."""
    return 0.5 * erfc(x / math.sqrt(2.0))


def _mixed(t: Array, q: float) -> Array:
    """log(1 - q + q e^t)."""
    t = np.asarray(t, dtype=float)
    if q == 1.0:
        return t
    far = np.maximum(t, 0.0)
    with np.errstate(over="ignore"):
        small = np.log1p(q * np.expm1(np.minimum(t, 30.0)))
    large = far + np.log(q + (1.0 - q) * np.exp(-far))
    return np.where(t <= 30.0, small, large)


def _unmixed(e: Array, q: float) -> Array:
    """The t with log(1 - q + q e^t) = e, -inf where there is none."""
    with np.errstate(divide="ignore", over="ignore"):
        small = np.log1p(np.maximum(np.expm1(np.minimum(e, 20.0)) / q, -1.0))
        large = np.log((-np.expm1(-np.maximum(e, 1.0)) + q * np.exp(-np.maximum(e, 1.0))) / q) + e
    return np.where(e < 10.0, small, large)


def _gauss_profile(e: Array, mu: float) -> Array:
    """delta of N(mu) against N(0): phi(a) times a difference of Mills ratios."""
    a = e / mu - 0.5 * mu
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        scale = np.exp(-0.5 * a * a)
        if mu < 0.5:
            x = a[..., None] + 0.5 * mu * (_X + 1.0)
            mills = math.sqrt(math.pi / 2.0) * erfcx(x / math.sqrt(2.0))
            inner = 0.5 * mu * np.sum(_W * (1.0 - x * mills), axis=-1)
            small = scale / math.sqrt(2.0 * math.pi) * inner
        else:
            r = math.sqrt(2.0)
            small = 0.5 * scale * (erfcx(a / r) - erfcx((a + mu) / r))
        plain = _tail(a) - np.exp(np.minimum(e, 700.0)) * _tail(a + mu)
    return np.where(a > -1.0, small, np.maximum(plain, 0.0))


def profile(release: Release, e: Array) -> Array:
    """delta of one release at any real epsilons."""
    e = np.asarray(e, dtype=float)
    q, z = release.q, release.z
    below = np.where(e < 0.0, -np.expm1(np.minimum(e, 0.0)), 0.0)
    if release.kind == "response":
        between = -np.expm1(np.minimum(e - z, 0.0)) / (1.0 + math.exp(-z))
        return np.where(e >= z, 0.0, np.where(e <= -z, below, between))
    if release.relation == "fixed":
        above = q * _gauss_profile(_unmixed(np.abs(e), q), 2.0 / z)
        return np.where(e >= 0, above, -np.expm1(-np.abs(e)) + np.exp(-np.abs(e)) * above)
    if release.relation == "replace":
        size = np.abs(e)
        value = _replace(size, q, z)
        return np.where(e >= 0, value, -np.expm1(-size) + np.exp(-size) * value)
    one = _gauss_profile if release.kind == "gauss" else _laplace_profile
    mu = 1.0 / z
    if release.relation == "remove":
        t = _unmixed(e, q)
        return np.where(np.isfinite(t), q * one(np.where(np.isfinite(t), t, 0.0), mu), below)
    left = q - (1.0 - q) * np.expm1(np.minimum(e, 700.0))
    inside = left > 0.0
    t = np.where(inside, e + math.log(q) - np.log(np.where(inside, left, 1.0)), 0.0)
    return np.where(inside, left * one(t, mu), 0.0)


def _laplace_profile(e: Array, mu: float) -> Array:
    between = -np.expm1(np.minimum(e - mu, 0.0) / 2.0)
    return np.where(e >= mu, 0.0, np.where(e <= -mu, -np.expm1(np.minimum(e, 0.0)), between))


def _replace(e: Array, q: float, z: float) -> Array:
    """delta >= 0 only: integrate the pair over outcomes above the threshold, by panels from it."""
    mu = 1.0 / z
    odds = (1.0 - q) / q * np.exp(0.5 * mu * mu) * 2.0 * np.sinh(e / 2.0) / 2.0
    start = (e / 2.0 + np.arcsinh(odds)) * z  # the loss is e at this outcome
    widths = np.concatenate([np.full(24, 0.25), np.full(10, 1.0)])
    left = np.concatenate([[0.0], np.cumsum(widths)[:-1]])
    offset = (left[:, None] + 0.5 * widths[:, None] * (_X + 1.0)).ravel()
    weight = (0.5 * widths[:, None] * _W).ravel()
    u = start[..., None] + offset
    half = 0.5 * mu * mu
    ratio = _mixed(u * mu - half, q), _mixed(-u * mu - half, q)
    gap = -np.expm1(np.minimum(e[..., None] - (ratio[0] - ratio[1]), 0.0))
    density = np.exp(-0.5 * u * u + ratio[0]) / math.sqrt(2.0 * math.pi)
    near = np.sum(weight * density * gap, axis=-1)
    # the unit's own hump may lie further out than the panels reach
    end = start + left[-1] + widths[-1]
    u = end[..., None] + np.maximum(mu + 12.0 - end, 0.0)[..., None] * 0.5 * (_FX + 1.0)
    ratio = _mixed(u * mu - half, q), _mixed(-u * mu - half, q)
    gap = -np.expm1(np.minimum(e[..., None] - (ratio[0] - ratio[1]), 0.0))
    density = np.exp(-0.5 * u * u + ratio[0]) / math.sqrt(2.0 * math.pi)
    far = np.maximum(mu + 12.0 - end, 0.0) * 0.5 * np.sum(_FW * density * gap, axis=-1)
    return near + far


_FX, _FW = np.polynomial.legendre.leggauss(160)


def outcomes(release: Release, breaks: Sequence[float], fine: int = 24) -> tuple[Array, Array]:
    """(losses, P-probabilities) that stand for the law of the loss; panels end at the breaks.

    `fine` panels shrink towards each break, from both sides.
    """
    q, z = release.q, release.z
    size = 0.25 if fine > 20 else 0.5
    mu = 1.0 / z
    if release.kind == "response":
        high = 1.0 / (1.0 + math.exp(-z))
        return np.array([-z, z]), np.array([high * math.exp(-z), high])
    if release.kind == "laplace":
        t = _unmixed(np.array([b if release.relation == "remove" else -b for b in breaks]), q)
        cuts = [float(v) for v in 0.5 * (t + mu) if 0.0 < v < mu]
        x, w = _panels(0.0, mu, size, cuts, fine)
        base, ell = 0.5 * np.exp(-x), _mixed(2.0 * x - mu, q)
        x0, w0 = _mixed(np.array([-mu, mu]), q), np.array([0.5, 0.5 * math.exp(-mu)])
        if release.relation == "remove":
            return np.append(ell, x0), np.append(w * base * np.exp(ell), w0 * np.exp(x0))
        return np.append(-ell, -x0), np.append(w * base, w0)
    if release.relation == "fixed":
        mu *= 2.0
        t = _unmixed(np.array([abs(b) for b in breaks]), q)
        cuts = [float(v) for v in t * z / 2.0 + 0.5 * mu if np.isfinite(v)]
        u, w = _panels(0.5 * mu, mu + 40.0, size, cuts, fine)
        ell = _mixed(u * mu - 0.5 * mu * mu, q)
        base = w * np.exp(-0.5 * u * u) / math.sqrt(2.0 * math.pi)
        atom = (1.0 - q) * math.erf(mu / 2.0 / math.sqrt(2.0))
        p = np.concatenate([base * np.exp(ell), base, [atom]])
        return np.concatenate([ell, -ell, [0.0]]), p
    if release.relation == "replace":
        cuts = []
        for b in breaks:
            half = (1.0 - q) / q * math.exp(0.5 * mu * mu) * math.sinh(abs(b) / 2.0)
            cuts.append(math.copysign((abs(b) / 2.0 + math.asinh(half)) * z, b))
        u, w = _panels(-39.0, mu + 39.0, size, cuts, fine)
        base = w * np.exp(-0.5 * u * u) / math.sqrt(2.0 * math.pi)
        up, down = (_mixed(s * u * mu - 0.5 * mu * mu, q) for s in (1.0, -1.0))
        return up - down, base * np.exp(up)
    t = _unmixed(np.array([b if release.relation == "remove" else -b for b in breaks]), q)
    cuts = [float(v) for v in t * z + 0.5 * mu if np.isfinite(v)]
    u, w = _panels(-39.0, mu + 39.0, size, cuts, fine)
    ell = _mixed(u * mu - 0.5 * mu * mu, q)
    if release.relation == "remove":
        density = (1.0 - q) * np.exp(-0.5 * u * u) + q * np.exp(-0.5 * (u - mu) ** 2)
        return ell, w * density / math.sqrt(2.0 * math.pi)
    return -ell, w * np.exp(-0.5 * u * u) / math.sqrt(2.0 * math.pi)


def _panels(
    low: float, high: float, width: float, cuts: Sequence[float], fine: int
) -> tuple[Array, Array]:
    """Nodes and weights; panels shrink geometrically towards each cut, where something may bend."""
    edges = [np.arange(low, high, width), [high]]
    steps = np.geomspace(1e-7 if fine > 20 else 1e-4, width, fine)
    for c in cuts:
        near = c + np.concatenate([-steps, [0.0], steps])
        edges.append(near[(near > low) & (near < high)])
    e = np.unique(np.concatenate(edges))
    left, wide = e[:-1], np.diff(e)
    x = left[:, None] + 0.5 * wide[:, None] * (_X + 1.0)
    return x.ravel(), (0.5 * wide[:, None] * _W).ravel()


def _kinks(release: Release) -> list[float]:
    """Where the profile or its derivatives bend."""
    q, mu = release.q, 1.0 / release.z
    if release.kind == "response":
        return [-release.z, release.z]
    if release.kind == "laplace":
        ends = [float(v) for v in _mixed(np.array([-mu, mu]), q)]
        return ends if release.relation == "remove" else [-v for v in ends]
    if release.relation == "fixed":
        return [0.0]
    low = math.log1p(-q) if q < 1.0 else 0.0  # smooth for q = 1
    # and at 0, where the profile of little noise on few records falls within a tiny range
    return {"remove": [low, 0.0], "add": [-low, 0.0], "replace": [0.0]}[release.relation]


def delta_of(releases: Sequence[Release], epsilon: float, small: float = 0.0) -> float:
    """delta of two or three releases at epsilon, all in the direction that they name.

    For three, outcomes of the first with a probability below 1e-17 `small` are left out.
    """
    first, *rest = releases
    bends = [sum(k) for k in itertools.product(*(_kinks(r) for r in rest))]
    losses, p = outcomes(first, [epsilon - k for k in bends], 24 if len(rest) == 1 else 6)
    if len(rest) == 1:
        live = p > 0.0
        return float(np.sum(p[live] * profile(rest[0], epsilon - losses[live])))
    live = p > 1e-17 * small
    inner = [delta_of(rest, epsilon - float(loss)) for loss in losses[live]]
    return float(np.sum(p[live] * inner))


def exact(releases: Sequence[Release], epsilon: Any) -> Any:
    """delta of two Poisson-sampled Gaussian releases at epsilon by mpmath; add or remove."""
    (a, b), e = releases, mp.mpf(epsilon)
    remove = a.relation == "remove"

    def ratio(u: Any, r: Release) -> Any:
        mu = 1 / mp.mpf(r.z)
        return 1 - mp.mpf(r.q) + mp.mpf(r.q) * mp.exp(u * mu - mu * mu / 2)

    def one(r: Release, t: Any) -> Any:
        q, mu, alpha = mp.mpf(r.q), 1 / mp.mpf(r.z), mp.exp(t)
        if remove:
            order = 1 + (alpha - 1) / q
            if order <= 0:
                return 1 - alpha
            return q * plain(order, mu)
        left = 1 - alpha * (1 - q)
        return left * plain(alpha * q / left, mu) if left > 0 else mp.mpf(0)

    def plain(order: Any, mu: Any) -> Any:
        cut = mp.log(order) / mu - mu / 2
        return _upper(cut) - order * _upper(cut + mu)

    def integrand(u: Any) -> Any:
        r = ratio(u, a)
        density = mp.exp(-u * u / 2) / mp.sqrt(2 * mp.pi)
        return density * r * one(b, e - mp.log(r)) if remove else density * one(b, e + mp.log(r))

    edges = [mp.mpf(x) / 2 for x in range(-34, 2 * math.ceil(17 + 1 / a.z) + 1)]
    q, mu = mp.mpf(b.q), 1 / mp.mpf(a.z)
    bend = e - mp.log(1 - q) if remove else e + mp.log(1 - q)  # where the second profile bends
    bend = bend if remove else -bend
    inside = (mp.exp(bend) - 1 + mp.mpf(a.q)) / mp.mpf(a.q)
    if inside > 0:
        u = (mp.log(inside) + mu * mu / 2) / mu
        edges = sorted({*edges, *(u + s * mp.mpf(10) ** -k for s in (-1, 0, 1) for k in range(6))})
    return mp.quad(integrand, edges, maxdegree=4)


def _upper(x: Any) -> Any:
    return mp.erfc(x / mp.sqrt(2)) / 2
