"""Columns scaled to [0, 1] by declared bounds, in place of a scaler that is fitted on records."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import (
    BaseEstimator,
    OneToOneFeatureMixin,
    TransformerMixin,
)
from sklearn.utils.validation import validate_data

from privet.data.domain import column_bounds
from privet.errors import InvalidArgument

Array = NDArray[Any]


def by_column(what: str, by_name: dict[str, Any], names: Any) -> list[Any]:
    """What is declared of every column of a frame, by its name."""
    if names is None:
        raise InvalidArgument(what, by_name, "a pair or a number for X without column names")
    missing = [name for name in names if name not in by_name]
    if missing:
        raise InvalidArgument(what, list(by_name), f"one for each column, also {missing[0]!r}")
    return [by_name[name] for name in names]


@dataclass(eq=False, repr=False, kw_only=True)
class DeclaredScaler(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Columns brought to [0, 1] by what is publicly known of them; it learns nothing from records.

    `bounds`: a pair (low, high), each a number or one a column, or a dict of pairs by the names of
    a frame's columns. Values outside are clipped; missing ones stay missing.

    **Guarantee**: a row depends on its own record alone, so that it may stand in front of any
    private estimator, with `bounds=(0, 1)` there.

    >>> DeclaredScaler(bounds=([0, 0], [1, 100])).fit_transform([[0.5, 900.0]]).tolist()
    [[0.5, 1.0]]
    """

    bounds: Any = None

    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn the number and the names of the columns, and nothing else."""
        validate_data(self, X, dtype="numeric", ensure_all_finite=False)
        self._limits()
        return self

    def transform(self, X: Any) -> Array:
        """(x - low) / (high - low), clipped."""
        fitted = hasattr(self, "n_features_in_")
        x = validate_data(
            self, X, dtype=[np.float64, np.float32], ensure_all_finite=False, reset=not fitted
        )
        low, high = self._limits()
        return np.asarray((np.clip(x, low, high) - low) / (high - low))

    def _limits(self) -> tuple[Array, Array]:
        bounds = self.bounds
        if isinstance(bounds, dict):
            names = getattr(self, "feature_names_in_", None)
            bounds = tuple(zip(*by_column("bounds", bounds, names), strict=True))
        return column_bounds(bounds, int(self.n_features_in_))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.requires_fit = False
        tags.input_tags.allow_nan = True
        return tags
