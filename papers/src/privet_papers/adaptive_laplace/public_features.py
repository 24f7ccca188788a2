"""The public features in front of the sound one-shot moments, and what they assume."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from privet import tuned_defaults
from privet.data import Dataset
from privet.features import CachedFeatures, RandomProjection, Scattering, handwriting, unit_rows

FloatRows = NDArray[np.float32]

COLUMNS = {False: tuned_defaults.STROKE_COLUMNS, True: tuned_defaults.STROKE_COLUMNS_PURE}
"""Leading columns of each of the two stroke bases; fewer under pure epsilon."""
PROJECTED = {False: tuned_defaults.PROJECTED_COLUMNS, True: tuned_defaults.PROJECTED_COLUMNS_PURE}
"""Columns of a random projection of scattering coefficients; fewer under pure epsilon."""


def sound_rows(dataset: Dataset, *, pure: bool = False) -> tuple[FloatRows, FloatRows]:
    """Features of training and test records: strokes for MNIST, scattering for larger pictures.

    Other data are taken as they are, scaled by their bounds.
    """
    if dataset.shape == (28, 28):
        return stroke_rows(dataset, pure=pure)
    if len(dataset.shape) >= 2 and min(dataset.shape[:2]) >= 16:
        return scattering_rows(dataset, pure=pure)
    return unit_rows(dataset.train_rows()), unit_rows(dataset.test_rows())


def stroke_rows(dataset: Dataset, *, pure: bool) -> tuple[FloatRows, FloatRows]:
    """Scattering and a network taught on drawn strokes. Prior: line drawings on a dark ground."""
    both, k = CachedFeatures(handwriting()), COLUMNS[pure]
    chosen = np.r_[0:k, 300 : 300 + k]  # the bases are ordered: the leading ones of each
    train, test = (both.transform(rows) for rows in (dataset.train_rows(), dataset.test_rows()))
    return unit_rows(train[:, chosen]), unit_rows(test[:, chosen])


def scattering_rows(dataset: Dataset, *, pure: bool) -> tuple[FloatRows, FloatRows]:
    """Scattering, randomly projected. No prior but that the data are pictures."""
    scattering = Scattering(shape=dataset.shape)
    projection = RandomProjection(n_inputs=scattering.n_features, n_features=PROJECTED[pure])
    front = CachedFeatures(scattering.then(projection))
    return front.transform(dataset.train_rows()), front.transform(dataset.test_rows())
