"""Charges ahead of the steps: a block is durable in the ledger before its first step is made.

So a crash can only lose money. After one, a seeded run repeats the same releases, which are paid
for already; a secure run draws new batches and noise, and pays again from its last checkpoint on.
"""

from __future__ import annotations

import re
import secrets
import warnings
from collections.abc import Sequence
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from privet.accounting import PrivacyLoss, compose, from_dict
from privet.errors import BudgetExceeded, InvalidArgument, LedgerError, LedgerTampered, PrivetError
from privet.ledger import Entry, Ledger, Scope
from privet.methods.dpsgd.distributed import Processes
from privet.methods.dpsgd.samplers import Sampler

_TOKEN = re.compile(r":steps (\d+)-(\d+)$")


@final
class ChargesAhead:
    """Charges the steps of one run, a block at a time, each block before its first step.

    Tokens are "<run>:steps a-b". When a *seeded* run is resumed, a step that is made again is the
    same release (same batch, same noise), so what this run charged before still covers it. A
    *secure* run draws new batches and new noise: a step made again is a new release, so tokens
    carry a name of the attempt and everything after the checkpoint is charged again. The first
    process charges, and every process knows how the account stands.

    **Guarantee**: `pay_for(t)` is true only after the cost of step t is durable in the ledger; the
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
        processes: Processes,
        limit: tuple[float, float] | None = None,
    ) -> None:
        relation = sampler.stated_adjacency
        ledger.check_terms(relation, sampler.unit)
        self.ledger, self.sampler, self.block = ledger, sampler, block
        self._z, self._run, self._processes = noise_multipliers, run, processes
        self._scope = Scope(secret=secret and sampler.secret, adjacency=relation, unit=sampler.unit)
        # 48 random bits: no two secret runs of one name come to share a token
        self._prefix = f"{run}/{secrets.token_hex(6)}" if secret else run
        self.entries = [
            e for e in ledger.entries() if (e.token or "").startswith((f"{run}:", f"{run}/"))
        ]
        covered = _first_uncharged(self.entries)
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
        if secret and covered > start and self._limit is None and processes.first:
            self._tell_of_charging_again(start, covered)
        self._exhausted = False
        self._account = self._synchronise(None)

    def _tell_of_charging_again(self, start: int, covered: int) -> None:
        cost = self.sampler.loss(self._z, start=start, stop=self.sampler.steps)
        delta = self.ledger.cap_delta
        total = (self._composed() + cost).epsilon(delta)
        short = "" if self.ledger.affords(cost) else ", of which its cap pays for a part at most"
        warnings.warn(
            f"{self._run} goes on at step {start + 1} of {self.sampler.steps}; steps up to "
            f"{covered} were charged before, and since nobody knows which of them were made, they "
            f"are charged again: epsilon {total:.4g} (delta {delta:g}) for the whole run{short}. "
            "Of smaller blocks, Charging(block=...), less is charged again",
            UserWarning,
            stacklevel=5,
        )

    def pay_for(self, step: int) -> bool:
        """Charge the next block if the step is not charged yet; whether it is paid for now."""
        if step >= self.charged_until:
            self._account = self._synchronise(step)
        return step < self.charged_until

    @property
    def charged_until(self) -> int:
        """The first step that is not paid for."""
        return int(self._account["until"])

    @property
    def exhausted(self) -> bool:
        """Whether a charge was refused."""
        return bool(self._account["exhausted"])

    @property
    def loss(self) -> PrivacyLoss:
        """All that this run has charged so far, in all attempts: at least what was released."""
        return from_dict(self._account["loss"])

    def _synchronise(self, step: int | None) -> dict[str, Any]:
        """Let the first process pay for `step` if given; how the account stands, everywhere."""
        answer: dict[str, Any] | PrivetError = {}
        if self._processes.first:
            try:
                if step is not None:
                    self._pay(step)
                answer = {
                    "until": self._until,
                    "loss": self._composed().to_dict(),
                    "exhausted": self._exhausted,
                }
            except PrivetError as error:
                answer = error
        return dict(self._processes.broadcast_object(answer))

    def _composed(self) -> PrivacyLoss:
        return compose((e.loss for e in self.entries), adjacency=self.sampler.adjacency)

    def _pay(self, step: int) -> None:
        """Charge the next block, or as much of it as the cap allows."""
        stop = min(self.sampler.steps, step + self.block)
        while stop > step:
            try:
                self._charge(step, stop)
                return
            except BudgetExceeded:
                self._exhausted = True
                stop = self._affordable(step, stop - 1)

    def _charge(self, start: int, stop: int) -> None:
        cost = self.sampler.loss(self._z, start=start, stop=stop)
        if not self._within(cost):
            assert self._limit is not None
            epsilon, delta = self._limit
            raise BudgetExceeded(
                cap_epsilon=epsilon, would_be=(self._composed() + cost).epsilon(delta), delta=delta,
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
        """Whether all attempts of the run, and this, stay within the limit."""
        if self._limit is None:
            return True
        epsilon, delta = self._limit
        # a ledger rounds up what it states: the limit itself must not be refused for that
        return (self._composed() + cost).epsilon(delta) <= epsilon * (1.0 + 1e-9)

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


def check_not_older(ledger: Ledger, head: str) -> None:
    """Refuse a ledger without the head that it had when the checkpoint was written.

    It was restored from an older copy, or is another one: charges of this run are not in it.
    """
    try:
        ledger.verify(head=head)
    except LedgerTampered:
        raise LedgerError(
            ledger.name, f"lacks the head {head[:12]}..., which the checkpoint noted",
            "go on with the ledger that the run began with, not an older copy of it",
        ) from None  # fmt: skip


def _first_uncharged(entries: Sequence[Entry]) -> int:
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
