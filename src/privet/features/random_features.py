"""Random features: a projection, and a layer of random convolutions. Public by a seed."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from privet import _check, premises
from privet.errors import InvalidArgument
from privet.features.extractor import Array, Features, group_normalise, images, patches
from privet.guarantee import Premise
from privet.rowwise_arithmetic import Product, round_to_grid, row_sums, scale_by_power_of_two

_CHUNK = 8  # pictures at a time, whose responses stay near the processor


class RandomProjection(Features):
    """Rows times a random matrix with orthonormal columns: fewer coordinates, angles nearly kept.

    **Guarantee**: that of `Features`; the matrix depends on the seed alone.

    >>> import numpy as np
    >>> RandomProjection(n_inputs=20, n_features=5).transform(np.eye(20)).shape
    (20, 5)
    """

    premise: ClassVar[Premise] = premises.EXACT_ROWS

    def __init__(self, *, n_inputs: int, n_features: int, seed: int = 0) -> None:
        self.n_inputs = _check.count("n_inputs", n_inputs)
        self.n_features = _check.count("n_features", n_features)
        if self.n_features > self.n_inputs:
            raise InvalidArgument("n_features", n_features, f"at most n_inputs={n_inputs}")
        self.seed = _check.count("seed", seed, minimum=0)
        gaussian = np.random.default_rng(self.seed).standard_normal((self.n_inputs, n_features))
        # cut so coarsely that the last bits of an orthogonalisation do not show
        self._product = Product(round_to_grid(np.linalg.qr(gaussian)[0], 2.0**-16))

    @property
    def recipe(self) -> str:
        """Sizes and seed."""
        return f"random-projection-2 {self.n_inputs}->{self.n_features} seed={self.seed}"

    def _raw(self, x: NDArray[Any]) -> Array:
        return self._product(images(x, (self.n_inputs,))).astype(np.float32)


class RandomConvolutions(Features):
    """Random filters on contrast-normalised patches, rectified both ways and pooled on a grid.

    For filters w_k of mean zero and norm 1 and patches p of standard deviation s(p), with a soft
    threshold b,  r_k(p) = <w_k, p> / (s(p) + c);  the features are the averages of max(r_k - b, 0)
    and of max(-r_k - b, 0) over each of `grid` x `grid` regions, group-normalised within the image.

    **Guarantee**: that of `Features`; the filters depend on the seed alone.

    After Coates and Ng, "Learning feature representations with k-means", 2012, filters random.

    >>> import numpy as np
    >>> front = RandomConvolutions(shape=(8, 8), filters=16, patch=3, grid=2)
    >>> front.transform(np.ones((5, 64), dtype=np.float32)).shape
    (5, 128)
    """

    premise: ClassVar[Premise] = premises.EXACT_ROWS

    # patches of 6 x 6 are those of Coates and Ng; how the other sizes were found was not recorded
    def __init__(
        self,
        *,
        shape: tuple[int, ...],
        filters: int = 256,
        patch: int = 6,
        grid: int = 4,
        threshold: float = 0.5,
        seed: int = 0,
    ) -> None:
        self.shape = tuple(_check.count("shape", side) for side in shape)
        if len(self.shape) not in (2, 3):
            raise InvalidArgument("shape", shape, "(height, width) or (height, width, colours)")
        self.filters = _check.count("filters", filters)
        self.patch = _check.count("patch", patch, minimum=2)
        self.grid = _check.count("grid", grid)
        if min(self.shape[:2]) < self.patch + self.grid - 1:
            expected = (
                f"at least {self.patch + self.grid - 1} pixels on each side for this patch, grid"
            )
            raise InvalidArgument("shape", shape, expected)
        self.threshold = _check.non_negative("threshold", threshold)
        self.seed = int(seed)
        self.colours = self.shape[2] if len(self.shape) == 3 else 1
        self.n_features = 2 * self.filters * self.grid**2  # two signs of each filter on each region
        self._filters = self._bank()

    @property
    def recipe(self) -> str:
        """Every setting."""
        kind = f"filters={self.filters} patch={self.patch} grid={self.grid} b={self.threshold}"
        return f"random-convolutions-2 {self.shape} {kind} seed={self.seed}"

    def _raw(self, x: NDArray[Any]) -> Array:
        pictures = images(x, self.shape).reshape(-1, *self.shape[:2], self.colours)
        out = np.empty((len(pictures), self.n_features), dtype=np.float32)
        for start in range(0, len(pictures), _CHUNK):
            out[start : start + _CHUNK] = self._pooled(pictures[start : start + _CHUNK])
        return group_normalise(out, 2 * self.filters if self.grid > 1 else 1)

    def _bank(self) -> Product:
        size = (self.filters, self.colours, self.patch, self.patch)
        bank = np.random.default_rng(self.seed).standard_normal(size)
        bank -= bank.mean(axis=(1, 2, 3), keepdims=True)
        bank /= np.sqrt((bank**2).sum(axis=(1, 2, 3), keepdims=True))
        return Product(bank.transpose(2, 3, 1, 0).reshape(-1, self.filters))

    def _pooled(self, pictures: Array) -> Array:
        """Averages over the regions: (records, signs * filters * regions)."""
        part, size = scale_by_power_of_two(pictures)
        windows = patches(round_to_grid(part, self._filters.step), self.patch)
        count = windows.shape[-1]
        mean = row_sums(windows) / count
        spread = np.sqrt(np.maximum(row_sums(windows * windows) / count - mean * mean, 0.0))
        response = self._filters.of_cut(windows)
        response *= size
        # c of the class: a twentieth of the range of pixels, so that flat patches stay flat
        response /= (spread * size[..., 0] + 0.05)[..., None]
        both = [
            average_pool(np.maximum(signed - self.threshold, 0.0), self.grid)
            for signed in (response, -response)
        ]
        return np.concatenate(both, axis=1).reshape(len(part), -1).astype(np.float32)


def average_pool(maps: NDArray[np.float64], grid: int) -> NDArray[np.float64]:
    """Averages over grid x grid regions, as torch divides them: (records, channels, grid, grid).

    Rows are added one after another, then columns: each entry in an order of its own record.
    """
    for axis in (1, 2):
        side = maps.shape[axis]
        regions = []
        for k in range(grid):
            low, high = k * side // grid, -(-(k + 1) * side // grid)
            lines = maps.swapaxes(0, axis)
            total = lines[low].copy()
            for line in lines[low + 1 : high]:
                total += line
            regions.append(total / (high - low))
        maps = np.stack(regions).swapaxes(0, axis)
    return np.ascontiguousarray(maps.transpose(0, 3, 1, 2))
