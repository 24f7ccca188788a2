"""CRBM and SctRBM: conditional restricted Boltzmann machines, not private."""

from __future__ import annotations

from abc import abstractmethod
from typing import Self, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from privet_papers.argument_checks import check_counts
from privet_papers.autoencoder.baselines.network_training import (
    BATCH,
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


class _ConditionalBoltzmann(BehaviourModel):
    """Real visible units x_t, binary hidden units, both with biases that depend on a condition.

    Energy E(x, h | u) = |x - a - A u|^2 / 2 - (b + B u) . h - x^T W h, u the condition; trained by
    contrastive divergence with one step, then fine-tuned with a logistic output layer on P[h = 1].
    """

    def __init__(
        self,
        *,
        hidden: int = 64,
        pretraining_steps: int = 400,
        steps: int = 1000,
        learning_rate: float = 1e-3,
        random_state: int | None = None,
    ) -> None:
        check_counts(hidden=hidden)
        check_counts(0, pretraining_steps=pretraining_steps)
        self.hidden, self.pretraining_steps = hidden, pretraining_steps
        self.steps = steps
        self.learning_rate = learning_rate
        self.random_state = random_state
        self.guarantee_ = self.claim_ = None

    @abstractmethod
    def _condition(self, examples: Examples) -> Array:
        """What the biases depend on."""

    def fit(self, examples: Examples) -> Self:
        """Contrastive divergence, then the output layer and all that leads to it."""
        generator = generator_for(self.random_state)
        x, u = tensor(2.0 * examples.now), tensor(self._condition(examples))
        self._w = weight_matrix(x.shape[1], self.hidden, generator)
        self._past_visible = weight_matrix(u.shape[1], x.shape[1], generator)
        self._past_hidden = weight_matrix(u.shape[1], self.hidden, generator)
        self._visible, self._bias = zeros(x.shape[1]), zeros(self.hidden)
        for _ in range(self.pretraining_steps):
            batch = torch.randint(len(x), (min(BATCH, len(x)),), generator=generator)
            self._contrast(x[batch], u[batch], generator)
        y = tensor(examples.status.astype(np.float64))
        self._output, self._intercept = weight_matrix(self.hidden, 1, generator), zeros(1)

        def loss(batch: Tensor) -> Tensor:
            return F.binary_cross_entropy_with_logits(self._logits(x[batch], u[batch]), y[batch])

        train(
            [self._output, self._intercept, self._w, self._past_hidden, self._bias],
            loss,
            rows=len(x),
            steps=self.steps,
            learning_rate=self.learning_rate,
            generator=generator,
        )
        return self

    @torch.no_grad()
    def _contrast(self, x: Tensor, u: Tensor, generator: torch.Generator) -> None:
        """One step of contrastive divergence on a batch."""
        a, b = self._visible + u @ self._past_visible, self._bias + u @ self._past_hidden
        h = torch.sigmoid(x @ self._w + b)
        drawn = (torch.rand(h.shape, generator=generator) < h).float()
        x2 = a + drawn @ self._w.T + torch.randn(x.shape, generator=generator)
        h2 = torch.sigmoid(x2 @ self._w + b)
        rate = self.learning_rate / len(x)
        self._w.add_(rate * (x.T @ h - x2.T @ h2))
        self._past_visible.add_(rate * (u.T @ (x - x2)))
        self._past_hidden.add_(rate * (u.T @ (h - h2)))
        self._visible.add_(rate * (x - x2).sum(dim=0))
        self._bias.add_(rate * (h - h2).sum(dim=0))

    def _logits(self, x: Tensor, u: Tensor) -> Tensor:
        h = torch.sigmoid(x @ self._w + u @ self._past_hidden + self._bias)
        out: Tensor = (h @ self._output)[:, 0] + self._intercept
        return out

    def predict_proba(self, examples: Examples) -> Array:
        with torch.no_grad():
            x, u = tensor(2.0 * examples.now), tensor(self._condition(examples))
            return probabilities(self._logits(x, u))


@final
class ConditionalRBM(_ConditionalBoltzmann):
    """CRBM: conditioned on the user's own N previous days.

    Taylor, Hinton and Roweis, "Modeling Human Motion Using Binary Latent Variables" (2006).
    """

    def _condition(self, examples: Examples) -> Array:
        return examples.past.reshape(len(examples), -1)


@final
class SocialRBM(_ConditionalBoltzmann):
    """SctRBM: conditioned also on friends' influence and the calendar.

    Li, Du, Li, Li, Gao and Zhang, "A Deep Learning Approach to Link Prediction in Dynamic Networks"
    (2014); Phan, Dou, Piniewski and Kil, "Social Restricted Boltzmann Machine: Human Behavior
    Prediction in Health Social Networks" (2015).
    """

    def _condition(self, examples: Examples) -> Array:
        social = examples.social(mean_influence(examples))[:, None]
        own = examples.past.reshape(len(examples), -1)
        return np.hstack([own, examples.calendar, social])
