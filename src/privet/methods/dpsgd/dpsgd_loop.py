"""The DP-SGD loop, for linear heads and networks: Algorithm 1 of tight-privacy-cost.

Every step t is charged, its sample drawn with rate q_t, each example's gradient clipped to C_t and
summed; the sum gets Gaussian noise of standard deviation z_t C_t, is divided by the expected batch
q_t N, and any torch optimiser descends along it. Who iterates over the loop computes the sums: the
per-example engine (`private`) or a closed form (`linear_dpsgd`).
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self, final

import torch

from privet.gradients import ClippedSum, device
from privet.ledger import Ledger
from privet.methods.dpsgd.charging import ChargesAhead, check_not_older
from privet.methods.dpsgd.checkpoints import Checkpoints, RunIdentity, TrainingState
from privet.methods.dpsgd.distributed import Processes, broadcast_parameters
from privet.methods.dpsgd.noise_addition import release_count, release_sum_
from privet.methods.dpsgd.optimizer_step import OptimizerStep


@final
class DPSGDLoop:
    """The steps of one run: charged, summed by who iterates, released, applied and saved.

    ```
    for t in loop:                 # step t is paid for, and loop.total is empty
        ...                        # add the clipped gradients of its sample to loop.total
        loop.complete(t)           # noise, optimiser, checkpoint
    ```

    `sensitivity(C)` is how far one example moves the sum as computed. `extra` is saved with every
    checkpoint, and holds after resuming what was saved last.

    **Guarantee**: what `charges.loss` says of all steps.

    **Assumes** `sensitivity`, and that nothing but `total` reaches the model from the sample.
    """

    def __init__(
        self,
        *,
        identity: RunIdentity,
        total: ClippedSum,
        sensitivity: Callable[[float], float],
        descent: OptimizerStep,
        ledger: Ledger,
        block: int,
        limit: tuple[float, float] | None,
        run: str | None,
        checkpoints: Checkpoints | None,
        processes: Processes,
        extra: dict[str, Any] | None = None,
    ) -> None:
        self.schedule, self.sampler = identity.schedule, identity.sampler
        self.total, self.descent, self.extra = total, descent, dict(extra or {})
        self._sensitivity, self._rng, self._identity = sensitivity, identity.rng, identity
        self._checkpoints, self._processes = checkpoints, processes
        self._state, self._ledger = TrainingState(descent), ledger
        self._releasing = False
        self.steps_done, self.bound = 0, float(self.schedule.bounds[0])
        self.run, resumed = self._open(run)
        self.charges = ChargesAhead(
            ledger=ledger,
            sampler=self.sampler,
            noise_multipliers=self.schedule.noise_multipliers,
            run=self.run,
            secret=self._rng.secret,
            block=block,
            start=self.steps_done,
            resumed=resumed,
            processes=processes,
            limit=limit,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is KeyboardInterrupt and not self._releasing:
            self.save()  # between two steps: what is saved was released

    def __iter__(self) -> Iterator[int]:
        for t in range(self.steps_done, self.schedule.steps):
            if not self.begin(t):
                return
            yield t

    def begin(self, t: int) -> bool:
        """Pay for step t and empty the sum; false where the budget is used up."""
        if not self.charges.pay_for(t):
            return False
        self.total.reset()
        return True

    def complete(self, t: int) -> None:
        """Release the sum of step t; everything after its noise is post-processing."""
        self._releasing = True
        expected = self.sampler.expected_batch(t)
        self._release(t, expected)
        self.descent.apply(t, self.total, divisor=expected)
        self.steps_done, self._releasing = t + 1, False
        where = self._checkpoints
        if where is not None and (
            self.steps_done % where.every == 0 or self.steps_done == self.schedule.steps
        ):
            self.save()

    def _release(self, t: int, expected: float) -> None:
        """Add the noise, in the processes that add it, and set C of the next step."""
        z, adaptive = float(self.schedule.noise_multipliers[t]), self.schedule.adaptive
        norms = self.total.norms_unprotected
        total = device.to_host(self.total.flat)
        self._processes.reduce_sum_(total)
        if self._processes.adds_noise:
            release_sum_(
                total,
                sensitivity=self._sensitivity(self.bound),
                noise_multiplier=(
                    z if adaptive is None else adaptive.gradient_multiplier(z, expected)
                ),
                source=self._processes.noise(self._rng, t),
                rate=float(self.schedule.rates[t]),
                places=self._processes.places,
            )
        self._processes.broadcast_sum_(total)
        if total is not self.total.flat:
            self.total.flat.copy_(total)
        if adaptive is not None:
            within = int((norms <= self.bound).sum())
            counts = torch.tensor([within, len(norms)], dtype=torch.int64)
            self._processes.reduce_to_first_(counts)
            noisy = 0.0
            if self._processes.first:
                noisy = release_count(
                    int(counts[0]),
                    int(counts[1]),
                    scale=adaptive.noise_of_count(z, expected),
                    source=self._rng.child("count", t),
                )
            noisy = float(self._processes.broadcast_object(noisy))
            self.bound = adaptive.next(self.bound, noisy, expected)
        elif t + 1 < self.schedule.steps:
            self.bound = float(self.schedule.bounds[t + 1])

    def save(self) -> Path | None:
        """Write a checkpoint now (done by itself every so many steps); the first process writes."""
        where = self._checkpoints
        if where is None or not self._processes.first:
            return None
        tensors, facts = self._state.pack()
        facts |= {"run": self.run, "step": self.steps_done, "bound": self.bound, **self.extra}
        facts["ledger head"] = self._ledger.head
        where.write(tensors, facts | {"same": self._identity.resume_fingerprint})
        return where.path

    def _open(self, run: str | None) -> tuple[str, bool]:
        """Restore the last checkpoint, or start: the name of the run, and whether it goes on."""
        self._processes.check_same_settings(self._identity.settings)
        model, stepped = self.descent.model, self.descent.parameters
        weights = {id(t): t for t in (*model.parameters(), *stepped.values())}
        broadcast_parameters(self._processes, [*weights.values(), *model.buffers()])
        if self._checkpoints is not None and self._processes.first:
            self._checkpoints.remove_parts()
        found = None if self._checkpoints is None else self._checkpoints.read()
        if self._processes.broadcast_object(found is not None) and found is not None:
            tensors, facts = found
            assert self._checkpoints is not None
            self._checkpoints.check_same(self._identity.resume_fingerprint, facts["same"])
            if (noted := facts.get("ledger head")) is not None:
                check_not_older(self._ledger, noted)
            self._state.restore(tensors, facts)
            self.steps_done = int(facts["step"])
            here = self.schedule.bounds[min(self.steps_done, self.schedule.steps - 1)]
            self.bound = float(facts.get("bound", here))
            self.extra = {name: facts.get(name, value) for name, value in self.extra.items()}
            return str(facts["run"]), True
        self.run = str(self._processes.broadcast_object(run or f"dpsgd-{secrets.token_hex(8)}"))
        self.save()
        return self.run, False
