"""A method played back on neighbours: what its releases show, and whether anything else leaks.

A method is run on a data set, and again on a neighbour with the same outputs coming out of every
release. What distinguishes the releases is then known exactly, and everything else that the
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

from privet.accounting import PrivacyLoss, compose
from privet.audit.all_releases_audit import Run, audit_releases
from privet.audit.conformance import noise_of_every_release, streams_drawn_once
from privet.audit.finding import Finding
from privet.data.records import PublicFacts, Records
from privet.errors import BudgetExceeded
from privet.mechanisms import release_transcript
from privet.mechanisms.release_transcript import ReplayDiverged, Transcript
from privet.methods.contract import Method, Model, Plan, ReleaseContext
from privet.methods.neighbouring_pairs import NeighbouringPair
from privet.methods.train_method import TrainingResult, ledger_in_memory, train
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
    first: TrainingResult
    second: TrainingResult

    def problems(self) -> list[str]:
        """What a method does that its guarantee does not speak of; empty for a sound one."""
        found = []
        a, b = self.present.releases, self.absent.releases
        if len(a) != len(b):
            return [f"it makes {len(a)} releases, and {len(b)} on a neighbour"]
        for k, (one, other) in enumerate(zip(a, b, strict=True), 1):
            moved, most = distance(one.mechanism, one.exact, other.exact), one.sensitivity
            if not moved <= most * SLACK:
                found.append(
                    f"release {k}: one record moves it by {moved:.3g}, and a sensitivity of "
                    f"{most:.3g} is stated: clip what records add, or state all that they move"
                )
            if most != other.sensitivity:
                found.append(
                    f"release {k}: its stated sensitivity, and so its noise, depends on the "
                    f"records: {most:.3g}, and {other.sensitivity:.3g} on a neighbour"
                )
        if changed := changed_arrays(self.first.model, self.second.model):
            found.append(
                f"something exact reaches the model ({', '.join(changed)}) beside what is "
                "released: with the same releases a neighbour gives another one"
            )
        if self.first.guarantee != self.second.guarantee:
            found.append("the guarantee depends on the data")
        return found


def replay(method: Method[Any], plan: Plan, worst: NeighbouringPair, *, seed: int = 0) -> Replay:
    """The method on `worst.present`, then on `worst.absent` with the same outputs."""
    with release_transcript.record_releases() as present:
        first = train(method, worst.present, plan, rng=seeded(seed))
    with release_transcript.replay_releases(present) as absent:
        second = train(method, worst.absent, plan, rng=seeded(seed))
    return Replay(present=present, absent=absent, first=first, second=second)


def charge_problems(method: Method[Any], plan: Plan, records: Records) -> list[str]:
    """Whether exactly what is planned is charged, and nothing is released that was not paid."""
    found = []
    done = train(method, records, plan, rng=seeded(0))
    spent = compose([e.loss for e in done.entries], adjacency=plan.adjacency)
    for delta in (plan.facts.delta, 1e-3, 0.3):  # three points of the profile
        if delta > 0.0 and not math.isclose(spent.epsilon(delta), plan.loss.epsilon(delta)):
            found.append(
                f"epsilon {spent.epsilon(delta):.3g} is charged, and the plan costs "
                f"{plan.loss.epsilon(delta):.3g}"
            )
            break
    broke = ledger_in_memory(plan, cap_epsilon=0.5 * plan.loss.epsilon(plan.facts.delta))
    with release_transcript.record_releases() as made:
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
    method: Method[Any], plan: Plan, records: Records, *, runs: int = 200
) -> list[str]:
    """Whether every number of every release has noise of the stated law, run by run anew."""
    found = noise_of_every_release(
        lambda seed: train(method, records, plan, rng=seeded(seed + 1)), repetitions=runs
    )
    return [] if found is None else [found]


def stream_problems(method: Method[Any], plan: Plan, records: Records) -> list[str]:
    """Whether a run with a seeded source is handed a random word twice."""
    found = streams_drawn_once(lambda: train(method, records, plan, rng=seeded(3)))
    return [] if found is None else [found]


def audit_method(
    method: Method[Any],
    facts: PublicFacts,
    *,
    rng: Source,
    trials: int = TRIALS,
    without_noise: float = 1e3,
    neighbours: Callable[[Any], NeighbouringPair] | None = None,
) -> Finding:
    """All that a method releases, on its worst neighbours, end to end: `trials` runs a side.

    The control is the same method at an epsilon of `without_noise`: a release that is not
    distinguished even then cannot be audited so. `privet.audit.all_releases_audit` says how.
    Neighbours are of one size, a record and a place without one, unless `neighbours` makes others
    from the plan.
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


def _runs(
    method: Method[Any], plan: Plan, neighbours: Callable[[Any], NeighbouringPair] | None = None
) -> Run:
    """The method on one of its worst neighbours, by the code that trains."""
    worst = (neighbours or method.neighbours)(plan)

    def run(inside: bool, rng: Source) -> Model:
        free: Any = _UnmeteredLedger(plan)  # paid by nobody: what it costs is known by the plan
        context = ReleaseContext(ledger=free, rng=rng, plan=plan)
        return method.fit(worst.present if inside else worst.absent, plan, context)

    return run


@final
@dataclass(frozen=True)
class _UnmeteredEntry:
    """An entry of a ledger that keeps no account."""

    loss: PrivacyLoss
    sequence: int = 1
    token: str | None = None


@final
class _UnmeteredLedger:
    """A ledger for audits: takes every charge of the plan's terms, and computes nothing."""

    name, cap_epsilon = "an audit's", math.inf

    def __init__(self, plan: Plan) -> None:
        self.adjacency, self.unit, self.protects = plan.stated_adjacency, plan.unit, plan.protects
        self.cap_delta = plan.facts.delta

    def check_terms(self, *terms: Any) -> None:
        """Do nothing: the terms are the plan's."""

    def charge(self, loss: PrivacyLoss, **charge: Any) -> _UnmeteredEntry:
        """Accept any charge without keeping account."""
        return _UnmeteredEntry(loss)

    def entries(self) -> tuple[()]:
        """Return nothing: no account is kept."""
        return ()

    def affords(self, loss: PrivacyLoss) -> bool:
        """Return True: everything can be paid."""
        return True


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
    return not changed_arrays(first, second)


def changed_arrays(first: Model, second: Model) -> list[str]:
    """The arrays and settings in which two models differ, by name."""
    (a, settings), (b, other_settings) = first.state(), second.state()
    both = a.keys() & b.keys()
    return [
        *sorted(a.keys() ^ b.keys()),
        *sorted(k for k in both if not np.array_equal(a[k], b[k], equal_nan=True)),
        *sorted(
            k
            for k in settings.keys() | other_settings.keys()
            if settings.get(k) != other_settings.get(k)
        ),
    ]


def small_facts(method: Method[Any], *, epsilon: float = 1.0, delta: float = 1e-5) -> PublicFacts:
    """Public facts of a data set that is as small as a method can do with."""
    return PublicFacts(
        records=method.audit_records,
        features=math.prod(method.audit_shape),
        outputs=2,
        epsilon=epsilon,
        delta=delta,
        shape=method.audit_shape,
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
