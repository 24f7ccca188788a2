"""Procedurally drawn pen strokes: a public stand-in for handwriting that reads no data set.

A glyph is one to three pen strokes. A stroke is a curve of given length whose heading turns with
piecewise constant curvature and, here and there, a sharp corner. Another *view* of a glyph is the
same plan drawn by another hand: curvatures and lengths a little different, slanted, rotated,
squeezed, with another pen. Views are scaled into a box and centred by mass, which is how MNIST says
its digits were prepared (LeCun et al. 1998).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from privet import _check, tuned_defaults
from privet.features.extractor import Array

# How strokes look (the numbers in this file, but for the box of 20/28 and the centring, which the
# authors of MNIST state) was settled while the library was written, with 10,000 training records of
# MNIST at hand (docs/guide/settings.md). Angles are in radians; lengths are scaled later.
_STROKES = 3  # at most, in a glyph
_BENDS = 5  # pieces of constant curvature in a stroke
_POINTS = 30  # points drawn along a stroke


def draw_glyphs(
    *,
    glyphs: int,
    views: int,
    rng: np.random.Generator,
    side: int = 28,
    variation: float = tuned_defaults.STROKE_VARIATION,
) -> Array:
    """`views` views of each of `glyphs` random glyphs: (glyphs, views, side, side), in [0, 1].

    `variation` scales how much two views of a glyph differ (0: only the pen).

    >>> import numpy as np
    >>> pictures = draw_glyphs(glyphs=2, views=3, rng=np.random.default_rng(0))
    >>> pictures.shape, bool(pictures.max() <= 1.0)
    ((2, 3, 28, 28), True)
    """
    glyphs, views = _check.count("glyphs", glyphs), _check.count("views", views)
    side = _check.count("side", side, minimum=8)
    variation = _check.non_negative("variation", variation)
    out = np.empty((glyphs, views, side, side), dtype=np.float32)
    step = max(1, 2000 // views)  # drawings at a time, to bound memory
    for start in range(0, glyphs, step):
        count = min(step, glyphs - start)
        points, ink = _curves(count, views, rng, variation)
        points = _hand(points, rng, variation)
        out[start : start + count] = _render(points, ink, side, rng).reshape(
            count, views, side, side
        )
    return out


def _curves(
    glyphs: int, views: int, rng: np.random.Generator, variation: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Points of every drawing, (glyphs * views, points, 2), and the ink at each point."""
    shape = (glyphs, 1, _STROKES, _BENDS)

    def near(mean: NDArray[np.float64], spread: float) -> NDArray[np.float64]:
        size = (glyphs, views, *mean.shape[2:])
        return mean + variation * spread * rng.standard_normal(size)

    turning = rng.normal(0.0, 4.0, shape) * (rng.random(shape) < 0.75)  # radians a unit of length
    corners = rng.uniform(-2.6, 2.6, shape) * (rng.random(shape) < 0.2)
    heading = rng.uniform(-np.pi, np.pi, shape[:3])
    length = rng.uniform(0.3, 1.0, shape)
    length *= (rng.uniform(0.5, 2.2, shape[:3]) / length.sum(axis=3))[..., None]
    present = np.ones((glyphs, 1, _STROKES))
    present[:, :, 1] = rng.random((glyphs, 1)) < 0.5
    present[:, :, 2] = present[:, :, 1] * (rng.random((glyphs, 1)) < 0.3)

    turning, corners = near(turning, 0.45), near(corners, 0.15)
    heading = near(heading, 0.12)
    length = length * np.exp(near(np.zeros(shape), 0.13))

    piece = np.arange(_POINTS) * _BENDS // _POINTS
    step = length[..., piece] * (_BENDS / _POINTS)
    first = np.concatenate([[True], piece[1:] != piece[:-1]])
    bend = turning[..., piece] * step + corners[..., piece] * first
    angle = heading[..., None] + np.cumsum(bend, axis=3)
    path = np.cumsum(np.stack([np.cos(angle), np.sin(angle)], axis=-1) * step[..., None], axis=3)

    # a later stroke starts on the one before it, or near it
    where = rng.integers(0, _POINTS, (glyphs, 1, _STROKES))
    apart = near(rng.normal(0.0, 0.35, (glyphs, 1, _STROKES, 2)), 0.05)
    apart *= (rng.random((glyphs, 1, _STROKES, 1)) < 0.5) * 1.0
    for k in range(1, _STROKES):
        index = np.broadcast_to(where[:, :, k, None, None], (glyphs, views, 1, 2))
        start = np.take_along_axis(path[:, :, k - 1], index, axis=2)
        path[:, :, k] += start + apart[:, :, k, None]
    ink = np.broadcast_to(present[..., None], step.shape) * step
    count = glyphs * views
    return path.reshape(count, -1, 2), ink.reshape(count, -1)


def _hand(
    points: NDArray[np.float64], rng: np.random.Generator, variation: float
) -> NDArray[np.float64]:
    """Each drawing slanted, rotated and squeezed a little, as another hand would."""
    count = len(points)
    turn = variation * rng.normal(0.0, 0.10, count)
    slant = variation * rng.normal(0.0, 0.15, count)
    squeeze = np.exp(variation * rng.normal(0.0, 0.12, count))
    c, s = np.cos(turn), np.sin(turn)
    zero, one = np.zeros(count), np.ones(count)
    rotate = np.stack([np.stack([c, -s], -1), np.stack([s, c], -1)], -2)
    shear = np.stack([np.stack([squeeze, slant], -1), np.stack([zero, one / squeeze], -1)], -2)
    turned: NDArray[np.float64] = points @ (rotate @ shear).transpose(0, 2, 1)
    return turned


def _render(
    points: NDArray[np.float64], ink: NDArray[np.float64], side: int, rng: np.random.Generator
) -> Array:
    """Fit into a box of 20/28 of the side, centre by mass, and draw with a round pen."""
    drawn = ink[..., None] > 0
    low = np.where(drawn, points, np.inf).min(axis=1, keepdims=True)
    high = np.where(drawn, points, -np.inf).max(axis=1, keepdims=True)
    count = len(points)
    pen = side / 28 * rng.uniform(0.65, 1.35, (count, 1, 1))
    scale = (20 / 28 * side - 2 * pen) / np.maximum((high - low).max(axis=2, keepdims=True), 1e-9)
    mass = ink / ink.sum(axis=1, keepdims=True)
    centre = (mass[..., None] * points).sum(axis=1, keepdims=True)
    placed = ((points - centre) * scale + (side - 1) / 2).astype(np.float32)
    grid = np.arange(side, dtype=np.float32)
    sharp = (-0.5 / pen**2).astype(np.float32)
    across = np.exp(sharp * (placed[:, :, 0, None] - grid) ** 2)
    down = np.exp(sharp * (placed[:, :, 1, None] - grid) ** 2)
    # ink laid for each unit of length, so that the line is as dark whatever the spacing of the
    # points
    dose = (2.2 * (ink * scale[..., 0]) / (np.sqrt(2 * np.pi) * pen[..., 0])).astype(np.float32)
    laid = np.matmul((down * dose[..., None]).transpose(0, 2, 1), across)
    drawn_at: Array = np.clip(1.15 * (1 - np.exp(-(laid**1.5))), 0.0, 1.0)
    return drawn_at
