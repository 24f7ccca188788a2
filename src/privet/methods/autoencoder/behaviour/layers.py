"""Private auto-encoder layers over a user's own rows, from second moments released once.

A tied linear auto-encoder x -> W W^T x with W^T W = 1 has the squared error tr(S) - tr(W^T S W), S
= sum w x x^T: a polynomial of order two whose only coefficients are S, minimal where the columns of
W are the leading eigenvectors of S (Baldi and Hornik 1989). So the functional mechanism releases S
once; W, how many columns it gets, and the codes tanh(slope W^T x) are post-processing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import final

import numpy as np
from numpy.typing import NDArray

from privet._exact import Product, row_norms, tanh
from privet.bounds import Moments, UserWeights
from privet.mechanisms import Gaussian, release_moments
from privet.noise import Source

Array = NDArray[np.float64]

SLOPE = 2.0


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Layer:
    """An encoder of k units, frozen once it is released."""

    weights: Array = field(repr=False)

    @property
    def units(self) -> int:
        """How many columns stood out of the noise."""
        return int(self.weights.shape[1])

    def codes(self, rows: Array) -> Array:
        """tanh(slope W^T x) of rows brought to unit length: entries in (-1, 1).

        A row's codes depend on that row alone, to the last bit.
        """
        return tanh(SLOPE * Product(self.weights)(unit_length(rows)))


def unit_length(rows: Array) -> Array:
    """Each row divided by its length; zero stays zero. Reads no row but the row itself."""
    norms = row_norms(rows)[..., None]
    return np.asarray(rows / np.maximum(norms, 1e-12))


def noise_edge(scale: float, features: int) -> float:
    """The largest eigenvalue that noise alone gives the second moment, about (Wigner)."""
    return scale * math.sqrt(2.0 * features)


def release_layer(
    rows: Array,
    weights: UserWeights | Array,
    *,
    units: int,
    moments: Moments,
    mechanism: Gaussian,
    rng: Source,
) -> Layer:
    """The leading eigenvectors that stand out of the noise; whoever calls this has charged for it.

    **Guarantee** that of one Gaussian release of sum w x x^T, ||x|| <= 1 (`Moments`): weights that
    sum to at most 1 for each user make it one per user.
    """
    total = moments.sum()
    total.add(unit_length(rows) * (1.0 - 2.0**-20), weights=weights)
    found = release_moments(total, mechanism, rng=rng)
    values, vectors = np.linalg.eigh(found.gram)
    order = np.argsort(values)[::-1][:units]
    clear = [i for i in order if values[i] > noise_edge(found.gram_noise, len(values))]
    return Layer(weights=vectors[:, clear])
