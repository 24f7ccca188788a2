"""Private training with the habits of scikit-learn: one estimator for every method."""

from privet.estimators.base import (
    PrivateClassifier,
    PrivateEstimator,
    PrivateRegressor,
    softmax,
    source_of,
    with_settings,
)
from privet.estimators.named import DPSGDClassifier, DPSGDRegressor, PATEClassifier

__all__ = [
    "DPSGDClassifier",
    "DPSGDRegressor",
    "PATEClassifier",
    "PrivateClassifier",
    "PrivateEstimator",
    "PrivateRegressor",
    "softmax",
    "source_of",
    "with_settings",
]
