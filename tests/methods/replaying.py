"""Play a method's releases back on its worst neighbours: what must hold of every one of them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from privet import loss as losses
from privet.ledger import Ledger
from privet.mechanisms import Gaussian, RandomisedResponse
from privet.mechanisms.transcript import Transcript, log_ratio, recorded, replayed
from privet.methods.contract import Method, Model, Plan, Spending
from privet.noise import seeded


def spending(plan: Plan, seed: int = 0) -> Spending:
    """A budget without an end and repeatable noise."""
    ledger = Ledger.in_memory(
        cap_epsilon=math.inf, cap_delta=plan.facts.delta, adjacency=plan.relation, unit=plan.unit,
        protects=plan.protects,
    )  # fmt: skip
    return Spending(ledger=ledger, rng=seeded(seed), plan=plan)


@dataclass(frozen=True)
class Replayed:
    """Two transcripts with the same outputs, and the models that came out."""

    first: Transcript
    second: Transcript
    models: tuple[Model, Model]
    charged: losses.PrivacyLoss


def replay(method: Method[Any], plan: Plan, seed: int = 0) -> Replayed:
    worst = method.neighbours(plan)
    with recorded() as first:
        paid = spending(plan, seed)
        one = method.fit(worst.present, plan, paid)
    with replayed(first) as second:
        other = method.fit(worst.absent, plan, spending(plan, seed))
    return Replayed(first=first, second=second, models=(one, other), charged=paid.loss)


def distance(release: Any, other: Any) -> float:
    """How far apart two exact values are, as the mechanism measures it."""
    if isinstance(release.mechanism, RandomisedResponse):
        return float(np.count_nonzero(release.exact != other.exact))
    assert isinstance(release.mechanism, Gaussian)
    return float(np.linalg.norm(release.exact - other.exact))


def price(transcript: Transcript, plan: Plan) -> losses.PrivacyLoss:
    """What the releases cost at the sensitivity that each was told."""
    each: list[losses.PrivacyLoss] = []
    for r in transcript.releases:
        if isinstance(r.mechanism, RandomisedResponse):
            each.append(losses.Pure(epsilon_each=r.mechanism.epsilon, adjacency=plan.adjacency))
        else:
            mu = r.sensitivity / r.mechanism.scale
            each.append(losses.Gaussian(mu=mu, adjacency=plan.adjacency))
    return losses.compose(each)


def check(found: Replayed, plan: Plan) -> None:
    """Releases within their sensitivity, paid for, and all that follows post-processing."""
    assert len(found.first.releases) == len(found.second.releases) > 0
    for a, b in zip(found.first.releases, found.second.releases, strict=True):
        assert distance(a, b) <= a.sensitivity
    delta = plan.facts.delta
    assert price(found.first, plan).epsilon(delta) <= found.charged.epsilon(delta) * (1 + 1e-9)
    assert found.charged.epsilon(delta) <= plan.facts.epsilon
    assert math.isfinite(log_ratio(found.first, found.second))
    (one, settings), (other, same) = (model.state() for model in found.models)
    assert settings == same and one.keys() == other.keys()
    for name in one:
        assert np.array_equal(one[name], other[name]), name
