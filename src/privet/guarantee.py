"""What a privacy guarantee says: how much, about whom, and on what authority."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from privet._check import Checked, checked, delta_or_zero, non_negative_or_infinite
from privet._formatting import chance, number, small_table, standing_in_words
from privet.errors import Incomparable, InvalidArgument


def number_to_json(x: float) -> float | str:
    """JSON has no infinity: it is written as the string "inf".

    >>> number_to_json(0.5), number_to_json(math.inf)
    (0.5, 'inf')
    """
    return x if math.isfinite(x) else "inf"


class Adjacency(Enum):
    """Which pairs of data sets a guarantee calls neighbours."""

    ADD_REMOVE = "add-remove"
    """One unit is present in one data set and absent from the other; their number is a secret."""
    ZERO_OUT = "zero-out"
    """One unit is there in one data set and replaced by nothing in the other; the number of units
    stays, and is public. What holds under add-remove holds here."""
    REPLACE_ONE = "replace-one"
    """Both have the same size and differ in one unit."""

    @property
    def of_losses(self) -> Adjacency:
        """The relation that losses are computed for: a unit that is absent, or counts for nothing.

        Nothing is added to a sum for an absent unit, nor for one that was replaced by nothing, so
        the two relations have the same pairs of output laws.
        """
        return Adjacency.ADD_REMOVE if self is Adjacency.ZERO_OUT else self

    def covers(self, other: Adjacency) -> bool:
        """Whether a guarantee for this relation is one for `other`, with the same numbers.

        >>> Adjacency.ADD_REMOVE.covers(Adjacency.ZERO_OUT)
        True
        >>> Adjacency.ZERO_OUT.covers(Adjacency.ADD_REMOVE)
        False
        """
        return self is other or (self, other) == (Adjacency.ADD_REMOVE, Adjacency.ZERO_OUT)


class Unit(Enum):
    """Whose contribution is one unit of difference."""

    RECORD = "record"
    USER = "user"
    SHARD = "teacher shard"
    QUERY = "query"


class Protects(Enum):
    """Which part of a unit the guarantee covers."""

    RECORD = "record"
    FEATURES = "features only"
    LABELS = "labels only"


class Standing(Enum):
    """On what authority a number is stated."""

    PROVED = "proved"
    CLAIMED = "claimed"
    NONE = "none"


class Backing(Enum):
    """How a premise of a theorem is known to hold."""

    ENFORCED = "enforced"
    """The code makes it true whatever the data are."""
    TESTED = "tested"
    """A test of ours would fail if it did not hold."""
    ASSUMED = "assumed"
    """Nobody checks; the reader has to believe it."""
    NOT_MET = "not met"
    """It is known not to hold here: what was made is an experiment, not a release."""


EXPERIMENT = "EXPERIMENT, NOT A RELEASE"
"""How everything that shows a promise marks one with a premise that is not met."""


@dataclass(frozen=True, kw_only=True)
class Premise:
    """One premise of a theorem: what it is about, what it says, and how we know it.

    The premises of this library are the values of `privet.premises`.
    """

    about: str
    text: str
    backing: Backing

    def to_dict(self) -> dict[str, str]:
        """A JSON-ready mapping."""
        return {"about": self.about, "text": self.text, "backing": self.backing.value}

    @classmethod
    def from_dict(cls, d: Mapping[str, Any]) -> Premise:
        """The inverse of `to_dict`; version 0.1 did not say what a premise was about."""
        return cls(about=d.get("about", d["text"]), text=d["text"], backing=Backing(d["backing"]))


WEAKEST_FIRST = (Backing.NOT_MET, Backing.ASSUMED, Backing.TESTED, Backing.ENFORCED)
"""The order in which a guarantee lists its premises: what asks most of the reader stands first."""


@dataclass(frozen=True, kw_only=True)
class Guarantee(Checked):
    """An (epsilon, delta) statement that cannot be separated from its meaning.

    A mechanism M is (epsilon, delta)-private for an adjacency when, for all neighbours D, D' and
    all events S, P[M(D) in S] <= e^epsilon P[M(D') in S] + delta. `epsilon` may be infinite: then
    nothing is promised and `standing` should be `NONE`. `premises` are listed weakest first.

    `proved` stands alone only where the code enforces every premise; otherwise the line says how
    many have to hold.

    >>> g = Guarantee(epsilon=1.0, delta=1e-5, theorem="exact Gaussian mechanism")
    >>> print(g)
    (1, 1e-05)-DP per record, add-remove, proved
    >>> believed = Premise(about="people", text="one record each", backing=Backing.ASSUMED)
    >>> print(replace(g, premises=(believed,)))
    (1, 1e-05)-DP per record, add-remove, proved, if 1 assumed premise holds
    >>> g.holds_for(epsilon=2.0, delta=1e-5)
    True
    """

    epsilon: float = checked(non_negative_or_infinite)
    delta: float = checked(delta_or_zero)
    adjacency: Adjacency = Adjacency.ADD_REMOVE
    unit: Unit = Unit.RECORD
    protects: Protects = Protects.RECORD
    standing: Standing = Standing.PROVED
    theorem: str
    premises: tuple[Premise, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "premises", _weakest_first(self.premises))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self}>"

    def __str__(self) -> str:
        part = "" if self.protects is Protects.RECORD else f" ({self.protects.value})"
        mark = "" if self.release else f"; {EXPERIMENT}"
        return (
            f"({self.epsilon:.4g}, {self.delta:.3g})-DP per {self.unit.value}{part}, "
            f"{self.adjacency.value}, {self.standing_in_words}{mark}"
        )

    @property
    def standing_in_words(self) -> str:
        """The standing, and how many premises that are only assumed or tested it rests on."""
        backings = [p.backing.value for p in self.premises]
        return standing_in_words(self.standing.value, backings)

    @property
    def not_met(self) -> tuple[Premise, ...]:
        """The premises that are known not to hold, such as a secret key where there is a seed."""
        return tuple(p for p in self.premises if p.backing is Backing.NOT_MET)

    @property
    def release(self) -> bool:
        """Whether what it is about may be released: no premise is known not to hold."""
        return not self.not_met

    def holds_for(self, *, epsilon: float, delta: float) -> bool:
        """Whether this guarantee implies (epsilon, delta) for the same meaning."""
        return self.epsilon <= epsilon and self.delta <= delta

    def at_least_as_strong_as(self, other: Guarantee) -> bool:
        """Whether this one implies `other`; raises when the two do not speak of the same thing.

        A claim never implies a proof, however small its number.
        """
        for what in ("unit", "protects"):
            mine, theirs = getattr(self, what), getattr(other, what)
            if mine is not theirs:
                raise Incomparable(mine.value, theirs.value, what)
        if not self.adjacency.covers(other.adjacency):
            raise Incomparable(self.adjacency.value, other.adjacency.value, "adjacency")
        if self.standing is not Standing.PROVED and other.standing is Standing.PROVED:
            return False  # a claim never implies what is proved
        return self.holds_for(epsilon=other.epsilon, delta=other.delta)

    def as_replace_one(self) -> Guarantee:
        """The same release under replace-one adjacency: remove one, add one.

        By group privacy for two, (e, d) add-remove gives (2e, (1 + e^e) d) replace-one. It costs
        budget, so it never happens by itself; a mechanism's own replace-one analysis is tighter.
        """
        if self.adjacency is Adjacency.REPLACE_ONE:
            return self
        # the (1 + e^e) factor overflows for a huge epsilon, where delta would pass 1 anyway
        grown = math.inf if self.epsilon > 700 else (1.0 + math.exp(self.epsilon)) * self.delta
        vacuous = self.delta > 0 and grown >= 1.0
        return replace(
            self,
            epsilon=math.inf if vacuous else 2.0 * self.epsilon,
            delta=self.delta if vacuous or self.delta == 0 else grown,
            adjacency=Adjacency.REPLACE_ONE,
            standing=Standing.NONE if vacuous else self.standing,
            theorem=f"{self.theorem}; group privacy for two",
        )

    def as_add_remove(self) -> Guarantee:
        """Refuses: a replace-one guarantee says nothing about the size of the data set."""
        if self.adjacency is Adjacency.ADD_REMOVE:
            return self
        raise Incomparable(self.adjacency.value, Adjacency.ADD_REMOVE.value, "adjacency")

    def _repr_html_(self) -> str:
        rows = [
            ("a chance δ of", chance(self.delta)),
            ("covers", f"each {self.unit.value}; {self.protects.value}"),
            ("by", self.theorem),
            *((p.backing.value, p.text) for p in self.premises),
        ]
        head = f"ε {number(self.epsilon)}, {self.adjacency.value}, {self.standing_in_words}"
        return small_table(head, rows, mark="" if self.release else EXPERIMENT)

    def to_dict(self) -> dict[str, Any]:
        """A JSON-ready mapping; an infinite epsilon is written as the string "inf".

        `text` is the line that `str` gives, for who shows it: a reader of `standing` alone does not
        learn what it rests on.
        """
        return {
            "text": str(self),
            "epsilon": number_to_json(self.epsilon),
            "delta": self.delta,
            "adjacency": self.adjacency.value,
            "unit": self.unit.value,
            "protects": self.protects.value,
            "standing": self.standing.value,
            "release": self.release,
            "theorem": self.theorem,
            "premises": [p.to_dict() for p in self.premises],
        }

    @classmethod
    def from_dict(cls, d: Mapping[str, Any]) -> Guarantee:
        """The inverse of `to_dict`."""
        return cls(
            epsilon=float(d["epsilon"]),
            delta=float(d["delta"]),
            adjacency=Adjacency(d["adjacency"]),
            unit=Unit(d["unit"]),
            protects=Protects(d["protects"]),
            standing=Standing(d["standing"]),
            theorem=str(d["theorem"]),
            premises=tuple(
                Premise.from_dict(p) for p in d.get("premises", d.get("assumptions", ()))
            ),
        )


def _weakest_first(premises: tuple[Premise, ...]) -> tuple[Premise, ...]:
    """Each premise once; two that differ about the same thing are a mistake of ours."""
    found: dict[str, Premise] = {}
    for p in premises:
        if found.setdefault(p.about, p) != p:
            raise InvalidArgument(
                "premises", p.text, f"one about {p.about!r}", f"there is {found[p.about].text!r}"
            )
    return tuple(sorted(found.values(), key=lambda p: WEAKEST_FIRST.index(p.backing)))
