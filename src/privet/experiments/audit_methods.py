"""Every method at a chosen budget: claimed, proved, audited. What each of them releases, attacked.

The sound readings are audited where they release: through their own plan, sums and mechanisms, on
the neighbours that move them most. The published ones are audited where they break.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from privet.audit import (
    Finding,
    NormalShiftAudit,
    OneShotAudit,
    gaussian_score,
)
from privet.audit.drawn import Draw
from privet.bounds import Bounded, Moments, categories
from privet.data import load
from privet.errors import InvalidArgument
from privet.experiments import audit_dpsgd
from privet.guarantee import Adjacency
from privet.mechanisms import Gaussian
from privet.methods.adaptive_laplace import OneShotMoments
from privet.methods.adaptive_laplace.class_means import CONSTANT
from privet.methods.autoencoder import AutoencoderStack
from privet.methods.base import PublicFacts
from privet.methods.dpsgd.schedule import Schedule
from privet.methods.pate import Aggregator, Answers
from privet.methods.residual.noisy_inputs import InputPlan, NoisyInputs, noisy
from privet.noise import Source
from privet.papers.adaptive_laplace.audit import audit_record
from privet.papers.autoencoder.audit import audit_output_layer
from privet.papers.residual.audit import audit_published as audit_noisy_copies
from privet.papers.tight_privacy_cost import audit_published as audit_closed_form

Floats = NDArray[np.float64]
QUIET = 1e-6
"""The scale of the noise in controls, over what it should be."""


@final
@dataclass(frozen=True, kw_only=True)
class Budget:
    """What an audit is asked for."""

    epsilon: float
    delta: float
    trials: int
    rng: Source

    def facts(self, *, records: int, features: int, outputs: int) -> PublicFacts:
        """Public facts of a small data set with this budget."""
        return PublicFacts(
            records=records, features=features, outputs=outputs, epsilon=self.epsilon,
            delta=self.delta,
        )  # fmt: skip


@final
@dataclass(frozen=True, kw_only=True)
class MethodAudit:
    """One reading of one method and the audit of it."""

    method: str
    reading: str
    run: Callable[[Budget], Finding]


def _dpsgd(b: Budget) -> Finding:
    """Softmax regression on digits, full batches, 5,000 canaries in one run."""
    schedule = Schedule.for_budget(epsilon=b.epsilon, delta=b.delta, steps=20)
    (found,) = audit_dpsgd.one_run(_digits("DP-SGD on digits", schedule, b.delta), b.rng)
    return found


def _dpsgd_published(b: Budget) -> Finding:
    """The closed form, whatever the budget: where sampling is most overrated."""
    return audit_closed_form(delta=b.delta, rng=b.rng)


def _digits(name: str, schedule: Schedule, delta: float) -> audit_dpsgd.Target:
    d = load("digits")
    return audit_dpsgd.softmax(name, d.train_rows(), d.y_train, d.n_classes, schedule, delta)


def _moments(
    what: str,
    releases: Iterable[tuple[Moments, Any, Floats]],
    adjacency: Adjacency,
    proved: float,
    b: Budget,
) -> Finding:
    """Sums of moments with one extreme record and without it, all releases of a plan together."""
    found: list[tuple[Gaussian, Bounded, Bounded]] = []
    for moments, mechanism, row in releases:
        if not isinstance(mechanism, Gaussian):
            raise InvalidArgument("--delta", b.delta, "above 0: the audit is of Gaussian noise")
        sums = []
        for there in (True, False):
            total = moments.sum()
            if there:
                total.add(row, _targets(moments))
            sums.append(total.bounded())
        found.append((mechanism, sums[0], sums[1]))

    def draw(there: bool, factor: float) -> Draw:
        def scores(n: int, rng: Source) -> Floats:
            out = np.zeros(n)
            for k, (mechanism, present, absent) in enumerate(found):
                value = (present if there else absent).value
                many = replace(present, value=np.tile(value, (n, 1)))
                used = Gaussian(scale=factor * mechanism.scale)
                seen = used.release(many, rng=rng.child("release", k), adjacency=adjacency)
                out += gaussian_score(
                    seen, present=present.value, absent=absent.value, scale=mechanism.scale
                )
            return out

        return scores

    return NormalShiftAudit(trials=b.trials, delta=b.delta).run(
        what=what, with_record=draw(True, 1.0), without_record=draw(False, 1.0),
        control=(draw(True, QUIET), draw(False, QUIET)), claimed=None, proved=proved, rng=b.rng,
    )  # fmt: skip


def _targets(moments: Moments) -> Any:
    if not moments.outputs:
        return None
    return np.zeros(1, dtype=np.int64) if moments.one_hot else np.eye(1, moments.outputs)


def _adaptive_laplace(b: Budget) -> Finding:
    plan = OneShotMoments().plan(b.facts(records=1000, features=3, outputs=2))
    # the rows that the method adds: a constant beside the record, in the unit ball
    first = np.array([[1.0, 0.0, 0.0, CONSTANT]]) / math.hypot(1.0, CONSTANT)
    second = np.array([[1.0, 0.0, 0.0]])
    assert plan.second is not None
    return _moments(
        "adaptive Laplace: both releases of moments",
        [(r.moments, r.mechanism, row) for r, row in ((plan.first, first), (plan.second, second))],
        plan.adjacency, plan.loss.epsilon(b.delta), b,
    )  # fmt: skip


def _autoencoder(b: Budget) -> Finding:
    plan = AutoencoderStack(layers=(2,)).plan(b.facts(records=100, features=3, outputs=2))
    releases = [
        (m, mechanism, np.eye(1, m.features))
        for m, mechanism in zip(plan.moments, plan.mechanisms, strict=True)
    ]
    what = f"auto-encoder: all {len(releases)} releases of moments"
    return _moments(what, releases, plan.adjacency, plan.loss.epsilon(b.delta), b)


def _adaptive_laplace_published(b: Budget) -> Finding:
    return audit_record(epsilon=b.epsilon, trials=min(b.trials, 20_000), rng=b.rng)


def _autoencoder_published(b: Budget) -> Finding:
    return audit_output_layer(epsilon=b.epsilon, trials=b.trials, rng=b.rng)


def _pate(b: Budget) -> Finding:
    return _aggregation(b, Aggregator.for_budget, claimed=None)


def _pate_published(b: Budget) -> Finding:
    return _aggregation(b, Aggregator.published, claimed=b.epsilon)


def _aggregation(b: Budget, make: Callable[..., Aggregator], claimed: float | None) -> Finding:
    """One teacher of five says the opposite; each release answers two queries."""
    k, queries, others = 5, 2, (0.5, -0.2, 0.9, 0.1)
    a = make(teachers=k, queries=queries, epsilon=b.epsilon, delta=b.delta)
    middle = sum(others) / k

    def draw(sign: float, factor: float) -> Draw:
        used = replace(a, mechanism=Gaussian(scale=factor * a.mechanism.scale))

        def scores(n: int, rng: Source) -> Floats:
            chosen = [
                Answers.clipped(np.full((queries * n, 1), v), radius=1.0, site=f"site {i}")
                for i, v in enumerate([*others, sign])
            ]
            seen = np.concatenate([part for _, part in used.blocks(chosen, rng=rng)])
            return gaussian_score(
                seen.reshape(n, queries), present=middle + 1 / k, absent=middle - 1 / k,
                scale=a.noise,
            )  # fmt: skip

        return scores

    return NormalShiftAudit(trials=b.trials, delta=b.delta).run(
        what="PATE: the aggregation, one teacher's shard replaced",
        with_record=draw(1.0, 1.0), without_record=draw(-1.0, 1.0),
        control=(draw(1.0, QUIET), draw(-1.0, QUIET)), claimed=claimed,
        proved=a.guarantee(queries, delta=b.delta).epsilon, rng=b.rng,
    )  # fmt: skip


def _residual(b: Budget) -> Finding:
    method = NoisyInputs(radius=1.0)
    plan = method.plan(b.facts(records=100, features=2, outputs=3))
    return _inputs("residual perturbation: the noisy copy of a record", plan, b)


def _residual_published(b: Budget) -> Finding:
    return audit_noisy_copies(delta=b.delta, trials=min(b.trials, 20_000), rng=b.rng)


def _inputs(what: str, plan: InputPlan, b: Budget) -> Finding:
    """A record replaced by its opposite, label too; the attacker sees every copy and the answer."""
    draws, scale, radius = plan.budget.draws, plan.budget.mechanism.scale, plan.budget.radius
    record = np.array([radius, 0.0])

    def draw(sign: float, label: int, factor: float) -> Draw:
        budget = replace(plan.budget, input_noise=factor * plan.budget.input_noise)

        def scores(n: int, rng: Source) -> Floats:
            rows = np.tile(sign * record, (n * draws, 1))
            seen = noisy(rows, budget, rng.child("inputs"), adjacency=plan.adjacency).astype(float)
            each = gaussian_score(seen, present=record, absent=-record, scale=scale)
            score: Floats = each.reshape(n, draws).sum(axis=1)
            if plan.answers is None:
                return score
            known = categories(np.full(n, label), plan.answers.classes)
            said = plan.answers.release(known, rng=rng.child("answers"))
            score += plan.answers.epsilon * ((said == 0).astype(float) - (said == 1))
            return score

        return scores

    audit = OneShotAudit(trials=b.trials, pilot=max(100, b.trials // 5), delta=b.delta)
    return audit.run(
        what=what, with_record=draw(1.0, 0, 1.0), without_record=draw(-1.0, 1, 1.0),
        control=(draw(1.0, 0, QUIET), draw(-1.0, 1, QUIET)), claimed=None,
        proved=plan.loss.epsilon(b.delta), rng=b.rng,
    )  # fmt: skip


SOUND, PUBLISHED = "sound", "published"
AUDITS = (
    MethodAudit(method="dpsgd", reading=SOUND, run=_dpsgd),
    MethodAudit(method="dpsgd", reading=PUBLISHED, run=_dpsgd_published),
    MethodAudit(method="adaptive-laplace", reading=SOUND, run=_adaptive_laplace),
    MethodAudit(method="adaptive-laplace", reading=PUBLISHED, run=_adaptive_laplace_published),
    MethodAudit(method="pate", reading=SOUND, run=_pate),
    MethodAudit(method="pate", reading=PUBLISHED, run=_pate_published),
    MethodAudit(method="residual", reading=SOUND, run=_residual),
    MethodAudit(method="residual", reading=PUBLISHED, run=_residual_published),
    MethodAudit(method="autoencoder", reading=SOUND, run=_autoencoder),
    MethodAudit(method="autoencoder", reading=PUBLISHED, run=_autoencoder_published),
)
METHODS = tuple(dict.fromkeys(a.method for a in AUDITS))


def audit_method(method: str, reading: str, budget: Budget) -> Finding:
    """The audit of one reading of one method."""
    for audit in AUDITS:
        if (audit.method, audit.reading) == (method, reading):
            return audit.run(budget)
    if method not in METHODS:
        raise InvalidArgument("target", method, f"a run folder, or one of {', '.join(METHODS)}")
    raise InvalidArgument("--reading", reading, f"{SOUND} or {PUBLISHED}")
