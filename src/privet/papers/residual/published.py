"""Strategy I as the paper has it: noise in inputs and blocks, new at every epoch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, final

from numpy.typing import NDArray

from privet import _check
from privet.ledger import Ledger
from privet.methods.base import Method, PublicFacts, Release
from privet.methods.residual.budgets import NoisyInputBudget
from privet.methods.residual.ensemble import Ensemble
from privet.methods.residual.noisy_inputs import Build, InputPlan, train_members
from privet.methods.residual.training import Training, Watcher
from privet.noise import Source
from privet.papers.residual.theorems import TheoremOne

Array = NDArray[Any]


@final
@dataclass(frozen=True, kw_only=True)
class PublishedInputs(Method[Ensemble, InputPlan]):
    """Strategy I as published: pi and gamma are given, noise is new at every epoch and in tests.

    `facts.epsilon` is not used: what Theorem 1 says of these settings is the claim, and the exact
    cost of the noisy inputs, for features only, is the guarantee. Inputs really are clipped to R.

    residual-perturbation, section IV.
    """

    radius: float
    build: Build
    gamma: float
    input_noise: float
    members: int = 1
    training: Training = field(default_factory=Training)
    noise_draws: int = 1
    watcher: Watcher | None = None

    def plan(self, facts: PublicFacts) -> InputPlan:
        """The cost of the given noise."""
        budget = NoisyInputBudget(
            radius=self.radius,
            input_noise=_check.positive("input_noise", self.input_noise),
            draws=self.members * self.training.epochs,
            dimension=facts.features,
        )
        return InputPlan(facts=facts, budget=budget, answers=None, redrawn=True)

    def fit(
        self, x: Array, y: Array, plan: InputPlan, *, ledger: Ledger | None, rng: Source
    ) -> Release[Ensemble]:
        """Train members, each on inputs with noise of its own."""
        theorem = TheoremOne(
            radius=self.radius,
            bound=self.radius,
            gamma=_check.positive("gamma", self.gamma),
            input_noise=self.input_noise,
            epochs=self.training.epochs,
            clipped=True,
        )
        claim = theorem.claim(plan.facts.delta)
        noise = self.input_noise
        return train_members(
            self, x, y, plan, test_noise=noise, claim=claim, ledger=ledger, rng=rng
        )
