"""Baselines that the package has no estimator for, as estimators: nothing here is a method of ours.

Each takes rows as `Bench` shows them and class numbers 0 to K - 1.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Self, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from privet import premises
from privet.guarantee import Guarantee
from privet.ledger import Ledger
from privet.mechanisms import Laplace
from privet.methods.autoencoder.behaviour import BehaviourModel, Examples
from privet.methods.residual.training import Training, probabilities

Array = NDArray[Any]


class _Classifier(ABC):
    """The most probable class; what is proved and claimed of it, if anything."""

    guarantee_: Guarantee | None = None
    claim_: Guarantee | None = None

    @abstractmethod
    def predict_proba(self, x: Array) -> Array:
        """Probabilities of the classes, row by row."""

    def predict(self, x: Array) -> NDArray[np.int64]:
        """The most probable class of each row."""
        return np.asarray(self.predict_proba(x).argmax(axis=1))


@final
class Network(_Classifier):
    """A network trained as usual, with whatever noise it has in it; nothing is promised.

    Columns in [0, 1] are fed as [-1, 1].
    """

    def __init__(self, network: nn.Module, *, training: Training) -> None:
        self.network, self.training = network, training

    def fit(self, x: Array, y: NDArray[np.int64]) -> Self:
        """Train the network in place."""
        inputs = _fed(x)
        self.training.run(self.network, lambda _: inputs, torch.tensor(y))
        return self

    def predict_proba(self, x: Array) -> Array:
        """Of one draw of the noise, the same at every call."""
        return probabilities(self.network, _fed(x), seed=0)


def _fed(x: Array) -> torch.Tensor:
    return torch.from_numpy(2.0 * np.asarray(x, dtype=np.float32) - 1.0)


@final
class OneAgainstRest(_Classifier):
    """A private model of two statuses for each class, all of them within one budget.

    K models (one for two classes) with epsilon / K each; a class is as probable as its model says,
    in proportion. Rows are columns in [-1, 1], each the record of a user of its own.

    **Guarantee** `guarantee_`: the sum of all models' epsilons, pure, add-remove.
    """

    def __init__(
        self,
        make: Callable[..., BehaviourModel],
        *,
        records: int,
        classes: int,
        epsilon: float,
        ledger: Ledger | None,
        seed: int,
    ) -> None:
        self.make, self.records, self.classes, self.epsilon = make, records, classes, epsilon
        self.ledger, self.seed = ledger, seed

    def fit(self, x: Array, y: NDArray[np.int64]) -> Self:
        """Release one model after the other."""
        asked = range(self.classes) if self.classes > 2 else range(1, 2)
        self.models = [
            self.make(
                epsilon=self.epsilon / len(asked), unit="record", ledger=self.ledger,
                random_state=1000 * self.seed + k,
            ).fit(self._examples(x, (y == k).astype(np.int64)))
            for k in asked
        ]  # fmt: skip
        stated = self.models[0].guarantee_
        assert stated is not None
        total = sum(m.guarantee_.epsilon for m in self.models if m.guarantee_ is not None)
        self.guarantee_ = replace(
            stated,
            epsilon=total,
            theorem=f"{stated.theorem}; {len(asked)} of them, added up",
            premises=(
                premises.bound("columns are held in [-1, 1]"),
                Laplace(scale=1.0).law,
                premises.SECRET_KEY,
                premises.declared_size(len(x)),
            ),
        )
        claims = [m.claim_ for m in self.models if m.claim_ is not None]
        if claims:
            self.claim_ = replace(claims[0], epsilon=sum(c.epsilon for c in claims))
        return self

    def predict_proba(self, x: Array) -> Array:
        """Each model's answer over the sum of all."""
        examples = self._examples(x, np.zeros(len(x), dtype=np.int64))
        each = np.column_stack([m.predict_proba(examples) for m in self.models])
        if each.shape[1] == 1:
            return np.hstack([1.0 - each, each])
        return np.asarray(each / np.maximum(each.sum(axis=1, keepdims=True), 1e-12))

    def _examples(self, x: Array, status: NDArray[np.int64]) -> Examples:
        """Rows of a table as users on one day without friends or past; `records` is public."""
        n, d = x.shape
        return Examples(
            now=np.asarray(x, dtype=np.float64),
            past=np.zeros((n, 0, d)),
            calendar=np.zeros((n, 0)),
            status=status,
            user=np.arange(n),
            day=np.ones(n, dtype=np.int64),
            activity=np.zeros((self.records, 1)),
            edges=np.zeros((0, 2), dtype=np.int64),
            target=0,
            events=tuple(range(1, d)),
            span=1,
        )
