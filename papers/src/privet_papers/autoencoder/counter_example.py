"""The auto-encoder's claim tested: its min-max layer, its noise, and one record that moves all."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray

from privet.audit import Finding, OneShotAudit, laplace_score
from privet.noise import Source
from privet_papers.autoencoder.published import DataMinMax, PublishedStack, unit_inputs
from privet_papers.autoencoder.published_behaviour import PublishedDPAH, hub_coefficients
from privet_papers.published_classifier import PublishedFacts

Floats = NDArray[np.float64]


def neighbours(n: int = 1000) -> tuple[Floats, Floats, NDArray[np.int64]]:
    """Hidden units in a narrow range; the same with one record moved far out; their labels."""
    labels = np.arange(n) % 2
    labels[[0, 2, 4, -1]] = [1, 1, 1, 0]
    rows = np.full((n, 1), 0.3) + 0.0005 * labels[:, None]
    outlier = rows.copy()
    outlier[-1] = 1.0
    return rows, outlier, labels


def audit_output_layer(*, epsilon: float, trials: int, rng: Source) -> Finding:
    """The claim against the likelihood ratio of the output layer's perturbed coefficients.

    The encoder is fixed and public here, so what is found is the min-max layer's fault alone.

    **Guarantee** a true claim is called falsified with probability at most 5%.
    """
    rows, outlier, y = neighbours()
    stack = PublishedStack(layers=(1,), bounds=(np.zeros(1), np.ones(1)))
    facts = PublishedFacts(records=len(y), features=1, outputs=2, epsilon=epsilon)
    plan = stack.plan(facts)

    def coefficients(x: Floats) -> Floats:
        hidden = torch.sigmoid(unit_inputs(x, np.zeros(1), np.ones(1)))
        codes = DataMinMax.of(hidden)(hidden).numpy()
        return np.asarray(plan.coefficients(1).sum(codes, np.eye(2)[y]).value)

    return _audit(
        "deep private auto-encoder as published, output layer", coefficients(outlier),
        coefficients(rows), plan.scale(1), epsilon=epsilon, trials=trials, rng=rng,
    )  # fmt: skip


def audit_hub(*, epsilon: float, trials: int, rng: Source, friends: int = 300) -> Finding:
    """dPAH's claim for a tuple against the first PA's perturbed coefficients: one day of a hub.

    Weights are fixed and public here, so what is found is the influence inside the layer alone.

    **Guarantee** a true claim is called falsified with probability at most 5%.
    """
    model = PublishedDPAH(epsilon=epsilon, hidden=(1, 1))
    present, absent = (hub_coefficients(model, friends, active=a) for a in (True, False))
    return _audit(
        "dPAH as published, its first layer: one day of somebody with many friends", present,
        absent, model.plan(friends + 1, 1).scale(0), epsilon=epsilon, trials=trials, rng=rng,
    )  # fmt: skip


def _audit(
    what: str, present: Floats, absent: Floats, scale: float, *, epsilon: float, trials: int,
    rng: Source,
) -> Finding:  # fmt: skip
    """The likelihood ratio of coefficients with Laplace noise, and without for control."""

    def draws(value: Floats, noise: float) -> Callable[[int, Source], Floats]:
        def scores(n: int, own: Source) -> Floats:
            released = value + noise * own.laplace((n, len(value)), scale)
            return laplace_score(released, present=present, absent=absent, scale=scale)

        return scores

    return OneShotAudit(trials=trials, pilot=max(trials // 10, 100)).run(
        what=what,
        with_record=draws(present, 1.0),
        without_record=draws(absent, 1.0),
        control=(draws(present, 0.0), draws(absent, 0.0)),
        claimed=epsilon,
        proved=math.inf,
        rng=rng,
    )
