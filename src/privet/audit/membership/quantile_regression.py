"""An attack without reference models: what would a model say of a record that it never saw?

A regression learns, from strangers that nobody trained on, the middle and the spread of the
target's confidence given a record and its label. The score is how far above that the target is:
the quantile of the record's confidence among those of strangers like it, if these are normal.

Bertran, Tang, Kearns, Morgenstern, Roth and Wu, *Scalable membership inference attacks via
quantile regression* (2023), section 3, with a normal law.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privet.audit.membership.input_checks import Floats
from privet.errors import InvalidArgument

FEWEST = 20
"""Strangers that the regression needs at least: two leaves of ten records each."""
COMPONENTS = 20
"""The most columns that the regression looks at: principal components of the strangers."""


def by_regression(
    confidence: Any, X: NDArray[Any], y: NDArray[Any],
    of_strangers: Any, strangers: NDArray[Any], labels: NDArray[Any],
) -> Floats:  # fmt: skip
    """One score a record: confidence less what is expected of a stranger, over its spread.

    Needs scikit-learn, which no other attack does.

    >>> rng = np.random.default_rng(0)
    >>> x, z = rng.normal(size=(50, 1)), rng.normal(size=(200, 1))
    >>> zero = np.zeros(250, int)
    >>> score = by_regression(x[:, 0] + 3.0, x, zero[:50], z[:, 0], z, zero[:200])
    >>> bool(np.median(score) > 2.0)
    True
    """
    PCA = import_module("sklearn.decomposition").PCA
    regressor = import_module("sklearn.ensemble").HistGradientBoostingRegressor
    phi, population = (np.asarray(v, dtype=np.float64) for v in (confidence, of_strangers))
    if len(population) < FEWEST:
        raise InvalidArgument("strangers", len(population), f"{FEWEST} records or more")
    flat = np.asarray(strangers, dtype=np.float64).reshape(len(population), -1)
    seen = PCA(n_components=min(COMPONENTS, *flat.shape), random_state=0).fit(flat)

    def columns(rows: NDArray[Any], labels: NDArray[Any]) -> NDArray[Any]:
        shown = seen.transform(np.asarray(rows, dtype=np.float64).reshape(len(rows), -1))
        return np.column_stack([shown, np.asarray(labels, dtype=np.float64)])

    def fitted(target: Floats) -> Any:
        # small trees, for hundreds of strangers; no trial of these numbers was recorded
        model = regressor(max_iter=50, min_samples_leaf=10, random_state=0)
        return model.fit(columns(strangers, labels), target)

    middle = fitted(population)
    off = np.abs(population - middle.predict(columns(strangers, labels)))
    spread = fitted(off).predict(columns(X, y))
    expected = middle.predict(columns(X, y))
    # a record whose spread is predicted next to 0 must not win by that alone
    score: Floats = (phi - expected) / np.maximum(spread, 0.1 * off.mean() + 1e-9)
    return score
