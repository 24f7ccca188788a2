"""The contract of a training method: written once, and everything else follows from it.

```
Method      its fields are its settings
  plan(facts) -> Plan                     from public facts alone
  fit(records, plan, context) -> Model   charges, draws noise, reports progress
  neighbours(plan) -> NeighbouringPair               the data sets that move its releases most
Model       predicts; state() / from_state(): arrays and JSON, nothing pickled
```
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Any, ClassVar, Generic, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from privet._formatting import chance, number, small_table
from privet.accounting import PrivacyLoss
from privet.data.dataset import Dataset
from privet.data.domain import Domain, Rows
from privet.data.records import PublicFacts, Records
from privet.errors import InvalidArgument
from privet.guarantee import Adjacency, Guarantee, Premise, Protects, Unit
from privet.methods.feasibility import Signal, check_enough, expectation, linear_numbers
from privet.methods.neighbouring_pairs import NeighbouringPair, lone_record_pair
from privet.methods.release_context import ReleaseContext as ReleaseContext
from privet.settings import option_fields
from privet.settings import setting as setting

Array = NDArray[Any]


class InputFeatures(Enum):
    """Which public features a method wants where records are pictures."""

    NONE = "none"
    """The records themselves."""
    ANY = "any"
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
    def stated_adjacency(self) -> Adjacency:
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
        what = "users" if self.facts.users is not None else "records"
        return Signal(units=self.facts.units, numbers=numbers, what=what)

    @property
    def serves_classes_alike(self) -> bool:
        """Whether the model's own logits do, by the declared prior; else they are divided by it."""
        return False

    def expectation(self) -> str:
        """What to expect where the budget leaves little to learn from; else nothing."""
        facts = self.facts
        if facts.outputs == 0:  # nothing is predicted
            return ""
        return expectation(
            self.signal, epsilon=facts.epsilon, delta=facts.delta, number=facts.outputs == 1
        )

    def check_enough(self, budget: PublicFacts, *, hint: str = "") -> None:
        """Refuse a budget, that of these facts, whose noise would outweigh all records together."""
        check_enough(self.signal, epsilon=budget.epsilon, delta=budget.delta, hint=hint)

    def _repr_html_(self) -> str:
        facts = self.facts
        rows = [
            ("budget", f"ε {number(facts.epsilon)}, a chance δ of {chance(facts.delta)}"),
            ("covers", f"each {self.unit.value}, {self.stated_adjacency.value}"),
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
    places: ClassVar[tuple[str, ...]] = ()
    """Options that say where other files lie: they stay in the folder private of a run."""

    @classmethod
    def takes(cls, data: Path) -> bool:
        """Whether these are such files; others are read as for any method."""
        return True

    @abstractmethod
    def read_training(
        self, data: Path, declaration: Path | None, method: Any
    ) -> tuple[Any, Dataset]:
        """The method with the public facts of these files, and its records."""

    @abstractmethod
    def read_inputs(
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


PlanType = TypeVar("PlanType", bound=Plan)


class Method(ABC, Generic[PlanType]):
    """A way to train a model privately; a frozen dataclass whose fields are its settings.

    **Guarantee** of every implementation: `plan` reads no data; `fit` charges `context` before
    anything that depends on the data is released, and reads the data after that only for what was
    charged.
    """

    name: ClassVar[str]
    """The word for it on the command line."""
    input_features: ClassVar[InputFeatures] = InputFeatures.NONE
    regression: ClassVar[bool] = False
    """Whether it also takes numbers to predict (`PrivateRegressor`)."""
    public_inputs_field: ClassVar[str | None] = None
    """The field that takes public inputs without labels, where a method asks about some."""
    public_labels_field: ClassVar[str | None] = None
    """The field that takes the labels of these, where they have to be public too."""
    unplanned_fields: ClassVar[tuple[str, ...]] = ()
    """Fields that change nothing about the plan, such as the network that is trained."""
    protects_users: ClassVar[bool] = False
    """Whether it can protect users who have several records."""
    system: ClassVar[str] = "other methods"
    """What it belongs to, as a comparison shows it."""
    in_comparison: ClassVar[bool] = True
    """Whether it takes part in a comparison of all methods."""
    shows_relevance: ClassVar[bool] = False
    """Whether a comparison shows what its model looks at."""

    @classmethod
    def quick_settings(cls, facts: PublicFacts) -> dict[str, Any]:
        """Settings that keep a comparison short, from public facts; none by default."""
        return {}

    @classmethod
    def for_audit(cls) -> Self:
        """The method with as little work as it can do, for audits and conformance."""
        return cls()

    audit_records: ClassVar[int] = 8
    """Records of the smallest data set that it is tried on."""
    audit_shape: ClassVar[tuple[int, ...]] = (2,)
    """The shape of a row of it."""
    files: ClassVar[type[Files] | None] = None
    """How it reads files where a record is more than a row with a label; None: it is not."""

    @abstractmethod
    def plan(self, facts: PublicFacts) -> PlanType:
        """All settings, from public facts alone."""

    @abstractmethod
    def fit(self, records: Records, plan: PlanType, context: ReleaseContext) -> Model:
        """Train as planned; pay with `context.charge` before anything is drawn."""

    def settings_to_dict(self) -> dict[str, Any]:
        """The settings that a command line could have given, ready for JSON."""
        return {f.name: _setting_to_json(getattr(self, f.name)) for f in option_fields(type(self))}

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

    def neighbours(self, plan: PlanType) -> NeighbouringPair:
        """A record as far out as rows can be, of class 0, against a null one; all others null.

        That is the worst pair for sums over records. Methods that release something else say so.
        """
        return lone_record_pair(plan.facts)


def _setting_to_json(value: Any) -> Any:
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, tuple | list):
        return [_setting_to_json(v) for v in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise InvalidArgument("setting", value, "a number, a word or a list of them")
