"""The budget of one data set: charged before every release, refused over its cap.

A `Ledger` reads and appends the rows of a store (`sqlite_store`). The file is held only for reading
and writing rows: hashes are checked and epsilons computed outside the lock. An entry names the head
that it follows, and is appended only if that is still the head (compare and swap), so that nobody
waits for somebody else's arithmetic.
"""

from __future__ import annotations

import math
import os
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, final

from privet import _check, premises
from privet._canonical_json import sha256_hex
from privet._formatting import chance, number, small_table
from privet.accounting import PrivacyLoss, compose
from privet.errors import (
    BudgetExceeded,
    InvalidArgument,
    LedgerError,
    LedgerLocked,
    LedgerTampered,
)
from privet.guarantee import Adjacency, Guarantee, Protects, Standing, Unit, number_to_json
from privet.ledger import sqlite_store
from privet.ledger.charge_scope import PER_RECORD, Scope
from privet.ledger.curator_key import is_identity
from privet.ledger.hash_chain import ChainWalk, Entry
from privet.ledger.odometer_and_filter import Odometer, premises_of, read_odometer, share_of_delta
from privet.ledger.releases import MOST, LedgerRelease, group_releases
from privet.ledger.sub_caps import SubCap
from privet.ledger.terms import Terms, check_text, loss_to_compose, privet_version, utc_now, whoami

PATIENCE = 30.0
"""Seconds to wait for a lock: hundreds of charges of others (some 40 ms each), and an end
where a process hangs."""
SHOWN = 10
"""Charges listed in a notebook: the last ones, about a screen with the figures above them."""


def round_epsilon(epsilon: float) -> float:
    """epsilon to the twelve digits that ledgers state."""
    return float(f"{epsilon:.12g}")


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


@final
class Ledger:
    """An append-only record of what was spent on one data set, with a cap that nobody passes.

    A charge composes the loss with everything before it and is written only when
    epsilon(total, cap_delta) <= cap_epsilon; it is on disk when `charge` returns, so a release that
    follows is always covered. epsilon is stated to twelve significant digits: three charges of 0.1
    fill a cap of 0.3, which binary fractions alone would miss by 4e-17.

    **Guarantee**: all releases charged here are together (cap_epsilon, cap_delta)-private for the
    ledger's adjacency and unit, at whatever moment somebody stops or the process dies; see
    `guarantee` for the premises.

    **Assumes** (not checked): every release on the data is charged, before it is made, here; each
    loss really bounds its release. The hash chain shows damage and careless edits, not a forger who
    rewrites the whole file: note `head` elsewhere for that (docs/theory/ledger.md).

    >>> from privet.accounting import Gaussian
    >>> ledger = Ledger.in_memory(cap_epsilon=2.0, cap_delta=1e-5)
    >>> ledger.charge(Gaussian(mu=0.3), what="mean age").sequence
    1
    >>> entry = ledger.charge(Gaussian(mu=0.4), what="mean income")
    >>> round(ledger.spent(), 4), len(ledger.entries())
    (1.9931, 2)
    >>> ledger.affords(Gaussian(mu=0.3))
    False
    """

    def __init__(self, store: sqlite_store.Store) -> None:
        """Use `in_memory`, `create` or `open`."""
        self.purpose: str | None = None
        """What is charged through this object from now on is for, unless a charge says so."""
        self.who: str | None = None
        """Who charges through this object from now on; by default user@host."""
        self.data: str | None = None
        """The identity of the data (`CuratorKey.identify`) that is charged for from now on."""
        self.admits_other_data = False
        """Whether charges for other data than those of the first one are taken."""
        self._store = store
        with store.transaction(write=False) as connection:
            body = sqlite_store.read_terms(connection, store.name)
        self._genesis = sha256_hex(body)
        self._terms = Terms.from_body(body, store.name)
        self._chain = self._start_of_chain()
        """How far we have read; used with `sqlite_store.GUARD` held."""
        self._spent: dict[tuple[str, float], float] = {}
        self._refresh()

    # Three ways to get one

    @classmethod
    def in_memory(
        cls,
        *,
        cap_epsilon: float,
        cap_delta: float,
        adjacency: Adjacency = Adjacency.ZERO_OUT,
        unit: Unit = Unit.RECORD,
        protects: Protects = Protects.RECORD,
        dataset: str | None = None,
        sub_caps: Iterable[SubCap] = (),
    ) -> Self:
        """A ledger for this process only; a cap of `math.inf` records without refusing."""
        body = Terms.new(
            cap_epsilon, cap_delta, adjacency, unit, protects, dataset, sub_caps
        ).body()
        store = sqlite_store.MemoryStore()
        with store.transaction(write=True) as connection:
            sqlite_store.write_new(connection, body, sha256_hex(body))
        return cls(store)

    @classmethod
    def create(
        cls,
        path: str | os.PathLike[str],
        *,
        cap_epsilon: float,
        cap_delta: float,
        adjacency: Adjacency = Adjacency.ZERO_OUT,
        unit: Unit = Unit.RECORD,
        protects: Protects = Protects.RECORD,
        dataset: str | None = None,
        sub_caps: Iterable[SubCap] = (),
        timeout: float = PATIENCE,
    ) -> Self:
        """A new ledger file; refuses to touch a file that exists."""
        body = Terms.new(
            cap_epsilon, cap_delta, adjacency, unit, protects, dataset, sub_caps
        ).body()
        sqlite_store.create_file(Path(path).resolve(), body, sha256_hex(body))
        return cls.open(path, timeout=timeout)

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, timeout: float = PATIENCE) -> Self:
        """An existing ledger file, its chain checked; `timeout` is how long to wait for a lock."""
        return cls(sqlite_store.FileStore(Path(path).resolve(), timeout))

    # Copies: one ledger is one budget

    def backup(self, path: str | os.PathLike[str]) -> str:
        """Write a copy that can be read and verified but never charged; returns the head it has.

        A plain copy of the file would be a second budget. Note the head elsewhere: `restore` asks
        for it.
        """
        with sqlite_store.GUARD:
            head = self._refresh().head
            with self._store.transaction(write=False) as connection:
                sqlite_store.copy_file(connection, Path(path).resolve(), backup=True)
        copy = type(self).open(path)
        copy.verify(head=head)
        return copy.head

    @classmethod
    def restore(
        cls,
        backup: str | os.PathLike[str],
        path: str | os.PathLike[str],
        *,
        head: str,
        timeout: float = PATIENCE,
    ) -> Self:
        """A ledger at `path` again from its backup, when the ledger itself is lost.

        `head` is the last one that anybody noted (`backup` returns it, every record of a run has
        one): a backup that does not contain it lacks charges, and is refused.

        **Assumes**: the ledger is gone, and was not charged after `head` was noted.
        """
        copy = cls.open(backup, timeout=timeout)
        copy.verify(head=head)
        with copy._store.transaction(write=False) as connection:
            if not sqlite_store.is_backup(connection):
                raise LedgerError(
                    copy.name, "is a ledger, not a backup of one", "charge it as it is"
                )
            sqlite_store.copy_file(connection, Path(path).resolve(), backup=False)
        return cls.open(path, timeout=timeout)

    @property
    def is_backup(self) -> bool:
        """Whether this file was made by `backup`: it can be looked at, and takes no charge."""
        with self._store.transaction(write=False) as connection:
            return sqlite_store.is_backup(connection)

    # Its terms

    @property
    def name(self) -> str:
        """The path of its file, or "in memory"."""
        return self._store.name

    @property
    def cap_epsilon(self) -> float:
        """The most epsilon that may ever be spent, at `cap_delta`."""
        return self._terms.cap_epsilon

    @property
    def cap_delta(self) -> float:
        """The delta at which the total is held against the cap."""
        return self._terms.cap_delta

    @property
    def adjacency(self) -> Adjacency:
        """The neighbouring relation of every loss in it."""
        return self._terms.adjacency

    @property
    def unit(self) -> Unit:
        """Whose contribution is protected."""
        return self._terms.unit

    @property
    def protects(self) -> Protects:
        """Which part of a unit is protected."""
        return self._terms.protects

    @property
    def dataset(self) -> str | None:
        """The fingerprint or name of the data it belongs to."""
        return self._terms.dataset

    @property
    def sub_caps(self) -> tuple[tuple[SubCap, float], ...]:
        """The caps of persons and purposes, each with what was spent of it."""
        chain, relation = self._refresh(), self.adjacency.of_losses
        return tuple(
            (cap, round_epsilon(compose(losses, adjacency=relation).epsilon(self.cap_delta))
             if losses else 0.0)
            for cap, losses in chain.by_sub_cap.items()
        )  # fmt: skip

    def check_terms(
        self, adjacency: Adjacency, unit: Unit, protects: Protects = Protects.RECORD
    ) -> None:
        """Raise unless a training that promises this may be charged here."""
        right = self.unit is unit and self.protects is protects
        if adjacency.covers(self.adjacency) and right:
            return
        hint = ""
        if adjacency is Adjacency.ZERO_OUT and self.adjacency is Adjacency.ADD_REMOVE:
            hint = "declare the number of records (n_public, --n-public) for add-remove"
        if self.unit is not unit:
            hint = f"`privet ledger init FILE --unit {unit.value.split()[-1]}` makes one for this"
        raise InvalidArgument(
            "ledger",
            f"one for {self.adjacency.value}, one per {self.unit.value}",
            f"one for {adjacency.value} neighbours, one per {unit.value}",
            hint,
        )

    # Spending

    def charge(
        self,
        loss: PrivacyLoss,
        *,
        what: str,
        scope: Scope = PER_RECORD,
        who: str | None = None,
        run: str | None = None,
        dataset: str | None = None,
        token: str | None = None,
    ) -> Entry:
        """Write the cost of a release that is about to happen; durable when it returns.

        `scope` says what it is about; a ledger takes only what its own terms speak of. `run` names
        the training or analysis that this is a part of.

        With a `token`, such as "run-7:steps 0-99", the same charge may be made again after a crash:
        the same loss under the same token returns the first entry and costs nothing, another loss
        raises `TokenReused`. That is sound when the repeated release is the same one (same batches,
        same noise) or when nothing of the first attempt was kept or shown; otherwise use a new
        token.

        Raises `BudgetExceeded` (nothing written) over the cap, `Incomparable` for another
        adjacency, unit or protected part, `LedgerLocked` when another process holds the file for
        longer than the timeout.
        """
        what = check_text("what", what)
        token = None if token is None else check_text("token", token)
        who = (self.who or whoami()) if who is None else check_text("who", who)
        run = None if run is None else check_text("run", run)
        dataset, terms = self._check_dataset(dataset), self._terms
        loss, cost = terms.accept(loss, scope)
        for _ in self._attempts():
            with sqlite_store.GUARD:
                earlier = self._chain.find_token(token, cost, scope, dataset)
                sequence, previous = self._chain.count + 1, self._chain.head
            if earlier is not None:
                return self._entry(earlier)
            self.check_data(dataset)
            self._check_sub_caps(loss, who=who, what=what)
            would_be = self._epsilon_bound_with(loss)
            if not would_be <= terms.cap_epsilon:  # NaN is refused too
                if self._refresh().head != previous:  # others charged meanwhile
                    continue
                raise BudgetExceeded(
                    cap_epsilon=terms.cap_epsilon,
                    would_be=would_be,
                    delta=terms.cap_delta,
                    what=what,
                )
            entry = Entry.seal(
                sequence=sequence,
                what=what,
                loss=loss,
                scope=scope,
                spent=would_be,
                run=run,
                purpose=self.purpose or None,
                dataset=dataset,
                token=token,
                who=who,
                process=os.getpid(),
                when=utc_now(),
                version=privet_version(),
                previous=previous,
            )
            if self._append(entry):
                return entry
        raise LedgerLocked(
            self.name,
            "others kept charging it while we computed",
            "try again, or charge less often",
        )

    def epsilon_after(self, loss: PrivacyLoss) -> float:
        """What would be spent in all after one more `loss`, exactly; nothing is written."""
        loss, _ = self._terms.accept(loss, None)
        return round_epsilon((self.total + loss_to_compose(loss)).epsilon(self.cap_delta))

    def affords(self, loss: PrivacyLoss) -> bool:
        """Whether `loss` would fit under the cap now; another process may still be faster."""
        loss, _ = self._terms.accept(loss, None)
        self._refresh()
        who = self.who or whoami()
        if any(after > cap.epsilon for cap, after in self._sub_caps_after(loss, who)):
            return False
        return self._epsilon_bound_with(loss) <= self.cap_epsilon

    def check_data(self, dataset: str | None) -> None:
        """Raise unless data of this identity may be charged: the first charge binds a ledger."""
        with sqlite_store.GUARD:
            bound = self._chain.identities
            strange = is_identity(dataset) and bound and dataset not in bound
        if strange and not self.admits_other_data:
            raise LedgerError(
                self.name,
                "is bound to other data, those of its first charge",
                "each data set has its own ledger; --also takes these too, as part of its budget",
            )

    def _sub_caps_after(self, loss: PrivacyLoss, who: str) -> Iterator[tuple[SubCap, float]]:
        """What each sub-cap that a charge counts against would have spent after it."""
        with sqlite_store.GUARD:
            parts = [
                (cap, list(losses))
                for cap, losses in self._chain.by_sub_cap.items()
                if cap.covers(who=who, purpose=self.purpose)
            ]
        relation = self.adjacency.of_losses
        for cap, losses in parts:
            total = compose([*losses, loss_to_compose(loss)], adjacency=relation)
            yield cap, round_epsilon(total.epsilon(self.cap_delta))

    def _check_sub_caps(self, loss: PrivacyLoss, *, who: str, what: str) -> None:
        for cap, after in self._sub_caps_after(loss, who):
            if not after <= cap.epsilon:
                raise BudgetExceeded(
                    cap_epsilon=cap.epsilon, would_be=after, delta=self.cap_delta,
                    what=f"{what}, for {cap},",
                )  # fmt: skip

    # What was spent

    @property
    def total(self) -> PrivacyLoss:
        """The composition of everything charged so far."""
        with sqlite_store.GUARD:
            return self._refresh().composition.total

    @property
    def head(self) -> str:
        """The hash of the last entry (of the terms when there is none): note it elsewhere."""
        return self._refresh().head

    def spent(self, delta: float | None = None) -> float:
        """epsilon of the total at `delta`, by default the cap's: bookkeeping, not a guarantee.

        It would be one if the charges, and when to stop, had been fixed beforehand. See
        `guarantee` for what holds at the cap and `odometer` for what holds now.

        A ledger that was restored from an older copy, alone or with its whole machine, does not
        know what was charged since: `verify(head=...)` with the last head that was noted shows it.
        """
        delta = self.cap_delta if delta is None else _check.delta_or_zero("delta", delta)
        return self._epsilon_of(self._refresh(), delta)

    @property
    def remaining(self) -> float:
        """cap_epsilon - spent(). Losses do not add up in epsilon: ask `affords` what still fits."""
        spent = self.spent()
        return max(0.0, self.cap_epsilon - spent) if spent < math.inf else 0.0

    def entries(self) -> tuple[Entry, ...]:
        """All entries in order, the chain checked on the way."""
        return tuple(self._history()[1])

    def __len__(self) -> int:
        return self._refresh().count

    # What it promises

    def guarantee(self) -> Guarantee:
        """What all releases charged here promise together, at the cap, and on which premises.

        The cap was fixed before the first release, so that it holds whatever made people go on or
        stop. `spent` is smaller and no guarantee: state `odometer` for a figure of the moment, or
        the loss of a plan that was fixed beforehand.
        """
        chain, terms = self._refresh(), self._terms
        kinds = chain.composition.running_total.kinds
        return Guarantee(
            epsilon=terms.cap_epsilon,
            delta=terms.cap_delta,
            adjacency=terms.adjacency,
            unit=terms.unit,
            protects=terms.protects,
            standing=Standing.PROVED if math.isfinite(terms.cap_epsilon) else Standing.NONE,
            theorem="privacy filter at the ledger's cap: no charge passes it",
            premises=(premises.UNDER_CAP, *premises_of(kinds, terms.cap_delta, chain.seeded)),
        )

    def odometer(self) -> Odometer:
        """What was spent until now, by a bound that holds at whatever moment it is read."""
        chain = self._refresh()
        epsilon = self._epsilon_of(chain, share_of_delta(self._terms))
        kinds = chain.composition.running_total.kinds
        return read_odometer(self._terms, epsilon, kinds, seeded=chain.seeded)

    # Checking it, and handing it over

    def verify(self, *, head: str | None = None) -> Verification:
        """Check every byte that counts: SQLite's pages, terms, each entry, the chain, head and cap.

        With `head`, a hash noted earlier, also that this very history goes on from it: that shows
        removed entries and a rewritten file, which a chain alone cannot. Raises `LedgerTampered`,
        whose `entry` is the first that is wrong.
        """
        with self._store.transaction(write=False) as connection:
            problem = sqlite_store.damage(connection)
        chain, entries = self._history()
        if problem is not None:
            raise LedgerTampered(self.name, problem, "restore a copy")
        since = None
        if head is not None:
            hashes = [self._genesis, *(entry.hash for entry in entries)]
            if head not in hashes:
                raise LedgerTampered(
                    self.name,
                    f"the noted head {head[:12]}... is not in its chain",
                    "entries were removed or the file was rewritten",
                )
            since = len(hashes) - 1 - hashes.index(head)
        spent = self._epsilon_of(chain, self.cap_delta)
        if not spent <= self.cap_epsilon:  # the sum part by part can be tighter
            again = chain.composition.replay(e.loss_to_compose for e in entries)
            spent = min(spent, round_epsilon(again))
        if not spent <= self.cap_epsilon:
            raise LedgerError(
                self.name,
                f"its entries compose to epsilon {spent:.6g}, over the cap {self.cap_epsilon:.6g}",
                "somebody else wrote to it, or with another version of privet",
            )
        return Verification(count=chain.count, head=chain.head, spent=spent, since=since)

    def statement(self, count: int | None = None) -> dict[str, Any]:
        """Which ledger this is and where it stands, JSON-ready: what a record of a run keeps.

        `count`: as it stood after so many entries, at least one.
        """
        terms, (chain, entries) = self._terms, self._history()
        deltas = (terms.cap_delta, share_of_delta(terms))
        if count is None or count >= chain.count:
            spent, shared = (self._epsilon_of(chain, d) for d in deltas)
        else:
            entries = entries[:count]
            parts = [e.loss_to_compose for e in entries]
            total = compose(parts, adjacency=self.adjacency.of_losses)
            spent, shared = (round_epsilon(total.epsilon(d)) for d in deltas)
        releases = group_releases(entries)
        return {
            "identity": terms.identity,
            "in_memory": not isinstance(self._store, sqlite_store.FileStore),
            "head": entries[-1].hash if entries else self._genesis,
            "count": len(entries),
            "cap": {"epsilon": number_to_json(terms.cap_epsilon), "delta": terms.cap_delta},
            "spent": number_to_json(spent),
            "odometer": number_to_json(
                read_odometer(terms, shared, frozenset(), seeded=chain.seeded).epsilon
            ),
            "dataset": terms.dataset,
            "releases": [r.to_dict(terms.cap_delta) for r in releases[-MOST:]],
            "earlier_releases": max(0, len(releases) - MOST),
        }

    def releases(self) -> list[LedgerRelease]:
        """Everything that was charged, a training as one release."""
        return group_releases(self.entries())

    def export(self) -> dict[str, Any]:
        """Everything, JSON-ready; the hashes can be recomputed from it without privet."""
        chain, entries = self._history()
        spent = self._epsilon_of(chain, self.cap_delta)
        return {
            "format": f"privet-ledger/{sqlite_store.FORMAT}",
            "terms": self._terms.to_dict(),
            "genesis": self._genesis,
            "entries": [entry.to_dict() for entry in entries],
            "count": chain.count,
            "head": chain.head,
            "spent": {"epsilon": number_to_json(spent), "delta": self.cap_delta},
        }

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self

    def __reduce__(self) -> tuple[Callable[[str, float], Ledger], tuple[str, float]]:
        if not isinstance(self._store, sqlite_store.FileStore):
            raise LedgerError(
                self.name,
                "cannot be sent to another process: a copy would be a second budget",
                "use Ledger.create(path)",
            )
        return _reopen, (self.name, self._store.timeout)

    def __repr__(self) -> str:
        return f"<Ledger {self.name}, cap ({self.cap_epsilon:g}, {self.cap_delta:g})>"

    def _repr_html_(self) -> str:
        """The budget, what is spent, and the last charges, for a notebook."""
        chain, entries = self._history()
        spent = number(self._epsilon_of(chain, self.cap_delta))
        rows = [
            ("spent", f"ε {spent} of {number(self.cap_epsilon)}"),
            ("a chance δ of", chance(self.cap_delta)),
            ("per", f"{self.unit.value}, {self.adjacency.value}"),
            *((f"{e.sequence}: {e.when[:10]}", f"{e.what} ({e.who})") for e in entries[-SHOWN:]),
        ]
        left = f"{chain.count - SHOWN} earlier charges not shown" if chain.count > SHOWN else ""
        return small_table(self.name, rows, note=left)

    # The chain in its store

    def _start_of_chain(self) -> ChainWalk:
        return ChainWalk.start(self._store.name, self._genesis, self._terms)

    def _refresh(self) -> ChainWalk:
        """Take in what others wrote since we last looked."""
        with sqlite_store.GUARD:
            with self._store.transaction(write=False) as connection:
                rows, head = self._read_after(connection, self._chain.count)
            self._walk(self._chain, rows, head)
            return self._chain

    def _history(self) -> tuple[ChainWalk, list[Entry]]:
        """Everything from the start, each entry checked."""
        with self._store.transaction(write=False) as connection:
            rows, head = self._read_after(connection, 0)
        chain = self._start_of_chain()
        return chain, self._walk(chain, rows, head)

    def _entry(self, sequence: int) -> Entry:
        """Read again an entry whose chain was checked before."""
        with self._store.transaction(write=False) as connection:
            return Entry.from_body(sqlite_store.read_rows(connection, sequence, sequence)[0][1])

    def _append(self, entry: Entry) -> bool:
        """Write `entry` if it still follows the last one; otherwise take in what came between."""
        body = entry.body()
        with sqlite_store.GUARD:
            with self._store.transaction(write=True) as connection:
                rows, head = self._read_after(connection, self._chain.count)
                current = not rows and head == (self._chain.count, self._chain.head)
                follows = current and entry.previous == self._chain.head
                if follows:
                    sqlite_store.append(connection, entry.sequence, body, entry.hash)
                    rows = [(entry.sequence, body, entry.hash.encode())]
                    head = (entry.sequence, entry.hash)
            self._walk(self._chain, rows, head)
        return follows

    def _epsilon_of(self, chain: ChainWalk, delta: float) -> float:
        """epsilon of everything up to the head of `chain`, composed exactly; computed once."""
        key = (chain.head, delta)
        if key not in self._spent:
            with sqlite_store.GUARD:
                total = chain.composition.total
            self._spent = {k: v for k, v in self._spent.items() if k[0] == chain.head}
            self._spent[key] = round_epsilon(total.epsilon(delta))
        return self._spent[key]

    def _epsilon_bound_with(self, loss: PrivacyLoss) -> float:
        """epsilon with one more `loss`: a bound if that is enough, otherwise exactly.

        The exact composition can take long. It is computed without any lock.
        """
        loss = loss_to_compose(loss)
        with sqlite_store.GUARD:
            composition = self._chain.composition
            bound = round_epsilon(composition.epsilon_with(loss))
            if math.isfinite(bound) and bound <= self.cap_epsilon:
                return bound
            total = composition.total
        return round_epsilon((total + loss).epsilon(self.cap_delta))

    def _attempts(self) -> Iterator[None]:
        """Again and again, for as long as we would wait for a lock; once at least."""
        patience = (
            self._store.timeout if isinstance(self._store, sqlite_store.FileStore) else math.inf
        )
        deadline = time.monotonic() + patience
        yield
        while time.monotonic() < deadline:
            yield

    def _check_dataset(self, dataset: str | None) -> str | None:
        mine = self.dataset
        if dataset is None:
            dataset = self.data
        if dataset is None:
            return mine
        if is_identity(dataset) and not (mine or "").startswith("sha256:"):
            return check_text("dataset", dataset)  # `check_data` holds it against the first charge
        if mine not in (None, check_text("dataset", dataset)):
            raise LedgerError(
                self.name,
                f"keeps the budget of data set {mine}, not of {dataset}",
                "each data set has its own ledger",
            )
        return dataset

    def _read_after(
        self, connection: sqlite3.Connection, count: int
    ) -> tuple[list[sqlite_store.Row], tuple[int, str]]:
        """Rows after the first `count`, and the head that was written with the last of them."""
        name = self.name
        if sha256_hex(sqlite_store.read_terms(connection, name)) != self._genesis:
            raise LedgerTampered(name, "its terms changed while it was open", "restore a copy")
        return sqlite_store.read_rows(connection, count + 1), sqlite_store.read_head(
            connection, name
        )

    def _walk(
        self, chain: ChainWalk, rows: list[sqlite_store.Row], written: tuple[int, str]
    ) -> list[Entry]:
        """Walk on along `rows`; the head that was written must be where the walk ends."""
        entries = chain.walk(rows)
        count, head = written
        if (count, head) != (chain.count, chain.head):
            raise LedgerTampered(
                self.name,
                f"its head speaks of {count} entries, its chain of {chain.count}"
                if count != chain.count
                else "its head is not the hash of its last entry, or of its terms",
                "entries were removed or changed; restore a copy",
                entry=min(count, chain.count) + 1 if count != chain.count else None,
            )
        return entries


def _reopen(path: str, timeout: float) -> Ledger:
    return Ledger.open(path, timeout=timeout)
