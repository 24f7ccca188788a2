"""What a charge is about: whose contribution, which neighbours, which part, by whose noise."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, final

from privet.accounting import PrivacyLoss
from privet.errors import Incomparable, InvalidArgument
from privet.guarantee import Adjacency, Protects, Unit


@final
@dataclass(frozen=True, kw_only=True)
class Scope:
    """Whose contribution a loss bounds, for which neighbours, which part of it, by whose noise.

    A loss is a number of a pair of output laws; it says nothing about users or labels. This does.
    The default is a release about single records, by noise that nobody spoke of.

    >>> Scope(unit=Unit.USER).to_dict()
    {'unit': 'user', 'adjacency': None, 'protects': 'record', 'secret': None}
    """

    unit: Unit = Unit.RECORD
    adjacency: Adjacency | None = None
    """None for that of the loss. Say `ZERO_OUT` where the number of records was counted."""
    protects: Protects = Protects.RECORD
    secret: bool | None = None
    """Whether the noise (and the sampling) has a secret key; False for a seed, None if unknown."""

    def __post_init__(self) -> None:
        if not isinstance(self.unit, Unit):
            raise InvalidArgument("unit", self.unit, "a Unit")
        if not isinstance(self.protects, Protects):
            raise InvalidArgument("protects", self.protects, "a Protects")
        if self.adjacency is not None and not isinstance(self.adjacency, Adjacency):
            raise InvalidArgument("adjacency", self.adjacency, "an Adjacency")

    def check(
        self, loss: PrivacyLoss, *, adjacency: Adjacency, unit: Unit, protects: Protects
    ) -> None:
        """Raise unless `loss` in this scope may be charged to a ledger with these terms.

        A ledger for zero-out neighbours takes add-remove losses too, which hold there with the same
        numbers; not the other way round. Units and protected parts must be the same: a bound for
        one record is none for a user, and no conversion is free.
        """
        relation = self.adjacency or loss.adjacency
        if not loss.adjacency.covers(relation):
            raise Incomparable(relation.value, loss.adjacency.value, "adjacency of scope and loss")
        if not relation.covers(adjacency):
            raise Incomparable(adjacency.value, relation.value, "adjacency of ledger and charge")
        if self.unit is not unit:
            raise Incomparable(
                f"per {unit.value}", f"per {self.unit.value}", "unit of ledger and charge"
            )
        if self.protects is not protects:
            raise Incomparable(
                protects.value, self.protects.value, "what ledger and charge protect"
            )

    def to_dict(self) -> dict[str, Any]:
        """A JSON-ready mapping."""
        return {
            "unit": self.unit.value,
            "adjacency": None if self.adjacency is None else self.adjacency.value,
            "protects": self.protects.value,
            "secret": self.secret,
        }

    @classmethod
    def from_dict(cls, d: Mapping[str, Any]) -> Scope:
        """The inverse of `to_dict`."""
        return cls(
            unit=Unit(d["unit"]),
            adjacency=None if d["adjacency"] is None else Adjacency(d["adjacency"]),
            protects=Protects(d["protects"]),
            secret=d["secret"],
        )


PER_RECORD = Scope()
