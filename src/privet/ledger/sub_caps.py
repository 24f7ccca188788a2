"""Caps inside a ledger's cap: what one person, or what is done for one purpose, may spend."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Self, final

from privet._check import Checked, checked, positive
from privet.errors import InvalidArgument

KINDS = ("person", "purpose")


@final
@dataclass(frozen=True, kw_only=True)
class SubCap(Checked):
    """The most epsilon, at the ledger's delta, of all charges of one person or for one purpose.

    Everybody's charges are about the same records, so a sub-cap protects nobody better: it divides
    the budget. Who charges, and for what, is what the charge says.

    >>> SubCap.parse("person:ada=1.5")
    SubCap(kind='person', name='ada', epsilon=1.5)
    """

    kind: str
    name: str
    epsilon: float = checked(positive)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.kind not in KINDS or not self.name.strip():
            raise InvalidArgument("sub-cap", f"{self.kind}:{self.name}", "person:NAME=EPSILON or "
                                  "purpose:NAME=EPSILON")  # fmt: skip

    @classmethod
    def parse(cls, text: str) -> Self:
        """A sub-cap as a command line gives it."""
        kind, _, rest = text.partition(":")
        name, _, epsilon = rest.rpartition("=")
        try:
            return cls(kind=kind, name=name.strip(), epsilon=float(epsilon))
        except ValueError:
            expected = "person:NAME=EPSILON or purpose:NAME=EPSILON"
            raise InvalidArgument("--sub-cap", text, expected) from None

    def covers(self, *, who: str, purpose: str | None) -> bool:
        """Whether a charge counts against it."""
        return self.name == (who if self.kind == "person" else purpose)

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"

    def to_dict(self) -> dict[str, Any]:
        """A JSON-ready mapping."""
        return {"kind": self.kind, "name": self.name, "epsilon": self.epsilon}


def check_each_once(caps: Iterable[SubCap]) -> tuple[SubCap, ...]:
    """The sub-caps, each person and purpose once."""
    found = tuple(caps)
    names = [(c.kind, c.name) for c in found]
    if len(set(names)) < len(names):
        raise InvalidArgument("sub-caps", [str(c) for c in found], "one for each name")
    return found
