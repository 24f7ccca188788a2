"""Where a promise is made: terms checked, charged, trained, and stated; for every method alike."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, final

from privet import premises
from privet.data.records import Records
from privet.errors import BudgetExceeded, InvalidArgument, PrivetError
from privet.guarantee import Adjacency, Guarantee, Premise, Unit
from privet.ledger import Entry, Ledger
from privet.loss import PrivacyLoss, compose
from privet.methods.contract import Method, Model, Plan, Progress, Spending, silent
from privet.noise import Source


@final
@dataclass(frozen=True, kw_only=True)
class Trained:
    """A model, what is promised and claimed for it, and what was charged."""

    model: Model
    guarantee: Guarantee
    claim: Guarantee | None
    plan: Any
    entries: tuple[Entry, ...]
    steps: int = 0
    """Steps made; fewer than planned if the budget ended it."""
    run: str = ""
    """The name under which it was charged."""
    account: dict[str, Any] = field(default_factory=dict, repr=False)
    """The ledger as it stood at the end: identity, head, cap and total (`Ledger.statement`)."""

    @property
    def loss(self) -> PrivacyLoss:
        """All that was charged for it."""
        return compose([e.loss for e in self.entries], adjacency=self.plan.adjacency)


def planned(
    method: Method[Any],
    records: Records,
    *,
    epsilon: float,
    delta: float,
    anyway: bool = False,
    stated: Sequence[Premise] = (),
) -> Plan:
    """What a method will do with records of these public facts.

    A delta of 1/n or more is refused, unless `anyway`: then the promise says that it is none.
    `stated`: what is known of the records besides, in place of what they say of the same things.
    """
    if records.groups is not None and not method.grouped:
        raise InvalidArgument(
            "groups", "given", f"left out: {method.name} protects records", "or take another method"
        )
    facts = records.facts(epsilon=epsilon, delta=delta)
    if delta >= 1.0 / facts.records:
        if not anyway:
            raise InvalidArgument(
                "delta", delta, f"below 1/n, {1.0 / facts.records:.3g} for {facts.records} records",
                "publishing one record at random would keep such a promise; anyway=True (--anyway) "
                "trains all the same, and marks it",
            )  # fmt: skip
        stated = (*stated, premises.large_delta(delta, facts.records))
    about = {p.about for p in stated}
    kept = (p for p in facts.premises if p.about not in about)
    facts = replace(facts, premises=(*kept, *stated))
    plan: Plan = method.plan(facts)
    return plan


def train(
    method: Method[Any],
    records: Records,
    plan: Plan,
    *,
    rng: Source,
    ledger: Ledger | None = None,
    progress: Progress = silent,
    folder: Path | None = None,
    resume: bool = False,
) -> Trained:
    """Check the terms, pay, train, and state what holds.

    `folder` keeps checkpoints of methods that have steps; with `resume` the run in it goes on.

    **Guarantee** `Trained.guarantee`. When the ledger cannot afford the plan, `BudgetExceeded` is
    raised with nothing charged and nothing read.
    """
    ledger = ledger_for(plan) if ledger is None else ledger
    check_terms(ledger, plan)
    spending = Spending(ledger=ledger, rng=rng, plan=plan, progress=progress, folder=folder)
    if not resume and not ledger.affords(plan.loss):
        raise BudgetExceeded(
            cap_epsilon=ledger.cap_epsilon,
            would_be=ledger.epsilon_after(plan.loss),
            delta=ledger.cap_delta,
            what=method.name,
        )
    model = method.fit(records, plan, spending)
    if not spending.entries:
        raise PrivetError(f"{method.name} released a model and charged nothing")
    return Trained(
        model=model,
        guarantee=promise(plan, spending.loss, rng),
        claim=plan.claim,
        plan=plan,
        entries=tuple(spending.entries),
        steps=spending.steps,
        run=spending.run,
        account=ledger.statement(),
    )


def promise(plan: Plan, spent: PrivacyLoss, rng: Source) -> Guarantee:
    """What is proved of a plan that was paid with `spent`: the one place that says so."""
    stated = spent.guarantee(plan.facts.delta, theorem=plan.theorem, unit=plan.unit)
    key = rng.premise
    own = plan.premises
    about = {p.about for p in own}
    theirs = (p for p in plan.facts.premises if p.about not in about)
    told = about | {p.about for p in plan.facts.premises}
    alone = (premises.ONE_RECORD_EACH,) if plan.unit is Unit.RECORD else ()
    always = (premises.SETTINGS, premises.OWN_MAP, *alone)
    more = tuple(p for p in always if p.about not in told)
    return replace(
        stated,
        adjacency=plan.relation,
        protects=plan.protects,
        premises=(*own, *theirs, *more, key),
    )


def ledger_for(plan: Plan, *, cap_epsilon: float = math.inf, **other: Any) -> Ledger:
    """A ledger in memory of the plan's own terms; without a cap it only records."""
    terms = {"adjacency": plan.relation, "unit": plan.unit, "protects": plan.protects, **other}
    return Ledger.in_memory(cap_epsilon=cap_epsilon, cap_delta=plan.facts.delta, **terms)


def check_terms(ledger: Ledger, plan: Plan) -> None:
    """Refuse a ledger that promises for other neighbours, or another unit, than what is charged."""
    relation = plan.relation
    right = ledger.unit is plan.unit and ledger.protects is plan.protects
    if not relation.covers(ledger.adjacency) or not right:
        hint = ""
        if relation is Adjacency.ZERO_OUT and ledger.adjacency is Adjacency.ADD_REMOVE:
            hint = "declare the number of records (n_public, --n-public) for add-remove"
        raise InvalidArgument(
            "ledger",
            f"one for {ledger.adjacency.value}, per {ledger.unit.value}",
            f"one for {relation.value}, per {plan.unit.value}",
            hint,
        )
