"""dPAH as published: two private auto-encoders with dynamic biases, an output layer, fine-tuning.

    h_t = sigma(W_1^T x_ut + sum_k A_k^T x_u,t-k + (eta_u / |F_u|) sum_v psi_t(v, u))

is the first PA, over x_ut and N lags of it; psi is what friends do, by a model of propagation. Its
reconstruction loss, that of the second PA and the cross-entropy of the output layer are cut off
after order two, and Laplace noise is added to the coefficients by lemmas 2 and 3, each time for the
whole epsilon.

TdA, its truncated objectives without noise, is the same object with an infinite epsilon.

What the paper leaves open, and how it is read: eta_u is learned for each user; the reconstruction
is that of the whole input x = {x_ut, its lags, mean psi}, where psi is rebuilt by the mean eta of
all users (a coefficient belongs to an input, not to a user); psi_t(v, u) = P[u is active after v
was] if v is active at t, counted on the training days for each tie (as in the CPP model, and
without noise, as in the paper).
"""

from __future__ import annotations

from typing import Self, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from privet.guarantee import Guarantee
from privet.noise import Source
from privet.noise.source import source_of
from privet_papers.argument_checks import check_counts
from privet_papers.autoencoder.baselines.network_training import BATCH, generator_for
from privet_papers.autoencoder.behaviour.examples import Examples
from privet_papers.autoencoder.behaviour.predictor import BehaviourModel, sigmoid
from privet_papers.autoencoder.behaviour.social_influence import adjacency_matrix
from privet_papers.autoencoder.published import (
    CoefficientNoise,
    DataMinMax,
    PublishedStack,
    PublishedStackPlan,
    start_weights,
    unit_inputs,
)
from privet_papers.published_classifier import PublishedFacts

Array = NDArray[np.float64]

FAULTS = (
    "a user's day is in the inputs of all friends, and in N + 1 tuples of its own: one tuple is not"
    " one change",
    "psi is counted on the records and released with the model",
)
"""Beside those of the stack."""


@final
class PublishedDPAH(BehaviourModel):
    """dPAH with the paper's 200 units and learning rate; TdA with an infinite epsilon.

    Tuples whose status is -1 have no label: the auto-encoders learn from them, the output does not.

    **Guarantee** none (`FAULTS`, and those of `published.py`); `claim_` is the paper's epsilon,
    for a tuple.

    >>> from privet_papers.autoencoder.behaviour.health_network import health_network
    >>> panel = health_network(users=20, days=30, seed=0).panel
    >>> rows = Examples.of(panel, range(5, 30))
    >>> model = PublishedDPAH(epsilon=1.0, hidden=(4, 3), steps=2, random_state=0).fit(rows)
    >>> model.claim_.epsilon, model.guarantee_.epsilon, 0.0 < model.score(rows) < 1.0
    (1.0, inf, True)
    """

    guarantee_: Guarantee
    claim_: Guarantee

    def __init__(
        self,
        *,
        epsilon: float = 1.0,
        hidden: tuple[int, ...] = (200, 200),
        pretraining_steps: int = 250,
        steps: int = 1000,
        learning_rate: float = 1e-3,
        random_state: int | None = None,
    ) -> None:
        check_counts(0, steps=steps, pretraining_steps=pretraining_steps)
        self.epsilon, self.hidden = epsilon, hidden
        self.pretraining_steps, self.steps = pretraining_steps, steps
        self.learning_rate, self.random_state = learning_rate, random_state

    def fit(self, examples: Examples) -> Self:
        """One PA after the other, the output layer, then all of it."""
        rng, drawn = source_of(self.random_state), generator_for(self.random_state)
        self.chances_ = count_propagation(examples)
        rows, user = self.inputs(examples)
        status = torch.from_numpy(examples.status.astype(np.float64))[:, None]
        known = torch.from_numpy(np.flatnonzero(examples.status >= 0))
        plan = self.plan(len(examples), rows.shape[1])
        self.claim_, self.guarantee_ = plan.claim, plan.guarantee

        def batch(among: int) -> Tensor:
            return torch.randint(among, (min(BATCH, among),), generator=drawn)

        def noise_of(layer: int, own: Source) -> CoefficientNoise:
            return CoefficientNoise.draw(plan.coefficients(layer), plan.scale(layer), own)

        n, share = len(rows), len(rows) / min(BATCH, max(1, len(rows)))
        first, second = self._stack(self.pretraining_steps), self._stack(self.steps)
        noise = noise_of(0, rng.child("layer", 0))

        def reconstruction(w: list[Tensor]) -> Tensor:
            i = batch(n)
            h = first_units(rows[i], user[i], w[0], w[1])
            return noise.loss(h, rows[i], tied_weights(w[0], w[1]), weight=share)

        start = start_weights(rows.shape[1] - 1, self.hidden[0])
        eta = torch.zeros(examples.users, 1, dtype=torch.float64)
        encoders = first.descend([start, eta], reconstruction, n)
        units = first_units(rows, user, encoders[0], encoders[1])
        ranges = [DataMinMax.of(units)]
        code = ranges[0](units)
        for k in range(1, len(self.hidden)):
            own = noise_of(k, rng.child("layer", k))

            def deeper(w: list[Tensor], code: Tensor = code, own: CoefficientNoise = own) -> Tensor:
                part = code[batch(n)]
                return own.loss(torch.sigmoid(part @ w[0]), part, w[0], weight=share)

            start = start_weights(code.shape[1], self.hidden[k])
            encoders += first.descend([start], deeper, n)
            units = torch.sigmoid(code @ encoders[-1])
            ranges.append(DataMinMax.of(units))
            code = ranges[-1](units)
        last = noise_of(len(self.hidden), rng.child("output"))
        share = len(known) / min(BATCH, max(1, len(known)))

        def prediction(w: list[Tensor]) -> Tensor:
            i = known[batch(len(known))]
            h = encode_examples(rows[i], user[i], w[:-1], ranges)
            return last.loss(h, status[i], w[-1], weight=share)

        output = torch.zeros(1, code.shape[1], dtype=torch.float64)
        self.weights_ = second.descend([*encoders, output], prediction, len(known))
        self.ranges_ = ranges
        return self

    def predict_proba(self, examples: Examples) -> Array:
        h = encode_examples(*self.inputs(examples), self.weights_[:-1], self.ranges_)
        return sigmoid((h @ self.weights_[-1].T)[:, 0].numpy())

    def inputs(self, examples: Examples) -> tuple[Tensor, Tensor]:
        """x_ut, its lags and the mean psi of friends in a unit ball, and whose each row is."""
        own = np.hstack([examples.now, examples.past.reshape(len(examples), -1)])
        graph = adjacency_matrix(examples.edges, examples.users)
        chances = self.chances_
        if len(chances) != examples.users:  # another network: the mean over all ties
            chances = graph * (chances.sum() / max(1, np.count_nonzero(chances)))
        mean = chances / np.maximum(graph.sum(axis=0, keepdims=True), 1.0)
        active = (examples.activity > 0.0).astype(np.float64)
        social = (mean.T @ active)[examples.user, examples.day - 1]
        low = np.append(np.full(own.shape[1], -1.0), 0.0)  # psi is a probability
        rows = unit_inputs(np.column_stack([own, social]), low, np.ones(len(low)))
        return rows, torch.from_numpy(examples.user % len(self.chances_))

    def plan(self, records: int, features: int) -> PublishedStackPlan:
        """Sensitivities by lemmas 2 and 3, and the claim."""
        facts = PublishedFacts(records=records, features=features, outputs=1, epsilon=self.epsilon)
        return self._stack(self.steps).plan(facts)

    def _stack(self, steps: int) -> PublishedStack:
        return PublishedStack(
            layers=self.hidden, bounds=(np.zeros(1), np.ones(1)), epochs=steps,
            learning_rate=self.learning_rate,
        )  # fmt: skip


def first_units(rows: Tensor, user: Tensor, w: Tensor, eta: Tensor) -> Tensor:
    """h_t: lags and influence inside the layer; the last column is psi."""
    return torch.sigmoid(rows[:, :-1] @ w + eta[user] * rows[:, -1:])


def tied_weights(w: Tensor, eta: Tensor) -> Tensor:
    """The weights that rebuild every input: those of the encoder, and the mean eta for psi."""
    return torch.cat([w, eta.mean().expand(1, w.shape[1])])


def encode_examples(
    rows: Tensor, user: Tensor, weights: list[Tensor], ranges: list[DataMinMax]
) -> Tensor:
    """The code of the last min-max layer; `weights` are W_1 with A, eta, and the deeper ones."""
    code = ranges[0](first_units(rows, user, weights[0], weights[1]))
    for w, normalise in zip(weights[2:], ranges[1:], strict=True):
        code = normalise(torch.sigmoid(code @ w))
    return code


def count_propagation(examples: Examples) -> Array:
    """P[u is active the day after v was], for friends v and u: counted, not private."""
    active = (examples.activity > 0.0).astype(np.float64)
    after = active[:, :-1] @ active[:, 1:].T
    exposed = np.maximum(active[:, :-1].sum(axis=1, keepdims=True), 1.0)
    return np.asarray(adjacency_matrix(examples.edges, examples.users) * after / exposed)


def hub_coefficients(model: PublishedDPAH, friends: int, *, active: bool) -> Array:
    """The exact coefficients of the first PA where a hub was active on *one* day, or was not.

    The hub has so many friends, who have no other; all their tuples of the next day read it. That
    day is one tuple of the hub's. Weights are public here.
    """
    rows = torch.zeros(friends + 1, 2, dtype=torch.float64)
    rows[0, 0] = float(active)
    rows[1:, 1] = float(active)  # psi; the hub's own friends did nothing
    plan = model.plan(len(rows), 2)
    w = torch.full((1, model.hidden[0]), 0.1, dtype=torch.float64)
    eta = torch.ones(len(rows), 1, dtype=torch.float64)
    h = first_units(rows, torch.arange(len(rows)), w, eta)
    return np.asarray(plan.coefficients(0).sum(h.numpy(), rows.numpy()).value)
