"""Account for many distinct steps through a few that dominate them, the nodes of a grid.

Lemma (docs/theory/contour.md). At every epsilon the privacy profile of a sampled Gaussian (or
Laplace) step is convex in the total variation s of the unsampled release, and convex in the rate q.
So the step is dominated by a public lottery between its neighbouring nodes with the same mean s and
mean q, and a lottery's moment generating function is the mixture of the nodes':
M = sum_c weight_c M_c. Within a cell,

    sum over steps of log(M_00 (1 + a x + b y + a b c))

is a function of the positions (a, b) in [0,1]^2 only; it is summed exactly up to a stated error by
interpolating it at Chebyshev points, so that a step costs a few multiplications whatever the number
of frequencies.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import erfc

from privet.accounting.privacy_loss import FEW_ROUNDINGS, NEXT_TO_ZERO, Array, VerticalLine

_DEGREE = 6
"""Interpolation points on each side of a cell: the error is (rho/4)^6 / 3, 1e-10 for rho = 0.1."""
# the zeros of the Chebyshev polynomial of degree 6, moved from [-1, 1] to [0, 1]
_CHEBYSHEV = 0.5 - 0.5 * np.cos((2 * np.arange(_DEGREE) + 1) * math.pi / (2 * _DEGREE))
_LEBESGUE = 2.5
"""Bounds the Lebesgue constant of 6 Chebyshev points, which is 2.1."""
_SMALL = 0.4
"""Up to this |M/M_00 - 1| over a cell is interpolated; beyond, it is summed step by step."""
FINE = (0.03, 0.04, 0.055, 0.075, 0.1)
"""Meshes for the answer: the first costs 3e-4 of epsilon, each other 1.8 times the one before."""
ROUGH = (0.35,)
"""The mesh for finding out at which orders to look: dozens of cells, and no answer rests on it."""
_PIECE = 4096
"""Steps that are summed one by one at a time: by 100 frequencies they are 6 MB."""
_MOST_CELLS = 400
"""Bounds the time of a transform: each cell has up to 4 nodes of its own."""


def _lagrange(t: Array) -> Array:
    """Values at t of the Lagrange basis of the Chebyshev points: one row a basis function.

    As products of factors, each value is good to a few roundings of itself.
    """
    rows = []
    for i, c in enumerate(_CHEBYSHEV):
        others = np.delete(_CHEBYSHEV, i)
        rows.append(np.prod((t[None, :] - others[:, None]) / (c - others)[:, None], axis=0))
    return np.array(rows)


def _log1p(w: Array) -> Array:
    """log(1 + w) to 2e-16 absolute for |w| well below 1; numpy's own takes twice the time."""
    if not np.iscomplexobj(w):
        return np.asarray(np.log1p(w))
    real = 1.0 + w.real
    logarithm = np.empty_like(w)
    logarithm.real = 0.5 * np.log(real * real + w.imag * w.imag)
    logarithm.imag = np.arctan2(w.imag, real)
    return logarithm


@dataclass(frozen=True, kw_only=True)
class StepCells:
    """Steps spread over the cells of a grid of (rate, noise) nodes."""

    rate: Array
    noise: Array
    corners: Array
    """Indices of the nodes of each cell: low-low, high rate, high variation, both high."""
    counts: Array
    weights: Array
    """Interpolation weights, one (rate point, variation point) table a cell; each sums to the
    cell's count."""
    members: tuple[tuple[Array, Array, Array], ...]
    """Positions (a, b) and multiplicities of the steps of each cell."""

    def sum_log_mgf(self, nodes: tuple[Array, Array], line: VerticalLine) -> tuple[Array, Array]:
        """Sum over all steps of log M on the line, with an error bound."""
        k, e = nodes
        with np.errstate(over="ignore", invalid="ignore"):
            total, errors = self._summed(k, e, line.count)
        lost = ~(np.isfinite(total) & np.isfinite(errors))  # nodes too far apart for this order:
        total[lost], errors[lost] = 0.0, np.inf  # nothing is known there, which errs on our side
        return total, errors

    def _summed(self, k: Array, e: Array, count: int) -> tuple[Array, Array]:
        total, errors = np.zeros(count, dtype=k.dtype), np.zeros(count)
        for i, (c00, c10, c01, c11) in enumerate(self.corners):
            n = float(self.counts[i])
            base = k[c00]
            x, y, both = (np.expm1(k[c] - base) for c in (c10, c01, c11))
            twist = both - x - y
            total = total + n * base
            worst = np.maximum(np.maximum(e[c00], e[c10]), np.maximum(e[c01], e[c11]))
            size = np.maximum(np.maximum(np.abs(x), np.abs(y)), np.abs(both))
            spread, spread_error = self._interpolated(i, x, y, twist)
            wild = np.nonzero(size > _SMALL)[0]
            node_error = n * np.log1p(
                np.expm1(worst) * (1.0 + size) / (1.0 - np.minimum(size, _SMALL))
            )
            spread_error[wild] = 0.0
            spread[wild], node_error[wild] = self._direct(
                i, x[wild], y[wild], twist[wild], worst[wild]
            )
            total = total + spread
            errors = errors + node_error + spread_error
        return total, errors

    def _interpolated(self, i: int, x: Array, y: Array, twist: Array) -> tuple[Array, Array]:
        table = self.weights[i]
        a, b = (_CHEBYSHEV if points > 1 else np.zeros(1) for points in table.shape)
        rise, slope = np.multiply.outer(a, x), y + np.multiply.outer(a, twist)
        inside = rise[:, None] + b[:, None] * slope[:, None]
        with np.errstate(invalid="ignore", divide="ignore"):
            values = np.einsum("ij,ijk->k", table, _log1p(inside))
            size = np.abs(x) + np.abs(twist), np.abs(y) + np.abs(twist)
            # finite: beyond `_SMALL` it is not used
            rho = np.maximum(*size) / np.maximum(1.0 - np.abs(x) - np.abs(y) - np.abs(twist), 1e-3)
        one = 2.0 / _DEGREE * (np.minimum(rho, 1e3) / 4.0) ** _DEGREE  # 1e3: finite likewise
        members = len(self.members[i][0])
        # the table is a sum over the members of products of two Lagrange bases, each <= _LEBESGUE
        # (twice the roundings of a table of 36 logarithms, and of its sums)
        rounding = 2.0**-52 * (64.0 + members) * _LEBESGUE**2
        most = np.max(np.abs(inside), axis=(0, 1)) / 0.5
        return values, float(self.counts[i]) * ((1.0 + _LEBESGUE) * one + rounding * (1.0 + most))

    def _direct(
        self, i: int, x: Array, y: Array, twist: Array, worst: Array
    ) -> tuple[Array, Array]:
        """The sum step by step, with the error that those of the nodes grow to by cancellation."""
        a, b, n = self.members[i]
        total, errors = np.zeros(len(x), dtype=x.dtype), np.zeros(len(x))
        for start in range(0, len(a), _PIECE):
            s = slice(start, start + _PIECE)
            pieces = (a[s, None] * x, b[s, None] * y, (a * b)[s, None] * twist)
            values = 1.0 + pieces[0] + pieces[1] + pieces[2]
            values = np.where(values == 0, NEXT_TO_ZERO, values)
            bulk = 1.0 + np.abs(pieces[0]) + np.abs(pieces[1]) + np.abs(pieces[2])
            total += np.einsum("i,ik->k", n[s], np.log(values))
            doubt = np.log1p(bulk / np.abs(values) * (np.expm1(worst) + FEW_ROUNDINGS))
            errors += np.einsum("i,ik->k", n[s], doubt)
        return total, errors


def _axis(values: Array, ratio: float, most: int = 4000) -> Array:
    """Nodes from the least to the largest value, each at most `ratio` times the last.

    With `most` nodes at most: then they are further apart, which is looser and as sound.
    """
    low, high = float(np.min(values)), float(np.max(values))
    if high <= low:
        return np.array([low])
    count = min(most, max(2, math.ceil(math.log(high / low) / math.log(ratio)) + 1))
    nodes = np.geomspace(low, high, count)
    nodes[0], nodes[-1] = low, high
    return nodes


def _variation_axis(mu: Array, mesh: float) -> Array:
    """Nodes of mu, closer where the loss of a step grows like e^(mu^2)."""
    low, high = float(np.min(mu)), float(np.max(mu))
    if high <= low:
        return np.array([low])
    nodes = [low]
    while nodes[-1] < high:
        m = nodes[-1]
        nodes.append(m * (1.0 + mesh / math.sqrt(1.0 + m * m + m**4)))
    nodes[-1] = high
    return np.array(nodes)


def _position(values: Array, nodes: Array) -> tuple[Array, Array]:
    """Cell index and linear position of each value among increasing nodes."""
    if len(nodes) == 1:
        return np.zeros(len(values), dtype=int), np.zeros(len(values))
    i = np.clip(np.searchsorted(nodes, values, side="right") - 1, 0, len(nodes) - 2)
    share = (values - nodes[i]) / (nodes[i + 1] - nodes[i])
    # rounded towards the costlier node
    return i, np.clip(
        share + FEW_ROUNDINGS * (1.0 + nodes[i] / (nodes[i + 1] - nodes[i])), 0.0, 1.0
    )


def _between(values: Array, nodes: Array, missing: Callable[[Array], Array]) -> tuple[Array, Array]:
    """Cell of each value, and its position in total variation s = 1 - missing(value).

    Through the complement, which keeps its digits where s is close to 1; rounded towards the node
    with less noise, and taken to be there where even the complement has no digits left.
    """
    i, _ = _position(values, nodes)
    if len(nodes) == 1:
        return i, np.zeros(len(values))
    low, here, high = missing(nodes[i]), missing(values), missing(nodes[i + 1])
    with np.errstate(divide="ignore", invalid="ignore"):
        # erfc is good to 1e-13, twice, and a margin
        share = (low - here + 4e-13 * low) / (low - high)
    return i, np.where(np.isfinite(share), np.clip(share, 0.0, 1.0), 1.0)


def _cells(
    rate_nodes: Array, noise_nodes: Array, at: tuple[Array, Array, Array, Array], counts: Array
) -> StepCells:
    i, a, j, b = at
    high_i, high_j = len(rate_nodes) - 1, len(noise_nodes) - 1
    cell, order = np.unique(i * (high_j + 1) + j, return_inverse=True)
    needed: dict[tuple[int, int], int] = {}

    def node(p: int, s: int) -> int:
        return needed.setdefault((min(p, high_i), min(s, high_j)), len(needed))

    corners, weights, members, sizes = [], [], [], []
    arrangement = np.argsort(order.ravel(), kind="stable")
    edges = np.searchsorted(order.ravel()[arrangement], np.arange(len(cell) + 1))
    for c, key in enumerate(cell):
        rows = arrangement[edges[c] : edges[c + 1]]
        p, s = divmod(int(key), high_j + 1)
        corners.append((node(p, s), node(p + 1, s), node(p, s + 1), node(p + 1, s + 1)))
        n = counts[rows].astype(float)
        left = _lagrange(a[rows]) if high_i else np.ones((1, len(rows)))
        right = _lagrange(b[rows]) if high_j else np.ones((1, len(rows)))
        weights.append((left * n) @ right.T)
        members.append((a[rows], b[rows], n))
        sizes.append(float(np.sum(n)))
    rates = np.array([rate_nodes[p] for p, _ in needed])
    noises = np.array([noise_nodes[s] for _, s in needed])
    return StepCells(
        rate=rates,
        noise=noises,
        corners=np.array(corners),
        counts=np.array(sizes),
        weights=np.array(weights),
        members=tuple(members),
    )


def gaussian_cells(
    q: Array, z: Array, counts: Array, *, round_up: bool, meshes: tuple[float, ...]
) -> StepCells:
    """StepCells for Gaussian steps.

    `round_up` moves each step to the node with less noise, where only that is proved.
    """
    scale = 2.0 * math.sqrt(2.0)  # total variation = erf(mu / 2 sqrt 2)

    def place(mesh: float) -> tuple[Array, Array, Array]:
        # rounding up is a loss of first order: nodes 20 times closer make it 1e-3
        nodes = _axis(1.0 / z, 1.0 + 0.05 * mesh) if round_up else _variation_axis(1.0 / z, mesh)
        if round_up:
            return 1.0 / nodes, np.searchsorted(nodes, 1.0 / z, side="left"), np.zeros(len(z))
        j, b = _between(1.0 / z, nodes, lambda m: np.asarray(erfc(m / scale)))
        return 1.0 / nodes, j, b

    return _few_cells(q, counts, place, meshes)


def laplace_cells(q: Array, z: Array, counts: Array, *, meshes: tuple[float, ...]) -> StepCells:
    """StepCells for Laplace steps; the variation is 1 - e^(-1/(2 z))."""

    def place(mesh: float) -> tuple[Array, Array, Array]:
        nodes = _variation_axis(1.0 / z, mesh)
        j, b = _between(1.0 / z, nodes, lambda m: np.asarray(np.exp(-m / 2.0)))
        return 1.0 / nodes, j, b

    return _few_cells(q, counts, place, meshes)


def _few_cells(
    q: Array,
    counts: Array,
    place: Callable[[float], tuple[Array, Array, Array]],
    meshes: tuple[float, ...],
) -> StepCells:
    """The first of the meshes with at most `_MOST_CELLS` cells in use, or the last.

    The looseness is of second order in the mesh: 3e-4 for 0.03; 1e-2 for 0.1, which only steps
    whose rate *and* noise scatter over wide ranges come to.
    """
    for mesh in meshes:
        rate_nodes = _axis(q, 1.0 + mesh)
        i, a = _position(q, rate_nodes)
        noise_nodes, j, b = place(mesh)
        if len(np.unique(i * len(noise_nodes) + j)) <= _MOST_CELLS:
            break
    return _cells(rate_nodes, noise_nodes, (i, a, j, b), counts)


def coarsen(q: Array, z: Array, counts: Array, most: int) -> tuple[Array, Array, Array]:
    """Steps moved to at most `most` nodes with smaller rates and more noise: they cost no more.

    Less of a rate and more noise is post-processing of the step, so that the profile falls.
    """
    spans = [math.log(float(np.max(v) / np.min(v))) for v in (q, z)]
    if min(spans) == 0.0:
        rows = [most if span > 0.0 else 1 for span in spans]
    else:  # cells about as wide as high
        first = math.sqrt(most * spans[0] / spans[1])
        rows = [max(1, min(most, int(first))), 0]
        rows[1] = max(1, most // rows[0])

    def nodes(values: Array, count: int, *, up: bool) -> Array:
        grid = np.unique(np.quantile(values, np.linspace(0.0, 1.0, count + 1)))
        if up:
            return grid[np.searchsorted(grid, values, side="left")]
        return grid[np.searchsorted(grid, values, side="right") - 1]

    rate = nodes(q, max(rows[0] - 1, 1), up=False)
    noise = nodes(z, max(rows[1] - 1, 1), up=True)
    pairs, where = np.unique(np.stack([rate, noise]), axis=1, return_inverse=True)
    return pairs[0], pairs[1], np.bincount(where.ravel(), weights=counts)
