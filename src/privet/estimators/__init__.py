"""Private training with the habits of scikit-learn: one estimator for every method."""

from privet.estimators.autoencoder import PrivateAutoencoder, PrivateAutoencoderClassifier
from privet.estimators.declared_scaler import DeclaredScaler
from privet.estimators.method_estimators import (
    AdaptiveLaplaceClassifier,
    DPSGDClassifier,
    DPSGDRegressor,
    PATEClassifier,
    ResidualPerturbationClassifier,
)
from privet.estimators.pipeline_checks import FittedInFront
from privet.estimators.private_estimator import (
    PrivateClassifier,
    PrivateEstimator,
    PrivateRegressor,
    with_settings,
)
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
