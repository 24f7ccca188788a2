"""Singular vectors that are the same on every machine."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def canonical_signs(vectors: NDArray[Any]) -> NDArray[np.float64]:
    """Rows whose largest entry is positive: singular vectors are known up to their sign only, and
    which one comes out depends on the library. Of entries as large as that, but for a millionth,
    the first decides.

    >>> canonical_signs(np.array([[0.6, -0.8], [-0.5, 0.5]])).tolist()
    [[-0.6, 0.8], [0.5, -0.5]]
    """
    sizes = np.abs(vectors)
    # a millionth is far more than libraries differ by, and far less than entries do
    first = (sizes >= (1.0 - 1e-6) * sizes.max(axis=1, keepdims=True)).argmax(axis=1)
    negative = vectors[np.arange(len(vectors)), first] < 0.0
    return np.where(negative[:, None], -vectors, vectors)
