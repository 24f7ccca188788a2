"""Eq. 3 of the paper solved: the farthest that one teacher can move the l components; and eq. 7.

The paper bounds max ||A y|| over y in [-1, 1]^d by sqrt(d) and notes that the maximum itself can be
had in polynomial time (Karystinos and Liavas 2010). A convex function is largest at a corner, so y
is a vector of signs; and only those signs matter that some direction u of R^l gives, y_j = sign of
<u, a_j>: the corners of a zonotope, of which there are about d^(l-1).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privet.errors import InvalidArgument
from privet.methods.pate.published_noise import concentrated_noise

Array = NDArray[Any]
MOST_CORNERS = 2e7
"""Corners that are looked at, at most."""


def largest_code(basis: Array) -> float:
    """max ||A y||_2 over y in [-1, 1]^d, exactly up to rounding, for A of l rows.

    Each corner of the zonotope sum_j [-a_j, a_j] ends an edge along some a_i; seen along a_i the
    corners are those of one dimension less, and in the plane they follow from sorting angles. So
    l = 1 takes d steps, l = 2 d log d, l = 3 d^2 log d.

    >>> round(largest_code(np.array([[0.6, 0.8, 0.0], [0.0, 0.0, 1.0]])), 6)  # (1.4, 1)
    1.720465
    """
    a = np.atleast_2d(np.asarray(basis, dtype=np.float64))
    a = a[:, np.abs(a).max(axis=0) > 0.0]
    rows, columns = a.shape
    if float(columns) ** (rows - 1) > MOST_CORNERS:
        raise InvalidArgument(
            "basis", a.shape, f"d^(l - 1) at most {MOST_CORNERS:.0g}, for d columns and l rows"
        )
    return max((float(np.linalg.norm(c, axis=0).max()) for c in _corners(a, a)), default=0.0)


def count_useful_components(
    targets: Array, *, width: float, teachers: int, queries: int, epsilon: float, delta: float
) -> dict[str, float]:
    """Eqs. 5 and 7: the printed noise of targets in a box of this side, and l* = #{lambda > s^2}.

    sigma = width sqrt(N d) (sqrt(log 1/delta + eps) + sqrt(log 1/delta)) / (sqrt(2) K eps).

    >>> y = np.random.default_rng(0).uniform(size=(40, 3)) @ np.ones((3, 4)) / 3
    >>> settings = {"width": 1.0, "queries": 10, "epsilon": 8.0, "delta": 1e-3}
    >>> [count_useful_components(y, teachers=k, **settings)["components"] for k in (8, 8000)]
    [0, 1]
    """
    flat = np.asarray(targets, dtype=np.float64).reshape(len(targets), -1)
    noise = concentrated_noise(
        sensitivity=width * math.sqrt(flat.shape[1]) / teachers, releases=queries,
        epsilon=epsilon, delta=delta,
    )  # fmt: skip
    lengths = np.linalg.svd(flat - flat.mean(axis=0), compute_uv=False)
    variances = lengths**2 / (len(flat) - 1)
    return {
        "noise": noise, "largest_spread": float(np.sqrt(variances[0])),
        "components": int((variances > noise**2).sum()),
    }  # fmt: skip


def _corners(seen: Array, whole: Array) -> Iterator[Array]:
    """Corners as columns: signs are decided in `seen`, the columns of `whole` are added up."""
    if len(seen) == 1:
        yield whole @ np.where(seen.T < 0.0, -1.0, 1.0)
    elif len(seen) == 2:
        yield _around(seen, whole)
    else:
        for i in range(seen.shape[1]):
            unit = seen[:, i] / np.linalg.norm(seen[:, i])
            across = np.linalg.svd(unit[None])[2][1:] @ seen
            aside = np.linalg.norm(across, axis=0) > 1e-12 * np.linalg.norm(seen, axis=0)
            ends = (whole[:, ~aside] @ np.sign(unit @ seen[:, ~aside]))[:, None]
            parts = _corners(across[:, aside], whole[:, aside]) if aside.any() else [0.0 * ends]
            for part in parts:
                yield np.concatenate([part + ends, part - ends], axis=1)


def _around(plane: Array, whole: Array) -> Array:
    """Corners met while u turns by half: a sign changes wherever u is at right angles to one."""
    turned = np.where(plane[1] < 0.0, -1.0, 1.0)
    order = np.argsort(np.arctan2(plane[1] * turned, plane[0] * turned), kind="stable")
    steps = (whole * turned)[:, order]
    return np.asarray(steps.sum(axis=1, keepdims=True) - 2.0 * np.cumsum(steps, axis=1))
