"""Residual perturbation as the paper has it: an ensemble with noise in its inputs and blocks."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from privet import premises
from privet.guarantee import Adjacency, Guarantee, Protects, Standing
from privet.ledger import Scope
from privet.methods.noisy_inputs import NoisyInputCost, PlainTraining
from privet.methods.noisy_inputs.public_slots import noisy_rows
from privet.networks.residual import (
    DenseResidual,
    Ensemble,
    Perturbation,
    PictureResNet,
    Strategy,
)
from privet.noise import Source
from privet_papers.argument_checks import check_counts, check_positive
from privet_papers.published_classifier import Array, PublishedClassifier, PublishedRelease
from privet_papers.residual.theorems import TheoremOne

REPLACE_ONE = Adjacency.REPLACE_ONE


@final
@dataclass(kw_only=True, eq=False)
class PublishedResidual(PublishedClassifier):
    """En_k of residual networks as published, with gamma and pi given and noise drawn all the time.

    Strategy I adds pi n to inputs, new at every epoch and in tests, and gamma n in blocks; inputs
    are clipped to `radius` (None: nothing is cut off). Strategy II multiplies by noise in blocks.

    - `input_noise`: pi; None is gamma / 2, the paper's.
    - `shape`: of pictures, (height, width) or with colours, for a ResNet of `depth`; None is a
      dense residual network on rows.
    - `noise_draws`: so many draws of noise are averaged in a prediction.

    **Guarantee** Strategy I: the exact cost of all noisy inputs, for features only (block noise
    proves nothing more, labels have none), so that a `ledger` must be one for features; `claim_` is
    Theorem 1. Strategy II: none, and no claim either: Theorem 2 asks for bounds that nothing here
    enforces.

    >>> X = np.random.default_rng(0).uniform(size=(60, 2)); y = X[:, 0] > X[:, 1]
    >>> made = PublishedResidual(gamma=0.5, epochs=1, random_state=0).fit(X, y)
    >>> f"{made.claim_.epsilon:.0f}", made.guarantee_.protects.value
    ('118', 'features only')

    residual-perturbation, section IV.
    """

    strategy: Strategy = Strategy.ADDITIVE
    gamma: float = 0.5
    input_noise: float | None = None
    delta: float = 1e-5
    members: int = 1
    radius: float | None = None
    shape: tuple[int, ...] | None = None
    depth: int = 8
    epochs: int = 20
    batch_size: int = 64
    learning_rate: float = 0.02
    noise_draws: int = 1

    @property
    def _noise(self) -> float:
        """pi; none in Strategy II."""
        if self.strategy is Strategy.MULTIPLICATIVE:
            return 0.0
        return self.gamma / 2.0 if self.input_noise is None else self.input_noise

    def budget(self, features: int) -> NoisyInputCost:
        """What the noisy inputs of Strategy I cost: one draw for each epoch and member."""
        check_positive(input_noise=self._noise)
        return NoisyInputCost(
            radius=math.sqrt(features) if self.radius is None else self.radius,
            input_noise=self._noise,
            draws=self.members * self.epochs,
            dimension=features,
        )

    def _release(
        self, rows: Array, labels: NDArray[np.int64], rng: Source
    ) -> PublishedRelease[Ensemble]:
        check_counts(members=self.members, epochs=self.epochs, noise_draws=self.noise_draws)
        features = rows.shape[1]
        centred = 2.0 * rows.astype(np.float64) - 1.0
        if self.strategy is Strategy.MULTIPLICATIVE:
            fixed = torch.from_numpy(centred.astype(np.float32))
            model = self._ensemble(features, lambda source, epoch: fixed, labels, rng)
            return PublishedRelease(model=model, claim=None, guarantee=_no_guarantee())
        budget = self.budget(features)
        loss = budget.loss(REPLACE_ONE)
        entry = None
        if self.ledger is not None:
            scope = Scope(protects=Protects.FEATURES, secret=rng.secret)
            what = "noisy inputs (residual perturbation)"
            entry = self.ledger.charge(loss, what=what, scope=scope)

        def inputs(source: Source, epoch: int) -> Tensor:
            own = source.child("epoch", epoch)
            return torch.from_numpy(noisy_rows(centred, budget, own, adjacency=REPLACE_ONE))

        mechanism = budget.mechanism
        theorem = f"{mechanism.theorem} on inputs; all that follows is post-processing"
        proved = replace(
            loss.guarantee(self.delta, theorem=theorem),
            protects=Protects.FEATURES,
            premises=(
                premises.bound(f"inputs are clipped to L2 norm {budget.radius:g}"),
                mechanism.law,
                premises.SECRET_KEY,
                premises.PUBLIC_LABELS,
            ),
        )
        paper = TheoremOne(
            radius=budget.radius,
            bound=budget.radius,
            gamma=self.gamma,
            input_noise=self._noise,
            epochs=self.epochs,
            clipped=True,
        )
        return PublishedRelease(
            model=self._ensemble(features, inputs, labels, rng),
            claim=paper.claim(self.delta),
            guarantee=proved,
            entry=entry,
        )

    def _ensemble(
        self, features: int, inputs: Any, labels: NDArray[np.int64], rng: Source
    ) -> Ensemble:
        """Members that differ in their first weights, their order of records and their noise."""
        law = Perturbation(strategy=self.strategy, gamma=self.gamma)
        targets, members = torch.from_numpy(labels), []
        for number in range(self.members):
            source = rng.child("member", number)
            start, order = (int(v) for v in source.child("seeds").integers(2**31, 2))
            training = PlainTraining(
                epochs=self.epochs,
                batch_size=self.batch_size,
                learning_rate=self.learning_rate,
                seed=order,
            )
            network = self._network(features, start, law)
            members.append(
                training.run(network, lambda epoch, own=source: inputs(own, epoch), targets)  # type: ignore[misc]
            )
        return Ensemble(members, input_noise=self._noise, noise_draws=self.noise_draws).eval()

    def _network(self, features: int, seed: int, law: Perturbation) -> nn.Module:
        classes = len(self.classes_)
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            if self.shape is None:
                return DenseResidual(features=features, classes=classes, perturbation=law)
            return PictureResNet(
                shape=self.shape, classes=classes, depth=self.depth, perturbation=law
            )

    @torch.no_grad()
    def _logits(self, rows: Array) -> NDArray[np.float64]:
        """With a `random_state` the same noise is drawn at every call."""
        inputs = torch.from_numpy(2.0 * rows - 1.0)
        with torch.random.fork_rng():
            torch.seed() if self.random_state is None else torch.manual_seed(0)
            parts = [self.model_(part).double() for part in inputs.split(500)]
        return np.asarray(torch.cat(parts).numpy())


def _no_guarantee() -> Guarantee:
    return Guarantee(
        epsilon=math.inf,
        delta=0.0,
        adjacency=REPLACE_ONE,
        standing=Standing.NONE,
        theorem="none: nothing bounds the residual mappings and the last layer of Strategy II",
    )
