"""dA: a deep auto-encoder with exact objectives and no privacy."""

from __future__ import annotations

import itertools
from functools import partial
from typing import Self, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from privet_papers.argument_checks import check_counts
from privet_papers.autoencoder.baselines.network_training import (
    generator_for,
    mean_influence,
    probabilities,
    tensor,
    train,
    weight_matrix,
    zeros,
)
from privet_papers.autoencoder.behaviour.examples import Examples
from privet_papers.autoencoder.behaviour.predictor import BehaviourModel

Array = NDArray[np.float64]


@final
class DeepAutoencoder(BehaviourModel):
    """dA: two tied auto-encoders trained one after the other, a logistic output, then fine-tuning.

    Cross-entropy everywhere, with biases, and nothing private. The input is the paper's {x_ut,
    lags, mean influence of friends} (and the calendar), brought to [0, 1]. TdA is not this with
    another loss: it is dPAH without noise (`PublishedDPAH`).

    Bengio, "Learning Deep Architectures for AI" (2009).
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
            check_counts(hidden=units)
        self.hidden = hidden
        self.pretraining_steps = pretraining_steps
        self.steps = steps
        self.learning_rate = learning_rate
        self.random_state = random_state
        self.guarantee_ = self.claim_ = None

    def fit(self, examples: Examples) -> Self:
        """Pre-train, then train everything."""
        generator = generator_for(self.random_state)
        x, y = self._inputs(examples), tensor(examples.status.astype(np.float64))
        learn = partial(train, rows=len(x), learning_rate=self.learning_rate, generator=generator)
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
                return _cross_entropy(h @ self._weights[n].T + back, inputs)

            learn([w, b, back], loss, steps=self.pretraining_steps)

        def error(batch: Tensor) -> Tensor:
            return _cross_entropy(self._logits(x[batch]), y[batch])

        everything = [*self._weights, *self._biases, self._output, self._intercept]
        learn(everything, error, steps=self.steps)
        return self

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


def _cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    return F.binary_cross_entropy_with_logits(logits, targets, reduction="none").mean()
