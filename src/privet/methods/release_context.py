"""The context of a training, which is the only way to a release: it charges and draws noise."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, final

from privet.accounting import PrivacyLoss, compose
from privet.jobs import Progress
from privet.ledger import Entry, Ledger, Scope
from privet.noise import Source

if TYPE_CHECKING:
    from privet.methods.contract import Plan


@final
class ReleaseContext:
    """Who pays, where noise comes from, and who watches: the only way to a release.

    A method calls `charge` before it draws anything with `noise`. What was charged is in `entries`.
    """

    def __init__(
        self,
        *,
        ledger: Ledger,
        rng: Source,
        plan: Plan,
        run: str | None = None,
        progress: Progress | None = None,
        folder: Path | None = None,
    ) -> None:
        self.ledger, self.rng, self.plan = ledger, rng, plan
        self.run = run or f"run-{secrets.token_hex(8)}"
        self.folder, self._watcher = folder, progress
        self.entries: list[Entry] = []
        self.steps = 0

    def charge(self, loss: PrivacyLoss | None = None, *, what: str) -> Entry:
        """Pay for a part of the plan, or for all of it; raises with nothing spent if refused."""
        part = self.plan.loss if loss is None else loss
        token = f"{self.run}:{len(self.entries)}"
        entry = self.ledger.charge(part, what=what, scope=self.scope, run=self.run, token=token)
        self.entries.append(entry)
        return entry

    def within(self, plan: Plan, *, part: str) -> ReleaseContext:
        """The same purse for a method inside another one: its own plan, and noise of its own.

        What it charges is in `entries` here too. It keeps no files: the outer method would have to
        be taken up again with it.
        """
        inner = ReleaseContext(
            ledger=self.ledger,
            rng=self.rng.child(part),
            plan=plan,
            run=self.run,
            progress=self._watcher,
        )
        inner.entries = self.entries
        return inner

    def noise(self, *label: str | int) -> Source:
        """The noise of one release, by its name."""
        return self.rng.child(*label)

    def progress(self, what: str, done: int, of: int) -> None:
        """Report progress to the watcher, if there is one."""
        if self._watcher is not None:
            self._watcher(what, done, of)

    def take_over(self, entries: Sequence[Entry], *, steps: int) -> None:
        """Charges that a training loop made by itself on this ledger, and how far it came."""
        known = {entry.sequence for entry in self.entries}
        self.entries += [entry for entry in entries if entry.sequence not in known]
        self.steps = steps

    @property
    def scope(self) -> Scope:
        """What every charge of this plan is about."""
        plan = self.plan
        return Scope(
            unit=plan.unit,
            adjacency=plan.stated_adjacency,
            protects=plan.protects,
            secret=self.rng.secret,
        )

    @property
    def loss(self) -> PrivacyLoss:
        """The cost of all that was charged so far."""
        return compose([e.loss for e in self.entries], adjacency=self.plan.adjacency)
