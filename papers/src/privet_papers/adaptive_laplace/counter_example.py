"""The claim tested: one released record under the published noise, and its likelihood ratio."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from privet.audit import Finding, OneShotAudit, laplace_score
from privet.noise import Source
from privet_papers.adaptive_laplace import noise as noise
from privet_papers.adaptive_laplace.authors_code import SENSITIVITY


def audit_record(
    *, epsilon: float, trials: int, rng: Source, confidence: float = 0.999, batch_size: int = 1800,
    features: int = 784, h0: int = 32,
) -> Finding:  # fmt: skip
    """The claim eps_2 against the likelihood ratio of one released record, black or white.

    **Guarantee** a true claim is called falsified with probability at most 1 - confidence.
    """
    sensitivity = noise.first_layer_sensitivity(h0, features)
    scales = noise.feature_scales(
        np.ones(features), epsilon=epsilon, sensitivity=sensitivity, batch_size=batch_size
    )

    def draw(pixel: float, factor: float) -> Callable[[int, Source], NDArray[np.float64]]:
        def scores(n: int, own: Source) -> NDArray[np.float64]:
            parts = []
            for start in range(0, n, 4096):
                record = np.full((min(4096, n - start), features), pixel)
                out = noise.perturb_records(record, factor * scales, own.child(start))
                parts.append(laplace_score(out, present=1.0, absent=0.0, scale=scales))
            return np.concatenate(parts)

        return scores

    return OneShotAudit(trials=trials, pilot=max(trials // 4, 100), confidence=confidence).run(
        what=f"one record under ILM, |L|={batch_size}, d={features}, |h0|={h0}",
        with_record=draw(1.0, 1.0),
        without_record=draw(0.0, 1.0),
        control=(draw(1.0, 1e-6), draw(0.0, 1e-6)),
        claimed=epsilon,
        proved=noise.local_feature_epsilon(epsilon=epsilon, batch_size=batch_size, neurons=h0),
        rng=rng,
    )


def audit_shared(
    *, epsilon: float, trials: int, rng: Source, confidence: float = 0.999, batch_size: int = 1800,
    features: int = 784,
) -> Finding:  # fmt: skip
    """The claim eps_2 of the released code against the difference of two records of a batch.

    Record 0 is white or black, record 1 black; the score is their largest difference.

    **Guarantee** as for `audit_record`.
    """
    scale = SENSITIVITY[1] / (batch_size * epsilon)

    def draw(pixel: float, factor: float) -> Callable[[int, Source], NDArray[np.float64]]:
        def scores(n: int, own: Source) -> NDArray[np.float64]:
            parts = []
            for start in range(0, n, 1000):  # so many batches side by side, each with its own noise
                wide = min(1000, n - start) * features
                batch = np.stack([np.full(wide, pixel), np.zeros(wide)])
                scales = np.full(wide, factor * scale)
                first, second = noise.share_one_draw(batch, scales, own.child(start))
                parts.append((first - second).reshape(-1, features).max(axis=1).round(3))
            return np.concatenate(parts).astype(np.float64)

        return scores

    return OneShotAudit(trials=trials, pilot=max(trials // 4, 100), confidence=confidence).run(
        what=f"two records of a batch of the released AdLM, |L|={batch_size}, d={features}",
        with_record=draw(1.0, 1.0), without_record=draw(0.0, 1.0),
        control=(draw(1.0, 1e-6), draw(0.0, 1e-6)), claimed=epsilon, proved=math.inf, rng=rng,
    )  # fmt: skip
