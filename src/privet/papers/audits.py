"""The published algorithms at a chosen budget, attacked where they break."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import final

import numpy as np
from numpy.typing import NDArray

from privet.audit import Finding, NormalShiftAudit, gaussian_score
from privet.audit.drawn import Draw
from privet.errors import InvalidArgument
from privet.mechanisms import Gaussian
from privet.methods.pate import Aggregator, Answers
from privet.noise import Source, seeded
from privet.papers.adaptive_laplace.audit import audit_record
from privet.papers.autoencoder.audit import audit_hub, audit_output_layer
from privet.papers.residual.audit import audit_published as audit_noisy_copies
from privet.papers.tight_privacy_cost import audit_published as audit_closed_form

TRIALS = 20_000
"""Draws a side."""
QUIET = 1e-6
"""The scale of the noise in controls, over what it should be."""


@final
@dataclass(frozen=True, kw_only=True)
class Budget:
    """What an audit is asked for."""

    epsilon: float
    delta: float
    trials: int
    rng: Source


def _dpsgd(b: Budget) -> Finding:
    return audit_closed_form(delta=b.delta, rng=b.rng)


def _adaptive_laplace(b: Budget) -> Finding:
    return audit_record(epsilon=b.epsilon, trials=min(b.trials, TRIALS), rng=b.rng)


def _autoencoder(b: Budget) -> Finding:
    return audit_output_layer(epsilon=b.epsilon, trials=b.trials, rng=b.rng)


def _behaviour(b: Budget) -> Finding:
    return audit_hub(epsilon=b.epsilon, trials=b.trials, rng=b.rng)


def _residual(b: Budget) -> Finding:
    return audit_noisy_copies(delta=b.delta, trials=min(b.trials, TRIALS), rng=b.rng)


def _pate(b: Budget) -> Finding:
    """One teacher of five says the opposite; each release answers two queries."""
    k, queries, others = 5, 2, (0.5, -0.2, 0.9, 0.1)
    a = Aggregator.published(teachers=k, queries=queries, epsilon=b.epsilon, delta=b.delta)
    middle = sum(others) / k

    def draw(sign: float, factor: float) -> Draw:
        used = replace(a, mechanism=Gaussian(scale=factor * a.mechanism.scale))

        def scores(n: int, rng: Source) -> NDArray[np.float64]:
            chosen = [
                Answers.clipped(np.full((queries * n, 1), v), radius=1.0, site=f"site {i}")
                for i, v in enumerate([*others, sign])
            ]
            seen = np.concatenate([part for _, part in used.blocks(chosen, rng=rng)])
            return gaussian_score(
                seen.reshape(n, queries), present=middle + 1 / k, absent=middle - 1 / k,
                scale=a.noise,
            )  # fmt: skip

        return scores

    return NormalShiftAudit(trials=b.trials, delta=b.delta).run(
        what="PATE: the aggregation, one teacher's shard replaced",
        with_record=draw(1.0, 1.0), without_record=draw(-1.0, 1.0),
        control=(draw(1.0, QUIET), draw(-1.0, QUIET)), claimed=b.epsilon,
        proved=a.guarantee(queries, delta=b.delta).epsilon, rng=b.rng,
    )  # fmt: skip


AUDITS: dict[str, Callable[[Budget], Finding]] = {
    "dpsgd": _dpsgd,
    "adaptive-laplace": _adaptive_laplace,
    "pate": _pate,
    "residual": _residual,
    "autoencoder": _autoencoder,
    "behaviour": _behaviour,
}


def audit_published(
    paper: str, *, epsilon: float, delta: float, trials: int | None = None, seed: int = 0
) -> Finding:
    """The published algorithm of one of the five papers, attacked."""
    if paper not in AUDITS:
        raise InvalidArgument("target", paper, f"one of {', '.join(AUDITS)}, as published")
    budget = Budget(epsilon=epsilon, delta=delta, trials=trials or TRIALS, rng=seeded(seed))
    return AUDITS[paper](budget)
