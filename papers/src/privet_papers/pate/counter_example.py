"""Algorithm 2's claim tested: one teacher of a few says the opposite, and the likelihood ratio."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from privet.audit import Finding, NormalShiftAudit, gaussian_score
from privet.mechanisms import GaussianMechanism
from privet.methods.pate import Aggregator, Answers
from privet.noise import Source

CONTROL_NOISE = 1e-6
"""The noise of the control over what it should be: little enough for every release to show."""


def audit_aggregation(*, epsilon: float, delta: float, trials: int, rng: Source) -> Finding:
    """Test the claim by two answered queries of five teachers, one of whom says the opposite.

    **Guarantee** a true claim is called falsified with probability at most 5%.
    """
    k, queries, others = 5, 2, (0.5, -0.2, 0.9, 0.1)
    aggregator = Aggregator.published(teachers=k, queries=queries, epsilon=epsilon, delta=delta)
    middle = sum(others) / k

    def draw(sign: float, factor: float) -> Callable[[int, Source], NDArray[np.float64]]:
        scale = factor * aggregator.mechanism.scale
        noisy = replace(aggregator, mechanism=GaussianMechanism(scale=scale))

        def scores(n: int, rng: Source) -> NDArray[np.float64]:
            answers = [
                Answers.clip(np.full((queries * n, 1), v), radius=1.0, site=f"site {i}")
                for i, v in enumerate([*others, sign])
            ]
            means = np.concatenate(
                [part for _, part in noisy.blocks(noisy.check(answers), rng=rng)]
            )
            return gaussian_score(
                means.reshape(n, queries), present=middle + 1 / k, absent=middle - 1 / k,
                scale=aggregator.noise,
            )  # fmt: skip

        return scores

    return NormalShiftAudit(trials=trials, delta=delta).run(
        what="PATE: the aggregation, one teacher's shard replaced",
        with_record=draw(1.0, 1.0), without_record=draw(-1.0, 1.0),
        control=(draw(1.0, CONTROL_NOISE), draw(-1.0, CONTROL_NOISE)), claimed=epsilon,
        proved=aggregator.guarantee(queries, delta=delta).epsilon, rng=rng,
    )  # fmt: skip
