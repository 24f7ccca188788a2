"""The counter-example of each published algorithm by the name of its method, at any budget."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import final

from privet.audit import Finding
from privet.errors import InvalidArgument
from privet.noise import Source, seeded
from privet_papers.adaptive_laplace.counter_example import audit_record
from privet_papers.autoencoder.counter_example import audit_hub, audit_output_layer
from privet_papers.pate.counter_example import audit_aggregation
from privet_papers.residual.counter_example import audit_noisy_copies
from privet_papers.tight_privacy_cost.counter_example import audit_closed_form

TRIALS = 20_000
"""Draws a side: more find larger lower bounds and take longer."""


@final
@dataclass(frozen=True, kw_only=True)
class AuditBudget:
    """The claim that is tested, how often is drawn, and from what."""

    epsilon: float
    delta: float
    trials: int
    rng: Source


AUDITS: dict[str, Callable[[AuditBudget], Finding]] = {
    "dpsgd": lambda b: audit_closed_form(delta=b.delta, rng=b.rng),
    "adaptive-laplace": lambda b: audit_record(
        epsilon=b.epsilon, trials=min(b.trials, TRIALS), rng=b.rng
    ),
    "pate": lambda b: audit_aggregation(
        epsilon=b.epsilon, delta=b.delta, trials=b.trials, rng=b.rng
    ),
    "residual": lambda b: audit_noisy_copies(
        delta=b.delta, trials=min(b.trials, TRIALS), rng=b.rng
    ),
    "autoencoder": lambda b: audit_output_layer(epsilon=b.epsilon, trials=b.trials, rng=b.rng),
    "behaviour": lambda b: audit_hub(epsilon=b.epsilon, trials=b.trials, rng=b.rng),
}
"""What tests each claim; the closed form and residual perturbation fix their own epsilon."""


def audit_published(
    paper: str, *, epsilon: float, delta: float, trials: int | None = None, seed: int = 0
) -> Finding:
    """Attack the published algorithm of one of the five papers where its proof breaks."""
    if paper not in AUDITS:
        raise InvalidArgument("target", paper, f"one of {', '.join(AUDITS)}, as published")
    budget = AuditBudget(epsilon=epsilon, delta=delta, trials=trials or TRIALS, rng=seeded(seed))
    return AUDITS[paper](budget)
