"""The first release of both methods here: class sums, class sizes, and sums of squares."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privet import chosen
from privet.bounds import Moments, UserWeights
from privet.methods.adaptive_laplace.solve import ClassMeans
from privet.methods.moments import MomentRelease
from privet.noise import Source

Array = NDArray[Any]

CONSTANT = chosen.MOMENTS_CONSTANT
"""The constant feature that carries class sizes."""
SQUARES = chosen.MOMENTS_SQUARES
"""The weight of the squares beside the class sums."""
BLOCK = 1024


def class_moments(features: int, classes: int, *, share: float = 1.0) -> Moments:
    """Class sums of (row, constant), and the square of each feature."""
    return Moments(features=features + 1, outputs=classes, second=SQUARES, pairs=False, share=share)


def release_class_means(
    x: Array,
    y: Array,
    release: MomentRelease,
    *,
    null: NDArray[np.bool_],
    users: UserWeights | None,
    rng: Source,
) -> ClassMeans:
    """The release, of rows of the unit ball and class numbers, and what follows from it.

    A null record adds nothing, the constant included. Whoever calls this has charged for it.
    """
    total, length = release.moments.sum(), math.hypot(1.0, CONSTANT)
    for part in parts(len(x)):
        h = x[part].astype(np.float64)
        rows = np.hstack([h, np.full((len(h), 1), CONSTANT)]) / length
        rows[null[part]] = 0.0
        total.add(rows, y[part], None if users is None else users[part])
    found = release.release(total, rng)
    noise = found.cross_noise * length
    sizes = shrunk_sizes(found.cross[-1] * length / CONSTANT, noise / CONSTANT)
    means = found.cross[:-1] * length / sizes
    pi = sizes / sizes.sum()
    added = float((pi * (noise / sizes) ** 2).sum())
    squares = np.diag(found.gram)[:-1] * length**2 / sizes.sum()
    within = squares - np.maximum(means**2 @ pi - added, 0.0)
    # noise in the squares leaves no variance smaller than itself to be believed
    noise_of_squares = found.gram_noise * length**2 / float(sizes.sum())
    floor = max(noise_of_squares, 0.02 * float(np.maximum(within, 0.0).mean()), 1e-9)
    # of the total, both the squares and the length of a row, at most 1, say something
    explained = max(float(np.square(means).sum(axis=0) @ pi) - len(means) * added, 0.0)
    unsure = 2.0 * math.sqrt(explained * added / len(pi))
    return ClassMeans(
        means=means,
        sizes=sizes,
        within=np.maximum(within, floor),
        total=max(min(float(squares.sum()), 1.0) - explained, unsure, 1e-9),
        noise=added,
    )


def shrunk_sizes(sizes: NDArray[np.float64], noise: float) -> NDArray[np.float64]:
    """Noisy class sizes, drawn towards equal ones by as much as noise explains their spread.

    The positive-part James-Stein estimate, no smaller than the noise: of sizes that are noise
    alone only their mean is left.

    >>> shrunk_sizes(np.array([101.0, 99.0]), 5.0).tolist()
    [100.0, 100.0]
    """
    mean = float(sizes.mean())
    gaps = sizes - mean
    spread = float((gaps**2).sum())
    keep = max(0.0, 1.0 - (len(sizes) - 1) * noise**2 / spread) if spread > 0.0 else 0.0
    return np.maximum(mean + keep * gaps, max(noise, 1.0))


def parts(n: int) -> Iterator[slice]:
    """Blocks of rows, in their order."""
    for start in range(0, n, BLOCK):
        yield slice(start, start + BLOCK)
