"""privet: train deep models on private data, know what was spent, and attack the promise.

The estimators are imported on first use, so that accounting never waits for torch.

>>> import privet
>>> privet.loss.Gaussian(mu=0.5).epsilon(1e-5) < 2.0
True
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from privet import calibrate, data, dpsgd, ledger, loss, mechanisms, noise
    from privet.guarantee import Guarantee
    from privet.methods.adaptive_laplace import AdaptiveLaplaceClassifier
    from privet.methods.autoencoder import PrivateAutoencoder, PrivateAutoencoderClassifier
    from privet.methods.dpsgd.estimator import DPSGDClassifier, DPSGDRegressor
    from privet.methods.pate import PATE, PATEClassifier
    from privet.methods.residual import ResidualPerturbationClassifier

_WHERE = {
    "AdaptiveLaplaceClassifier": "privet.methods.adaptive_laplace",
    "DPSGDClassifier": "privet.methods.dpsgd.estimator",
    "DPSGDRegressor": "privet.methods.dpsgd.estimator",
    "Guarantee": "privet.guarantee",
    "PATE": "privet.methods.pate",
    "PATEClassifier": "privet.methods.pate",
    "PrivateAutoencoder": "privet.methods.autoencoder",
    "PrivateAutoencoderClassifier": "privet.methods.autoencoder",
    "ResidualPerturbationClassifier": "privet.methods.residual",
}
_PARTS = ("calibrate", "data", "dpsgd", "ledger", "loss", "mechanisms", "noise")

__all__ = [
    "PATE",
    "AdaptiveLaplaceClassifier",
    "DPSGDClassifier",
    "DPSGDRegressor",
    "Guarantee",
    "PATEClassifier",
    "PrivateAutoencoder",
    "PrivateAutoencoderClassifier",
    "ResidualPerturbationClassifier",
    "calibrate",
    "data",
    "dpsgd",
    "ledger",
    "loss",
    "mechanisms",
    "noise",
]


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        return getattr(import_module(_WHERE[name]), name)
    if name in _PARTS:
        return import_module(f"privet.{name}")
    raise AttributeError(f"module 'privet' has no attribute {name!r}")
