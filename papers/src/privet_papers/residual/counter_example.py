"""Strategy I's claim tested: all noisy copies of one record, and their likelihood ratio."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from privet.audit import Finding, OneShotAudit, gaussian_score
from privet.guarantee import Adjacency
from privet.methods.noisy_inputs import NoisyInputCost
from privet.methods.noisy_inputs.public_slots import noisy_rows
from privet.noise import Source
from privet_papers.residual.theorems import TheoremOne

Floats = NDArray[np.float64]
CONTROL_NOISE = 1e-6
"""Noise of the control, over what it should be."""


def audit_noisy_copies(
    *, delta: float, trials: int, rng: Source, gamma: float = 0.5, input_noise: float = 0.25,
    epochs: int = 20,
) -> Finding:  # fmt: skip
    """Theorem 1 at R = 1 against an attacker who sees every noisy copy of a record or its opposite.

    The settings are the paper's for IDC; the claim and what is proved follow from them.

    **Guarantee** a true claim is called falsified with probability at most 5%.
    """
    budget = NoisyInputCost(radius=1.0, input_noise=input_noise, draws=epochs, dimension=2)
    theorem = TheoremOne(
        radius=1.0, bound=1.0, gamma=gamma, input_noise=input_noise, epochs=epochs, clipped=True
    )
    record = np.array([1.0, 0.0])

    def draw(sign: float, factor: float) -> Callable[[int, Source], Floats]:
        used = replace(budget, input_noise=factor * input_noise)

        def scores(n: int, own: Source) -> Floats:
            rows = np.tile(sign * record, (n * epochs, 1))
            seen = noisy_rows(rows, used, own, adjacency=Adjacency.REPLACE_ONE).astype(np.float64)
            each = gaussian_score(
                seen, present=record, absent=-record, scale=budget.mechanism.scale
            )
            return np.asarray(each.reshape(n, epochs).sum(axis=1))

        return scores

    return OneShotAudit(trials=trials, pilot=max(100, trials // 5), delta=delta).run(
        what="residual perturbation as published: all noisy copies of a record",
        with_record=draw(1.0, 1.0),
        without_record=draw(-1.0, 1.0),
        control=(draw(1.0, CONTROL_NOISE), draw(-1.0, CONTROL_NOISE)),
        claimed=theorem.epsilon(delta),
        proved=budget.loss(Adjacency.REPLACE_ONE).epsilon(delta),
        rng=rng,
    )
