"""Procedurally drawn scenes: a public stand-in for photographs that reads no picture.

A scene is a pile of *dead leaves*: discs and rectangles, stretched and turned, that cover one
another, their sizes r distributed as r^-3, which gives pictures the statistics of natural ones at
every scale (Lee, Mumford and Huang, "Occlusion models for natural images", 2001). A leaf has a
colour near its scene's, shading along a slope, and a texture whose spectrum falls as a power of the
frequency, as that of photographs does (Field 1987).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from privet import _check
from privet.features.extractor import Array

_OVER = 2  # samples on a pixel's side, so that edges are soft
_TEXTURES = 4  # textures that the leaves of a scene share
_LARGE = 4  # leaves drawn first, of any size alike: scenes have a subject
_MOST = 480  # leaves: the ground behind them has one colour


def draw_scenes(count: int, *, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    """`count` scenes of the given shape, (height, width) or (height, width, 3), in [0, 1].

    >>> import numpy as np
    >>> scenes = draw_scenes(2, shape=(16, 16, 3), rng=np.random.default_rng(0))
    >>> scenes.shape, bool(scenes.min() >= 0.0 and scenes.max() <= 1.0)
    ((2, 16, 16, 3), True)
    """
    count = _check.count("count", count)
    height, width = shape[:2]
    out = np.empty((count, height, width, 3), dtype=np.float32)
    for i in range(count):
        fine = _scene(_OVER * max(height, width), rng)[: _OVER * height, : _OVER * width]
        out[i] = fine.reshape(height, _OVER, width, _OVER, 3).mean(axis=(1, 3))
    return out.mean(axis=3) if len(shape) == 2 else out


def _scene(side: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """A square scene, from the nearest leaf to the farthest: what is covered is not drawn."""
    middle = 0.5 * rng.uniform(0.1, 0.9, 3) + 0.5 * rng.uniform(0.1, 0.9)
    spread = rng.uniform(0.1, 0.35)

    def colour() -> NDArray[np.float64]:
        return np.clip(middle + spread * (rng.normal() + 0.5 * rng.normal(size=3)), 0.0, 1.0)

    textures = _textures(side, rng)
    scene = np.empty((side, side, 3))
    free = np.ones((side, side), dtype=bool)
    smallest, largest = 1.0 * _OVER, 0.7 * side
    for k in range(_MOST):
        if not free.any():
            break
        # the inverse of the distribution function of r^-3 between the two
        radius = (smallest**-2 + rng.random() * (largest**-2 - smallest**-2)) ** -0.5
        if k < _LARGE:
            radius = rng.uniform(0.1 * side, largest)
        x, y = rng.uniform(-0.5 * radius, side + 0.5 * radius, 2)
        reach = 1.5 * radius + 1.0  # a corner of a square is sqrt(2) away
        rows = slice(max(0, int(y - reach)), max(0, int(y + reach) + 1))
        columns = slice(max(0, int(x - reach)), max(0, int(x + reach) + 1))
        place = free[rows, columns]
        angle, flat = rng.uniform(0.0, np.pi), rng.uniform(0.3, 1.0)
        slope, round_one = rng.normal(0.0, 0.2, 2), rng.random() < 0.5
        strength, texture = 0.15 * rng.random(), textures[rng.integers(_TEXTURES)]
        own = colour()
        if not place.any():
            continue
        down = np.arange(rows.start, rows.start + place.shape[0])[:, None] - y
        right = np.arange(columns.start, columns.start + place.shape[1]) - x
        along = np.cos(angle) * right + np.sin(angle) * down
        across = (np.cos(angle) * down - np.sin(angle) * right) / flat
        if round_one:
            inside = along**2 + across**2 < radius**2
        else:
            inside = np.maximum(abs(along), abs(across)) < radius
        inside &= place
        light = 1.0 + (slope[0] * along + slope[1] * across)[inside] / max(radius, 2.0 * _OVER)
        grain = strength * texture[rows, columns][inside]
        scene[rows, columns][inside] = own * light.clip(0.2, 2.0)[:, None] + grain[:, None]
        place[inside] = False
    scene[free] = colour()
    return np.clip(scene, 0.0, 1.0)


def _textures(side: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Random fields of variance 1 whose amplitudes fall as a power of the frequency."""
    frequency = np.hypot(np.fft.fftfreq(side)[:, None], np.fft.rfftfreq(side))
    frequency[0, 0] = np.inf  # no mean
    size = (_TEXTURES, *frequency.shape)
    waves = rng.normal(size=size) + 1j * rng.normal(size=size)
    fields: NDArray[np.float64] = np.fft.irfft2(
        waves * frequency ** -rng.uniform(0.8, 1.8), s=(side, side)
    )
    fields /= fields.std(axis=(1, 2), keepdims=True)
    return fields
