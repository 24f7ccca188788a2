"""Train a method and state its guarantee: check terms, charge, train, state; the same for all."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from privet import premises
from privet.accounting import PrivacyLoss
from privet.data.records import PublicFacts, Records
from privet.errors import BudgetExceeded, InvalidArgument, PrivetError
from privet.guarantee import Adjacency, Guarantee, Premise, Unit, number_to_json
from privet.jobs import Progress
from privet.ledger import Entry, Ledger
from privet.methods.constant_fallback import ConstantPlan
from privet.methods.release_context import ReleaseContext
from privet.methods.replan import plan_inputs
from privet.noise import Source
from privet.noise.source import source_of

if TYPE_CHECKING:
    from privet.methods.contract import Method, Model, Plan


@final
@dataclass(frozen=True, kw_only=True)
class TrainingResult:
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
    loss: PrivacyLoss
    """All that was charged for it."""
    metadata: dict[str, Any] = field(default_factory=dict, repr=False)
    """The method's name, its settings, its plan in short, what that was made of, and its steps."""


def make_plan(
    method: Method[Any],
    facts: PublicFacts,
    *,
    allow_vacuous: bool = False,
    extra_premises: Sequence[Premise] = (),
    replace_one_premises: Sequence[Premise] = (),
    hint: str = "",
) -> Plan:
    """Plan what a method will do with records of these public facts.

    A delta of 1/n or more is refused, unless `allow_vacuous`: then the promise says that it is
    none. With a `hint` what to do then, so is a budget whose noise would outweigh all records
    together. A number is predicted by a constant where that is better (`ConstantPlan`), unless
    `allow_vacuous`. `extra_premises`: what is known of the records besides, in place of what they
    say of the same things; `replace_one_premises`: the same where a record that is replaced by
    another may change what is trained on.
    """
    if facts.unit is Unit.USER and not method.protects_users:
        raise InvalidArgument(
            "groups", "given", f"left out: {method.name} protects records", "or take another method"
        )
    delta = facts.delta
    if delta >= 1.0 / facts.records:
        if not allow_vacuous:
            raise InvalidArgument(
                "delta", delta, f"below 1/n, {1.0 / facts.records:.3g} for {facts.records} records",
                "publishing one record at random would keep such a promise; allow_vacuous=True "
                "(--anyway) trains all the same, and marks it",
            )  # fmt: skip
        extra_premises = (*extra_premises, premises.large_delta(delta, facts.records))
    plan: Plan = method.plan(_with(facts, extra_premises))
    if replace_one_premises and plan.adjacency is Adjacency.REPLACE_ONE:
        plan = method.plan(_with(facts, (*replace_one_premises, *extra_premises)))
    if allow_vacuous:
        return plan
    if hint:
        plan.check_enough(facts, hint=hint)
    return ConstantPlan.in_place_of(plan)


def _with(facts: PublicFacts, stated: Sequence[Premise]) -> PublicFacts:
    about = {p.about for p in stated}
    kept = (p for p in facts.premises if p.about not in about)
    return replace(facts, premises=(*kept, *stated))


def train(
    method: Method[Any],
    records: Records,
    plan: Plan,
    *,
    rng: Source | int | None,
    ledger: Ledger | Path | None = None,
    progress: Progress | None = None,
    folder: Path | None = None,
    resume: bool = False,
    purpose: str = "",
) -> TrainingResult:
    """Check the terms, pay, train, and state what holds.

    `rng`: a source, a seed for experiments, or None for secret noise. `ledger`: one, or the path of
    one, which is made with the budget as its cap if it is not there; None for one in memory, which
    records without refusing. `folder` keeps checkpoints of methods that have steps; with `resume`
    the run in it goes on.

    **Guarantee** `TrainingResult.guarantee`. When the ledger cannot afford the plan,
    `BudgetExceeded` is raised with nothing charged and nothing read.
    """
    rng = source_of(rng)
    if not isinstance(ledger, Ledger):
        ledger = open_ledger(ledger, plan)
    ledger.purpose = purpose or ledger.purpose
    ledger.check_terms(plan.stated_adjacency, plan.unit, plan.protects)
    context = ReleaseContext(ledger=ledger, rng=rng, plan=plan, progress=progress, folder=folder)
    if not resume and not ledger.affords(plan.loss):
        raise BudgetExceeded(
            cap_epsilon=ledger.cap_epsilon,
            would_be=ledger.epsilon_after(plan.loss),
            delta=ledger.cap_delta,
            what=method.name,
        )
    if isinstance(plan, ConstantPlan):
        model: Model = plan.fit(records, context)
    else:
        model = method.fit(records, plan, context)
    if not context.entries:
        raise PrivetError(f"{method.name} released a model and charged nothing")
    spent = context.loss
    return TrainingResult(
        model=model,
        guarantee=state_guarantee(plan, spent, rng),
        claim=plan.claim,
        plan=plan,
        entries=tuple(context.entries),
        steps=context.steps,
        run=context.run,
        account=ledger.statement()
        | {"after_one_more": number_to_json(ledger.epsilon_after(spent))},
        loss=spent,
        metadata={
            "method": method.name,
            "settings": method.settings_to_dict(),
            "plan": plan.summary(),
            "plan_inputs": plan_inputs(method, plan),
            "steps": plan.steps,
        },
    )


def open_ledger(path: Path | None, plan: Plan) -> Ledger:
    """The ledger at this path, made with the plan's budget as its cap if there is none."""
    if path is None:
        return ledger_in_memory(plan)
    if path.exists():
        return Ledger.open(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    return Ledger.create(path, cap_epsilon=plan.facts.epsilon, **_terms(plan))


def ledger_in_memory(plan: Plan, *, cap_epsilon: float = math.inf, **other: Any) -> Ledger:
    """A ledger in memory of the plan's own terms; without a cap it only records."""
    return Ledger.in_memory(cap_epsilon=cap_epsilon, **{**_terms(plan), **other})


def _terms(plan: Plan) -> dict[str, Any]:
    return {
        "cap_delta": plan.facts.delta,
        "adjacency": plan.stated_adjacency,
        "unit": plan.unit,
        "protects": plan.protects,
    }


def state_guarantee(plan: Plan, spent: PrivacyLoss, rng: Source) -> Guarantee:
    """What is proved of a plan that was paid with `spent`: the one place that says so."""
    stated = spent.guarantee(plan.facts.delta, theorem=plan.theorem, unit=plan.unit)
    key = rng.premise
    own = plan.premises
    about = {p.about for p in own}
    theirs = (p for p in plan.facts.premises if p.about not in about)
    known = about | {p.about for p in plan.facts.premises}
    alone = (premises.ONE_RECORD_EACH,) if plan.unit is Unit.RECORD else ()
    always = (premises.SETTINGS, premises.OWN_MAP, *alone)
    more = tuple(p for p in always if p.about not in known)
    return replace(
        stated,
        adjacency=plan.stated_adjacency,
        protects=plan.protects,
        premises=(*own, *theirs, *more, key),
    )
