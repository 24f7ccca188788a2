"""The one place where losses of rows are evaluated, and where it is stated what is known of them.

A user's losses come in two ways: from a function of the model and a batch, or from a loop body that
hands them to `Training.step`. Both are recorded and guarded here.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from privet import premises
from privet.errors import InvalidArgument, PrivetError
from privet.gradients import ClippedSum, Clipping, PerExampleGradients, device
from privet.gradients.row_program import RowProgram
from privet.gradients.row_tracing import HoldsRecords
from privet.guarantee import Backing, Premise
from privet.methods.dpsgd import generator_states
from privet.methods.dpsgd.batch_independence import (
    MadeUpRows,
    check_batch_independence,
    check_odd_company,
    make_up_rows,
)
from privet.methods.dpsgd.dataset_rows import Batch, DatasetRows
from privet.methods.dpsgd.distributed import Processes
from privet.methods.dpsgd.gradient_check import (
    GradientCheck,
    Gradients,
    evaluating,
    weights_of,
)
from privet.methods.dpsgd.module_fallback import check_with_fallbacks
from privet.methods.dpsgd.noise_addition import FIRST_MICRO_BATCH, LARGEST_MICRO_BATCH
from privet.methods.dpsgd.side_effects import StateGuard

Losses = Callable[[nn.Module, Batch], Tensor]
"""A model and a batch to one loss a row."""


_STATED = {
    Backing.ENFORCED: premises.ISOLATED_ROWS,
    Backing.TESTED: premises.NO_MIXING,
    Backing.ASSUMED: premises.UNCHECKED_MIXING,
}
"""What is said of the independence of rows; the weakest last."""


class LossEvaluation:
    """Evaluates losses with per-example gradients recorded, and refuses side effects.

    `begin(batch)`, then the forward pass, then `end(losses)`. How it is known that a row's loss
    depends on that row only:

    - enforced: the function was traced (`trace`), and its program runs in its place;
    - tested: `check` has passed;
    - assumed: neither.
    """

    def __init__(
        self, engine: PerExampleGradients, processes: Processes, *, views: int,
        micro_batch: int | None,
    ) -> None:  # fmt: skip
        self.engine, self._processes, self._views = engine, processes, views
        self.micro_batch_size = micro_batch
        """What was asked for, or what fits the shapes; None before a first pass has shown them."""
        self.guard = StateGuard(engine.model)
        self.program: RowProgram | None = None
        """What the function of the losses does with one row, in the present step."""
        self.untraceable: str | None = None
        """Why there is no program, where one was wanted."""
        self.backing = Backing.ASSUMED
        """What is known of the steps to come."""
        self.backing_so_far: Backing | None = None
        """The weakest of all steps made; None before the first."""
        self._like: tuple[Tensor, ...] | None = None
        self._batch: Batch | None = None
        self._recording: AbstractContextManager[None] | None = None

    @property
    def premise(self) -> Premise:
        """What is known of the independence of rows."""
        return _STATED[self.backing_so_far or self.backing]

    @property
    def micro_batch(self) -> int:
        """How many examples to evaluate at a time."""
        return FIRST_MICRO_BATCH if self.micro_batch_size is None else self.micro_batch_size

    def arrange(self, rows: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Rows where the model is, in the layout that it wants."""
        return self.engine.arrange(*device.move(rows, self.engine.device))

    def check_closed(self) -> None:
        """Refuse a batch whose losses were never given."""
        if self._batch is not None:
            raise PrivetError("training.step(losses) must be called once for every batch")

    def begin(self, batch: Batch, *, record: bool = True) -> None:
        """Open the evaluation of a batch; without recording the engine stays out of it."""
        self.check_closed()
        self._batch = batch
        self._processes.reshard()
        self.guard.begin_part()
        if record and self.program is None:
            self._recording = self.engine.recording(len(batch))
            self._recording.__enter__()

    def trace(self, losses: Losses, records: DatasetRows, *, step: int) -> None:
        """Call the function for a step: once, on one made-up row; `evaluate` then runs its program.

        No record is read (but the first, for the shape of a row).
        """
        if self._like is None:
            self._like = records.take(np.zeros(0, dtype=np.int64))
        row = self.arrange(tuple(t.new_zeros(1, *t.shape[1:]) for t in self._like))
        model, self.program = self.engine.model, None
        self.guard.begin_part()
        try:
            self.program = self.engine.trace(
                lambda columns: losses(model, records.batch(columns, step=step, last=True)),
                row,
                is_private=records.holds,
            )
        finally:
            self.guard.check_part()

    def evaluate(self, losses: Losses, batch: Batch) -> Tensor:
        """The losses of a batch: by the program, if there is one, else by the function."""
        if self.program is None:
            return losses(self.engine.model, batch)
        self._check_shapes(batch)
        if not len(batch):
            return torch.zeros(0, device=self.engine.device)
        return self.engine.run(self.program, batch.columns)

    def _check_shapes(self, batch: Batch) -> None:
        assert self._like is not None
        for column, like in zip(batch.columns, self._like, strict=True):
            if column.shape[1:] != like.shape[1:] or column.dtype != like.dtype:
                raise InvalidArgument(
                    "a row", f"{tuple(column.shape[1:])}, {column.dtype}",
                    f"one of {tuple(like.shape[1:])}, {like.dtype}, as the first record has",
                    "give all records one shape and type: pad or cut them beforehand",
                )  # fmt: skip

    def end(self, losses: Tensor) -> tuple[Batch, Tensor]:
        """Close the evaluation: the batch, and its losses, checked and weighed."""
        batch, self._batch = self._batch, None
        if batch is None:
            raise PrivetError("training.step(losses) was called without a new batch")
        recorded = self._recording is not None or (self.program is not None and len(batch) > 0)
        self.stop_recording()
        if not isinstance(losses, Tensor) or losses.shape[:1] != (len(batch),):
            raise InvalidArgument(
                "losses",
                tuple(losses.shape) if isinstance(losses, Tensor) else type(losses).__name__,
                f"one for each of {len(batch)} rows",
                "reduction='none'",
            )
        if batch.weights is not None:
            losses = losses * batch.weights.to(losses.dtype)
        if self.micro_batch_size is None and recorded:
            fitting = self.engine.suitable_micro_batch(views=self._views)
            self.micro_batch_size = min(fitting, LARGEST_MICRO_BATCH)
        self._processes.reshard()
        self.guard.check_part()
        return batch, losses

    def stop_recording(self) -> None:
        """Give the model its own forward passes back."""
        if self._recording is not None:
            recording, self._recording = self._recording, None
            recording.__exit__(None, None, None)

    def add(self, losses: Tensor, clipping: Clipping, into: ClippedSum) -> None:
        """Add the clipped gradients of the losses that were recorded last."""
        order = list(_STATED)
        known = self.backing_so_far or self.backing
        self.backing_so_far = max(known, self.backing, key=order.index)
        if len(losses) or self._processes.spread:
            with device.without_autocast(self.engine.device):
                self.engine.clipped_sum(losses, clipping=clipping, views=self._views, into=into)

    def check(
        self,
        losses: Losses,
        records: DatasetRows,
        scratch: ClippedSum,
        *,
        steps: Sequence[int],
        expected: float,
        enforce: bool = False,
    ) -> None:
        """Try the losses on made-up rows: see `batch_independence` and `gradient_check`.

        Nothing of the records is read. Buffers and the states of random generators are put back.
        Where the forward pass fails in channels-last layout, torch's own is tried and stays.
        `steps` are numbers of steps to come, the next one first, and `expected` the examples of a
        batch, both public. `enforce`: trace the losses, if that is possible, and compare what the
        program gives with what the function does with a batch.
        """
        how: Any = {"steps": steps, "expected": expected, "enforce": enforce}
        size = self.micro_batch_size

        def check() -> None:
            self.micro_batch_size = size  # another way to record modules has shapes of its own
            try:
                self.backing = self._check(losses, records, scratch, **how)
            except RuntimeError:
                if not self.engine.rearranges:
                    raise
                self.engine.keep_contiguous()
                self.backing = self._check(losses, records, scratch, **how)
                _warn_of_layout(_VIEWS)

        if self._processes.spread:
            check()
        else:
            check_with_fallbacks(self.engine, check)

    def try_layout(self, records: DatasetRows) -> None:
        """Run the model on two made-up rows, for loops whose own forward pass cannot be tried.

        Channels-last layout stays only where the model is seen to work in it.
        """
        if (
            self.backing is not Backing.ASSUMED
            or not self.engine.rearranges
            or self._processes.spread
        ):
            return
        rows = make_up_rows(records.take(np.zeros(0, dtype=np.int64)), watched=2, others=0)

        def runs() -> bool:
            batch = records.batch(self.arrange(rows), step=0, last=False)
            try:
                self.engine.model(**batch) if batch.names else self.engine.model(batch.x)
            except Exception:
                return False
            return True

        with _state_put_back(self.engine.model), torch.no_grad():
            if runs():
                return
            self.engine.keep_contiguous()
            _warn_of_layout(_VIEWS if runs() else _UNTRIED)

    def _check(
        self,
        losses: Losses,
        records: DatasetRows,
        scratch: ClippedSum,
        *,
        steps: Sequence[int],
        expected: float,
        enforce: bool,
    ) -> Backing:
        step = steps[0]
        self.untraceable = None
        compare = GradientCheck(self._processes.autograd(self.engine.model), views=self._views)
        seen: list[Gradients] = []

        def run(rows: MadeUpRows, *, record: bool, traced: bool = False) -> Tensor:
            self.guard.begin_step()
            number = step if rows.step is None else rows.step
            generator_states.seed_all(self.engine.device, rows.seed)
            if traced:
                self.trace(losses, records, step=number)
                generator_states.seed_all(self.engine.device, rows.seed)
            fresh = tuple(t.clone() for t in rows.tensors)  # a function may write into them
            batch = records.batch(self.arrange(fresh), step=number, last=rows.last)
            self.begin(batch, record=record)
            try:
                _, found = self.end(self.evaluate(losses, batch))
            finally:
                self.program = self._batch = None
                self.stop_recording()
            self.guard.check_step()
            return found

        def by_engine(rows: MadeUpRows) -> tuple[Tensor, ClippedSum]:
            found = run(rows, record=True, traced=traceable)
            weights = weights_of(len(found) // self._views).to(found.device)
            with device.without_autocast(self.engine.device):
                return found, self.engine.weighted_sum(
                    found, weights, views=self._views, into=scratch.reset()
                )

        def gradients(rows: MadeUpRows) -> Gradients:
            found, total = by_engine(rows)
            return compare.of_engine(found, total, lowered=self.engine.used_autocast)

        def look(rows: MadeUpRows) -> tuple[Tensor, Tensor]:
            if traceable:  # the engine is not asked about a batch
                found = run(rows, record=False)
                return found, found.new_zeros(len(found) // self._views)
            found, total = by_engine(rows)
            if not seen:
                seen.append(compare.of_engine(found, total, lowered=self.engine.used_autocast))
            return found, total.norms_unprotected

        def plain(rows: MadeUpRows) -> Gradients:
            return compare.of_autograd(run(rows, record=False))

        like = records.take(np.zeros(0, dtype=np.int64))
        model = self.engine.model
        some = MadeUpRows(tensors=make_up_rows(like, watched=2 * self._views, others=0))
        with _state_put_back(model), _explain_made_up_rows():
            run(some, record=False)  # by torch alone: some models are set up in their first pass
            traceable = enforce and not self._processes.spread
            if enforce and not traceable:
                self.untraceable = "a model that is spread over the processes"
            if traceable:
                try:
                    for _ in range(2):  # what the first call holds back is used in the second
                        by_engine(some)
                except HoldsRecords:
                    raise
                except Exception as error:  # of the function, or of torch, for a row without values
                    self.guard.check_part()
                    self.untraceable = f"{type(error).__name__}: {error}".splitlines()[0]
                    traceable = False
            rows = check_batch_independence(
                look, like, views=self._views, evaluating=lambda: evaluating(model)
            )
            if traceable:
                seen.append(gradients(rows))
            compare.run(seen[0], rows, gradients, plain)
            if traceable:
                return Backing.ENFORCED
            if self._processes.spread:
                return Backing.TESTED  # a pass without gradients would leave parts gathered
            parameters = [p for p in model.parameters() if p.requires_grad]

            def losses_of(rows: MadeUpRows) -> Tensor:
                with _scaled(parameters, rows.scale):
                    return run(rows, record=False)

            check_odd_company(
                losses_of,
                generator_states.place,
                like,
                views=self._views,
                rows=min(round(expected * self._views), _LARGEST_MADE_UP),
                steps=steps,
                evaluating=lambda: evaluating(model),
            )
            return Backing.TESTED


_LARGEST_MADE_UP = 32
"""Rows of a made-up batch at most: the check of a transformer takes seconds even so."""


@contextmanager
def _scaled(parameters: Sequence[nn.Parameter], scale: float) -> Iterator[None]:
    """Parameters so many times larger inside, and to the bit as they were afterwards."""
    before = [p.detach().clone() for p in parameters] if scale != 1.0 else []
    try:
        for p in parameters if before else ():
            p.data.mul_(scale)
        yield
    finally:
        for p, value in zip(parameters, before, strict=False):
            p.data.copy_(value)


@contextmanager
def _state_put_back(model: nn.Module) -> Iterator[None]:
    """Buffers and random generators as they were, whatever happens inside."""
    buffers = [
        (module, name, t, t.detach().clone())
        for module in model.modules()
        for name, t in module._buffers.items()
        if t is not None
    ]
    with generator_states.kept():
        try:
            yield
        finally:
            for module, name, t, value in buffers:
                module._buffers[name] = t
                if not torch.equal(t, value):
                    t.data.copy_(value)


_VIEWS = "the forward pass fails in channels-last layout (.flatten or .reshape in place of .view)"
_UNTRIED = "model(batch.x) fails, so that no layout can be tried (training.check(losses) would)"


def _warn_of_layout(why: str) -> None:
    # measured on one core: 1.2 for three convolutions with GroupNorm, 2.4 for the MNIST network
    cost = "torch's own layout is used, in which convolutions take 1.2 to 2.4 times as long"
    warnings.warn(f"{why}: {cost}", stacklevel=5)


@contextmanager
def _explain_made_up_rows() -> Iterator[None]:
    """Say, with an error of the user's own function, which rows it was given."""
    try:
        yield
    except PrivetError:
        raise
    except Exception as error:
        if "functorch" in str(error) or "atching rule" in str(error):
            error.add_note(
                "torch.func and vmap around the model are not recorded: write the losses of all "
                "rows at once, gradients by torch.autograd.grad(..., create_graph=True)"
            )
        error.add_note(
            "seen before the first step, on made-up rows in the shapes and types of the data "
            "(numbers in [0, 1.5], integers 0 and 1); only if real rows would pass, "
            "step=StepOptions(independence='assumed') goes without this check"
        )
        raise
