"""Your own training loop, made private: Poisson batches in, one noisy step out, paid beforehand.

The steps are Algorithm 1 of tight-privacy-cost: sample with q_t, clip every example's gradient to
C_t, add up, add noise, divide by the expected batch q_t N, descend with any torch optimiser.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from types import TracebackType
from typing import ClassVar, Self, final

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from privet.data.records import UnprotectedDiagnostic
from privet.errors import InvalidArgument, PrivetError
from privet.ledger import Ledger
from privet.methods.dpsgd import checkpoint as saved
from privet.methods.dpsgd.agreement import AgreementCheck, evaluating, weights_of
from privet.methods.dpsgd.averaging import Average
from privet.methods.dpsgd.checkpoint import Meter
from privet.methods.dpsgd.distributed import Processes, current
from privet.methods.dpsgd.guards import StateGuard, clear_other_gradients
from privet.methods.dpsgd.kept import KeptRun
from privet.methods.dpsgd.mixing import Company, MixingCheck
from privet.methods.dpsgd.reading import Part
from privet.methods.dpsgd.records import Batch, Records, views_of
from privet.methods.dpsgd.release import release_count, release_sum_, with_rounding
from privet.methods.dpsgd.run import Diagnostics, Settings
from privet.methods.dpsgd.sampling import Sampler, micro_batches, shard
from privet.methods.dpsgd.schedule import Schedule
from privet.methods.dpsgd.summing import FIRST_MICRO_BATCH, LARGEST_MICRO_BATCH, EngineSummation
from privet.nets import ClippedSum, Clipping, PerExampleGradients
from privet.nets.per_example import device
from privet.noise import Source


@final
class Training(KeptRun):
    """A private run; make one with `private` and use it as a context manager."""

    _iterating: ClassVar[object] = None

    def __init__(
        self,
        *,
        model: nn.Module,
        optimizer: Optimizer,
        records: Records,
        schedule: Schedule,
        sampler: Sampler,
        engine: PerExampleGradients,
        ledger: Ledger,
        delta: float,
        rng: Source,
        average: Average | None,
        settings: Settings,
        processes: Processes | None = None,
        run: str | None = None,
    ) -> None:
        self.model, self.optimizer = model, optimizer
        self.schedule, self.sampler = schedule, sampler
        self.delta, self.diagnostics_unprotected = delta, Diagnostics()
        self._records, self._engine, self._rng, self._average = records, engine, rng, average
        self._settings = settings
        self._kept = saved.Kept(
            model=model, optimizer=optimizer, average=average, scheduler=settings.scheduler
        )
        self._processes = current() if processes is None else processes
        self._bound = float(schedule.bounds[0])
        self._step = 0
        self._finishing = False
        self._batch: Batch | None = None
        self._mixing: MixingCheck | None = None
        self._agreement = AgreementCheck(self._processes.autograd(model), views=settings.views)
        self._guard = StateGuard(model)
        self._recording: AbstractContextManager[None] | None = None
        self._size = settings.micro_batch
        self._sum = engine.zeros(capacity=sampler.capacity)
        self._loss_sum = 0.0
        self.run, resumed = self._open(run)
        self._meter = Meter(
            ledger=ledger,
            sampler=sampler,
            noise_multipliers=schedule.noise_multipliers,
            run=self.run,
            secret=rng.secret,
            block=settings.charge_block,
            start=self._step,
            resumed=resumed,
            limit=None if settings.limit is None else (settings.limit, delta),
        )
        self._state = self._account(None)

    # The loop

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop_recording()
        if kind is KeyboardInterrupt and not self._finishing:
            self.save()  # between two steps: what is saved was released
        if error is not None and self._batch is not None and self._batch.made_up:
            error.add_note(
                "this was a batch of made-up rows that checks whether examples mix; if the loop "
                "cannot take such rows, `private(..., check_mixing=False)` goes without the check"
            )
        bad = self.diagnostics_unprotected.non_finite
        if self._settings.show_unprotected and bad and kind is None:
            warnings.warn(
                f"{bad} gradients of single examples were not finite and "
                "counted as zero (exact, so for the owner of the data only)",
                UnprotectedDiagnostic,
                stacklevel=2,
            )

    def __iter__(self) -> Iterator[Batch]:
        state, Training._iterating = torch.get_rng_state(), (mine := object())
        try:
            if self._settings.check_mixing and self._step < self.schedule.steps:
                yield from self._made_up_batches()
            yield from self._batches()
        finally:
            if Training._iterating is mine:  # else it belongs to a run begun since
                torch.set_rng_state(state)  # ours counts the rows of the last sample

    def _made_up_batches(self) -> Iterator[Batch]:
        empty = self._records.take(np.zeros(0, dtype=np.int64))
        check = self._mixing = MixingCheck(
            empty, views=self._settings.views, evaluating=lambda: evaluating(self.model)
        )
        for company in check:
            yield from self._made_up(company)
        self._mixing = None
        for company in self._agreement.passes(check.first):
            yield from self._made_up(company)

    def _made_up(self, company: Company) -> Iterator[Batch]:
        self._guard.begin_step()
        device.seed(self._engine.home, company.seed)
        rows = self._engine.arranged(*device.moved(company.tensors, self._engine.home))
        batch = self._records.batch(rows, step=self._step, last=False, made_up=True)
        yield from self._given(batch, plain=company.plain)

    def _batches(self) -> Iterator[Batch]:
        reader = self._settings.reader
        read = reader.read(
            self._parts(), self._rows, lambda: self._size is not None, self._records.asking()
        )
        for part, rows_of in read:
            t = part.step
            if part.k == 0:
                if not self._paid(t):
                    return
                self._sum.reset()
                self._guard.begin_step()
                self._loss_sum = 0.0
            last = self._processes.all_last(part.last)
            yield from self._read(part, rows_of(), last)
            while part.last and not last:  # other processes have more rows of this step
                part = replace(part, k=part.k + 1, indices=part.indices[:0])
                last = self._processes.all_last(True)
                yield from self._read(part, self._rows(part), last)

    def _read(self, part: Part, rows: tuple[Tensor, ...], last: bool) -> Iterator[Batch]:
        rows = self._engine.arranged(*device.moved(rows, self._engine.home))
        device.seed(self._engine.home, self._seed("torch", part.step, part.k))
        yield from self._given(self._records.batch(rows, step=part.step, last=last))

    def _parts(self) -> Iterator[Part]:
        """The parts of all steps to come that this process has to do."""
        for t in range(self._step, self.schedule.steps):
            mine = shard(
                self.sampler.indices(t),
                n=len(self._records),
                rank=self._processes.rank,
                world=self._processes.world,
            )
            for k, (indices, last) in enumerate(micro_batches(mine, self._micro_batch)):
                yield Part(step=t, k=k, indices=indices, last=last)

    def _given(self, batch: Batch, *, plain: bool = False) -> Iterator[Batch]:
        self._batch = batch
        self._processes.settle()
        self._guard.begin_part()
        if not plain:
            self._recording = self._engine.recording(len(batch))
            self._recording.__enter__()
        yield batch
        if self._batch is not None:
            raise PrivetError("training.step(losses) must be called once for every batch")

    def _seed(self, use: str, t: int, k: int) -> int:
        """A seed for part k of step t: a function of the run and of public numbers."""
        drawn = self._rng.child(use, t, self._processes.rank, k).uint64(1)[0]
        return int(drawn >> np.uint64(1))

    def step(self, losses: Tensor) -> None:
        """Take the losses of the batch just given, one a row; its last part completes the step."""
        recorded = self._recording is not None
        batch = self._taken()
        if losses.shape[:1] != (len(batch),):
            raise InvalidArgument(
                "losses",
                tuple(losses.shape),
                f"one for each of {len(batch)} rows",
                "reduction='none'",
            )
        if batch.weights is not None:
            losses = losses * batch.weights.to(losses.dtype)
        s = self._settings
        if self._size is None and recorded:
            fitting = self._engine.fitting_micro_batch(views=s.views)
            self._size = min(fitting, LARGEST_MICRO_BATCH)
        self._processes.settle()
        self._guard.check_part()
        if batch.made_up:
            self._guard.check_step()
            self._answer(losses, recorded)
            return
        if len(losses) or self._processes.spread:
            self._add(losses, s.clipping(self._bound), self._sum)
        self._loss_sum += float(losses.detach().double().sum())
        if batch.last:
            self._guard.check_step()
            self._finish(batch.step)

    def _add(self, losses: Tensor, clipping: Clipping, into: ClippedSum) -> None:
        with device.without_autocast(self._engine.home):
            self._engine.clipped_sum(
                losses, clipping=clipping, views=self._settings.views, into=into
            )

    def _answer(self, losses: Tensor, recorded: bool) -> None:
        """Losses of made-up rows, for the checks that asked for them."""
        if not recorded:
            self._agreement.saw_plain(losses)
            return
        first = self._mixing is not None and not self._mixing.answered
        views = self._settings.views
        weights = weights_of(len(losses) // views).to(losses.device)
        with device.without_autocast(self._engine.home):
            into = self._engine.weighted_sum(losses, weights, views=views, into=self._sum.reset())
        if self._mixing is not None:
            self._mixing.saw(losses, into.norms_unprotected)
        if first or self._mixing is None:
            self._agreement.saw_engine(losses, into, lowered=self._engine.lowered)

    def _taken(self) -> Batch:
        batch, self._batch = self._batch, None
        if batch is None:
            raise PrivetError("training.step(losses) was called without a new batch")
        self._stop_recording()
        return batch

    def _micro_batch(self) -> int:
        return FIRST_MICRO_BATCH if self._size is None else self._size

    def _rows(self, part: Part) -> tuple[Tensor, ...]:
        """The rows of a part where they lie; perhaps in a worker process."""
        stream = self._rng.child("augment", part.step, self._processes.rank, part.k)
        s = self._settings
        drawn = self._records.drawn(part.indices, self._rng.child("rows", part.step))
        return views_of(drawn, s.views // s.rows_each, s.augment, stream)

    def _finish(self, t: int) -> None:
        """The release: everything after this function's noise is post-processing."""
        self._finishing = True
        part, expected = self._sum, self.sampler.expected_batch(t)
        z = float(self.schedule.noise_multipliers[t])
        adaptive = self.schedule.adaptive
        gradient_z = z if adaptive is None else adaptive.gradient_multiplier(z, expected)
        norms = part.norms_unprotected
        within = int((norms <= self._bound).sum())
        self.diagnostics_unprotected.add(
            part, within=within, losses=self._loss_sum / self._settings.views
        )
        total = device.to_host(self._sum.flat)
        self._processes.bring_together_(total)
        if self._processes.adds_noise:
            bound = self._settings.clipping(self._bound).sensitivity(self._engine.layers)
            release_sum_(
                total,
                sensitivity=with_rounding(bound, self.summation),
                noise_multiplier=gradient_z,
                source=self._processes.noise(self._rng, t),
                rate=float(self.schedule.rates[t]),
                places=self._processes.places,
            )
        self._processes.hand_on_(total)
        if total is not self._sum.flat:
            self._sum.flat.copy_(total)
        if adaptive is not None:
            counts = torch.tensor([within, len(norms)], dtype=torch.int64)
            self._processes.sum_to_first_(counts)
            noisy = 0.0
            if self._processes.first:
                noisy = release_count(
                    int(counts[0]),
                    int(counts[1]),
                    scale=adaptive.noise_of_count(z, expected),
                    source=self._rng.child("count", t),
                )
            noisy = float(self._processes.word_from_first(noisy))
            self._bound = adaptive.next(self._bound, noisy, expected)
        elif t + 1 < self.schedule.steps:
            self._bound = float(self.schedule.bounds[t + 1])
        stepped = self._stepped()
        self._sum.assign(stepped, divisor=expected)
        if self._settings.learning_rates is not None:
            for group in self.optimizer.param_groups:
                group["lr"] = float(self._settings.learning_rates[t])
        clear_other_gradients(self.model, self.optimizer, self._sum.views, stepped)
        self.optimizer.step()
        if self._settings.scheduler is not None:
            self._settings.scheduler.step()
        if self._average is not None:
            self._average.update()
        self._step = t + 1
        self._finishing = False
        where = self._settings.checkpoints
        if where is not None and (
            self._step % where.every == 0 or self._step == self.schedule.steps
        ):
            self.save()

    def _stop_recording(self) -> None:
        if self._recording is not None:
            recording, self._recording = self._recording, None
            recording.__exit__(None, None, None)

    @property
    def summation(self) -> EngineSummation:
        """How the sums of this run are added up, and what that may be off by."""
        return EngineSummation(
            relation=self.sampler.relation,
            records=self.sampler.capacity,
            micro_batch=self._micro_batch(),
            processes=self._processes.world,
            dtype=self._engine.dtype,
            convolutions=self._engine.has_convolutions,
            alone=self._settings.batch_invariant,
        )

    @property
    def bound(self) -> float:
        """C_t of the next step."""
        return self._bound

    def averaged_model(self) -> nn.Module:
        """A copy of the model with the moving average of its weights."""
        if self._average is None:
            raise InvalidArgument("ema", None, "a decay in (0, 1), given to `private`")
        return self._average.model()
