"""The words that all methods share: what is planned from public facts, and what comes out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from privet.guarantee import Guarantee
from privet.ledger import Entry, Ledger
from privet.noise import Source

Model = TypeVar("Model")
Plan = TypeVar("Plan")


@dataclass(frozen=True, kw_only=True)
class PublicFacts:
    """All that a plan may look at: sizes and a budget, never records.

    `records` is the *nominal* size of the data set. Under add-remove adjacency the true size is a
    secret, so this is a number that the user declares (or accepts as public).
    """

    records: int
    features: int
    outputs: int
    epsilon: float
    delta: float


@dataclass(frozen=True, kw_only=True)
class Release(Generic[Model]):
    """What a method hands over: the model, and what is promised, claimed and charged for it."""

    model: Model
    guarantee: Guarantee
    claim: Guarantee | None
    entries: tuple[Entry, ...]
    steps: int = 0
    """How many steps were made, where a method has steps; fewer than planned if a cap ended it."""

    @property
    def entry(self) -> Entry | None:
        """The last charge made for this release."""
        return self.entries[-1] if self.entries else None


class Method(ABC, Generic[Model, Plan]):
    """A way to train a model privately: planned from public facts, charged, then released.

    **Guarantee** of every implementation: `plan` reads no data; `fit` charges the ledger before
    anything that depends on the data is released, and raises `BudgetExceeded` with nothing released
    when the ledger refuses.
    """

    @abstractmethod
    def plan(self, facts: PublicFacts) -> Plan:
        """All settings, from public facts alone."""

    @abstractmethod
    def fit(
        self, x: Any, y: Any, plan: Plan, *, ledger: Ledger | None, rng: Source
    ) -> Release[Model]:
        """Train on the data as planned."""
