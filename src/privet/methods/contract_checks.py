"""What every method must keep to, whatever the records are; `replay` plays neighbours.

All that leaves a training is a function of its releases and of public facts. So played back with
the same outputs on the records of *strangers*, which share nothing but their public facts, it must
leave the same: the same model, the same answers of it, the same messages, releases of the same kind
in the same order. What is promised must be what was planned and paid, before anything was released.

Each function names the problems that it finds; a sound method has none.
"""

from __future__ import annotations

import io
import math
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field, replace
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from privet import _check
from privet import accounting as losses
from privet.data.domain import RowKind, Rows
from privet.data.records import PublicFacts, Records
from privet.errors import PrivetError
from privet.guarantee import Adjacency, Protects, Unit
from privet.mechanisms import (
    DiscreteGaussianMechanism,
    GaussianMechanism,
    RandomisedResponse,
    release_transcript,
)
from privet.mechanisms.release_transcript import ReleaseRecord
from privet.methods.contract import Method, Model, Plan
from privet.methods.neighbour_replay import replay, same_model, stream_problems
from privet.methods.neighbouring_pairs import NeighbouringPair, lone_record_pair
from privet.methods.train_method import TrainingResult, ledger_in_memory, train
from privet.noise import secure, seeded

ROUNDING = 1.0 + 1e-5
"""A noted sensitivity counts the rounding of all coordinates, of which a unit moves some."""
FLOAT32 = 1e-4
"""Answers of a network to a row alone and among others differ by rounding, far less than this."""


@final
@dataclass(kw_only=True)
class Messages:
    """What a run says to whoever watches it: progress, warnings and prints."""

    progress: list[tuple[str, int, int]] = field(default_factory=list)
    warned: list[str] = field(default_factory=list)
    printed: str = ""

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Collect warnings and prints; diagnostics marked as unprotected are for owners."""
        out = io.StringIO()
        with (
            warnings.catch_warnings(record=True) as seen,
            redirect_stdout(out),
            redirect_stderr(out),
        ):
            warnings.simplefilter("always")
            yield
        marked = "UnprotectedDiagnostic"
        self.warned = [str(w.message) for w in seen if w.category.__name__ != marked]
        self.printed = out.getvalue()


def strangers(plan: Plan, *, seed: int = 0) -> list[Records]:
    """Records that share public facts and nothing else: none, a crowd, one class, two far apart."""
    rng, facts = np.random.default_rng(_check.count("seed", seed, minimum=0)), plan.facts
    n, d = facts.records, facts.features
    crowd = 0.4 + 0.05 * rng.normal(size=(n, d))  # close together, so that one far away shows
    two = np.where(np.arange(n) % 2 == 0, 1.0, -1.0)[:, None] * np.eye(1, d)
    classes = max(facts.outputs, 1)
    made = [
        (np.zeros((n, d)), np.zeros(n, dtype=np.int64), np.ones(n, dtype=bool)),
        (crowd, rng.integers(classes, size=n), rng.random(n) < 0.3),  # some places without one
        (np.tile(-np.eye(1, d), (n, 1)), np.zeros(n, dtype=np.int64), np.zeros(n, dtype=bool)),
        (two, np.arange(n) % 2 % classes, np.zeros(n, dtype=bool)),
    ]
    found = [_records(facts, *one) for one in made]
    if plan.stated_adjacency is Adjacency.ADD_REMOVE:  # their true number is a secret
        (rows, targets, null), short = made[1], n - n // 3
        found.append(_records(facts, rows[:short], targets[:short], null[:short]))
    return found


def _records(
    facts: PublicFacts,
    rows: NDArray[Any],
    targets: NDArray[Any],
    null: NDArray[np.bool_],
) -> Records:
    # float32 stays in the ball
    length = np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1.0) * (1.0 + 1e-6)
    values = np.where(null[:, None], 0.0, rows / length).astype(np.float32)
    nothing, numbers = (0, 2.0 * targets - 1.0) if facts.outputs == 1 else (-1, targets)
    values = values.reshape(len(rows), *(facts.shape or (facts.features,)))
    return replace(
        lone_record_pair(facts).present,
        rows=Rows(values=values, kind=RowKind.BALL, null=null),
        targets=np.where(null, nothing, numbers),
        groups=None if facts.unit is Unit.RECORD else np.arange(len(rows)) // 2,
    )


def stranger_problems(
    method: Method[Any], plan: Plan, data: Sequence[Records] | None = None
) -> list[str]:
    """Train on the first of `data`, and play the outputs back on all others."""
    data = strangers(plan) if data is None else data
    messages = Messages()
    with release_transcript.record_releases() as first, messages.listening():
        model = _trained(method, data[-1], plan, messages)
    if isinstance(model, str):
        return [model]
    found = []
    for k, records in enumerate(data[:-1]):
        heard = Messages()
        with release_transcript.replay_releases(first) as second, heard.listening():
            other = _trained(method, records, plan, heard)
        if isinstance(other, str):
            found.append(f"stranger {k}: {other}")
            continue
        kinds = [
            [(r.noisy.shape, r.sensitivity, r.rate) for r in t.releases] for t in (first, second)
        ]
        if kinds[0] != kinds[1]:
            found.append(f"stranger {k}: releases of another kind or number")
        if not same_model(model.model, other.model):
            found.append(f"stranger {k}: the same outputs give another model")
        elif not all(
            np.array_equal(model.model.outputs(asked.rows), other.model.outputs(asked.rows))
            for asked in (data[-1], records)
        ):
            found.append(f"stranger {k}: the same model gives other answers")
        if (model.guarantee, model.steps) != (other.guarantee, other.steps):
            found.append(f"stranger {k}: another promise or number of steps")
        found += [
            f"stranger {k}: {name} tells about records"
            for name in ("progress", "warned", "printed")
            if getattr(messages, name) != getattr(heard, name)
        ]
    return found


def _trained(
    method: Method[Any], records: Records, plan: Plan, messages: Messages
) -> TrainingResult | str:
    def progress(*words: Any) -> None:
        messages.progress.append(words)

    try:
        return train(method, records, plan, rng=seeded(0), progress=progress)
    except PrivetError as error:
        return f"an error stops it: {type(error).__name__}"


def crowd_pair(plan: Plan) -> NeighbouringPair:
    """The crowd, of which one unit is null, or replaced by its opposite of another class.

    A unit is a record, or a user with all their records: half a user is no neighbour.
    """
    facts, there = plan.facts, strangers(plan)[1]
    far = -np.eye(1, facts.features)
    one = np.arange(len(there)) == 0 if there.groups is None else there.groups == 0
    null = there.null & ~one

    def records(row: NDArray[Any], target: int, null: NDArray[np.bool_]) -> Records:
        values = np.where(one[:, None], row, there.rows.flat)
        return _records(facts, values, np.where(one, target, np.abs(there.targets)), null)

    if plan.stated_adjacency is Adjacency.REPLACE_ONE:
        other = records(-far, min(1, facts.outputs - 1), null)
    else:
        other = records(far, 0, null | one)
    return NeighbouringPair(present=records(far, 0, null), absent=other)


def neighbour_problems(method: Method[Any], plan: Plan) -> list[str]:
    """What `replay` finds on the worst neighbours, and where one record of a crowd is missing."""
    # six times as many: audits run on a handful, among which there is no crowd
    crowded = method.plan(replace(plan.facts, records=6 * plan.facts.records))
    try:
        return [
            problem
            for of, worst in ((plan, method.neighbours(plan)), (crowded, crowd_pair(crowded)))
            for problem in replay(method, of, worst).problems()
        ]
    except PrivetError as error:
        return [f"an error stops the playback: {type(error).__name__}"]


def promise_problems(method: Method[Any], plan: Plan, records: Records) -> list[str]:
    """Whether the promise is that of the plan, and the charges speak of the same thing."""
    found = []
    for rng in (seeded(0), secure()):
        done = train(method, records, plan, rng=rng)
        stated = done.guarantee
        for what, promise, planned in (
            ("unit", stated.unit, plan.unit),
            ("protection", stated.protects, plan.protects),
            ("adjacency", stated.adjacency, plan.stated_adjacency),
            ("delta", stated.delta, plan.facts.delta if stated.delta else 0.0),
        ):
            if promise != planned:
                found.append(f"another {what} is promised than planned")
        if stated.adjacency is Adjacency.ADD_REMOVE and not plan.facts.declared:
            found.append("the number of records was counted, and add-remove is promised")
        if not math.isclose(stated.epsilon, plan.loss.epsilon(stated.delta), rel_tol=1e-9):
            found.append("another epsilon is promised than planned")
        if not stated.epsilon <= plan.facts.epsilon:
            found.append("more epsilon is spent than was given")
        about = [p.about for p in stated.premises]
        if len(set(about)) != len(about):
            found.append("two premises about one thing")
        missing = {"settings", "preparation", *(p.about for p in plan.facts.premises)} - set(about)
        found += [f"no premise about {word}" for word in sorted(missing)]
        if rng.premise not in stated.premises:
            found.append("no true premise about the key of the noise")
        for entry in done.entries:
            scope = entry.scope
            if scope is None or (scope.unit, scope.protects) != (plan.unit, plan.protects):
                found.append("the ledger records another unit")
            elif scope.secret is not rng.secret:
                found.append("the ledger says another thing about the key")
            elif (scope.adjacency or entry.loss.adjacency) is not plan.stated_adjacency:
                found.append("the ledger records other neighbours")
    return list(dict.fromkeys(found))


def payment_problems(method: Method[Any], plan: Plan, records: Records) -> list[str]:
    """Whether all that is released was paid for before, and by a ledger for the same thing."""
    found, paid = [], list[int]()
    ledger = ledger_in_memory(plan)
    with release_transcript.record_releases(watch=lambda: paid.append(len(ledger))) as made:
        train(method, records, plan, rng=seeded(0), ledger=ledger)
    entries = [e.loss for e in ledger.entries()]
    for count in sorted(set(paid)):
        so_far = [r for r, k in zip(made.releases, paid, strict=True) if k <= count]
        cost = price(so_far, plan).epsilon(plan.facts.delta)
        have = losses.compose(entries[:count], adjacency=plan.adjacency)
        if not cost <= have.epsilon(plan.facts.delta) * ROUNDING:
            found.append(f"{len(so_far)} releases that cost {cost:g} were not paid when made")
    for other in (
        {"unit": Unit.QUERY},
        {"protects": Protects.LABELS},
        {"adjacency": _not_covered(plan.stated_adjacency)},
    ):
        with release_transcript.record_releases() as made:
            try:
                train(method, records, plan, rng=seeded(0), ledger=ledger_in_memory(plan, **other))
            except PrivetError:
                pass
            else:
                found.append(f"a ledger for another {next(iter(other))} was charged")
        if made.releases:
            found.append(f"released with a ledger for another {next(iter(other))}")
    return found


def _not_covered(adjacency: Adjacency) -> Adjacency:
    return next(a for a in reversed(Adjacency) if not adjacency.covers(a))


def price(releases: Sequence[ReleaseRecord], plan: Plan) -> losses.PrivacyLoss:
    """What releases cost at the sensitivity and the noise that each was noted with."""
    each: list[losses.PrivacyLoss] = []
    adjacency, nulls = plan.adjacency, plan.stated_adjacency is Adjacency.ZERO_OUT
    for r in releases:
        if isinstance(r.mechanism, RandomisedResponse):
            answer = r.mechanism.epsilon_of_null if nulls else r.mechanism.epsilon
            each.append(losses.Pure(epsilon_each=answer, adjacency=adjacency))
            continue
        moved = np.zeros(r.exact.shape)
        moved.flat[0] = r.sensitivity
        ratio = r.log_ratio(moved, moved, np.zeros(r.exact.shape))
        if isinstance(r.mechanism, DiscreteGaussianMechanism):
            each.append(losses.ZCDP(rho=ratio, adjacency=adjacency))
            continue
        if not isinstance(r.mechanism, str | GaussianMechanism):
            each.append(losses.Pure(epsilon_each=ratio, adjacency=adjacency))
            continue
        mu = math.sqrt(2.0 * ratio)  # log p / p' at its centre is mu^2 / 2
        each.append(
            losses.Gaussian(mu=mu, adjacency=adjacency)
            if r.rate == 1.0
            else losses.SampledGaussian(
                sample_rate=r.rate, noise_multiplier=1.0 / mu, adjacency=adjacency
            )
        )
    return losses.compose(each, adjacency=adjacency)


def answer_problems(model: Model, rows: Rows) -> list[str]:
    """Whether the answer for a row is the same when it is asked alone, and after a round trip."""
    whole = model.outputs(rows)
    alone = np.concatenate([model.outputs(rows.part(slice(k, k + 1))) for k in range(len(rows))])
    found = []
    if not np.allclose(whole, alone, rtol=FLOAT32, atol=FLOAT32):
        found.append("an answer depends on the rows that are asked beside it")
    arrays, settings = model.state()
    if not np.allclose(type(model).from_state(arrays, settings).outputs(rows), whole, rtol=1e-9):
        found.append("answers depend on more than the state")
    return found


def problems(method: Method[Any], facts: PublicFacts) -> list[str]:
    """All problems that these checks find with records of these facts."""
    plan = method.plan(facts)
    data = strangers(plan)
    crowd = data[1]
    loud = method.plan(replace(facts, epsilon=100.0 * facts.epsilon))  # where training succeeds
    found = [*stranger_problems(method, plan, data), *stranger_problems(method, loud, data)]
    if found:
        return list(dict.fromkeys(found))
    found += [
        *neighbour_problems(method, plan),
        *promise_problems(method, plan, crowd),
        *payment_problems(method, plan, crowd),
        *stream_problems(method, plan, crowd),
    ]
    model = train(method, crowd, plan, rng=seeded(0)).model
    return list(dict.fromkeys([*found, *answer_problems(model, crowd.rows)]))


__all__ = [
    "answer_problems",
    "crowd_pair",
    "neighbour_problems",
    "payment_problems",
    "price",
    "problems",
    "promise_problems",
    "stranger_problems",
    "strangers",
]
