"""A linear basis learned from drawn strokes: what tells glyphs apart, and not hands."""

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
from privet.features.synthetic_strokes import draw_glyphs
from privet.rowwise_arithmetic import Product


class StrokeBasis(FeaturesWrapper):
    """Features of `inner`, projected on the directions that tell drawn glyphs apart.

    Glyphs are drawn procedurally, each in several views (see `strokes`). With W the covariance of
    the inner features within a glyph and T their covariance over all drawings, both restricted to
    the leading `screened` eigenvectors of T, the map is
        x -> V^T (W + ridge tr(W)/d I)^(-whitening/2) (x - mean),
    V the leading eigenvectors of T so whitened. Whitening 0 is principal components; whitening 1 is
    Fisher's discriminant analysis of drawn glyphs. Nothing depends on the user's data.

    **Guarantee**: that of `Features`. **Assumes** handwriting or line drawings on a dark ground,
    about centred; a prior that costs no privacy but should be stated. No data set is read.

    The basis is a public artefact, kept in the cache folder by its recipe.
    """

    # 2000 glyphs in ten views are twenty thousand drawings, for a covariance of 1200 columns; how
    # these and the 500 were found was not recorded
    def __init__(
        self,
        inner: Features,
        *,
        n_features: int = 500,
        whitening: float = tuned_defaults.BASIS_WHITENING,
        ridge: float = tuned_defaults.BASIS_RIDGE,
        side: int = 28,
        glyphs: int = 2000,
        views: int = 10,
        screened: int = 1200,
        seed: int = 0,
        folder: str | os.PathLike[str] | None = None,
    ) -> None:
        super().__init__(inner)
        self.n_features = _check.count("n_features", n_features)
        self.whitening = _check.unit("whitening", whitening)
        self.ridge = _check.positive("ridge", ridge)
        self.side, self.seed = _check.count("side", side, minimum=8), int(seed)
        self.glyphs = _check.count("glyphs", glyphs, minimum=2)
        self.views = _check.count("views", views, minimum=2)
        self.screened = min(_check.count("screened", screened), inner.n_features)
        if self.n_features > self.screened:
            raise InvalidArgument("n_features", n_features, f"at most screened={self.screened}")
        self.folder = cache_folder(folder) / "public"

    @property
    def recipe(self) -> str:
        """The inner recipe and every setting of the basis."""
        drawn = f"{self.glyphs}x{self.views} side={self.side} seed={self.seed}"
        kind = (
            f"k={self.n_features} of {self.screened} whitening={self.whitening} ridge={self.ridge}"
        )
        return f"{self.inner.recipe} | stroke-basis-2 {kind} drawn={drawn}"

    def _raw(self, x: NDArray[Any]) -> Array:
        mean, product = self._map
        out = np.empty((len(x), self.n_features), dtype=np.float32)
        for start in range(0, len(x), 4096):  # some megabytes of inner features at a time
            rows = self.inner.transform(x[start : start + 4096])
            out[start : start + 4096] = product(rows - mean)
        return out

    @cached_property
    def _map(self) -> tuple[Array, Product]:
        """The mean of the drawn features and the basis."""
        path = self.folder / f"{content_key(self.recipe, np.empty(0))}.npy"
        fitted = load_or_compute(path, self._fit)
        return fitted[0], Product(fitted[1:].T)

    def _fit(self) -> Array:
        """Row 0: the mean of the drawn features; the rest: the basis, one row a feature."""
        rng = np.random.default_rng(self.seed)
        d, v = self.inner.n_features, self.views
        within = np.zeros((d, d), dtype=np.float32)
        centres = np.empty((self.glyphs, d), dtype=np.float32)
        step = max(1, 4000 // v)  # 12 MB of pictures at a time
        for start in range(0, self.glyphs, step):
            count = min(step, self.glyphs - start)
            drawn = draw_glyphs(glyphs=count, views=v, rng=rng, side=self.side)
            rows = self.inner.transform(drawn.reshape(count * v, self.side, self.side))
            grouped = rows.reshape(count, v, d)
            centres[start : start + count] = grouped.mean(axis=1)
            rows = (grouped - centres[start : start + count, None]).reshape(count * v, d)
            within += rows.T @ rows
        within /= self.glyphs * (v - 1)
        mean = centres.mean(axis=0)
        # a mean of v views keeps 1/v of the variation within a glyph
        total = np.cov(centres, rowvar=False).astype(np.float32) + within * np.float32(1 - 1 / v)
        return np.vstack([mean[None], self._directions(total, within)]).astype(np.float32)

    def _directions(self, total: Array, within: Array) -> Array:
        import scipy.linalg

        d = len(total)
        _, leading = scipy.linalg.eigh(total, subset_by_index=(d - self.screened, d - 1))
        total, within = leading.T @ total @ leading, leading.T @ within @ leading
        values, vectors = np.linalg.eigh(within)
        floor = self.ridge * np.trace(within) / len(within)
        whiten = (vectors * (np.maximum(values, 0) + floor) ** (-self.whitening / 2)) @ vectors.T
        _, chosen = np.linalg.eigh(whiten @ total @ whiten)
        rows: Array = (leading @ whiten @ chosen[:, ::-1][:, : self.n_features]).T
        return rows
