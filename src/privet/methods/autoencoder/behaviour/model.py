"""What every behaviour model can do: learn from examples, and give probabilities of an increase."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Self

import numpy as np
from numpy.typing import NDArray

from privet.data.behaviour import Panel
from privet.errors import InvalidArgument
from privet.guarantee import Guarantee
from privet.methods.autoencoder.behaviour.examples import Examples

Array = NDArray[np.float64]


class BehaviourModel(ABC):
    """Predicts tomorrow's statuses; private or not, as `guarantee_` says after `fit`."""

    guarantee_: Guarantee | None
    """What is proved; None for a model without any privacy."""

    claim_: Guarantee | None
    """What the model's paper claims, where that differs from what is proved."""

    @abstractmethod
    def fit(self, examples: Examples) -> Self:
        """Learn from examples with statuses."""

    @abstractmethod
    def predict_proba(self, examples: Examples) -> Array:
        """The probability of an increase for each example."""

    def predict(self, examples: Examples) -> NDArray[np.int64]:
        """1 for an increase, 0 for a decrease."""
        return (self.predict_proba(examples) > 0.5).astype(np.int64)

    def score(self, examples: Examples) -> float:
        """The share of statuses that are predicted rightly."""
        if (examples.status < 0).any():
            raise InvalidArgument("examples", examples, "examples whose statuses are known")
        return float((self.predict(examples) == examples.status).mean())

    def predict_tomorrow(self, panel: Panel, *, lags: int = 3) -> Array:
        """Probabilities for all users of the panel, for the day after its last."""
        return self.predict_proba(Examples.tomorrow(panel, lags=lags))


def sigmoid(z: Array) -> Array:
    """1 / (1 + e^-z), without overflow."""
    return np.asarray(0.5 * (1.0 + np.tanh(np.asarray(z) / 2.0)))
