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
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
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
from privet.loss import PrivacyLoss
from privet.loss.gaussian import gaussian_epsilon, gaussian_mu
from privet.methods.promise import Spending as Spending

Array = NDArray[Any]


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


@final
@dataclass(frozen=True, kw_only=True)
class Signal:
    """What stands against the noise: so many units, each a vector of length at most 1.

    `numbers` are learned from their sum. `growth` is 1 for noise that is added once, and 1/2 for
    noise that every unit adds to itself, whose length grows with the root of their number.
    """

    units: int
    numbers: int
    what: str = "records"
    growth: float = 1.0


def linear_numbers(features: int, classes: int) -> int:
    """Numbers of a linear model, K (d + 1), for `Signal`; no more than 100 columns count.

    The many columns of pictures go together, so that less than all of them has to be learned: 300
    pictures of MNIST at epsilon 1, outweighed if all 784 pixels counted, still teach DP-SGD a
    little (21% right), 100 do not.
    """
    return classes * (min(features, 100) + 1)


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

    def check_enough(self, asked: PublicFacts, *, hint: str = "") -> None:
        """Refuse a budget, as it was asked for, whose noise would outweigh all records together."""
        check_enough(self.signal, epsilon=asked.epsilon, delta=asked.delta, hint=hint)

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

    def settings_to_dict(self) -> dict[str, Any]:
        """The settings that a command line could have given, ready for JSON."""
        return {
            f.name: _plain(getattr(self, f.name))
            for f in dataclasses.fields(self)  # type: ignore[arg-type]
            if f.metadata.get("option", True)
        }

    @property
    def fixes_noise(self) -> bool:
        """Whether its settings fix the noise, so that it needs no budget."""
        return False

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


def _plain(value: Any) -> Any:
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, tuple | list):
        return [_plain(v) for v in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise InvalidArgument("setting", value, "a number, a word or a list of them")


def check_enough(signal: Signal, *, epsilon: float, delta: float, hint: str = "") -> None:
    """Refuse a budget whose noise is longer than all records together; reads sizes alone.

    A release of p numbers, to whose sum a record adds a vector of length at most 1, has noise of
    length about sqrt(p) / mu, with mu(epsilon, delta) that of a Gaussian release (epsilon / sqrt 2
    at delta 0). The sum is at most n long, when all records pull the same way. So with n mu below
    sqrt(p) most of what is learned is noise, and neither clipping bounds (which scale both) nor
    steps (T sampled steps at rate q and noise z cost about mu = q sqrt(T) / z or more) change that.

    A rule, not a theorem: records that differ in one feature alone, and perfectly, could be told
    apart down to n mu = 1. Measured at epsilon .003, .01 and .03 (delta 1e-5) on digits,
    breast_cancer and blobs: DP-SGD, one-shot moments and the auto-encoder are no better than
    guessing wherever n mu / sqrt(p) is below 1, and clearly better from about 5 on; part of that
    is a test.

    >>> try:
    ...     check_enough(Signal(units=100, numbers=10), epsilon=0.01, delta=1e-5)
    ... except InvalidArgument as refusal:
    ...     print(refusal.expected)
    at least 0.097 for 100 records, or 780 records for 0.01
    """
    what, growth = signal.what, signal.growth
    n, length, pure = signal.units, math.sqrt(signal.numbers), delta == 0.0
    mu = epsilon / math.sqrt(2.0) if pure else gaussian_mu(epsilon, delta)
    if n**growth * mu >= length:
        return
    least = length / n**growth
    needed = _up(least * math.sqrt(2.0) if pure else gaussian_epsilon(least, delta))
    many = round(_up((length / mu) ** (1.0 / growth)))
    raise InvalidArgument(
        "epsilon",
        epsilon,
        f"at least {needed:g} for {n:,} {what}, or {many:,} {what} for {epsilon:g}",
        "; ".join(filter(None, ["noise would be longer than all of them together", hint])),
    )


def _up(x: float) -> float:
    """Rounded up to two digits."""
    unit = 10.0 ** (math.floor(math.log10(x)) - 1)
    return math.ceil(x / unit) * unit
