"""dA and TdA: the paper's stack without noise, with the exact and with the truncated objectives."""

from __future__ import annotations

import itertools
import math
from abc import abstractmethod
from collections.abc import Callable
from typing import Self, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from privet.methods.autoencoder.behaviour.examples import Examples
from privet.methods.autoencoder.behaviour.model import BehaviourModel
from privet.papers.autoencoder.compared.networks import (
    generator_for,
    mean_influence,
    probabilities,
    tensor,
    train,
    weight_matrix,
    zeros,
)
from privet.papers.checks import counts

Array = NDArray[np.float64]


class _StackedAutoencoder(BehaviourModel):
    """Two tied auto-encoders trained one after the other, a logistic output, then fine-tuning.

    The input is the paper's {x_ut, lags, mean influence of friends} (and the calendar), brought to
    [0, 1].
    """

    def __init__(
        self,
        *,
        hidden: tuple[int, ...] = (64, 64),
        pretraining_steps: int = 200,
        steps: int = 1000,
        learning_rate: float = 5e-3,
        random_state: int | None = None,
    ) -> None:
        for units in hidden:
            counts(hidden=units)
        self.hidden = hidden
        self.pretraining_steps = pretraining_steps
        self.steps = steps
        self.learning_rate = learning_rate
        self.random_state = random_state
        self.guarantee_ = self.claim_ = None

    @abstractmethod
    def _reconstruction(self, z: Tensor, x: Tensor) -> Tensor:
        """The error of reconstructing x by sigmoid(z), for each unit (eq. 7 or eq. 11)."""

    @abstractmethod
    def _prediction(self, z: Tensor, y: Tensor) -> Tensor:
        """The error of predicting y by sigmoid(z) (eq. 8 or eq. 14)."""

    def fit(self, examples: Examples) -> Self:
        """Pre-train, then train everything."""
        generator = generator_for(self.random_state)
        x, y = self._inputs(examples), tensor(examples.status.astype(np.float64))
        sizes = [x.shape[1], *self.hidden]
        self._weights = [weight_matrix(a, b, generator) for a, b in itertools.pairwise(sizes)]
        self._biases = [zeros(size) for size in self.hidden]
        self._output = weight_matrix(sizes[-1], 1, generator)
        self._intercept = zeros(1)
        for layer, (w, b) in enumerate(zip(self._weights, self._biases, strict=True)):
            back = zeros(w.shape[0])

            def loss(batch: Tensor, n: int = layer, back: Tensor = back) -> Tensor:
                with torch.no_grad():
                    inputs = self._codes(x[batch], n)
                h = torch.sigmoid(inputs @ self._weights[n] + self._biases[n])
                return self._reconstruction(h @ self._weights[n].T + back, inputs).mean()

            self._train([w, b, back], loss, len(x), self.pretraining_steps, generator)

        def error(batch: Tensor) -> Tensor:
            return self._prediction(self._logits(x[batch]), y[batch]).mean()

        everything = [*self._weights, *self._biases, self._output, self._intercept]
        self._train(everything, error, len(x), self.steps, generator)
        return self

    def _train(
        self,
        parameters: list[torch.nn.Parameter],
        loss: Callable[[Tensor], Tensor],
        rows: int,
        steps: int,
        generator: torch.Generator,
    ) -> None:
        train(
            parameters,
            loss,
            rows=rows,
            steps=steps,
            learning_rate=self.learning_rate,
            generator=generator,
        )

    def predict_proba(self, examples: Examples) -> Array:
        with torch.no_grad():
            return probabilities(self._logits(self._inputs(examples)))

    def _inputs(self, examples: Examples) -> Tensor:
        social = examples.social(mean_influence(examples))[:, None]
        return tensor((np.hstack([examples.own(), social]) + 1.0) / 2.0)

    def _codes(self, x: Tensor, layers: int) -> Tensor:
        for w, b in list(zip(self._weights, self._biases, strict=True))[:layers]:
            x = torch.sigmoid(x @ w + b)
        return x

    def _logits(self, x: Tensor) -> Tensor:
        out: Tensor = (self._codes(x, len(self._weights)) @ self._output)[:, 0] + self._intercept
        return out


@final
class DeepAutoencoder(_StackedAutoencoder):
    """dA: cross-entropy reconstruction and output, nothing private.

    Bengio, "Learning Deep Architectures for AI" (2009).
    """

    def _reconstruction(self, z: Tensor, x: Tensor) -> Tensor:
        return F.binary_cross_entropy_with_logits(z, x, reduction="none")

    def _prediction(self, z: Tensor, y: Tensor) -> Tensor:
        return F.binary_cross_entropy_with_logits(z, y, reduction="none")


@final
class TruncatedAutoencoder(_StackedAutoencoder):
    """TdA: the same with both losses cut off after order two of their Taylor series; no noise."""

    def _reconstruction(self, z: Tensor, x: Tensor) -> Tensor:
        return _order_two(z, x)

    def _prediction(self, z: Tensor, y: Tensor) -> Tensor:
        return _order_two(z, y)


def _order_two(z: Tensor, target: Tensor) -> Tensor:
    return math.log(2.0) + (0.5 - target) * z + z * z / 8.0
