"""What every method must keep to, whatever the records are: `check_method` says whether one does.

All that leaves a training is a function of its releases and of public facts. So played back with
the same outputs on the records of *strangers*, which share nothing but their public facts, it must
leave the same: the same model, the same answers of it, the same messages, releases of the same kind
in the same order. What is promised must be what was planned and paid, before anything was released.

Each function names the problems that it finds; a sound method has none.
"""

from __future__ import annotations

import io
import json
import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field, replace
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from privet import _check
from privet import accounting as losses
from privet.audit.conformance import report
from privet.audit.finding import Verdict
from privet.data.domain import RowKind, Rows
from privet.data.records import PublicFacts, Records
from privet.errors import PrivetError
from privet.guarantee import Adjacency, Protects, Unit
from privet.mechanisms import (
    DiscreteGaussianMechanism,
    GaussianMechanism,
    LaplaceMechanism,
    RandomisedResponse,
    release_transcript,
)
from privet.mechanisms.release_transcript import ReleaseRecord
from privet.methods.contract import Method, Model, Plan
from privet.methods.neighbour_replay import (
    Replay,
    audit_method,
    changed_arrays,
    charge_problems,
    distance,
    noise_problems,
    replay,
    same_model,
    small_facts,
    stream_problems,
)
from privet.methods.neighbouring_pairs import NeighbouringPair, lone_record_pair
from privet.methods.train_method import TrainingResult, ledger_in_memory, train
from privet.noise import Source, secure, seeded

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


STRANGERS = (
    "no record at all",
    "a crowd",
    "records of one class",
    "records far apart",
    "fewer records than declared",
)
"""What `strangers` are, in their order; the last only where their number is a secret."""


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
    kind: RowKind = RowKind.BALL,
) -> Records:
    if kind is RowKind.BALL:
        # float32 stays in the ball
        length = np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1.0) * (1.0 + 1e-6)
        rows = rows / length
    values = np.where(null[:, None], 0.0, rows).astype(np.float32)
    nothing, numbers = (0, 2.0 * targets - 1.0) if facts.outputs == 1 else (-1, targets)
    values = values.reshape(len(rows), *(facts.shape or (facts.features,)))
    return replace(
        lone_record_pair(facts).present,
        rows=Rows(values=values, kind=kind, null=null),
        targets=np.where(null, nothing, numbers),
        groups=None if facts.unit is Unit.RECORD else np.arange(len(rows)) // 2,
    )


def stranger_problems(
    method: Method[Any], plan: Plan, data: Sequence[Records] | None = None
) -> list[str]:
    """Train on the last of `data`, and play the outputs back on all others."""
    data = strangers(plan) if data is None else data
    messages = Messages()
    with release_transcript.record_releases() as first, messages.listening():
        model = _trained(method, data[-1], plan, messages)
    if isinstance(model, str):
        return [model]
    found, touched = dict[str, list[str]](), set[str]()
    for who, records in zip(STRANGERS, data[:-1], strict=False):
        heard = Messages()
        with release_transcript.replay_releases(first) as second, heard.listening():
            other = _trained(method, records, plan, heard)
        if isinstance(other, str):
            found.setdefault(f"{other} on some records only", []).append(who)
            continue
        kinds = [
            [(r.noisy.shape, r.sensitivity, r.rate) for r in t.releases] for t in (first, second)
        ]
        differ = changed_arrays(model.model, other.model)
        touched.update(differ)
        same_answers = all(
            np.array_equal(model.model.outputs(asked.rows), other.model.outputs(asked.rows))
            for asked in (data[-1], records)
        )
        for what, holds in (
            ("the kind or the number of its releases depends on the records", kinds[0] == kinds[1]),
            ("the model answers otherwise though its state is the same: it keeps something that is "
             "not in state()", bool(differ) or same_answers),
            ("its promise or its number of steps depends on the records",
             (model.guarantee, model.steps) == (other.guarantee, other.steps)),
            ("its progress depends on the records", messages.progress == heard.progress),
            ("its warnings depend on the records", messages.warned == heard.warned),
            ("what it prints depends on the records", messages.printed == heard.printed),
        ):  # fmt: skip
            if not holds:
                found.setdefault(what, []).append(who)
    told = [f"{what} (seen on {', '.join(on)})" for what, on in found.items()]
    if touched:
        told.append(
            f"something exact reaches the model ({', '.join(sorted(touched))}) beside what is "
            f"released: with the same releases it is another one where "
            f"{_what_reaches_it(method, plan)}"
        )
    return told


def _what_reaches_it(method: Method[Any], plan: Plan) -> str:
    """What of the records, changed by itself, changes the model while its releases stay."""
    facts, crowd = plan.facts, strangers(plan)[1]
    number = facts.outputs == 1
    targets = np.where(crowd.null, 1 if number else 0, crowd.targets)
    null = np.zeros(len(crowd), dtype=bool)
    there = replace(crowd, rows=replace(crowd.rows, null=null), targets=targets)
    few = np.arange(len(there)) < max(1, len(there) // 3)
    changed = {
        "only what the rows hold differs": replace(
            there, rows=replace(there.rows, values=-0.5 * there.rows.values)
        ),
        "only the labels differ": replace(
            there, targets=-targets if number else (targets + 1) % max(facts.outputs, 1)
        ),
        "only how many records count differs": replace(
            there, rows=there.rows.without(few), targets=np.where(few, 0 if number else -1, targets)
        ),
    }
    if plan.stated_adjacency is Adjacency.ADD_REMOVE:
        changed["only the number of records differs (take plan.facts.records)"] = replace(
            there,
            rows=there.rows.part(~few),
            targets=targets[~few],
            groups=None if there.groups is None else there.groups[~few],
        )
    with release_transcript.record_releases() as first, Messages().listening():
        model = _trained(method, there, plan, Messages())
    alone = []
    for what, records in changed.items():
        with release_transcript.replay_releases(first), Messages().listening():
            other = _trained(method, records, plan, Messages())
        if isinstance(model, str) or isinstance(other, str):
            continue
        if changed_arrays(model.model, other.model):
            alone.append(what)
    return ", or ".join(alone) or "the records are others"


def _trained(
    method: Method[Any], records: Records, plan: Plan, messages: Messages
) -> TrainingResult | str:
    def progress(*words: Any) -> None:
        messages.progress.append(words)

    try:
        return train(method, records, plan, rng=seeded(0), progress=progress)
    except Exception as error:  # of the method's own code too
        return f"it stops ({type(error).__name__}: {error})"


def crowd_pair(
    plan: Plan, *, kind: RowKind = RowKind.BALL, last: bool = False, split: bool = False
) -> NeighbouringPair:
    """The crowd, of which one unit is null, or replaced by its opposite of another class.

    A unit is a record, or a user with all their records: half a user is no neighbour. It is as far
    out as a row can be: of length 1 in a ball, a corner of a box; in the first place and of class
    0, or in the `last` place and alone in the last class. `split`: instead of a crowd half of the
    records are like it and half are zero, so that it alone decides what is in the middle.
    """
    facts, there = plan.facts, strangers(plan)[1]
    places = np.arange(len(there)) if there.groups is None else there.groups
    one = places == (places[-1] if last else 0)
    null = there.null & ~one & (not split)
    far, opposite, crowd = -np.eye(1, facts.features), np.eye(1, facts.features), there.rows.flat
    if kind is RowKind.BOX:
        far, opposite, crowd = np.ones_like(far), np.zeros_like(far), np.clip(crowd, 0.0, 1.0)
    target, targets = max(facts.outputs - 1, 0) if last else 0, np.abs(there.targets)
    if last or split:
        targets = np.zeros_like(targets)
    if split:
        crowd = np.where((places % 2 == places[one][0] % 2)[:, None], far, 0.0)

    def records(row: NDArray[Any], target: int, null: NDArray[np.bool_]) -> Records:
        values = np.where(one[:, None], row, crowd)
        return _records(facts, values, np.where(one, target, targets), null, kind)

    if plan.stated_adjacency is Adjacency.REPLACE_ONE:
        other = records(opposite, min(1, facts.outputs - 1) - target, null)
    else:
        other = records(far, target, null | one)
    return NeighbouringPair(present=records(far, target, null), absent=other)


def neighbour_problems(method: Method[Any], plan: Plan) -> list[str]:
    """What `replay` finds on the worst neighbours, and where one record of a crowd is missing."""
    # six times as many: audits run on a handful, among which there is no crowd
    crowded = method.plan(replace(plan.facts, records=6 * plan.facts.records))
    worst = method.neighbours(plan)
    pairs = [
        crowd_pair(crowded),
        crowd_pair(crowded, last=True),
        crowd_pair(crowded, split=True),
    ]
    if plan.facts.kind is RowKind.BOX:
        pairs.append(crowd_pair(crowded, kind=RowKind.BOX, last=True))
    try:
        played = replay(method, plan, worst)
        found = [*pair_problems(worst, plan, played), *played.problems()]
        return found + [p for pair in pairs for p in replay(method, crowded, pair).problems()]
    except PrivetError as error:
        return [f"it stops on a neighbour ({type(error).__name__}: {error})"]


def pair_problems(pair: NeighbouringPair, plan: Plan, played: Replay) -> list[str]:
    """Whether the pair of `Method.neighbours` is one: it differs, in one unit, and shows it."""
    a, b = pair.present, pair.absent
    if len(a) == len(b):
        differs = np.zeros(len(a), dtype=bool)
        for one, other in (
            (a.rows.values, b.rows.values), (a.targets, b.targets), (a.null, b.null),
        ):  # fmt: skip
            differs |= (one != other).reshape(len(a), -1).any(axis=1)
        units = int(differs.sum())
    else:
        units = abs(len(a) - len(b))
    if units == 0:
        return ["neighbours() returns two equal data sets: nothing can be seen on them"]
    if units > 1 and plan.unit is Unit.RECORD:
        return [f"neighbours() returns data sets that differ in {units} records, not in one"]
    releases = zip(played.present.releases, played.absent.releases, strict=False)
    if not any(distance(r.mechanism, r.exact, other.exact) > 0.0 for r, other in releases):
        return ["neighbours() returns data sets that move no release: nothing can be seen on them"]
    return []


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
        own, theirs = ("bound", "noise law"), ("settings", "preparation")
        missing = {*own, *theirs, *(p.about for p in plan.facts.premises)} - set(about)
        found += [f"no premise about the {word}" for word in sorted(missing)]
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
    delta = plan.facts.delta
    if not made.releases:
        found.append("nothing is released through a mechanism: call release of privet.mechanisms")

    def charged(count: int) -> float:
        return losses.compose(entries[:count], adjacency=plan.adjacency).epsilon(delta) * ROUNDING

    for count in sorted(set(paid)):
        so_far = [r for r, k in zip(made.releases, paid, strict=True) if k <= count]
        cost = price(so_far, plan).epsilon(delta)
        if math.isnan(cost):
            found.append("a release states no law of its noise: take one of privet.mechanisms")
        elif cost <= charged(count):
            continue
        elif cost <= charged(len(entries)):
            found.append(
                f"released before it was paid: {_releases(so_far)} of epsilon {cost:.3g} came out "
                f"when {charged(count):.3g} had been charged; call context.charge first"
            )
        else:
            found.append(_too_little(so_far, plan, cost, charged(len(entries))))
        break
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


def _releases(releases: Sequence[ReleaseRecord]) -> str:
    return "1 release" if len(releases) == 1 else f"{len(releases)} releases"


def _too_little(releases: Sequence[ReleaseRecord], plan: Plan, cost: float, charged: float) -> str:
    """In words, what was paid for what was released, and how much noise is missing."""
    planned, delta = plan.loss.epsilon(plan.facts.delta), plan.facts.delta
    what = f"{_releases(releases)} with the noise that was drawn cost epsilon {cost:.3g}"
    if charged < planned:
        return (
            f"{what}, and only {charged:.3g} is charged, where the plan costs {planned:.3g}: "
            "charge all of plan.loss"
        )
    low, high = 1.0, 2.0
    while price(releases, plan, wider=high).epsilon(delta) > charged and high < 2.0**20:
        low, high = high, 2.0 * high
    while high - low > 1e-3 * low:
        middle = 0.5 * (low + high)
        dear = price(releases, plan, wider=middle).epsilon(delta) > charged
        low, high = (middle, high) if dear else (low, middle)
    return (
        f"{what}, and plan.loss says {planned:.3g}: the noise is {1.0 / high:.2g} of what that "
        "needs; plan.loss must be the price of all releases, at their sensitivity and noise"
    )


def _not_covered(adjacency: Adjacency) -> Adjacency:
    return next(a for a in reversed(Adjacency) if not adjacency.covers(a))


def price(
    releases: Sequence[ReleaseRecord], plan: Plan, *, wider: float = 1.0
) -> losses.PrivacyLoss:
    """What releases cost at the sensitivity and the noise that each was noted with.

    With noise so many times `wider`, where it is not an answer drawn at random.
    """
    each: list[losses.PrivacyLoss] = []
    adjacency, nulls = plan.adjacency, plan.stated_adjacency is Adjacency.ZERO_OUT
    for r in releases:
        if isinstance(r.mechanism, RandomisedResponse):
            answer = r.mechanism.epsilon_of_null if nulls else r.mechanism.epsilon
            each.append(losses.Pure(epsilon_each=answer, adjacency=adjacency))
            continue
        moved = np.zeros(r.exact.shape)
        moved.flat[0] = r.sensitivity / wider
        ratio = r.log_ratio(moved, moved, np.zeros(r.exact.shape))
        if isinstance(r.mechanism, DiscreteGaussianMechanism):
            each.append(losses.ZCDP(rho=ratio, adjacency=adjacency))
            continue
        if not isinstance(r.mechanism, str | GaussianMechanism):
            pure = losses.Laplace if isinstance(r.mechanism, LaplaceMechanism) else losses.Pure
            each.append(pure(epsilon_each=ratio, adjacency=adjacency))
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
    try:
        again = type(model).from_state(arrays, json.loads(json.dumps(settings)))
    except (TypeError, KeyError, AttributeError) as error:
        return [*found, f"from_state(*state()) makes no model: {type(error).__name__}: {error}"]
    if not (np.allclose(again.outputs(rows), whole, rtol=1e-9) and same_model(model, again)):
        found.append("from_state(*state()) is another model: something is lost on the way")
    return found


def problems(method: Method[Any], facts: PublicFacts) -> list[str]:
    """All problems of a quick look, with records of these facts; `check_method` looks longer."""
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
        *seed_problems(method, plan, crowd),
    ]
    return list(dict.fromkeys([*found, *saved_problems(method, plan)]))


def seed_problems(method: Method[Any], plan: Plan, records: Records) -> list[str]:
    """Whether all that is random comes from the context, and no random word is drawn twice."""
    models = [train(method, records, plan, rng=seeded(0)).model for _ in range(2)]
    if not same_model(*models):
        return ["the same seed gives another model: something random is not from context.noise"]
    return stream_problems(method, plan, records)


def saved_problems(method: Method[Any], plan: Plan) -> list[str]:
    """Whether what is saved is the whole model, for rows of both kinds."""
    crowd = strangers(plan)[1]
    model, rows = train(method, crowd, plan, rng=seeded(0)).model, [crowd.rows]
    if plan.facts.kind is RowKind.BOX:
        rows.append(crowd_pair(plan, kind=RowKind.BOX).present.rows)
    return [problem for asked in rows for problem in answer_problems(model, asked)]


def check_method(
    method: Method[Any],
    facts: PublicFacts | None = None,
    *,
    rng: Source | None = None,
    runs: int = 200,
) -> report.Report:
    """Whether a method keeps to its contract; a report that names what it does wrong.

    It is trained many times on tiny data sets made up for it, of the sizes in `facts` (the smallest
    that it can do with, by default), with their number declared and counted. `runs` trainings check
    the law of the noise, and as many a side make the audit; a method that takes long is tried with
    as little work as it can do: `check_method(MyMethod(epochs=1))`, or fewer runs.

    **Assumes** that releases are made by mechanisms of `privet.mechanisms`, or noted as theirs
    are. Checks find what they look for: that all hold is no proof. Checks of chance raise a false
    alarm with probability 1e-6, the audit 1e-3, for a fresh seed `rng`.
    """
    facts = small_facts(method) if facts is None else facts
    rng = seeded(0) if rng is None else rng
    kinds = [method.plan(replace(facts, declared=declared)) for declared in (True, False)]
    loud = method.plan(replace(facts, epsilon=100.0 * facts.epsilon))  # where training succeeds
    plan, crowd = method.plan(facts), strangers(method.plan(facts))[1]
    checks: list[tuple[str, Callable[[], list[str]]]] = [
        ("random numbers from the context, once", lambda: seed_problems(method, plan, crowd)),
        (
            "nothing but releases reaches the model",
            lambda: [p for of in (*kinds, loud) for p in stranger_problems(method, of)],
        ),
        (
            "one record moves a release by what is stated",
            lambda: [p for of in kinds for p in neighbour_problems(method, of)],
        ),
        (
            "paid in full, before it is released",
            lambda: [
                *(p for of in kinds for p in payment_problems(method, of, strangers(of)[1])),
                *charge_problems(method, plan, crowd),
            ],
        ),
        ("promised as planned", lambda: promise_problems(method, plan, crowd)),
        ("noise of the stated law", lambda: noise_problems(method, plan, crowd, runs=runs)),
        ("saved whole", lambda: saved_problems(method, plan)),
        ("not refuted by an audit", lambda: _refuted(method, facts, rng, runs)),
    ]
    plays = _trained(method, crowd, plan, Messages())
    if isinstance(plays, str):
        checks = [("trains at all", lambda: [plays])]

    def outcome(found: Callable[[], list[str]]) -> report.Check:
        return lambda: "\n    ".join(dict.fromkeys(found())) or None

    return report.run(method.name, [(name, outcome(check)) for name, check in checks])


def _refuted(method: Method[Any], facts: PublicFacts, rng: Source, trials: int) -> list[str]:
    found = audit_method(method, facts, rng=rng, trials=trials)
    if found.verdict is Verdict.FALSIFIED:
        return [f"epsilon is {found.audited:.3g} or more, and {found.proved:.3g} is promised"]
    return []


__all__ = [
    "answer_problems",
    "check_method",
    "crowd_pair",
    "neighbour_problems",
    "payment_problems",
    "price",
    "problems",
    "promise_problems",
    "seed_problems",
    "stranger_problems",
    "strangers",
]
