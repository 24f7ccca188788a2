"""What a method is: told once, here, and everything else follows from it.

```
Method      its fields are its settings
  plan(facts) -> Plan                     from public facts alone
  fit(records, plan, spending) -> Model   charges, draws noise, reports progress
  neighbours(plan) -> Worst               the data sets that move its releases most
Model       predicts; state() / from_state(): arrays and JSON, nothing pickled
```
"""

from __future__ import annotations

import dataclasses
import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, ClassVar, Generic, Self, TypeVar, final

import numpy as np
from numpy.typing import NDArray

from privet._words import chance, number, small_table
from privet.data.dataset import Dataset
from privet.data.records import PublicFacts, Records
from privet.data.rows import Domain, Kind, Rows
from privet.errors import InvalidArgument
from privet.guarantee import Adjacency, Guarantee, Premise, Protects, Unit
from privet.ledger import Entry, Ledger, Scope
from privet.loss import PrivacyLoss, compose
from privet.methods.enough import Signal, linear_numbers
from privet.noise import Source

Array = NDArray[Any]
Progress = Callable[[str, int, int], None]
"""Told what goes on, how much of it is done, and of how much; never anything about records."""


def silent(what: str, done: int, of: int) -> None:
    """Shows nothing."""


def setting(default: Any = dataclasses.MISSING, *, help: str = "", option: bool = True) -> Any:
    """A field of a method with its line of help; `option` False keeps it from the command line."""
    told = {"help": help, "option": option}
    if callable(default) and not isinstance(default, type | Enum):
        return dataclasses.field(default_factory=default, metadata=told)
    return dataclasses.field(default=default, metadata=told)


class Front(Enum):
    """What a method wants in front of it where records are pictures."""

    PLAIN = "plain"
    """The records themselves."""
    MANY = "many"
    """Public features, however many."""
    FEW = "few"
    """Public features, few of them: their square is released."""


class Plan(ABC):
    """All that a method will do and release, from public facts alone; frozen and final."""

    facts: PublicFacts

    @property
    @abstractmethod
    def loss(self) -> PrivacyLoss:
        """What everything that is released costs together."""

    @property
    @abstractmethod
    def theorem(self) -> str:
        """The statement that the loss rests on."""

    @property
    @abstractmethod
    def premises(self) -> tuple[Premise, ...]:
        """What the method itself relies on; records and noise state their own."""

    @property
    def adjacency(self) -> Adjacency:
        """The relation that the loss is computed for."""
        return self.loss.adjacency

    @property
    def relation(self) -> Adjacency:
        """The neighbours that are promised for: add-remove only where records were declared."""
        counted = self.adjacency is Adjacency.ADD_REMOVE and not self.facts.declared
        return Adjacency.ZERO_OUT if counted else self.adjacency

    @property
    def unit(self) -> Unit:
        """Whose contribution is covered."""
        return self.facts.unit

    @property
    def protects(self) -> Protects:
        """Which part of a unit is covered."""
        return Protects.RECORD

    @property
    def claim(self) -> Guarantee | None:
        """What a paper states of the same settings, if one does."""
        return None

    @property
    def steps(self) -> int:
        """How many steps are planned, where there are steps."""
        return 0

    @property
    def signal(self) -> Signal:
        """What stands against the noise, for the check before anything is spent."""
        numbers = linear_numbers(self.facts.features, max(1, self.facts.outputs))
        return Signal(units=self.facts.records, numbers=numbers)

    def _repr_html_(self) -> str:
        facts = self.facts
        rows = [
            ("budget", f"ε {number(facts.epsilon)}, a chance δ of {chance(facts.delta)}"),
            ("covers", f"each {self.unit.value}, {self.relation.value}"),
            ("records", f"{facts.records:,}"),
            ("by", self.theorem),
            *self.summary().items(),
        ]
        return small_table(f"{type(self).__name__}, before anything is read or spent", rows)

    def summary(self) -> dict[str, Any]:
        """The settings that the plan arrived at, for people and for config.json."""
        return {}


class Files(ABC):
    """How a method reads the user's own files where a record is more than a row with a label.

    A frozen dataclass: its fields are options of `privet train`, and kept with the run.
    """

    record: ClassVar[str]
    """What a record is called where predictions are listed."""

    @classmethod
    def takes(cls, data: Path) -> bool:
        """Whether these are such files; others are read as for any method."""
        return True

    @abstractmethod
    def training(self, data: Path, declaration: Path | None, method: Any) -> tuple[Any, Dataset]:
        """The method with the public facts of these files, and its records."""

    @abstractmethod
    def asked(
        self, data: Path, declaration: Path | None, method: Any, shape: tuple[int, ...]
    ) -> tuple[Array, list[str]]:
        """Records of this shape to ask a model about, and what each is called."""


class Model(ABC):
    """What was released: it answers for rows, and is made of arrays and JSON."""

    @abstractmethod
    def outputs(self, rows: Rows) -> NDArray[np.float64]:
        """Logits, one column a class; or one number a row, in [-1, 1], of a regression."""

    @abstractmethod
    def state(self) -> tuple[dict[str, Array], dict[str, Any]]:
        """All that was learned, and what else is needed to make the model again."""

    @classmethod
    @abstractmethod
    def from_state(cls, arrays: Mapping[str, Array], settings: Mapping[str, Any]) -> Self:
        """The model of this state; nothing is trained and no code of a file is run."""


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Worst:
    """Two data sets that differ in one unit: what audits and conformance play back."""

    present: Records
    absent: Records


PlanType = TypeVar("PlanType", bound=Plan)


class Method(ABC, Generic[PlanType]):
    """A way to train a model privately; a frozen dataclass whose fields are its settings.

    **Guarantee** of every implementation: `plan` reads no data; `fit` charges `spending` before
    anything that depends on the data is released, and reads the data after that only for what was
    charged.
    """

    name: ClassVar[str]
    """The word for it on the command line."""
    front: ClassVar[Front] = Front.PLAIN
    regression: ClassVar[bool] = False
    """Whether it also takes numbers to predict (`PrivateRegressor`)."""
    questions: ClassVar[str | None] = None
    """The field that takes public inputs without labels, where a method asks about some."""
    known: ClassVar[str | None] = None
    """The field that takes the labels of these, where they have to be public too."""
    grouped: ClassVar[bool] = False
    """Whether it can protect users who have several records."""
    system: ClassVar[str] = "other methods"
    """What it belongs to, as a comparison shows it."""
    compared: ClassVar[bool] = True
    """Whether it takes part in a comparison of all methods."""
    shows_relevance: ClassVar[bool] = False
    """Whether a comparison shows what its model looks at."""

    @classmethod
    def quick(cls, facts: PublicFacts) -> dict[str, Any]:
        """Settings that keep a comparison short, from public facts; none unless told."""
        return {}

    @classmethod
    def small(cls) -> Self:
        """The method with as little work as it can do, for audits and conformance."""
        return cls()

    smallest: ClassVar[int] = 8
    """Records of the smallest data set that it is tried on."""
    smallest_shape: ClassVar[tuple[int, ...]] = (2,)
    """The shape of a row of it."""
    files: ClassVar[type[Files] | None] = None
    """How it reads files where a record is more than a row with a label; None: it is not."""

    @abstractmethod
    def plan(self, facts: PublicFacts) -> PlanType:
        """All settings, from public facts alone."""

    @abstractmethod
    def fit(self, records: Records, plan: PlanType, spending: Spending) -> Model:
        """Train as planned; pay with `spending.charge` before anything is drawn."""

    def fixed_epsilon(self, records: int, delta: float) -> float | None:
        """What it costs where its settings fix the noise; None where a budget decides."""
        return None

    def for_domain(self, domain: Domain) -> Self:
        """The same for records of this domain: public records among its settings become rows."""
        return self

    def neighbours(self, plan: PlanType) -> Worst:
        """A record as far out as rows can be, of class 0, against a null one; all others null.

        That is the worst pair for sums over records. Methods that release something else say so.
        """
        return lone_record(plan.facts)


def lone_record(facts: PublicFacts, *, kind: Kind = Kind.BALL) -> Worst:
    """One record in the first place, of unit length along the first axis; or none at all."""
    rows = np.zeros((facts.records, *(facts.shape or (facts.features,))), dtype=np.float32)
    rows.reshape(facts.records, -1)[0, 0] = 1.0 if kind is Kind.BOX else 1.0 - 1e-6
    there = np.ones(facts.records, dtype=bool)

    def records(null: NDArray[np.bool_]) -> Records:
        nothing = -1 if facts.outputs != 1 else 0
        target = 0 if facts.outputs != 1 else 1
        return Records(
            rows=Rows(values=np.where(null[:, None], 0.0, rows.reshape(len(rows), -1))
                      .reshape(rows.shape).astype(np.float32), kind=kind, null=null),
            targets=np.where(null, nothing, target),
            outputs=facts.outputs,
            groups=None if facts.unit is Unit.RECORD else np.zeros(facts.records, dtype=np.int64),
            n_public=facts.records if facts.declared else None,
            premises=facts.premises,
        )  # fmt: skip

    alone = there.copy()
    alone[0] = False
    return Worst(present=records(alone), absent=records(there))


def worst_unit(facts: PublicFacts, *, replaced: bool = False) -> Worst:
    """A unit that weighs as much as one can, against none; all other places are null.

    A record of unit length along the first axis; or a user to whom all places belong. Where the
    number of records was declared the unit is gone from the second data set, which is then shorter;
    where it was counted, null. `replaced`: records of the opposite sign are there instead.
    """
    worst = lone_record(facts)
    there = worst.present
    if facts.unit is Unit.USER:
        values = np.repeat(there.rows.values[:1], len(there), axis=0)
        rows = dataclasses.replace(there.rows, values=values, null=np.zeros(len(there), dtype=bool))
        targets = np.repeat(there.targets[:1], len(there))
        there = dataclasses.replace(there, rows=rows, targets=targets)
    if replaced:
        rows = dataclasses.replace(there.rows, values=-there.rows.values)
        return Worst(present=there, absent=dataclasses.replace(there, rows=rows))
    if not facts.declared:
        return Worst(present=there, absent=worst.absent)
    kept = there.null  # all places but the unit's
    return Worst(
        present=there,
        absent=dataclasses.replace(
            there,
            rows=there.rows.part(kept),
            targets=there.targets[kept],
            groups=None if there.groups is None else there.groups[kept],
        ),
    )


@final
class Spending:
    """Who pays, where noise comes from, and who watches: the only way to a release.

    A method calls `charge` before it draws anything. What was charged is in `entries`.
    """

    def __init__(
        self,
        *,
        ledger: Ledger,
        rng: Source,
        plan: Plan,
        run: str | None = None,
        progress: Progress = silent,
        folder: Path | None = None,
    ) -> None:
        self.ledger, self.rng, self.plan = ledger, rng, plan
        self.run = run or f"run-{secrets.token_hex(8)}"
        self.progress, self.folder = progress, folder
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
            progress=self.progress,
        )
        inner.entries = self.entries
        return inner

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


def settings_of(method: Method[Any]) -> dict[str, Any]:
    """The settings that a command line could have given, ready for JSON."""
    return {
        f.name: _plain(getattr(method, f.name))
        for f in dataclasses.fields(method)  # type: ignore[arg-type]
        if f.metadata.get("option", True)
    }


def _plain(value: Any) -> Any:
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, tuple | list):
        return [_plain(v) for v in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise InvalidArgument("setting", value, "a number, a word or a list of them")
