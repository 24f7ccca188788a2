"""The privacy loss of a run: the log density ratio of its outputs with and without a record."""

from __future__ import annotations

import math

import numpy as np

from privet.mechanisms.release_transcript import Array, ReplayDiverged, Transcript


def transcript_log_ratio(present: Transcript, absent: Transcript) -> float:
    """The privacy loss of a run: log density of all outputs with the record less without it.

    Where a record takes part with rate q, `present` must have it in every sample: with l the log
    ratio of one release then, log(1 - q + q e^l) is that of a release on a random sample.
    """
    if len(present.releases) != len(absent.releases):
        raise ReplayDiverged(
            f"{len(present.releases)} releases, on a neighbour {len(absent.releases)}"
        )
    total = 0.0
    for a, b in zip(present.releases, absent.releases, strict=True):
        ratio = a.log_ratio(a.noisy, a.exact, b.exact)
        if a.rate < 1.0:
            ratio = float(np.logaddexp(math.log1p(-a.rate), math.log(a.rate) + ratio))
        total += ratio
    return total


def gaussian_log_ratio(out: Array, first: Array, second: Array, *, scale: float) -> float:
    """The log density ratio of normal noise of this standard deviation in every coordinate.

    >>> gaussian_log_ratio(np.array([1.0]), np.array([1.0]), np.array([0.0]), scale=1.0)
    0.5
    """
    far = np.square(out - second).sum() - np.square(out - first).sum()
    return float(far / (2.0 * scale**2))


def laplace_log_ratio(out: Array, first: Array, second: Array, *, scale: float) -> float:
    """The log density ratio of Laplace noise of this scale in every coordinate."""
    return float((np.abs(out - second).sum() - np.abs(out - first).sum()) / scale)


def norm_log_ratio(out: Array, first: Array, second: Array, *, scale: float) -> float:
    """The log density ratio of noise of density e^(-||x||_2 / scale) in all coordinates."""
    return float((np.linalg.norm(out - second) - np.linalg.norm(out - first)) / scale)
