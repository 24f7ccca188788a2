"""A linear basis learned from drawn scenes: what varies much among all pictures counts for less."""

from __future__ import annotations

import os
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privet import _check, tuned_defaults
from privet.errors import InvalidArgument
from privet.features.combined_extractors import FeaturesWrapper
from privet.features.disk_cache import cache_folder, content_key, load_or_compute
from privet.features.extractor import Array, Features
from privet.features.synthetic_scenes import draw_scenes
from privet.rowwise_arithmetic import Product


class SceneBasis(FeaturesWrapper):
    """Features of `inner`, whitened as those of drawn scenes (`synthetic_scenes`) vary.

    With mu and T the mean and covariance of the inner features of drawn scenes, V the leading
    eigenvectors of T and L their eigenvalues, the map is
        x -> (L + ridge tr(T)/d I)^(-whitening/2) V^T (x - mu).
    A private gradient has the same noise in all directions. Light and contrast, in which pictures
    differ most and classes little, would take most of its room. Nothing depends on the user's data.

    **Guarantee**: that of `Features`. **Assumes** pictures of things, for its use and not for
    privacy. No data set is read.

    The basis is a public artefact, kept in the cache folder by its recipe.
    """

    def __init__(
        self,
        inner: Features,
        *,
        shape: tuple[int, ...],
        n_features: int = tuned_defaults.SCENE_COLUMNS,
        whitening: float = tuned_defaults.SCENE_WHITENING,
        ridge: float = tuned_defaults.SCENE_RIDGE,
        scenes: int = tuned_defaults.SCENES,
        seed: int = 1,
        folder: str | os.PathLike[str] | None = None,
    ) -> None:
        super().__init__(inner)
        self.shape = tuple(_check.count("shape", side) for side in shape)
        self.n_features = _check.count("n_features", n_features)
        if self.n_features > inner.n_features:
            raise InvalidArgument("n_features", n_features, f"at most {inner.n_features}")
        self.whitening = _check.unit("whitening", whitening)
        self.ridge = _check.positive("ridge", ridge)
        self.scenes = _check.count("scenes", scenes, minimum=2)
        self.seed = _check.count("seed", seed, minimum=0)
        self.folder = cache_folder(folder) / "public"

    @property
    def recipe(self) -> str:
        """The inner recipe and every setting of the basis."""
        kind = f"k={self.n_features} whitening={self.whitening} ridge={self.ridge}"
        drawn = f"{self.scenes} {self.shape} seed={self.seed}"
        return f"{self.inner.recipe} | scene-basis-1 {kind} drawn={drawn}"

    def _raw(self, x: NDArray[Any]) -> Array:
        mean, product = self._map
        return product(self.inner.transform(x) - mean).astype(np.float32)

    @cached_property
    def _map(self) -> tuple[Array, Product]:
        """The mean of the drawn features and the basis."""
        path = self.folder / f"{content_key(self.recipe, np.empty(0))}.npy"
        fitted = load_or_compute(path, self._fit)
        return fitted[0], Product(fitted[1:].T)

    def _fit(self) -> Array:
        """Row 0: the mean of the drawn features; the rest: the basis, one row a feature."""
        import scipy.linalg

        rng = np.random.default_rng(self.seed)
        d, k = self.inner.n_features, self.n_features
        rows = self.inner.transform(draw_scenes(self.scenes, shape=self.shape, rng=rng))
        mean = rows.mean(axis=0)
        rows -= mean
        covariance = rows.T @ rows / np.float32(len(rows))
        values, vectors = scipy.linalg.eigh(covariance, subset_by_index=(d - k, d - 1))
        floor = self.ridge * float(np.trace(covariance)) / d
        scaled = vectors * (np.maximum(values, 0.0) + floor) ** (-self.whitening / 2)
        return np.vstack([mean[None], scaled.T[::-1]]).astype(np.float32)
