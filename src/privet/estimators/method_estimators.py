"""The methods by their names, with the habits of scikit-learn: a budget, and nothing to tune."""

from __future__ import annotations

import dataclasses
from typing import Any

from torch import nn

from privet.estimators.private_estimator import PrivateClassifier, PrivateRegressor, with_settings
from privet.methods.contract import Method
from privet.methods.dpsgd.linear_dpsgd import LinearDPSGD
from privet.methods.dpsgd.network_dpsgd import NetworkDPSGD
from privet.methods.moments.one_shot_moments import OneShotMoments
from privet.methods.noisy_inputs.noisy_inputs import NoisyInputs
from privet.methods.pate.classification_pate import MeanPATE


def _dpsgd_method(estimator: Any) -> Method[Any]:
    """A linear head on rows, or the module that was given."""
    settings = {f.name: getattr(estimator, f.name) for f in dataclasses.fields(LinearDPSGD)}
    if estimator.module is None:
        return LinearDPSGD(**settings)
    del settings["centre"]
    return NetworkDPSGD(network=estimator.module, **settings)


@with_settings(LinearDPSGD)
class DPSGDClassifier(PrivateClassifier):
    """A classifier trained by DP-SGD: a linear softmax after a private mean, or your own `module`.

    See `PrivateClassifier` and `privet.dpsgd.LinearDPSGD` for the settings, and one more:

    - `module`: any torch module with one logit a class, trained by `privet.dpsgd.NetworkDPSGD`.

    **Guarantee**: `guarantee_`. What the paper's closed form states is in `claim_`.
    """

    module: nn.Module | None = None
    _method = _dpsgd_method


@with_settings(LinearDPSGD)
class DPSGDRegressor(PrivateRegressor):
    """A regressor trained by DP-SGD, for numbers in declared `target_bounds`."""

    module: nn.Module | None = None
    _method = _dpsgd_method


@with_settings(MeanPATE)
class PATEClassifier(PrivateClassifier):
    """A student taught by noisy means of the class probabilities of many teachers.

    See `PrivateClassifier` and `privet.methods.pate.MeanPATE` for the settings; `public_inputs` are
    records like X, without labels. `fit(X, y, groups)` deals all records of a group (a hospital, a
    user) to one teacher. PATE by votes is `PrivateClassifier(privet.methods.pate.VotingPATE(...))`.

    **Guarantee**: `guarantee_`, replace-one, per teacher shard.
    """


@with_settings(OneShotMoments)
class AdaptiveLaplaceClassifier(PrivateClassifier):
    """A linear classifier on public features from noise that is added once, shaped by relevance.

    See `PrivateClassifier` and `privet.methods.moments.OneShotMoments` for the settings;
    delta = 0 gives pure epsilon, and `groups` in `fit` a guarantee for users. A deep network and
    local noise are `RelevanceShapedTraining` and `LocalRecords` in a `PrivateClassifier`.

    **Guarantee**: `guarantee_`. No claim is made beside it.
    """


@with_settings(NoisyInputs)
class ResidualPerturbationClassifier(PrivateClassifier):
    """Residual networks trained on noisy inputs, drawn once; labels answer by randomised response.

    See `PrivateClassifier` and `privet.methods.noisy_inputs.NoisyInputs` for the settings.
    Pictures, X of shape (n, height, width) or with colours, go through a convolutional ResNet.

    **Guarantee**: `guarantee_`. This is local noise: on pictures at small epsilon nothing is
    learned. What the paper does is `privet_papers.residual.PublishedResidual`.
    """
