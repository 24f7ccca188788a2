"""The rows of one ledger and what they come to; the only code that reads and appends them.

The file is held only for reading and writing rows: hashes are checked and epsilons computed outside
the lock. An entry names the head that it follows, and is appended only if that is still the head
(compare and swap), so that nobody waits for somebody else's arithmetic.
"""

from __future__ import annotations

import math
import os
import sqlite3
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self, final

from privet.errors import (
    BudgetExceeded,
    LedgerError,
    LedgerLocked,
    LedgerTampered,
    PrivetError,
    TokenReused,
)
from privet.guarantee import Adjacency, Protects, Unit
from privet.ledger import _store
from privet.ledger._chain import (
    Entry,
    Scope,
    Terms,
    digest,
    priced,
    privet_version,
    utc_now,
    whoami,
    words,
)
from privet.loss import PrivacyLoss
from privet.loss.growing import Growing


def stated(epsilon: float) -> float:
    """epsilon to the twelve digits that ledgers state."""
    return float(f"{epsilon:.12g}")


@final
@dataclass(frozen=True, kw_only=True)
class Charged:
    """What a token stands for: the entry, and the cost and data it was charged for."""

    sequence: int
    loss: bytes
    scope: Scope | None
    dataset: str | None

    @classmethod
    def of(cls, entry: Entry) -> Charged:
        """What its token stands for from now on."""
        return cls(
            sequence=entry.sequence,
            loss=entry.cost,
            scope=entry.scope,
            dataset=entry.dataset,
        )


@final
@dataclass
class Tally:
    """A walk along the chain: how far it came, and what the entries so far compose to.

    `head` starts as the hash of the terms; entry t is accepted when its body hashes to its hash and
    names the hash before it, so one walk proves every earlier byte unchanged.
    """

    ledger: str
    head: str
    account: Growing
    """What the entries so far compose to."""
    count: int = 0
    seeded: int = 0
    """How many charges were for noise from a seed."""
    tokens: dict[str, Charged] = field(default_factory=dict)

    @classmethod
    def start(cls, ledger: str, genesis: str, terms: Terms) -> Tally:
        """Before the first entry."""
        account = Growing(adjacency=terms.common, delta=terms.cap_delta, cap=terms.cap_epsilon)
        return cls(ledger=ledger, head=genesis, account=account)

    def walk(self, rows: Iterable[tuple[Any, Any, Any]]) -> list[Entry]:
        """Accept further rows (sequence, body, hash), in order, or say which one is wrong."""
        entries: list[Entry] = []
        head = self.head
        for row in rows:
            entry = self._accept(self.count + len(entries) + 1, head, *row)
            head = entry.hash
            entries.append(entry)
        if entries:  # all or nothing: a tally never counts an entry without its loss
            for entry in entries:
                self.account.add(entry.priced)
            self.count, self.head = self.count + len(entries), head
            self.seeded += sum(e.scope is not None and e.scope.secret is False for e in entries)
            self.tokens.update((e.token, Charged.of(e)) for e in entries if e.token is not None)
        return entries

    def charged(
        self, token: str | None, loss: bytes, scope: Scope, dataset: str | None
    ) -> int | None:
        """The entry that `token` was charged with, if it was; it must have been for the same."""
        if token is None or token not in self.tokens:
            return None
        before = self.tokens[token]
        same = (before.loss, before.dataset) == (loss, dataset)
        if not same or before.scope not in (None, scope):
            raise TokenReused(
                self.ledger,
                f"token {token!r} was charged before with another loss, scope or data set",
                "use a new token",
            )
        return before.sequence

    def _accept(self, due: int, head: str, sequence: Any, body: Any, stored: Any) -> Entry:
        if sequence != due:
            raise self._broken(due, f"entry {due} is missing")
        if not isinstance(body, bytes) or not isinstance(stored, bytes):
            raise self._broken(due, f"entry {due} is not text")
        if digest(body).encode() != stored:
            raise self._broken(due, f"entry {due} does not match its hash")
        try:
            entry = Entry.from_body(body)
        except PrivetError as e:
            raise LedgerError(
                self.ledger, f"entry {due} has a loss this privet cannot read ({e})", "upgrade"
            ) from e
        except (ValueError, TypeError, KeyError) as e:
            raise self._broken(due, f"entry {due} is not an entry ({type(e).__name__})") from e
        if entry.sequence != due or entry.previous != head:
            raise self._broken(due, f"entry {due} does not follow the one before it")
        return entry

    def _broken(self, entry: int, problem: str) -> LedgerTampered:
        return LedgerTampered(self.ledger, problem, "restore a copy", entry=entry)


@final
class Book:
    """A store, the terms in it, and how far we have read: `tally`, used with `GUARD` held."""

    def __init__(self, store: _store.Store) -> None:
        self.store = store
        with store.transaction(write=False) as connection:
            body = _store.read_terms(connection, store.name)
        self.genesis = digest(body)
        self.terms = Terms.from_body(body, store.name)
        self.tally = Tally.start(store.name, self.genesis, self.terms)
        self._exact: dict[tuple[str, float], float] = {}
        self.refresh()

    @classmethod
    def in_memory(cls, **terms: Any) -> Self:
        """A new one that ends with this process."""
        body, store = Terms.new(**terms).body(), _store.MemoryStore()
        with store.transaction(write=True) as connection:
            _store.write_new(connection, body, digest(body))
        return cls(store)

    @classmethod
    def create(cls, path: Path, timeout: float, **terms: Any) -> Self:
        """A new one in a file, which must not exist."""
        body = Terms.new(**terms).body()
        _store.create_file(path.resolve(), body, digest(body))
        return cls.open(path, timeout)

    @classmethod
    def open(cls, path: Path, timeout: float) -> Self:
        """The one in this file."""
        return cls(_store.FileStore(path.resolve(), timeout))

    def refresh(self) -> Tally:
        """Take in what others wrote since we last looked."""
        with _store.GUARD:
            with self.store.transaction(write=False) as connection:
                rows, head = self._since(connection, self.tally.count)
            self._take(self.tally, rows, head)
            return self.tally

    def history(self) -> tuple[Tally, list[Entry]]:
        """Everything from the start, each entry checked."""
        with self.store.transaction(write=False) as connection:
            rows, head = self._since(connection, 0)
        tally = Tally.start(self.store.name, self.genesis, self.terms)
        return tally, self._take(tally, rows, head)

    def damage(self) -> str | None:
        """What SQLite itself finds wrong, or a change to tables and triggers."""
        with self.store.transaction(write=False) as connection:
            return _store.damage(connection)

    def entry(self, sequence: int) -> Entry:
        """One entry that was read before."""
        with self.store.transaction(write=False) as connection:
            return Entry.from_body(_store.read_rows(connection, sequence, sequence)[0][1])

    def charge(
        self,
        loss: PrivacyLoss,
        *,
        what: str,
        scope: Scope,
        who: str | None,
        run: str | None,
        purpose: str | None,
        dataset: str | None,
        token: str | None,
    ) -> Entry:
        """Write the cost of a release if it fits under the cap; see `Ledger.charge`."""
        what = words("what", what)
        token = None if token is None else words("token", token)
        who = whoami() if who is None else words("who", who)
        run = None if run is None else words("run", run)
        dataset, terms = self._for_this_data(dataset), self.terms
        loss, cost = terms.accepted(loss, scope)
        for _ in self._attempts():
            with _store.GUARD:
                earlier = self.tally.charged(token, cost, scope, dataset)
                sequence, previous = self.tally.count + 1, self.tally.head
            if earlier is not None:
                return self.entry(earlier)
            would_be = self.would_be(loss)
            if not would_be <= terms.cap_epsilon:  # NaN is refused too
                if self.refresh().head != previous:  # others charged meanwhile
                    continue
                raise BudgetExceeded(
                    cap_epsilon=terms.cap_epsilon,
                    would_be=would_be,
                    delta=terms.cap_delta,
                    what=what,
                )
            entry = Entry.sealed(
                sequence=sequence,
                what=what,
                loss=loss,
                scope=scope,
                spent=would_be,
                run=run,
                purpose=purpose,
                dataset=dataset,
                token=token,
                who=who,
                process=os.getpid(),
                when=utc_now(),
                version=privet_version(),
                previous=previous,
            )
            if self.append(entry):
                return entry
        raise LedgerLocked(
            self.store.name,
            "others kept charging it while we computed",
            "try again, or charge less often",
        )

    def refuse_other(self, relation: Adjacency, unit: Unit, protects: Protects) -> None:
        """Raise unless a training that promises this may be charged here."""
        self.terms.refuse_other(relation, unit, protects)

    def affords(self, loss: PrivacyLoss) -> bool:
        """Whether `loss` would fit under the cap now."""
        loss, _ = self.terms.accepted(loss, None)
        self.refresh()
        return self.would_be(loss) <= self.terms.cap_epsilon

    def epsilon_after(self, loss: PrivacyLoss) -> float:
        """What would be spent in all after one more `loss`, exactly."""
        loss, _ = self.terms.accepted(loss, None)
        return stated((self.total + priced(loss)).epsilon(self.terms.cap_delta))

    @property
    def total(self) -> PrivacyLoss:
        """Everything charged so far, composed."""
        with _store.GUARD:
            return self.refresh().account.total

    def append(self, entry: Entry) -> bool:
        """Write `entry` if it still follows the last one; otherwise take in what came between."""
        body = entry.body()
        with _store.GUARD:
            with self.store.transaction(write=True) as connection:
                rows, head = self._since(connection, self.tally.count)
                current = not rows and head == (self.tally.count, self.tally.head)
                follows = current and entry.previous == self.tally.head
                if follows:
                    _store.append(connection, entry.sequence, body, entry.hash)
                    rows = [(entry.sequence, body, entry.hash.encode())]
                    head = (entry.sequence, entry.hash)
            self._take(self.tally, rows, head)
        return follows

    def exact(self, tally: Tally, delta: float) -> float:
        """epsilon of everything up to the head of `tally`, composed exactly; computed once."""
        key = (tally.head, delta)
        if key not in self._exact:
            with _store.GUARD:
                total = tally.account.total
            self._exact = {k: v for k, v in self._exact.items() if k[0] == tally.head}
            self._exact[key] = stated(total.epsilon(delta))
        return self._exact[key]

    def statement(self) -> dict[str, Any]:
        """Which ledger this is and where it stands, without its entries."""
        terms, tally = self.terms, self.refresh()
        return {
            "identity": terms.identity,
            "in_memory": not isinstance(self.store, _store.FileStore),
            "head": tally.head,
            "count": tally.count,
            **terms.against(self.exact(tally, terms.cap_delta)),
        }

    def would_be(self, loss: PrivacyLoss) -> float:
        """epsilon with one more `loss`: a bound if that is enough, otherwise exactly.

        The exact composition can take long. It is computed without any lock.
        """
        loss = priced(loss)
        with _store.GUARD:
            account = self.tally.account
            bound = stated(account.epsilon_with(loss))
            if math.isfinite(bound) and bound <= self.terms.cap_epsilon:
                return bound
            total = account.total
        return stated((total + loss).epsilon(self.terms.cap_delta))

    def _attempts(self) -> Iterator[None]:
        """Again and again, for as long as we would wait for a lock; once at least."""
        patience = self.store.timeout if isinstance(self.store, _store.FileStore) else math.inf
        deadline = time.monotonic() + patience
        yield
        while time.monotonic() < deadline:
            yield

    def _for_this_data(self, dataset: str | None) -> str | None:
        own = self.terms.dataset
        if dataset is None:
            return own
        if own not in (None, words("dataset", dataset)):
            raise LedgerError(
                self.store.name,
                f"keeps the budget of data set {own}, not of {dataset}",
                "each data set has its own ledger",
            )
        return dataset

    def _since(
        self, connection: sqlite3.Connection, count: int
    ) -> tuple[list[_store.Row], tuple[int, str]]:
        """Rows after the first `count`, and the head that was written with the last of them."""
        name = self.store.name
        if digest(_store.read_terms(connection, name)) != self.genesis:
            raise LedgerTampered(name, "its terms changed while it was open", "restore a copy")
        return _store.read_rows(connection, count + 1), _store.read_head(connection, name)

    def _take(self, tally: Tally, rows: list[_store.Row], written: tuple[int, str]) -> list[Entry]:
        """Walk on along `rows`; the head that was written must be where the walk ends."""
        entries = tally.walk(rows)
        count, head = written
        if (count, head) != (tally.count, tally.head):
            raise LedgerTampered(
                self.store.name,
                f"its head speaks of {count} entries, its chain of {tally.count}"
                if count != tally.count
                else "its head is not the hash of its last entry, or of its terms",
                "entries were removed or changed; restore a copy",
                entry=min(count, tally.count) + 1 if count != tally.count else None,
            )
        return entries
