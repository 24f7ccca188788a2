"""Volumes with a class for every voxel, on one grid; and generated ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from privet import _check
from privet.errors import InvalidArgument

Grid = tuple[int, int, int]


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Volumes:
    """Images and label maps on one grid.

    `images` is (n, x, y, z), or (n, channels, x, y, z), each channel with mean 0 and variance 1 *of
    its own voxels*: what happens to one record depends on that record alone. `labels` has the
    number of a declared class for every voxel; class 0 is the background.

    >>> made = spheres(3, seed=0)
    >>> made.images.shape, made.classes, made.take([2, 0]).names
    ((3, 16, 16, 16), ('background', 'core', 'shell'), ('sphere_2', 'sphere_0'))
    """

    name: str
    images: NDArray[np.float32]
    labels: NDArray[np.uint8]
    classes: tuple[str, ...]
    names: tuple[str, ...]

    def __post_init__(self) -> None:
        sides = self.images.shape[-3:]
        if self.images.ndim not in (4, 5) or (len(self.images), *sides) != self.labels.shape:
            raise InvalidArgument(
                "labels", self.labels.shape, f"a map for each volume, {self.images.shape}"
            )
        if len(self.names) != len(self.images):
            raise InvalidArgument("names", len(self.names), f"{len(self.images)} names")
        if not np.isfinite(self.images).all():
            raise InvalidArgument("images", "NaN or infinity", "finite voxels")
        if self.labels.size and int(self.labels.max()) >= len(self.classes):
            raise InvalidArgument(
                "labels", int(self.labels.max()), f"below {len(self.classes)}, declared classes"
            )

    def __len__(self) -> int:
        return len(self.images)

    @property
    def grid(self) -> Grid:
        """Voxels along each axis."""
        x, y, z = self.labels.shape[1:]
        return x, y, z

    @property
    def channels(self) -> int:
        """Pictures of each volume (modalities)."""
        return 1 if self.images.ndim == 4 else int(self.images.shape[1])

    def take(self, indices: Sequence[int] | NDArray[np.int64]) -> Volumes:
        """The volumes with these numbers, in this order."""
        chosen = np.asarray(indices, dtype=np.int64)
        return replace(
            self,
            images=self.images[chosen],
            labels=self.labels[chosen],
            names=tuple(self.names[i] for i in chosen),
        )


def standardise(volume: NDArray[Any]) -> NDArray[np.float32]:
    """Mean 0 and variance 1 over the volume's own voxels; a constant volume becomes zeros.

    >>> standardise(np.array([1.0, 3.0, 3.0, 1.0])).tolist()
    [-1.0, 1.0, 1.0, -1.0]
    """
    values = np.asarray(volume, dtype=np.float64)
    spread = float(values.std())
    out: NDArray[np.float64] = (values - values.mean()) / (spread if spread > 0.0 else 1.0)
    return out.astype(np.float32)


def crop_or_pad(volume: NDArray[Any], grid: Grid) -> NDArray[Any]:
    """The volume in the middle of a grid: cut where it is longer, zeros where it is shorter.

    >>> crop_or_pad(np.ones((1, 3, 1), dtype=int), (3, 1, 1))[:, 0, 0].tolist()
    [0, 1, 0]
    """
    if volume.ndim != len(grid):
        raise InvalidArgument("volume", volume.shape, f"of {len(grid)} axes")
    out = np.zeros(grid, dtype=volume.dtype)
    source, target = [], []
    for have, want in zip(volume.shape, grid, strict=True):
        both, before = min(have, want), abs(want - have) // 2
        cut, padded = (before, 0) if have > want else (0, before)
        source.append(slice(cut, cut + both))
        target.append(slice(padded, padded + both))
    out[tuple(target)] = volume[tuple(source)]
    return out


def spheres(n: int, *, seed: int, grid: Grid = (16, 16, 16)) -> Volumes:
    """Generated volumes: a bright ball in a grey shell, off centre, under noise.

    >>> made = spheres(2, seed=1)
    >>> sorted(set(made.labels.ravel().tolist())), bool((made.images[0] != made.images[1]).any())
    ([0, 1, 2], True)
    """
    count = _check.count("n", n)
    rng = np.random.default_rng(_check.count("seed", seed, minimum=0))
    axes = np.meshgrid(*(np.linspace(-1.0, 1.0, side) for side in grid), indexing="ij")
    images, labels = [], []
    for _ in range(count):
        centre, size = rng.uniform(-0.25, 0.25, size=3), rng.uniform(0.5, 0.7)
        away = np.sqrt(sum((axis - c) ** 2 for axis, c in zip(axes, centre, strict=True)))
        label = np.where(away < 0.6 * size, 1, np.where(away < size, 2, 0)).astype(np.uint8)
        image = np.array([0.0, 2.0, 1.0])[label] + rng.normal(0.0, 0.3, size=grid)
        images.append(standardise(image))
        labels.append(label)
    return Volumes(
        name="spheres",
        images=np.stack(images),
        labels=np.stack(labels),
        classes=("background", "core", "shell"),
        names=tuple(f"sphere_{i}" for i in range(count)),
    )
