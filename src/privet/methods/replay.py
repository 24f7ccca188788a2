"""A method played back on neighbours: what its releases show, and whether anything else leaks.

A method is run on a data set, and again on a neighbour with the same outputs coming out of every
release. What the releases are told apart by is then known exactly, and everything else that the
two runs do not have in common is a leak.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from privet.audit.finding import Finding
from privet.audit.released import Run, audit_releases
from privet.data.records import PublicFacts, Records
from privet.errors import BudgetExceeded
from privet.ledger import Ledger
from privet.loss import PrivacyLoss, compose
from privet.mechanisms import transcript
from privet.mechanisms.transcript import ReplayDiverged, Transcript
from privet.methods.contract import Method, Model, Plan, Spending, Worst
from privet.methods.promise import Trained, train
from privet.noise import Source, seeded

TRIALS = 400
"""Runs a side of an audit; fewer where each run makes many releases."""
SLACK = 1.0 + 2.0**-20
"""For the arithmetic of the comparison itself, in float64."""


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Replay:
    """One run and its playback on the neighbour."""

    present: Transcript
    absent: Transcript
    first: Trained
    second: Trained

    def problems(self) -> list[str]:
        """What a method does that its guarantee does not speak of; empty for a sound one."""
        found = []
        a, b = self.present.releases, self.absent.releases
        if len(a) != len(b):
            return [f"{len(a)} releases, and {len(b)} on a neighbour"]
        for k, (one, other) in enumerate(zip(a, b, strict=True)):
            moved = distance(one.mechanism, one.exact, other.exact)
            if not moved <= one.sensitivity * SLACK:
                found.append(
                    f"release {k}: a neighbour moves it by {moved:g} > {one.sensitivity:g}"
                )
            if one.sensitivity != other.sensitivity:
                found.append(f"release {k}: its noise depends on the data")
        if not same_model(self.first.model, self.second.model):
            found.append("the same outputs give another model on a neighbour")
        if self.first.guarantee != self.second.guarantee:
            found.append("the guarantee depends on the data")
        return found


def replay(method: Method[Any], plan: Plan, worst: Worst, *, seed: int = 0) -> Replay:
    """The method on `worst.present`, then on `worst.absent` with the same outputs."""
    with transcript.recorded() as present:
        first = _trained(method, worst.present, plan, seeded(seed))
    with transcript.replayed(present) as absent:
        second = _trained(method, worst.absent, plan, seeded(seed))
    return Replay(present=present, absent=absent, first=first, second=second)


def charge_problems(method: Method[Any], plan: Plan, records: Records) -> list[str]:
    """Whether exactly what is planned is charged, and nothing is released that was not paid."""
    found = []
    done = _trained(method, records, plan, seeded(0))
    spent = compose([e.loss for e in done.entries], adjacency=plan.adjacency)
    for delta in (plan.facts.delta, 1e-3, 0.3):
        if delta > 0.0 and not math.isclose(spent.epsilon(delta), plan.loss.epsilon(delta)):
            found.append(
                f"charged epsilon {spent.epsilon(delta):g}, planned {plan.loss.epsilon(delta):g}"
            )
            break
    broke = Ledger.in_memory(
        cap_epsilon=0.5 * plan.loss.epsilon(plan.facts.delta),
        cap_delta=plan.facts.delta,
        adjacency=plan.relation,
        unit=plan.unit,
        protects=plan.protects,
    )
    with transcript.recorded() as made:
        try:
            train(method, records, plan, rng=seeded(0), ledger=broke)
        except BudgetExceeded:
            pass
        else:
            found.append("a ledger that cannot pay did not stop it")
    if made.releases:
        found.append(f"{len(made.releases)} releases that were not paid")
    return found


def noise_problems(
    method: Method[Any], plan: Plan, records: Records, *, runs: int = 200, alarm: float = 1e-6
) -> list[str]:
    """Whether every coordinate of every release has noise of one spread, run by run anew.

    Over `runs` seeds the spread of each coordinate about its exact value must be that of the
    others of its release: a coordinate without noise, or with less, stands out. The chance of a
    false alarm is at most `alarm` for normal noise: limits are chi-squared quantiles, shared out
    over all coordinates.
    """
    from scipy.stats import chi2

    noise: list[list[NDArray[Any]]] = []
    for seed in range(runs):
        with transcript.recorded() as made:
            _trained(method, records, plan, seeded(seed + 1))
        noise.append([r.noisy.astype(np.float64) - r.exact for r in made.releases])
    found = []
    for k in range(len(noise[0])):
        if np.issubdtype(made.releases[k].noisy.dtype, np.integer):
            continue  # answers by randomised response: their law is tested with the mechanism
        drawn = np.stack([one[k].ravel() for one in noise])
        spread = np.square(drawn).mean(axis=0)
        typical = float(np.median(spread))
        share = alarm / max(1, spread.size) / 2.0
        # a factor 2 for laws with longer tails than the normal one
        low = 0.5 * chi2.ppf(share, runs) / runs
        weak = int((spread < low * typical).sum())
        if weak or typical == 0.0:
            found.append(f"release {k}: {max(weak, 1)} coordinates with too little noise")
        if len({one.tobytes() for one in drawn}) < runs:
            found.append(f"release {k}: the same noise twice")
    return found


def stream_problems(method: Method[Any], plan: Plan, records: Records) -> list[str]:
    """Whether one run draws the same noise for two releases, or for two parts of one."""
    with transcript.recorded() as made:
        _trained(method, records, plan, seeded(3))
    found, seen = [], set()
    for k, release in enumerate(made.releases):
        noise = np.asarray(release.noisy, dtype=np.float64) - release.exact
        flat = noise.ravel()
        if flat.size < 4 or np.issubdtype(release.noisy.dtype, np.integer):
            continue
        key = (flat / np.abs(flat).max()).round(6)[:4].tobytes()
        if key in seen:
            found.append(f"release {k} has the noise of an earlier one")
        seen.add(key)
    return found


def audit_method(
    method: Method[Any],
    facts: PublicFacts,
    *,
    rng: Source,
    trials: int = TRIALS,
    without_noise: float = 1e3,
    neighbours: Callable[[Any], Worst] | None = None,
) -> Finding:
    """All that a method releases, on its worst neighbours, end to end: `trials` runs a side.

    The control is the same method at an epsilon of `without_noise`: a release that is not told
    apart even then cannot be audited so. `privet.audit.released` says how. Neighbours are of one
    size, a record and a place without one, unless `neighbours` makes others from the plan.
    """
    facts = dataclasses.replace(facts, declared=neighbours is not None)
    plan = method.plan(facts)
    quiet = method.plan(dataclasses.replace(facts, epsilon=without_noise))
    return audit_releases(
        _runs(method, plan, neighbours),
        without_noise=_runs(method, quiet, neighbours),
        what=f"{method.name}: all that it releases",
        claimed=None if plan.claim is None else plan.claim.epsilon,
        proved=plan.loss.epsilon(facts.delta),
        delta=facts.delta,
        adjacency=plan.adjacency,
        trials=trials,
        rng=rng,
    )


def _runs(method: Method[Any], plan: Plan, neighbours: Callable[[Any], Worst] | None = None) -> Run:
    """The method on one of its worst neighbours, by the code that trains."""
    worst = (neighbours or method.neighbours)(plan)
    return lambda inside, rng: _run(method, worst.present if inside else worst.absent, plan, rng)


def _run(method: Method[Any], records: Records, plan: Plan, rng: Source) -> None:
    """The method by the code that trains, paid by nobody: what it costs is known by the plan."""
    free: Any = _Free(plan)
    method.fit(records, plan, Spending(ledger=free, rng=rng, plan=plan))


@final
@dataclass(frozen=True)
class _Paid:
    """An entry of a ledger that keeps no account."""

    loss: PrivacyLoss
    sequence: int = 1
    token: str | None = None


@final
class _Free:
    """A ledger for audits: takes every charge of the plan's terms, and computes nothing."""

    name, cap_epsilon = "an audit's", math.inf

    def __init__(self, plan: Plan) -> None:
        self.adjacency, self.unit, self.protects = plan.relation, plan.unit, plan.protects
        self.cap_delta = plan.facts.delta

    def charge(self, loss: PrivacyLoss, **told: Any) -> _Paid:
        """Taken."""
        return _Paid(loss)

    def entries(self) -> tuple[()]:
        """None."""
        return ()

    def affords(self, loss: PrivacyLoss) -> bool:
        """Everything."""
        return True


def _trained(method: Method[Any], records: Records, plan: Plan, rng: Source) -> Trained:
    return train(method, records, plan, rng=rng)


def distance(mechanism: Any, first: NDArray[Any], second: NDArray[Any]) -> float:
    """How far two exact values are apart, in the norm of the mechanism."""
    if first.shape != second.shape:
        raise ReplayDiverged(f"a value of shape {first.shape}, on a neighbour {second.shape}")
    if np.issubdtype(first.dtype, np.integer):
        return float((first != second).sum())  # answers of single records
    apart = np.abs(first.astype(np.float64) - second).ravel()
    return float(apart.sum() if getattr(mechanism, "norm", "l2") == "l1" else np.linalg.norm(apart))


def same_model(first: Model, second: Model) -> bool:
    """Whether two models are the same to the last bit."""
    (a, told_a), (b, told_b) = first.state(), second.state()
    return (
        told_a == told_b
        and a.keys() == b.keys()
        and all(np.array_equal(a[k], b[k], equal_nan=True) for k in a)
    )


def small_facts(method: Method[Any], *, epsilon: float = 1.0, delta: float = 1e-5) -> PublicFacts:
    """Public facts of a data set that is as small as a method can do with."""
    return PublicFacts(
        records=method.smallest,
        features=math.prod(method.smallest_shape),
        outputs=2,
        epsilon=epsilon,
        delta=delta,
        shape=method.smallest_shape,
    )


__all__ = [
    "Replay",
    "audit_method",
    "charge_problems",
    "noise_problems",
    "replay",
    "small_facts",
    "stream_problems",
]
