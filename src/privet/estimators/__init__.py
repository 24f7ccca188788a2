"""Private training with the habits of scikit-learn: one estimator for every method."""

from privet.estimators.autoencoder import PrivateAutoencoder, PrivateAutoencoderClassifier
from privet.estimators.base import (
    PrivateClassifier,
    PrivateEstimator,
    PrivateRegressor,
    softmax,
    source_of,
    with_settings,
)
from privet.estimators.named import (
    AdaptiveLaplaceClassifier,
    DPSGDClassifier,
    DPSGDRegressor,
    PATEClassifier,
    ResidualPerturbationClassifier,
)

__all__ = [
    "AdaptiveLaplaceClassifier",
    "DPSGDClassifier",
    "DPSGDRegressor",
    "PATEClassifier",
    "PrivateAutoencoder",
    "PrivateAutoencoderClassifier",
    "PrivateClassifier",
    "PrivateEstimator",
    "PrivateRegressor",
    "ResidualPerturbationClassifier",
    "softmax",
    "source_of",
    "with_settings",
]
