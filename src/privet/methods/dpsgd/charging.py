"""Paying for steps before they are made, in blocks, so that a crash can only lose money."""

from __future__ import annotations

import re
import secrets
from collections.abc import Sequence
from typing import final

import numpy as np
from numpy.typing import NDArray

from privet.errors import BudgetExceeded, InvalidArgument, LedgerError
from privet.ledger import Entry, Ledger, Scope
from privet.loss import PrivacyLoss, compose
from privet.methods.dpsgd.sampling import Sampler

_TOKEN = re.compile(r":steps (\d+)-(\d+)$")


@final
class Meter:
    """Charges the steps of one run, a block at a time, each block before its first step.

    Tokens are "<run>:steps a-b". When a *seeded* run is resumed, a step that is made again is the
    same release (same batch, same noise), so what this run charged before still covers it. A
    *secure* run draws new batches and new noise: a step made again is a new release, so tokens
    carry a name of the attempt and everything after the checkpoint is charged again.

    **Guarantee**: `covers(t)` is true only after the cost of step t is durable in the ledger; the
    sum of the run's charges is at least the cost of all steps it ever made, in all attempts. With a
    `limit` (epsilon, delta), a run that is resumed ends where all its attempts would cost more.
    """

    def __init__(
        self,
        *,
        ledger: Ledger,
        sampler: Sampler,
        noise_multipliers: NDArray[np.float64],
        run: str,
        secret: bool,
        block: int,
        start: int,
        resumed: bool,
        limit: tuple[float, float] | None = None,
    ) -> None:
        relation = sampler.relation
        if not relation.covers(ledger.adjacency):
            raise InvalidArgument(
                "ledger", ledger.adjacency.value, f"one for {relation.value} neighbours",
                "add-remove needs the number of records to be declared (n_public)",
            )  # fmt: skip
        if ledger.unit is not sampler.unit:
            raise InvalidArgument(
                "ledger", f"one per {ledger.unit.value}", f"one per {sampler.unit.value}"
            )
        self.ledger, self.sampler, self.block = ledger, sampler, block
        self._z, self._run = noise_multipliers, run
        self._scope = Scope(secret=secret and sampler.secret, adjacency=relation, unit=sampler.unit)
        self._prefix = f"{run}/{secrets.token_hex(6)}" if secret else run
        before = [e for e in ledger.entries() if e.token is not None and _is_of(e.token, run)]
        self.entries: list[Entry] = before
        covered = _covered(before)
        if covered and not resumed:
            raise InvalidArgument("run", run, "a name that this ledger has not seen before")
        if covered < start:
            raise LedgerError(
                ledger.name,
                f"has charges for steps 0 to {covered} of run {run}, which is resumed at {start}",
                "go on with the ledger that the run began with",
            )
        self._until = start if secret else covered
        self._limit = limit if resumed else None
        self.exhausted: BudgetExceeded | None = None

    @property
    def loss(self) -> PrivacyLoss:
        """All that this run has charged, in all attempts."""
        return compose((e.loss for e in self.entries), adjacency=self.sampler.adjacency)

    @property
    def charged_until(self) -> int:
        """The first step that is not paid for."""
        return self._until

    def covers(self, step: int) -> bool:
        """Whether the step is paid for; pays for the next block if need be and possible."""
        if step < self._until:
            return True
        stop = min(self.sampler.steps, step + self.block)
        while stop > step:
            try:
                self._charge(step, stop)
                return True
            except BudgetExceeded as error:
                self.exhausted = error
                stop = self._affordable(step, stop - 1)
        return False

    def _charge(self, start: int, stop: int) -> None:
        cost = self.sampler.loss(self._z, start=start, stop=stop)
        if not self._within(cost):
            assert self._limit is not None
            epsilon, delta = self._limit
            raise BudgetExceeded(
                cap_epsilon=epsilon, would_be=(self.loss + cost).epsilon(delta), delta=delta,
                what=f"steps {start} to {stop - 1} of {self._run}",
            )  # fmt: skip
        entry = self.ledger.charge(
            cost,
            what=f"DP-SGD, steps {start} to {stop - 1}",
            scope=self._scope,
            run=self._run,
            token=f"{self._prefix}:steps {start}-{stop - 1}",
        )
        self.entries.append(entry)
        self._until = stop

    def _within(self, cost: PrivacyLoss) -> bool:
        """Whether all attempts of the run, and this, stay within the budget that was asked for."""
        if self._limit is None:
            return True
        epsilon, delta = self._limit
        return (self.loss + cost).epsilon(delta) <= epsilon * (1.0 + 1e-9)

    def _affordable(self, start: int, most: int) -> int:
        """The largest stop <= most whose steps fit under the cap (start if none does)."""
        low, high = start, most
        while low < high:
            middle = (low + high + 1) // 2
            cost = self.sampler.loss(self._z, start=start, stop=middle)
            if self._within(cost) and self.ledger.affords(cost):
                low = middle
            else:
                high = middle - 1
        return low


def _covered(entries: Sequence[Entry]) -> int:
    """The first step that no entry speaks of."""
    ranges = sorted(
        (int(m.group(1)), int(m.group(2)) + 1)
        for entry in entries
        if (m := _TOKEN.search(entry.token or ""))
    )
    until = 0
    for first, end in ranges:
        if first <= until:
            until = max(until, end)
    return until


def _is_of(token: str, run: str) -> bool:
    return token.startswith((f"{run}:", f"{run}/"))
