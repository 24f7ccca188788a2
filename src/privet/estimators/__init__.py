"""Private training with the habits of scikit-learn: one estimator for every method."""

from privet.estimators.autoencoder import PrivateAutoencoder, PrivateAutoencoderClassifier
from privet.estimators.base import (
    PrivateClassifier,
    PrivateEstimator,
    PrivateRegressor,
    with_settings,
)
from privet.estimators.named import (
    AdaptiveLaplaceClassifier,
    DPSGDClassifier,
    DPSGDRegressor,
    PATEClassifier,
    ResidualPerturbationClassifier,
)
from privet.estimators.pipeline import DeclaredScaler, FittedInFront
from privet.noise.source import source_of

__all__ = [
    "AdaptiveLaplaceClassifier",
    "DPSGDClassifier",
    "DPSGDRegressor",
    "DeclaredScaler",
    "FittedInFront",
    "PATEClassifier",
    "PrivateAutoencoder",
    "PrivateAutoencoderClassifier",
    "PrivateClassifier",
    "PrivateEstimator",
    "PrivateRegressor",
    "ResidualPerturbationClassifier",
    "source_of",
    "with_settings",
]
