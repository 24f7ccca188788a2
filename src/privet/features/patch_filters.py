"""Small filters that are pieces of drawn scenes, whitened: what edges and colours look like."""

from __future__ import annotations

import os
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from privet import _check, premises, tuned_defaults
from privet.errors import InvalidArgument
from privet.features.disk_cache import cache_folder, content_key, load_or_compute
from privet.features.extractor import Array, Features, images, patches
from privet.features.random_features import average_pool
from privet.features.synthetic_scenes import draw_scenes
from privet.guarantee import Premise
from privet.rowwise_arithmetic import Product, round_to_grid, row_sums, scale_by_power_of_two

_AT_ONCE = 160  # filters whose responses to a small picture fill a megabyte
_PIECES = 100  # taken from each scene, to learn how pieces vary
_RIDGE = 0.1  # of the whitening, in units of a contrast-normalised pixel's variance
_CONTRAST = 10.0 / 255.0  # added to a patch's spread: what is flatter than this is noise
_GRID = 2.0**-30  # of pixels, over a power of two; sums of a patch stay exact


class PatchFilters(Features):
    """Responses to whitened pieces of drawn scenes, rectified both ways and pooled on a grid.

    With p a patch of a picture, m(p) its mean and s(p) its standard deviation, the response to
    filter k is r_k(p) = <a_k, (p - m(p)) / sqrt(s(p)^2 + c^2)> + b_k. The features are the averages
    of max(r_k - t, 0) and of max(-r_k - t, 0) over each of `grid` x `grid` regions.

    a_k = Z z_k and b_k = -<a_k, mu>, where Z = (C + ridge I)^(-1/2) whitens the pieces of drawn
    scenes (mean mu and covariance C, contrast-normalised) and z_k is one of them, whitened, of
    length 1. Nothing depends on the user's data, and no photograph is read.

    **Guarantee**: that of `Features`. The filters are a public artefact, kept in the cache folder
    by their recipe.

    Coates and Ng, "Learning feature representations with k-means", 2012, with drawn scenes in place
    of pictures.

    >>> import numpy as np, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     front = PatchFilters(shape=(8, 8), filters=5, patch=3, folder=folder)
    ...     front.transform(np.ones((2, 64), dtype=np.float32)).shape
    (2, 40)
    """

    premise: ClassVar[Premise] = premises.EXACT_ROWS

    def __init__(
        self,
        *,
        shape: tuple[int, ...],
        filters: int = tuned_defaults.PATCH_FILTERS,
        patch: int = tuned_defaults.PATCH_SIDE,
        grid: int = tuned_defaults.PATCH_GRID,
        threshold: float = tuned_defaults.PATCH_THRESHOLD,
        seed: int = 0,
        folder: str | os.PathLike[str] | None = None,
    ) -> None:
        self.shape = tuple(_check.count("shape", side) for side in shape)
        if len(self.shape) not in (2, 3) or self.shape[2:] not in ((), (3,)):
            raise InvalidArgument("shape", shape, "(height, width) or (height, width, 3)")
        self.filters = _check.count("filters", filters)
        self.patch = _check.count("patch", patch, minimum=2)
        self.grid = _check.count("grid", grid)
        if min(self.shape[:2]) < self.patch + self.grid - 1:
            least = (
                f"at least {self.patch + self.grid - 1} pixels on each side for this patch, grid"
            )
            raise InvalidArgument("shape", shape, least)
        self.threshold = _check.non_negative("threshold", threshold)
        self.seed = _check.count("seed", seed, minimum=0)
        self.n_features = 2 * self.filters * self.grid**2  # two signs of each filter on each region
        self.folder = cache_folder(folder) / "public"

    @property
    def recipe(self) -> str:
        """Every setting."""
        kind = f"filters={self.filters} patch={self.patch} grid={self.grid} t={self.threshold}"
        return f"patch-filters-1 {self.shape} {kind} seed={self.seed}"

    def _raw(self, x: NDArray[Any]) -> Array:
        pictures = images(x, self.shape).reshape(-1, *self.shape[:2], self._colours)
        out = np.empty((len(pictures), self.n_features), dtype=np.float32)
        for start in range(len(pictures)):
            out[start : start + 1] = self._pooled(pictures[start : start + 1])
        return out

    @property
    def _colours(self) -> int:
        return self.shape[2] if len(self.shape) == 3 else 1

    @cached_property
    def _bank(self) -> list[tuple[Product, NDArray[np.float64]]]:
        """Some filters at a time, each with b_k."""
        path = self.folder / f"{content_key(self.recipe, np.empty(0))}.npy"
        fitted = load_or_compute(path, self._learn).astype(np.float64)
        parts = np.split(fitted, range(_AT_ONCE, self.filters, _AT_ONCE))
        # a contrast-normalised patch of d numbers is at most sqrt(d) long
        reach = 1.001 * np.sqrt(fitted.shape[1] - 1)
        return [(Product(part[:, :-1].T, reach=reach), part[:, -1]) for part in parts]

    def _pooled(self, pictures: Array) -> Array:
        """Averages over the regions: (records, filters * signs * regions)."""
        part, size = scale_by_power_of_two(pictures)
        windows = patches(round_to_grid(part, _GRID), self.patch)
        d = windows.shape[-1]
        windows = windows - (row_sums(windows) / d)[..., None]
        squares = row_sums(windows * windows) / d
        windows /= np.sqrt(squares + (_CONTRAST / size[..., 0]) ** 2)[..., None]
        both = []
        for product, bias in self._bank:
            response = product.of_cut(round_to_grid(windows, product.step))
            response += bias
            over = average_pool(np.maximum(response, self.threshold), self.grid)
            under = average_pool(np.minimum(response, -self.threshold, out=response), self.grid)
            both += [over - self.threshold, -under - self.threshold]
        return np.concatenate(both, axis=1).reshape(len(part), -1).astype(np.float32)

    def _learn(self) -> Array:
        """Row k: a_k and b_k."""
        rng = np.random.default_rng(self.seed)
        scenes = draw_scenes(max(20, 4 * self.filters), shape=self.shape, rng=rng)
        pieces = patches(scenes.reshape(*scenes.shape[:3], self._colours), self.patch)
        flat = pieces.reshape(len(scenes), -1, pieces.shape[-1])
        at = rng.integers(flat.shape[1], size=(len(scenes), _PIECES))
        taken = np.take_along_axis(flat, at[..., None], axis=1).reshape(-1, flat.shape[2])
        taken = taken.astype(np.float64)
        taken -= taken.mean(axis=1, keepdims=True)
        variance = taken.var(axis=1)
        taken /= np.sqrt(variance + _CONTRAST**2)[:, None]
        mean = taken.mean(axis=0)
        values, vectors = np.linalg.eigh(np.cov(taken, rowvar=False))
        whitening = (vectors / np.sqrt(np.maximum(values, 0.0) + _RIDGE)) @ vectors.T
        usable = np.flatnonzero(variance > _CONTRAST**2)
        chosen = (taken[rng.choice(usable, self.filters, replace=False)] - mean) @ whitening
        chosen /= np.linalg.norm(chosen, axis=1, keepdims=True)
        filters = chosen @ whitening
        return np.column_stack([filters, -(filters @ mean)]).astype(np.float32)
