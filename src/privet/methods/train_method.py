"""Where a promise is made: terms checked, charged, trained, and stated; for every method alike."""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from privet import premises
from privet.data.records import PublicFacts, Records
from privet.errors import BudgetExceeded, InvalidArgument, PrivetError
from privet.guarantee import Adjacency, Guarantee, Premise, Unit
from privet.ledger import Entry, Ledger, Scope
from privet.loss import PrivacyLoss, compose
from privet.noise import Source
from privet.noise.source import source_of

if TYPE_CHECKING:
    from privet.methods.contract import Method, Model, Plan

Progress = Callable[[str, int, int], None]
"""Told what goes on, how much of it is done, and of how much; never anything about records."""


@final
class Spending:
    """Who pays, where noise comes from, and who watches: the only way to a release.

    A method calls `charge` before it draws anything with `noise`. What was charged is in `entries`.
    """

    def __init__(
        self,
        *,
        ledger: Ledger,
        rng: Source,
        plan: Plan,
        run: str | None = None,
        progress: Progress | None = None,
        folder: Path | None = None,
    ) -> None:
        self.ledger, self.rng, self.plan = ledger, rng, plan
        self.run = run or f"run-{secrets.token_hex(8)}"
        self.folder, self._watcher = folder, progress
        self.entries: list[Entry] = []
        self.steps = 0

    def charge(self, loss: PrivacyLoss | None = None, *, what: str) -> Entry:
        """Pay for a part of the plan, or for all of it; raises with nothing spent if refused."""
        part = self.plan.loss if loss is None else loss
        token = f"{self.run}:{len(self.entries)}"
        entry = self.ledger.charge(part, what=what, scope=self.scope, run=self.run, token=token)
        self.entries.append(entry)
        return entry

    def within(self, plan: Plan, *, part: str) -> Spending:
        """The same purse for a method inside another one: its own plan, and noise of its own.

        What it charges is in `entries` here too. It keeps no files: the outer method would have to
        be taken up again with it.
        """
        inner = Spending(
            ledger=self.ledger,
            rng=self.rng.child(part),
            plan=plan,
            run=self.run,
            progress=self._watcher,
        )
        inner.entries = self.entries
        return inner

    def noise(self, *label: str | int) -> Source:
        """The noise of one release, by its name."""
        return self.rng.child(*label)

    def progress(self, what: str, done: int, of: int) -> None:
        """Tell who watches, if anybody does."""
        if self._watcher is not None:
            self._watcher(what, done, of)

    def take_over(self, entries: Sequence[Entry], *, steps: int) -> None:
        """Charges that a training loop made by itself on this ledger, and how far it came."""
        known = {entry.sequence for entry in self.entries}
        self.entries += [entry for entry in entries if entry.sequence not in known]
        self.steps = steps

    @property
    def scope(self) -> Scope:
        """What every charge of this plan is about."""
        plan = self.plan
        return Scope(
            unit=plan.unit,
            adjacency=plan.relation,
            protects=plan.protects,
            secret=self.rng.secret,
        )

    @property
    def loss(self) -> PrivacyLoss:
        """All that was charged."""
        return compose([e.loss for e in self.entries], adjacency=self.plan.adjacency)


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
    loss: PrivacyLoss
    """All that was charged for it."""
    told: dict[str, Any] = field(default_factory=dict, repr=False)
    """The method's name, its settings, its plan in short and how many steps were planned."""


def planned(
    method: Method[Any],
    facts: PublicFacts,
    *,
    anyway: bool = False,
    stated: Sequence[Premise] = (),
    replaced: Sequence[Premise] = (),
    hint: str = "",
) -> Plan:
    """What a method will do with records of these public facts.

    A delta of 1/n or more is refused, unless `anyway`: then the promise says that it is none. With
    a `hint` what to do then, so is a budget whose noise would outweigh all records together.
    `stated`: what is known of the records besides, in place of what they say of the same things;
    `replaced`: the same where a record that is replaced by another may change what is trained on.
    """
    if facts.unit is Unit.USER and not method.grouped:
        raise InvalidArgument(
            "groups", "given", f"left out: {method.name} protects records", "or take another method"
        )
    delta = facts.delta
    if delta >= 1.0 / facts.records:
        if not anyway:
            raise InvalidArgument(
                "delta", delta, f"below 1/n, {1.0 / facts.records:.3g} for {facts.records} records",
                "publishing one record at random would keep such a promise; anyway=True (--anyway) "
                "trains all the same, and marks it",
            )  # fmt: skip
        stated = (*stated, premises.large_delta(delta, facts.records))
    plan: Plan = method.plan(_with(facts, stated))
    if replaced and plan.adjacency is Adjacency.REPLACE_ONE:
        plan = method.plan(_with(facts, (*replaced, *stated)))
    if hint and not anyway:
        plan.check_enough(facts, hint=hint)
    return plan


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
) -> Trained:
    """Check the terms, pay, train, and state what holds.

    `rng`: a source, a seed for experiments, or None for secret noise. `ledger`: one, or the path of
    one, which is made with the budget as its cap if it is not there; None for one in memory, which
    records without refusing. `folder` keeps checkpoints of methods that have steps; with `resume`
    the run in it goes on.

    **Guarantee** `Trained.guarantee`. When the ledger cannot afford the plan, `BudgetExceeded` is
    raised with nothing charged and nothing read.
    """
    rng = source_of(rng)
    if not isinstance(ledger, Ledger):
        ledger = ledger_at(ledger, plan)
    ledger.purpose = purpose or ledger.purpose
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
    spent = spending.loss
    return Trained(
        model=model,
        guarantee=promise(plan, spent, rng),
        claim=plan.claim,
        plan=plan,
        entries=tuple(spending.entries),
        steps=spending.steps,
        run=spending.run,
        account=ledger.statement(),
        loss=spent,
        told={
            "method": method.name,
            "settings": method.settings_to_dict(),
            "plan": plan.summary(),
            "steps": plan.steps,
        },
    )


def ledger_at(path: Path | None, plan: Plan) -> Ledger:
    """The ledger at this path, made with the plan's budget as its cap if there is none."""
    if path is None:
        return ledger_for(plan)
    if path.exists():
        return Ledger.open(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    return Ledger.create(path, cap_epsilon=plan.facts.epsilon, **_terms(plan))


def ledger_for(plan: Plan, *, cap_epsilon: float = math.inf, **other: Any) -> Ledger:
    """A ledger in memory of the plan's own terms; without a cap it only records."""
    return Ledger.in_memory(cap_epsilon=cap_epsilon, **{**_terms(plan), **other})


def _terms(plan: Plan) -> dict[str, Any]:
    return {
        "cap_delta": plan.facts.delta,
        "adjacency": plan.relation,
        "unit": plan.unit,
        "protects": plan.protects,
    }


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


def check_terms(ledger: Ledger, plan: Plan) -> None:
    """Refuse a ledger that promises for other neighbours, or another unit, than what is charged."""
    ledger.refuse_other(plan.relation, plan.unit, plan.protects)
