"""Play a method's releases back on its worst neighbours, and price each at what it was told."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from privet import accounting as losses
from privet.guarantee import Adjacency
from privet.mechanisms import GaussianMechanism, RandomisedResponse
from privet.mechanisms.log_density_ratio import transcript_log_ratio
from privet.mechanisms.release_transcript import Transcript
from privet.methods.contract import Method, Plan
from privet.methods.neighbour_replay import Replay, charge_problems, replay


def price(transcript: Transcript, plan: Plan) -> losses.PrivacyLoss:
    """What the releases cost at the sensitivity that each was told."""
    each: list[losses.PrivacyLoss] = []
    for r in transcript.releases:
        if isinstance(r.mechanism, RandomisedResponse):
            nulls = plan.stated_adjacency is Adjacency.ZERO_OUT  # its place answers by lot then
            answer = r.mechanism.epsilon_of_null if nulls else r.mechanism.epsilon
            each.append(losses.Pure(epsilon_each=answer, adjacency=plan.adjacency))
        else:
            assert isinstance(r.mechanism, GaussianMechanism)
            mu = r.sensitivity / r.mechanism.scale
            each.append(losses.Gaussian(mu=mu, adjacency=plan.adjacency))
    return losses.compose(each)


def check(method: Method[Any], plan: Plan) -> Replay:
    """Releases within their sensitivity and paid for; all that follows is post-processing."""
    worst = method.neighbours(plan)
    found = replay(method, plan, worst)
    assert found.problems() == []
    assert charge_problems(method, plan, worst.present) == []
    assert found.present.releases
    # the noted sensitivity counts the rounding of all coordinates of a release, though a neighbour
    # moves those of one unit: at most sqrt(d) 2^-26 of the noise, below 1e-5 in these tests
    delta, charged = plan.facts.delta, losses.compose([e.loss for e in found.first.entries])
    assert price(found.present, plan).epsilon(delta) <= charged.epsilon(delta) * (1 + 1e-5)
    assert charged.epsilon(delta) <= plan.facts.epsilon
    assert math.isfinite(transcript_log_ratio(found.present, found.absent))
    return found


def moved(found: Replay, release: int) -> float:
    """How far a neighbour moved the exact value of a release, in L2."""
    first, second = found.present.releases[release], found.absent.releases[release]
    return float(np.linalg.norm(first.exact - second.exact))
