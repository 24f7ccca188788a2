"""What scikit-learn estimators of several methods share: settings, checks, the release they keep.

Settings are fields of a dataclass, so that each is named once and scikit-learn still finds every
one of them in the signature of `__init__`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from privet import premises
from privet.guarantee import Guarantee, Premise
from privet.ledger import Entry, Ledger
from privet.methods.base import Release, assuming
from privet.noise import Source

Array = NDArray[Any]


@dataclass(kw_only=True, eq=False, repr=False)
class PrivateEstimator(BaseEstimator):  # type: ignore[misc]
    """A budget, who pays, where noise comes from; after `fit` what is promised and claimed."""

    epsilon: float = 1.0
    delta: float = 1e-5
    n_public: int | None = None
    ledger: Ledger | None = None
    random_state: int | Source | None = None

    def _keep(self, release: Release[Any], *assumed: Premise) -> Self:
        """Keep the model, and its guarantee with what was read from the data and is assumed."""
        if self.n_public is None:
            assumed = (*assumed, premises.COUNTED_SIZE)
        self.guarantee_: Guarantee = assuming(release.guarantee, *assumed)
        self.claim_: Guarantee | None = release.claim
        self.ledger_entry_: Entry | None = release.entry
        self.model_: Any = release.model
        return self

    def _more(self, X: Array) -> Array:
        """New rows for a fitted estimator, as many columns as it was fitted with; NaN allowed."""
        check_is_fitted(self)
        return np.asarray(
            validate_data(
                self, X, reset=False, dtype="numeric", ensure_all_finite=False, allow_nd=True
            )
        )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True  # a bad row counts as zero: failing would tell about it
        tags.non_deterministic = False
        return tags


class PrivateClassifier(ClassifierMixin, PrivateEstimator):  # type: ignore[misc]
    """A classifier: thirty records under a small epsilon teach nothing, and checks know it."""

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.poor_score = True
        return tags


class LogitClassifier(PrivateClassifier, ABC):
    """A classifier whose `_logits(X)` has one column a class."""

    classes_: Array

    @abstractmethod
    def _logits(self, X: Array) -> Array:
        """One row a record, one column a class."""

    def decision_function(self, X: Array) -> Array:
        """Logits: one column a class, or one number (for the second class) when there are two."""
        z = self._logits(X)
        return np.asarray(z[:, 1] - z[:, 0]) if z.shape[1] == 2 else z

    def predict_proba(self, X: Array) -> Array:
        """Probabilities of the classes: softmax of the logits."""
        z = self._logits(X)
        p = np.exp(z - z.max(axis=1, keepdims=True))
        return np.asarray(p / p.sum(axis=1, keepdims=True))

    def predict(self, X: Array) -> Array:
        """The most probable class of each row."""
        best = self._logits(X).argmax(axis=1)
        return np.asarray(self.classes_[best])
