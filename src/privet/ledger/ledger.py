"""The budget of one data set: charged before every release, never over its cap."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self, final

from privet import _check
from privet.errors import LedgerError
from privet.guarantee import Adjacency, Guarantee, Protects, Unit
from privet.ledger import _store
from privet.ledger._audit import Verification, as_html, export, verify
from privet.ledger._book import Book
from privet.ledger._chain import PER_RECORD, Entry, Scope, Terms
from privet.ledger._promise import Odometer, at_the_cap, share_of_delta, so_far
from privet.loss import PrivacyLoss


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

    >>> from privet.loss import Gaussian
    >>> ledger = Ledger.in_memory(cap_epsilon=2.0, cap_delta=1e-5)
    >>> ledger.charge(Gaussian(mu=0.3), what="mean age").sequence
    1
    >>> entry = ledger.charge(Gaussian(mu=0.4), what="mean income")
    >>> round(ledger.spent(), 4), len(ledger.entries())
    (1.9931, 2)
    >>> ledger.affords(Gaussian(mu=0.3))
    False
    """

    def __init__(self, book: Book) -> None:
        """Use `in_memory`, `create` or `open`."""
        self._book = book
        self.purpose: str | None = None
        """What is charged through this object from now on is for, unless a charge says so."""

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
    ) -> Self:
        """A ledger for this process only; a cap of `math.inf` records without refusing."""
        book = Book.in_memory(
            cap_epsilon=cap_epsilon, cap_delta=cap_delta, adjacency=adjacency, unit=unit,
            protects=protects, dataset=dataset,
        )  # fmt: skip
        return cls(book)

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
        timeout: float = 30.0,
    ) -> Self:
        """A new ledger file; refuses to touch a file that exists."""
        book = Book.create(
            Path(path), timeout, cap_epsilon=cap_epsilon, cap_delta=cap_delta, adjacency=adjacency,
            unit=unit, protects=protects, dataset=dataset,
        )  # fmt: skip
        return cls(book)

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, timeout: float = 30.0) -> Self:
        """An existing ledger file, its chain checked; `timeout` is how long to wait for a lock."""
        return cls(Book.open(Path(path), timeout))

    # Copies: one ledger is one budget

    def backup(self, path: str | os.PathLike[str]) -> str:
        """Write a copy that can be read and verified but never charged; returns the head it has.

        A plain copy of the file would be a second budget. Note the head elsewhere: `restore` asks
        for it.
        """
        with _store.GUARD:
            head = self._book.refresh().head
            with self._book.store.transaction(write=False) as connection:
                _store.copy_file(connection, Path(path).resolve(), backup=True)
        kept = type(self).open(path)
        kept.verify(head=head)
        return kept.head

    @classmethod
    def restore(
        cls,
        backup: str | os.PathLike[str],
        path: str | os.PathLike[str],
        *,
        head: str,
        timeout: float = 30.0,
    ) -> Self:
        """A ledger at `path` again from its backup, when the ledger itself is lost.

        `head` is the last one that anybody noted (`backup` returns it, every record of a run has
        one): a backup that does not contain it lacks charges, and is refused.

        **Assumes**: the ledger is gone, and was not charged after `head` was noted.
        """
        kept = cls.open(backup, timeout=timeout)
        kept.verify(head=head)
        with kept._book.store.transaction(write=False) as connection:
            if not _store.is_backup(connection):
                raise LedgerError(
                    kept.name, "is a ledger, not a backup of one", "charge it as it is"
                )
            _store.copy_file(connection, Path(path).resolve(), backup=False)
        return cls.open(path, timeout=timeout)

    @property
    def is_backup(self) -> bool:
        """Whether this file was made by `backup`: it can be looked at, and takes no charge."""
        with self._book.store.transaction(write=False) as connection:
            return _store.is_backup(connection)

    # What it promises

    @property
    def name(self) -> str:
        """The path of its file, or "in memory"."""
        return self._book.store.name

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

    # Spending

    def refuse_other(
        self, adjacency: Adjacency, unit: Unit, protects: Protects = Protects.RECORD
    ) -> None:
        """Raise unless a training that promises this may be charged here."""
        self._book.refuse_other(adjacency, unit, protects)

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
        return self._book.charge(
            loss, what=what, scope=scope, who=who, run=run, purpose=self.purpose or None,
            dataset=dataset, token=token,
        )  # fmt: skip

    def epsilon_after(self, loss: PrivacyLoss) -> float:
        """What would be spent in all after one more `loss`; nothing is written."""
        return self._book.epsilon_after(loss)

    def affords(self, loss: PrivacyLoss) -> bool:
        """Whether `loss` would fit under the cap now; another process may still be faster."""
        return self._book.affords(loss)

    # What was spent

    @property
    def total(self) -> PrivacyLoss:
        """Everything charged so far, composed."""
        return self._book.total

    @property
    def head(self) -> str:
        """The hash of the last entry (of the terms when there is none): note it elsewhere."""
        return self._book.refresh().head

    def spent(self, delta: float | None = None) -> float:
        """epsilon of the total at `delta`, by default the cap's: bookkeeping, not a guarantee.

        It would be one if the charges, and when to stop, had been fixed beforehand. See
        `guarantee` for what holds at the cap and `odometer` for what holds now.
        """
        delta = self.cap_delta if delta is None else _check.delta_or_zero("delta", delta)
        return self._book.exact(self._book.refresh(), delta)

    @property
    def remaining(self) -> float:
        """cap_epsilon - spent(). Losses do not add up in epsilon: ask `affords` what still fits."""
        spent = self.spent()
        return max(0.0, self.cap_epsilon - spent) if spent < math.inf else 0.0

    def entries(self) -> tuple[Entry, ...]:
        """All entries in order, the chain checked on the way."""
        return tuple(self._book.history()[1])

    def __len__(self) -> int:
        return self._book.refresh().count

    def guarantee(self) -> Guarantee:
        """What all releases charged here promise together, at the cap, and on which premises.

        The cap was fixed before the first release, so that it holds whatever made people go on or
        stop. `spent` is smaller and no guarantee: state `odometer` for a figure of the moment, or
        the loss of a plan that was fixed beforehand.
        """
        tally = self._book.refresh()
        kinds = tally.account.sums.kinds
        return at_the_cap(self._terms, kinds, seeded=tally.seeded)

    def odometer(self) -> Odometer:
        """What was spent until now, by a bound that holds at whatever moment it is read."""
        tally = self._book.refresh()
        epsilon = self._book.exact(tally, share_of_delta(self._terms))
        kinds = tally.account.sums.kinds
        return so_far(self._terms, epsilon, kinds, seeded=tally.seeded)

    def verify(self, *, head: str | None = None) -> Verification:
        """Check every byte that counts: SQLite's pages, terms, each entry, the chain, head and cap.

        With `head`, a hash noted earlier, also that this very history goes on from it: that shows
        removed entries and a rewritten file, which a chain alone cannot. Raises `LedgerTampered`,
        whose `entry` is the first that is wrong.
        """
        return verify(self._book, head)

    def statement(self) -> dict[str, Any]:
        """Which ledger this is and where it stands, JSON-ready: what a record of a run keeps."""
        return self._book.statement()

    def export(self) -> dict[str, Any]:
        """Everything, JSON-ready; the hashes can be recomputed from it without privet."""
        return export(self._book)

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self

    def __reduce__(self) -> tuple[Callable[[str, float], Ledger], tuple[str, float]]:
        store = self._book.store
        if not isinstance(store, _store.FileStore):
            raise LedgerError(
                self.name,
                "cannot be sent to another process: a copy would be a second budget",
                "use Ledger.create(path)",
            )
        return _reopen, (self.name, store.timeout)

    def __repr__(self) -> str:
        return f"<Ledger {self.name}, cap ({self.cap_epsilon:g}, {self.cap_delta:g})>"

    def _repr_html_(self) -> str:
        return as_html(self._book)

    # Inside

    @property
    def _terms(self) -> Terms:
        return self._book.terms


def _reopen(path: str, timeout: float) -> Ledger:
    return Ledger.open(path, timeout=timeout)
