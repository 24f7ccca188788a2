"""The charges of a ledger grouped by release: a training is one, however often it charged."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, final

from privet.accounting import compose
from privet.guarantee import number_to_json
from privet.ledger.hash_chain import Entry

MOST = 50
"""Releases that the record of a run lists: about a page; earlier ones are counted."""


@final
@dataclass(frozen=True, kw_only=True)
class LedgerRelease:
    """All charges of one run, or one charge that named none."""

    entries: tuple[Entry, ...] = field(repr=False)

    @property
    def what(self) -> str:
        """What was released: the words with which all of its charges begin."""
        return common_words([e.what for e in self.entries])

    @property
    def run(self) -> str | None:
        """The training or analysis that it is."""
        return self.entries[0].run

    @property
    def purpose(self) -> str | None:
        """The purpose that was stated for it."""
        return self.entries[0].purpose

    @property
    def who(self) -> str:
        """The user who charged it."""
        return ", ".join(dict.fromkeys(e.who for e in self.entries))

    @property
    def date(self) -> str:
        """The day of its last charge."""
        return self.entries[-1].when[:10]

    @property
    def spent(self) -> float:
        """What had been spent in all after it."""
        return self.entries[-1].spent

    def epsilon(self, delta: float) -> float:
        """The epsilon of this release by itself."""
        return compose([e.loss_to_compose for e in self.entries]).epsilon(delta)

    def to_dict(self, delta: float) -> dict[str, Any]:
        """What the record of a run says of it; not who charged: records are published."""
        return {
            "run": self.run,
            "what": self.what,
            "purpose": self.purpose,
            "date": self.date,
            "epsilon": number_to_json(float(f"{self.epsilon(delta):.12g}")),
        }


def group_releases(entries: Iterable[Entry]) -> list[LedgerRelease]:
    """One release for each run and for each charge without one, in the order of first charges."""
    groups: dict[object, list[Entry]] = {}
    for e in entries:
        groups.setdefault(e.sequence if e.run is None else e.run, []).append(e)
    return [LedgerRelease(entries=tuple(group)) for group in groups.values()]


def common_words(texts: list[str]) -> str:
    """The words that all begin with; all of the first where there are none.

    >>> common_words(["DP-SGD, steps 0 to 9", "DP-SGD, steps 10 to 19"])
    'DP-SGD, steps'
    """
    words = [text.split() for text in texts]
    shared = []
    for column in zip(*words, strict=False):
        if len(set(column)) > 1:
            break
        shared.append(column[0])
    return " ".join(shared).rstrip(" ,;:") or texts[0]
