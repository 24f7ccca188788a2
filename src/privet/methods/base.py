"""The words that all methods share: what is planned from public facts, and what comes out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from privet.data.records import PublicFacts as PublicFacts
from privet.errors import InvalidArgument
from privet.guarantee import Adjacency, Guarantee, Premise, Unit
from privet.ledger import Entry, Ledger
from privet.noise import Source, secure, seeded

Model = TypeVar("Model")
Plan = TypeVar("Plan")


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


def check_per_record(ledger: Ledger) -> None:
    """Refuse a ledger that promises for users or others what is charged for single records."""
    check_unit(ledger, Unit.RECORD)


def check_unit(ledger: Ledger, unit: Unit) -> None:
    """Refuse a ledger that promises for another unit than what is charged."""
    if ledger.unit is not unit:
        raise InvalidArgument("ledger", f"one per {ledger.unit.value}", f"one per {unit.value}")


def check_terms(ledger: Ledger, adjacency: Adjacency, unit: Unit) -> None:
    """Refuse a ledger that promises for other neighbours, or another unit, than what is charged.

    >>> from privet.ledger import Ledger
    >>> ledger = Ledger.in_memory(cap_epsilon=1.0, cap_delta=1e-5)
    >>> check_terms(ledger, Adjacency.ADD_REMOVE, Unit.USER)
    Traceback (most recent call last):
    ...
    privet.errors.InvalidArgument: ledger must be one for add-remove, per user, got 'one for ...'
    """
    if not adjacency.covers(ledger.adjacency) or ledger.unit is not unit:
        raise InvalidArgument(
            "ledger",
            f"one for {ledger.adjacency.value}, per {ledger.unit.value}",
            f"one for {adjacency.value}, per {unit.value}",
        )


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


# What estimators share


def source_of(random_state: int | Source | np.random.RandomState | None) -> Source:
    """The noise source an estimator's `random_state` stands for: secret noise for None.

    >>> source_of(7).secret, source_of(None).secret
    (False, True)
    """
    if random_state is None:
        return secure()
    if isinstance(random_state, Source):
        return random_state
    if isinstance(random_state, np.random.RandomState):
        return seeded(int(random_state.randint(2**31)))
    return seeded(int(random_state))


def class_list(classes: Any) -> NDArray[Any]:
    """The classes, sorted and each once."""
    names = np.unique(np.asarray(classes))
    if len(names) < 2:
        raise InvalidArgument("classes", names.tolist(), "at least two; y has only one class in it")
    return names


def class_numbers(y: NDArray[Any], classes: Any) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """The sorted list of classes, and the number of each label in it, -1 for a label outside.

    `classes` None takes the list from y, which is then something to be assumed public.

    >>> names, numbers = class_numbers(np.array(["b", "z", "a"]), ["a", "b"])
    >>> names.tolist(), numbers.tolist()
    (['a', 'b'], [1, -1, 0])
    """
    names = class_list(y if classes is None else classes)
    place = np.searchsorted(names, y).clip(0, len(names) - 1)
    return names, np.where(names[place] == y, place, -1).astype(np.int64)


def column_bounds(bounds: Any, columns: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Public (low, high) of every column, from two numbers or two lists.

    >>> [b.tolist() for b in column_bounds((0, [1, 2]), 2)]
    [[0.0, 0.0], [1.0, 2.0]]
    """
    expected = f"two numbers, or two lists of {columns}, finite, each low below its high"
    try:
        low, high = (
            np.broadcast_to(np.asarray(b, dtype=np.float64).ravel(), columns) for b in bounds
        )
    except (TypeError, ValueError):
        raise InvalidArgument("bounds", bounds, expected) from None
    if not (np.isfinite(low) & np.isfinite(high) & (low < high)).all():
        raise InvalidArgument("bounds", bounds, expected)
    return low, high


def assuming(guarantee: Guarantee, *more: Premise) -> Guarantee:
    """The same guarantee with more premises; what they say about a thing stands."""
    about = {p.about for p in more}
    kept = tuple(p for p in guarantee.premises if p.about not in about)
    return replace(guarantee, premises=(*kept, *more))
