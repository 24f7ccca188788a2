"""`private`: training a torch model of your own by private steps, in your own loop."""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Self, final

import numpy as np
from torch import Tensor, nn
from torch.optim import Optimizer

from privet import _check, premises
from privet.accounting import Gaussian, PrivacyLoss, SampledGaussian
from privet.accounting.closed_form import closed_form_claim
from privet.data.records import UnprotectedDiagnostic
from privet.errors import InvalidArgument
from privet.gradients import ClippedSum, PerExampleGradients, float64_sums
from privet.gradients.clipping_rules import is_builtin_clipping
from privet.gradients.fsdp_gradients import ShardedGradients
from privet.guarantee import Adjacency, Backing, Guarantee, Premise, Unit
from privet.ledger import Entry, Ledger
from privet.methods.dpsgd import generator_states
from privet.methods.dpsgd.checkpoints import Checkpoints, RunIdentity
from privet.methods.dpsgd.dataset_rows import Batch, DatasetRows, as_rows, make_views
from privet.methods.dpsgd.distributed import (
    Processes,
    current_processes,
    disable_ddp_gradient_sync,
)
from privet.methods.dpsgd.dpsgd_loop import DPSGDLoop
from privet.methods.dpsgd.fsdp_processes import ShardedProcesses, is_sharded
from privet.methods.dpsgd.loss_evaluation import Losses, LossEvaluation
from privet.methods.dpsgd.noise_addition import EngineSummation, make_ready, with_rounding
from privet.methods.dpsgd.optimizer_step import OptimizerStep
from privet.methods.dpsgd.prefetch import Reader, StepPart
from privet.methods.dpsgd.private_options import Charging, Sampling, StepOptions
from privet.methods.dpsgd.samplers import (
    PoissonSampler,
    Sampler,
    draw_indices,
    is_builtin_sampler,
    micro_batches,
    shard,
)
from privet.methods.dpsgd.schedule import Schedule, values
from privet.methods.dpsgd.settings_and_plan import PREMISES, clipping_premises
from privet.methods.dpsgd.side_effects import watch_loop_body
from privet.methods.dpsgd.user_rows import UserRows
from privet.noise import Source

_EVALUATION: dict[str | None, tuple[Premise, ...]] = {
    None: (),
    "public": (premises.PUBLIC_EVALUATION,),
    "unprotected": (premises.UNPROTECTED_EVALUATION,),
}


def private(
    model: nn.Module,
    optimizer: Optimizer,
    dataset: Any,
    schedule: Schedule,
    *,
    rng: Source,
    losses: Losses | None = None,
    ledger: Ledger | str | Path | None = None,
    delta: float | None = None,
    sampling: Sampling | None = None,
    step: StepOptions | None = None,
    charging: Charging | None = None,
    checkpoints: Checkpoints | None = None,
) -> Training:
    """Train your own model on your own data by the private steps of a schedule.

    ```
    def losses(model, batch):                                   # one loss a row
        return cross_entropy(model(batch.x), batch.y, reduction="none")

    with private(model, optimizer, (x, y), schedule, losses=losses, ledger=ledger,
                 rng=secure()) as training:
        for step in training:                                   # one step was made
            ...                                                 # log, evaluate, or nothing
    print(training.guarantee)
    ```

    Each step t draws a Poisson sample with rate q_t (or by `sampling.sampler`), clips every
    example's gradient to C_t, adds up, adds Gaussian noise of standard deviation z_t C_t once,
    divides by the expected batch, and lets the optimiser step. An empty sample is a step like any
    other. Before the first step `losses` is tried on made-up rows (see `Training.check`).

    Without `losses` the loop body computes them, for loops of another kind: a step is handed out in
    parts, of which `batch.last` marks the end.

    ```
        training.check(losses)                                  # or the premise is only assumed
        for batch in training:
            training.step(losses(model, batch))
    ```

    - `ledger`, or its path: charged before release (see `Charging`); when its cap is reached the
      loop ends and `training.stopped_early` is true. None: one that only counts (beside the
      checkpoints, if there are any).
    - `delta`: for `epsilon_spent` and `guarantee`; if None the ledger's, or without one that of
      `Schedule.for_budget`.
    - `sampling`, `step`, `charging`: who takes part, what a step does, when it is charged.
    - `checkpoints`: where to save; a run found there goes on from its last checkpoint, a seeded one
      bit for bit as if it had never stopped.
    - under `torchrun` (torch.distributed initialised) the processes share each step.

    **Guarantee**: `training.guarantee`: exact composition of all steps charged, per record.

    **Assumes** what `training.guarantee.premises` lists; above all that an example's loss
    depends on that example only, and that the loop does nothing else with the records.

    >>> import torch
    >>> from privet.noise import seeded
    >>> model = torch.nn.Linear(2, 1)
    >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    >>> data = torch.randn(100, 2), torch.randn(100, 1)
    >>> schedule = Schedule(steps=5, sample_rate=0.2, noise_multiplier=2.0)
    >>> def losses(model, batch):
    ...     return (model(batch.x) - batch.y).square().mean(1)
    >>> with private(model, optimizer, data, schedule, losses=losses, delta=1e-5,
    ...              rng=seeded(0)) as training:
    ...     numbers = [step.number for step in training]
    >>> numbers, round(training.epsilon_spent, 2)
    ([1, 2, 3, 4, 5], 1.21)
    """
    sampling, step, charging = sampling or Sampling(), step or StepOptions(), charging or Charging()
    if not isinstance(rng, Source):
        raise InvalidArgument(
            "rng", rng, "a noise source", "use privet.noise.secure() or seeded(1)"
        )
    ledger = Ledger.open(ledger) if isinstance(ledger, str | Path) else ledger
    if delta is None:
        delta = schedule.delta if ledger is None else ledger.cap_delta
    if delta is None:
        raise InvalidArgument(
            "delta", None, "a number in (0, 1) where no ledger is given",
            "Schedule.for_budget(delta=...) carries one",
        )  # fmt: skip
    delta = _check.open_unit("delta", delta)
    records = as_rows(dataset)
    if sampling.groups is not None:
        records = UserRows(records, sampling.groups, max_rows_per_user=sampling.max_rows_per_user)
    sampler = _sampler(sampling, records, schedule, rng)
    processes = current_processes()
    disable_ddp_gradient_sync(model)
    if ledger is None:
        ledger = _counting_ledger(delta, sampler, checkpoints if processes.first else None)
    block = charging.block_of(schedule.steps, None if checkpoints is None else checkpoints.every)
    kind = ShardedGradients if is_sharded(model) else PerExampleGradients
    engine = kind(
        model,
        kernel_choice=step.kernel_choice or ("measured" if rng.secret else "cost-model"),
        float64_products=sampler.stated_adjacency is Adjacency.ADD_REMOVE,
        layers=step.layers,
        through_func=step.through_func,
    )
    if isinstance(engine, ShardedGradients):
        processes = ShardedProcesses(engine, ema=step.ema, checkpoints=checkpoints)
    engine.prepare()
    make_ready(rng.child("ready"))
    float64_sums.compile_loops()
    descent = OptimizerStep(
        model,
        optimizer,
        learning_rates=None
        if step.learning_rates is None
        else values("learning_rates", step.learning_rates, schedule.steps),
        scheduler=step.scheduler,
        ema=step.ema,
    )
    micro_batch = 1 if step.batch_invariant else step.micro_batch
    views = sampling.views * records.rows_per_unit
    evaluation = LossEvaluation(engine, processes, views=views, micro_batch=micro_batch)

    def summation() -> EngineSummation:
        return EngineSummation(
            relation=sampler.stated_adjacency,
            records=sampler.capacity,
            micro_batch=evaluation.micro_batch,
            processes=processes.world,
            dtype=engine.dtype,
            convolutions=engine.has_convolutions,
            alone=step.batch_invariant,
        )

    total = engine.zeros(capacity=sampler.capacity)

    def sensitivity(bound: float) -> float:
        # never less than the sum was held to, should a user's rule say one thing and then another
        stated = step.clipping(bound).sensitivity(engine.layers)
        return with_rounding(max(stated, total.sensitivity), summation())

    shapes: list[Any] = [(name, list(p.shape)) for name, p in model.named_parameters()]
    loop = DPSGDLoop(
        identity=RunIdentity(
            schedule=schedule,
            sampler=sampler,
            rng=rng,
            data=records.fingerprint,
            model=[*shapes, ("C", step.clipping(1.0).sensitivity(engine.layers))],
            micro_batch=micro_batch,
            views=views,
            ema=step.ema,
        ),
        total=total,
        sensitivity=sensitivity,
        descent=descent,
        ledger=ledger,
        block=block,
        limit=None if charging.limit is None else (charging.limit, delta),
        run=charging.run,
        checkpoints=checkpoints,
        processes=processes,
        extra={"size": micro_batch, "mixing": None},
    )
    return Training(
        loop=loop,
        records=records,
        evaluation=evaluation,
        summation=summation,
        losses=losses,
        delta=delta,
        rng=rng,
        sampling=sampling,
        step=step,
        processes=processes,
        premises=_EVALUATION[charging.evaluation],
    )


def _sampler(sampling: Sampling, records: DatasetRows, schedule: Schedule, rng: Source) -> Sampler:
    """The sampler that is given, if it fits the schedule; else Poisson sampling."""
    unit = Unit.RECORD if sampling.groups is None else Unit.USER
    sampler = sampling.sampler
    if sampler is None:
        sampler = PoissonSampler(
            n=len(records), rates=schedule.rates, rng=rng, n_public=sampling.n_public, unit=unit
        )
    elif sampler.unit is not unit:
        raise InvalidArgument("sampler", f"one of {sampler.unit.value}s", f"one of {unit.value}s")
    elif sampler.steps != schedule.steps:
        raise InvalidArgument(
            "sampler", f"{sampler.steps} steps", f"one for {schedule.steps} steps"
        )
    elif not (sampler.rates == schedule.rates).all():
        raise InvalidArgument("sampler", sampler.rates, "one with the rates of the schedule")
    if records.has_several_owners and sampler.stated_adjacency is Adjacency.ADD_REMOVE:
        raise InvalidArgument(
            "n_public", sampler.expected_batch(0) / float(sampler.rates[0]),
            "left out where records have several owners", "who owns what is public there",
        )  # fmt: skip
    return sampler


def _counting_ledger(delta: float, sampler: Sampler, checkpoints: Checkpoints | None) -> Ledger:
    """A ledger without a cap; in a file where the run has checkpoints."""
    terms: dict[str, Any] = {"adjacency": sampler.stated_adjacency, "unit": sampler.unit}
    if checkpoints is None:
        return Ledger.in_memory(cap_epsilon=math.inf, cap_delta=delta, **terms)
    path = checkpoints.folder / "run.ledger"
    if path.exists():
        return Ledger.open(path)
    checkpoints.folder.mkdir(parents=True, exist_ok=True)
    return Ledger.create(path, cap_epsilon=math.inf, cap_delta=delta, **terms)


@dataclass(kw_only=True)
class Diagnostics:
    """Exact facts about the run, *not* covered by its guarantee: look, but do not publish.

    Nothing of it is printed or stored unless `StepOptions(show_unprotected=True)` asks for it.
    """

    examples: int = 0
    clipped: int = 0
    non_finite: int = 0
    over_bound: int = 0
    """Examples that counted as nothing: a user's clipping rule did not keep to its bound."""
    loss: float = float("nan")
    """Mean loss of the last step that had examples."""

    def add(self, total: ClippedSum, *, bound: float, losses: float) -> None:
        """Count a step: its examples, those beyond the bound, and the sum of their losses."""
        examples = total.examples_unprotected
        self.examples += examples
        self.clipped += examples - int((total.norms_unprotected <= bound).sum())
        self.non_finite += total.non_finite_unprotected
        if examples:
            self.loss = losses / examples


@final
@dataclass(frozen=True, kw_only=True)
class Step:
    """A step that was made; all of it is public."""

    number: int
    """1 for the first: how many steps have been made."""
    sample_rate: float
    noise_multiplier: float
    clipping_bound: float

    def __iter__(self) -> Iterator[Any]:
        hint = "`for step in training:`; `losses` has the batch, and made the step"
        raise InvalidArgument("what the loop unpacks", "a step", "no batch", hint)


@final
class Training:
    """A private run; make one with `private` and use it as a context manager.

    Iterating makes the steps. With `losses` each iteration is a `Step` that was just made: the
    model has its new weights, and the random generators are yours. Without, each is a `Batch`,
    whose losses `step` must be given.
    """

    _iterating: ClassVar[object] = None

    def __init__(
        self,
        *,
        loop: DPSGDLoop,
        records: DatasetRows,
        evaluation: LossEvaluation,
        summation: Callable[[], EngineSummation],
        losses: Losses | None,
        delta: float,
        rng: Source,
        sampling: Sampling,
        step: StepOptions,
        processes: Processes,
        premises: tuple[Premise, ...],
    ) -> None:
        self.loop, self.delta = loop, delta
        self.model, self.optimizer = loop.descent.model, loop.descent.optimizer
        self.schedule, self.sampler, self.run = loop.schedule, loop.sampler, loop.run
        self.diagnostics_unprotected = Diagnostics()
        self._records, self._evaluation, self._summation = records, evaluation, summation
        self._losses, self._rng, self._processes = losses, rng, processes
        self._sampling, self._options, self._premises = sampling, step, premises
        self._loss_sum = 0.0
        evaluation.micro_batch_size = loop.extra["size"]
        if loop.extra["mixing"] is not None:
            evaluation.backing_so_far = Backing(loop.extra["mixing"])

    # The loop

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._evaluation.stop_recording()
        self.loop.__exit__(kind, error, trace)
        seen = self.diagnostics_unprotected
        for count, problem in (
            (seen.non_finite, "not finite"),
            (seen.over_bound, "left beyond its bound by the clipping rule"),
        ):
            if self._options.show_unprotected and count and kind is None:
                warnings.warn(
                    f"{count} gradients of single examples were {problem} and "
                    "counted as zero (exact, so for the owner of the data only)",
                    UnprotectedDiagnostic,
                    stacklevel=2,
                )

    def __iter__(self) -> Iterator[Any]:
        if self._losses is None:
            return self._iterate_batches()
        return self._iterate_steps(self._losses)

    def check(self, losses: Losses) -> None:
        """Try the function that gives the losses on made-up rows, before the first step.

        The same rows in other company must have the same losses and gradient norms, whatever that
        company is (see `batch_independence`); every parameter's gradient must be what plain
        autograd says; nothing of the model may change, and nothing from call to call.
        Done by itself where `private` was given `losses`. No record is read and nothing is charged.

        **Guarantee**: that examples do not mix is then stated as tested, otherwise as assumed.
        **Assumes** that the loop takes its losses from this function.
        """
        self._try_losses(losses, enforce=False)

    def _try_losses(self, losses: Losses, *, enforce: bool) -> None:
        """Try the losses on made-up rows, as of a few steps to come."""
        first, last = self.steps_done, self.schedule.steps - 1
        numbers = (first, first + 1, (first + last) // 2, last)
        self._evaluation.check(
            losses,
            self._records,
            self.loop.total,
            steps=tuple(dict.fromkeys(min(t, last) for t in numbers)),
            expected=self.sampler.expected_batch(min(first, last)),
            enforce=enforce,
        )

    def step(self, losses: Tensor) -> None:
        """Take the losses of the batch just given, one a row; its last part completes the step."""
        batch, losses = self._evaluation.end(losses)
        loop = self.loop
        self._evaluation.add(losses, self._options.clipping(loop.bound), loop.total)
        self._loss_sum += float(losses.detach().double().sum())
        if batch.last:
            self._evaluation.guard.check_step()
            over = self._evaluation.engine.over_bound_unprotected
            self.diagnostics_unprotected.over_bound = over
            self.diagnostics_unprotected.add(
                loop.total, bound=loop.bound, losses=self._loss_sum / self._views
            )
            self._note_extra()
            loop.complete(batch.step)

    def _note_extra(self) -> None:
        known = self._evaluation.backing_so_far
        size = self._evaluation.micro_batch_size
        self.loop.extra = {"size": size, "mixing": None if known is None else known.value}

    def _iterate_steps(self, losses: Losses) -> Iterator[Step]:
        if self.steps_done < self.schedule.steps:
            self._choose_route(losses)
        given: generator_states.States | None = generator_states.states()
        try:
            for batch in self._batches(losses):
                bound = self.bound
                self.step(self._evaluation.evaluate(losses, batch))
                if not batch.last:
                    continue
                assert given is not None
                generator_states.put_back(given)  # ours count the rows of the sample
                given = None
                with watch_loop_body(self.model, self.optimizer, self._note_evaluation):
                    yield Step(
                        number=self.steps_done,
                        sample_rate=float(self.schedule.rates[batch.step]),
                        noise_multiplier=float(self.schedule.noise_multipliers[batch.step]),
                        clipping_bound=bound,
                    )
                given = generator_states.states()
        finally:
            if given is not None:
                generator_states.put_back(given)

    def _note_evaluation(self) -> None:
        """The model was run between two steps: say so where nobody declared on which records."""
        if not self._premises:
            self._premises = (premises.PUBLIC_EVALUATION,)
            warnings.warn(
                "the model was run inside the loop: the guarantee assumes that it was on public "
                "records; charging=Charging(evaluation='public') declares it, 'unprotected' others",
                UserWarning,
                stacklevel=2,
            )

    def _iterate_batches(self) -> Iterator[Batch]:
        given, Training._iterating = generator_states.states(), (mine := object())
        self._evaluation.try_layout(self._records)
        try:
            yield from self._batches()
        finally:
            if Training._iterating is mine:  # else it belongs to a run begun since
                generator_states.put_back(given)  # ours count the rows of the last sample

    def _choose_route(self, losses: Losses) -> None:
        """Decide, by made-up rows alone, how the losses of this run are evaluated."""
        wanted, evaluation = self._options.independence, self._evaluation
        if wanted == "assumed":
            return
        self._try_losses(losses, enforce=wanted != "tested")
        if evaluation.untraceable is None:
            return
        if wanted == "enforced":
            raise InvalidArgument(
                "losses", evaluation.untraceable, "operations of torch on the rows alone",
                "let Python not look at values of rows, or say independence='tested'",
            )  # fmt: skip
        warnings.warn(
            "that an example's loss depends on that example only is tested here, not enforced "
            f"({evaluation.untraceable}): say StepOptions(independence='tested') if that is meant",
            UserWarning,
            stacklevel=4,
        )

    def _batches(self, losses: Losses | None = None) -> Iterator[Batch]:
        """The parts of all steps to come, each with its evaluation opened."""
        reader = Reader(num_workers=self._sampling.num_workers, prefetch=self._sampling.prefetch)
        size_is_known = lambda: self._evaluation.micro_batch_size is not None  # noqa: E731
        read = reader.read(self._parts(), self._rows, size_is_known, self._records.rows_ahead())
        for part, rows_of in read:
            if part.k == 0:
                if losses is not None and self._evaluation.backing is Backing.ENFORCED:
                    self._seed(self._rng.child("trace", part.step))
                    self._evaluation.trace(losses, self._records, step=part.step)
                if not self.loop.begin(part.step):
                    return
                self._evaluation.guard.begin_step()
                self._loss_sum = 0.0
            last = self._processes.all_last(part.last)
            yield self._open(part, rows_of(), last)
            self._evaluation.check_closed()
            while part.last and not last:  # other processes have more rows of this step
                part = replace(part, k=part.k + 1, indices=part.indices[:0])
                last = self._processes.all_last(True)
                yield self._open(part, self._rows(part), last)
                self._evaluation.check_closed()

    def _open(self, part: StepPart, rows: tuple[Tensor, ...], last: bool) -> Batch:
        rows = self._evaluation.arrange(rows)
        self._seed(self._rng.child("torch", part.step, self._processes.rank, part.k))
        batch = self._records.batch(rows, step=part.step, last=last)
        self._evaluation.begin(batch)
        return batch

    def _seed(self, source: Source) -> None:
        """Seed what the function of the losses may draw from."""
        generator_states.seed_all(
            self._evaluation.engine.device, int(source.uint64(1)[0] >> np.uint64(1))
        )

    def _parts(self) -> Iterator[StepPart]:
        """The parts of all steps to come that this process has to do."""
        for t in range(self.steps_done, self.schedule.steps):
            mine = shard(
                draw_indices(self.sampler, t, n=len(self._records)),
                n=len(self._records),
                rank=self._processes.rank,
                world=self._processes.world,
            )
            sizes = micro_batches(mine, lambda: self._evaluation.micro_batch)
            for k, (indices, last) in enumerate(sizes):
                yield StepPart(step=t, k=k, indices=indices, last=last)

    def _rows(self, part: StepPart) -> tuple[Tensor, ...]:
        """The rows of a part where they lie; perhaps in a worker process."""
        stream = self._rng.child("augment", part.step, self._processes.rank, part.k)
        drawn = self._records.draw(part.indices, self._rng.child("rows", part.step))
        return make_views(drawn, self._sampling.views, self._sampling.augment, stream)

    @property
    def _views(self) -> int:
        return self._sampling.views * self._records.rows_per_unit

    # How it stands

    @property
    def steps_done(self) -> int:
        """How many steps have been made."""
        return self.loop.steps_done

    @property
    def bound(self) -> float:
        """C_t of the next step."""
        return self.loop.bound

    @property
    def stopped_early(self) -> bool:
        """Whether the ledger's cap ended the run before its schedule did."""
        return self.loop.charges.exhausted and self.steps_done < self.schedule.steps

    def save(self) -> Path | None:
        """Write a checkpoint now (done by itself every so many steps)."""
        self._note_extra()
        return self.loop.save()

    def averaged_model(self) -> nn.Module:
        """A copy of the model with the moving average of its weights."""
        if self.loop.descent.average is None:
            raise InvalidArgument("ema", None, "a decay in (0, 1), given in StepOptions")
        return self.loop.descent.average.model()

    # What it costs

    @property
    def loss(self) -> PrivacyLoss:
        """All that this run has charged so far, in all attempts: at least what was released."""
        return self.loop.charges.loss

    @property
    def entries(self) -> tuple[Entry, ...]:
        """The ledger entries of this run (in the first process)."""
        return tuple(self.loop.charges.entries)

    @property
    def epsilon_spent(self) -> float:
        """epsilon of the steps charged so far, at `delta`; reading it changes nothing."""
        return self.loss.epsilon(self.delta)

    @property
    def summation(self) -> EngineSummation:
        """How the sums of this run are added up, and what that may be off by."""
        return self._summation()

    @property
    def guarantee(self) -> Guarantee:
        """What is proved about all steps charged so far.

        Before the schedule is charged in full this is a figure of the moment: it rests on the end
        not being chosen by looking at the model (docs/theory/ledger.md, "Filter and odometer").
        """
        sampler = self.sampler
        proved = self.loss.guarantee(
            self.delta, theorem="exact composition of Gaussian releases on random samples"
        )
        ended = self.loop.charges.charged_until >= sampler.steps
        end = () if ended else (premises.END_NOT_CHOSEN,)
        owners = clipping_premises(
            sampler.unit, self._records.rows_per_unit, self._records.has_several_owners
        )
        n = sampler.expected_batch(0) / max(float(sampler.rates[0]), 1e-300)
        large = (premises.large_delta(self.delta, round(n)),) if self.delta * n >= 1.0 else ()
        mixing = self._evaluation.premise
        free = self._losses is None and mixing.backing is not Backing.ASSUMED
        loop = (premises.LOOP_AS_CHECKED,) if free else ()
        stated = (
            *self._user_parts, *owners, *PREMISES, *self.summation.premises, mixing, *loop, *end,
            *self._premises, premises.OWN_MAP, *large, self._rng.premise,
        )  # fmt: skip
        return replace(
            proved, adjacency=sampler.stated_adjacency, unit=sampler.unit, premises=stated
        )

    @property
    def _user_parts(self) -> tuple[Premise, ...]:
        """What the sampler states, and what is assumed of all that a user handed in."""
        stated = self.sampler.premises
        if not is_builtin_sampler(self.sampler):
            stated = (*map(premises.on_a_users_word, stated), premises.USER_SAMPLER)
        handed_in = {
            premises.USER_CLIPPING: not is_builtin_clipping(self._options.clipping(self.bound)),
            premises.USER_LAYER_RULES: bool(self._options.layers),
            premises.USER_AUGMENTATION: self._sampling.augment is not None,
        }
        return (*stated, *(premise for premise, given in handed_in.items() if given))

    def save_guarantee(self, folder: str | Path) -> Path:
        """Write guarantee.json, to lie beside a model that is saved by its own means."""
        path = Path(folder) / "guarantee.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(self.guarantee.to_dict(), indent=2))
        return path

    @property
    def claim(self) -> Guarantee | None:
        """What the paper's closed form states for all charged so far; None where it has none."""
        loss = self.loss
        if any(not isinstance(part, Gaussian | SampledGaussian) for part in loss.parts):
            return None
        return replace(closed_form_claim(loss, self.delta), unit=self.sampler.unit)
