"""privet: train deep models on private data, know what was spent, and attack the promise.

What needs torch or scikit-learn is imported on first use, so that accounting never waits for them.

>>> import privet
>>> privet.accounting.Gaussian(mu=0.5).epsilon(1e-5) < 2.0
True
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from privet import errors, guarantee, premises
from privet.guarantee import Guarantee

if TYPE_CHECKING:
    from privet import (
        accounting,
        audit,
        data,
        dpsgd,
        features,
        gradients,
        ledger,
        mechanisms,
        methods,
        networks,
        noise,
        runs,
        sensitivity,
    )
    from privet.estimators import (
        AdaptiveLaplaceClassifier,
        DeclaredScaler,
        DPSGDClassifier,
        DPSGDRegressor,
        PATEClassifier,
        PrivateAutoencoder,
        PrivateAutoencoderClassifier,
        PrivateClassifier,
        PrivateRegressor,
        ResidualPerturbationClassifier,
    )
    from privet.ledger import Ledger
    from privet.methods.pate import PATE
    from privet.runs import Run, load

    __version__: str

_WHERE = {
    "AdaptiveLaplaceClassifier": "privet.estimators",
    "DPSGDClassifier": "privet.estimators",
    "DPSGDRegressor": "privet.estimators",
    "DeclaredScaler": "privet.estimators",
    "Ledger": "privet.ledger",
    "PATE": "privet.methods.pate",
    "PATEClassifier": "privet.estimators",
    "PrivateAutoencoder": "privet.estimators",
    "PrivateAutoencoderClassifier": "privet.estimators",
    "PrivateClassifier": "privet.estimators",
    "PrivateRegressor": "privet.estimators",
    "ResidualPerturbationClassifier": "privet.estimators",
    "Run": "privet.runs",
    "load": "privet.runs",
}
_ROOMS = (
    "accounting", "audit", "data", "dpsgd", "features", "gradients", "ledger", "mechanisms",
    "methods", "networks", "noise", "runs", "sensitivity",
)  # fmt: skip

__all__ = [
    "PATE",
    "AdaptiveLaplaceClassifier",
    "DPSGDClassifier",
    "DPSGDRegressor",
    "DeclaredScaler",
    "Guarantee",
    "Ledger",
    "PATEClassifier",
    "PrivateAutoencoder",
    "PrivateAutoencoderClassifier",
    "PrivateClassifier",
    "PrivateRegressor",
    "ResidualPerturbationClassifier",
    "Run",
    "__version__",
    "accounting",
    "audit",
    "data",
    "dpsgd",
    "errors",
    "features",
    "gradients",
    "guarantee",
    "ledger",
    "load",
    "mechanisms",
    "methods",
    "networks",
    "noise",
    "premises",
    "runs",
    "sensitivity",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("privet")
    if name in _WHERE:
        return getattr(import_module(_WHERE[name]), name)
    if name in _ROOMS:
        return import_module(f"privet.{name}")
    raise AttributeError(f"module 'privet' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
