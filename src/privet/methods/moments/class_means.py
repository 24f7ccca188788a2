"""Release class means: class sums, class sizes and sums of squares, once, with noise."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privet import tuned_defaults
from privet.methods.moment_release_plan import MomentRelease
from privet.methods.moments.classifier_from_moments import ClassMeans, shrink_sizes
from privet.noise import Source
from privet.rowwise_arithmetic import row_blocks
from privet.sensitivity import Moments, UserWeights

Array = NDArray[Any]

CONSTANT = tuned_defaults.MOMENTS_CONSTANT
"""The constant feature that carries class sizes."""
SQUARES = tuned_defaults.MOMENTS_SQUARES
"""The weight of the squares beside the class sums."""
BLOCK = 1024  # rows in memory at once: enough that products of matrices take the time


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
    """Release the moments of rows of the unit ball by class, and return the means they give.

    A null record adds nothing, the constant included. Whoever calls this has charged for it.
    """
    total, length = release.moments.sum(), math.hypot(1.0, CONSTANT)
    for part in row_blocks(len(x), 1, numbers=BLOCK):
        h = x[part].astype(np.float64)
        rows = np.hstack([h, np.full((len(h), 1), CONSTANT)]) / length
        rows[null[part]] = 0.0
        total.add(rows, y[part], None if users is None else users[part])
    found = release.release(total, rng)
    noise = found.cross_noise * length
    sizes = shrink_sizes(found.cross[-1] * length / CONSTANT, noise / CONSTANT)
    means = found.cross[:-1] * length / sizes
    pi = sizes / sizes.sum()
    added = float((pi * (noise / sizes) ** 2).sum())
    squares = np.diag(found.gram)[:-1] * length**2 / sizes.sum()
    within = squares - np.maximum(means**2 @ pi - added, 0.0)
    # noise in the squares leaves no variance smaller than itself to be believed
    noise_of_squares = found.gram_noise * length**2 / float(sizes.sum())
    # 2% of the mean variance keeps a feature without any from a weight beyond all others
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
