"""Checking a whole ledger, and handing it over: both read every entry, once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

from privet._words import chance, number, small_table
from privet.errors import LedgerError, LedgerTampered
from privet.guarantee import number_to_json
from privet.ledger._book import Book, stated
from privet.ledger._store import FORMAT

SHOWN = 10
"""Charges in a notebook."""


@final
@dataclass(frozen=True, kw_only=True)
class Verification:
    """What `Ledger.verify` established; it raises instead when something is wrong."""

    count: int
    head: str
    spent: float
    since: int | None
    """How many entries came after the noted head; None when none was given."""

    def to_dict(self) -> dict[str, Any]:
        """A JSON-ready mapping."""
        return {
            "ok": True,
            "count": self.count,
            "head": self.head,
            "spent": number_to_json(self.spent),
            "entries_since_noted_head": self.since,
        }


def verify(book: Book, head: str | None) -> Verification:
    """Pages, tables, terms, each entry, the chain, the head, the noted head and the cap."""
    name, terms = book.store.name, book.terms
    problem = book.damage()
    tally, entries = book.history()
    if problem is not None:
        raise LedgerTampered(name, problem, "restore a copy")
    since = None
    if head is not None:
        hashes = [book.genesis, *(entry.hash for entry in entries)]
        if head not in hashes:
            raise LedgerTampered(
                name,
                f"the noted head {head[:12]}... is not in its chain",
                "entries were removed or the file was rewritten",
            )
        since = len(hashes) - 1 - hashes.index(head)
    spent = book.exact(tally, terms.cap_delta)
    if not spent <= terms.cap_epsilon:  # the sum part by part can be tighter
        spent = min(spent, stated(tally.account.replayed(e.priced for e in entries)))
    if not spent <= terms.cap_epsilon:
        raise LedgerError(
            name,
            f"its entries compose to epsilon {spent:.6g}, over the cap {terms.cap_epsilon:.6g}",
            "somebody else wrote to it, or with another version of privet",
        )
    return Verification(count=tally.count, head=tally.head, spent=spent, since=since)


def export(book: Book) -> dict[str, Any]:
    """Everything, JSON-ready; the hashes can be recomputed from it without privet."""
    tally, entries = book.history()
    spent = book.exact(tally, book.terms.cap_delta)
    return {
        "format": f"privet-ledger/{FORMAT}",
        "terms": book.terms.to_dict(),
        "genesis": book.genesis,
        "entries": [entry.to_dict() for entry in entries],
        "count": tally.count,
        "head": tally.head,
        "spent": {"epsilon": number_to_json(spent), "delta": book.terms.cap_delta},
    }


def as_html(book: Book) -> str:
    """The budget, what is spent, and the last charges, for a notebook."""
    tally, entries = book.history()
    terms = book.terms
    spent = number(book.exact(tally, terms.cap_delta))
    rows = [
        ("spent", f"ε {spent} of {number(terms.cap_epsilon)}"),
        ("a chance δ of", chance(terms.cap_delta)),
        ("per", f"{terms.unit.value}, {terms.adjacency.value}"),
        *((f"{e.sequence}: {e.when[:10]}", f"{e.what} ({e.who})") for e in entries[-SHOWN:]),
    ]
    left = f"{tally.count - SHOWN} earlier charges not shown" if tally.count > SHOWN else ""
    return small_table(book.store.name, rows, note=left)
