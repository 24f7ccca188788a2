"""What stands in front of an estimator in a scikit-learn Pipeline: seen, named, or declared.

A step that is fitted on the records (a mean, a variance, principal components) is a release of its
own, without noise: it goes out with the model. So is what a search, a threshold or a calibration
around the estimator chooses. Both are noticed, and there is a scaler that knows nothing but what
was declared.
"""

from __future__ import annotations

import inspect
import warnings
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import (
    BaseEstimator,
    MetaEstimatorMixin,
    OneToOneFeatureMixin,
    TransformerMixin,
)
from sklearn.pipeline import Pipeline
from sklearn.utils import get_tags
from sklearn.utils.validation import validate_data

from privet import premises
from privet.data.rows import column_bounds
from privet.errors import InvalidArgument
from privet.guarantee import Premise

Array = NDArray[Any]
FITS = ("fit", "fit_transform", "fit_predict")


class FittedInFront(UserWarning):
    """A step in front of a private estimator was fitted on the same records, without noise."""


def preparation(estimator: Any) -> tuple[Premise, ...]:
    """What must be said of the records where something else in this call is fitted on them."""
    steps, around = fitted_beside(estimator)
    told: tuple[Premise, ...] = ()
    if around:
        named = ", ".join(type(other).__name__ for other in around)
        _warn(
            f"{named} around {type(estimator).__name__} chooses by the private records without "
            "noise: this is an experiment, not a release. Choose on public records, and fit once"
        )
        told = (premises.fitted_around(named),)
    if not steps:
        return told
    bare = [type(step).__name__ for step in steps if not hasattr(step, "guarantee_")]
    if bare:
        named = ", ".join(bare)
        _warn(
            f"{named} in front of {type(estimator).__name__} was fitted on the private records "
            "without noise, and is released with the model: this is an experiment, not a release. "
            "Use privet.DeclaredScaler(bounds=...), or fit the step on public records and freeze "
            "it (sklearn.frozen.FrozenEstimator)"
        )
        return (*told, premises.fitted_before(named))
    last = steps[-1]
    return (*told, premises.released_before(type(last).__name__, str(last.guarantee_)))


def _warn(text: str) -> None:
    warnings.warn(text, FittedInFront, stacklevel=5)


def fitted_beside(estimator: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """The steps that a Pipeline, now fitting, has fitted before; and what else fits around it.

    Neither tells an estimator about the others, so that this looks at who is calling.
    """
    found: list[Any] = []
    around: list[Any] = []
    frame = inspect.currentframe()
    while frame is not None:
        caller = frame.f_locals.get("self")
        if caller is not estimator and frame.f_code.co_name in FITS:
            if isinstance(caller, Pipeline):
                steps = [step for _, step in caller.steps]
                mine = [k for k, step in enumerate(steps) if step is estimator]
                before = steps[: mine[0] if mine else len(steps) - 1]
                found = [*filter(_learns, before), *found]
            elif isinstance(caller, MetaEstimatorMixin) and caller not in around:
                around.append(caller)
        frame = frame.f_back
    return tuple(found), tuple(around)


def _learns(step: Any) -> bool:
    if step is None or isinstance(step, str) or type(step).__name__ == "FrozenEstimator":
        return False
    return bool(get_tags(step).requires_fit)


def by_column(what: str, told: dict[str, Any], names: Any) -> list[Any]:
    """What is declared of every column of a frame, by its name."""
    if names is None:
        raise InvalidArgument(what, told, "a pair or a number for X without column names")
    missing = [name for name in names if name not in told]
    if missing:
        raise InvalidArgument(what, list(told), f"one for each column, also {missing[0]!r}")
    return [told[name] for name in names]


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
        """Looks at the number and the names of the columns only."""
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
