"""`private`: what turns a model, an optimiser and a data set into a private run."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Any, Literal

from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from privet import _check
from privet.errors import InvalidArgument
from privet.guarantee import Adjacency, Unit
from privet.ledger import Ledger
from privet.methods.dpsgd.averaging import Average
from privet.methods.dpsgd.checkpoint import Checkpoints
from privet.methods.dpsgd.distributed import Processes, current, leave_sums_to_us
from privet.methods.dpsgd.loop import Training
from privet.methods.dpsgd.reading import Reader
from privet.methods.dpsgd.records import Augment, records_of
from privet.methods.dpsgd.release import make_ready
from privet.methods.dpsgd.run import EVALUATIONS, MakeClipping, Settings
from privet.methods.dpsgd.sampling import PoissonSampler, Sampler
from privet.methods.dpsgd.schedule import Schedule, Values, values
from privet.methods.dpsgd.spread import Spread, is_sharded
from privet.methods.dpsgd.users import UserRecords
from privet.nets import Clipping, FlatClipping, PerExampleGradients
from privet.nets.per_example import wide
from privet.nets.per_example.choice import KernelChoice
from privet.nets.per_example.layers import Rule
from privet.nets.per_example.sharded import ShardedGradients
from privet.noise import Source


def flat_clipping(bound: float) -> Clipping:
    """Every example's whole gradient scaled to norm at most `bound`."""
    return FlatClipping(bound=bound)


def private(
    model: nn.Module,
    optimizer: Optimizer,
    dataset: Any,
    schedule: Schedule,
    *,
    rng: Source,
    ledger: Ledger | None = None,
    delta: float | None = None,
    n_public: int | None = None,
    groups: Any = None,
    rows_each: int = 8,
    sampler: Sampler | None = None,
    clipping: MakeClipping = flat_clipping,
    micro_batch: int | None = None,
    views: int = 1,
    augment: Augment | None = None,
    ema: float | None = None,
    learning_rates: Values | None = None,
    scheduler: LRScheduler | None = None,
    checkpoints: Checkpoints | None = None,
    charge_block: int | None = None,
    limit: float | None = None,
    kernel_choice: KernelChoice | None = None,
    layers: Mapping[type[nn.Module], Rule] | None = None,
    through_func: Collection[str] = (),
    processes: Processes | None = None,
    run: str | None = None,
    check_mixing: bool = True,
    batch_invariant: bool = False,
    show_unprotected: bool = False,
    num_workers: int = 0,
    prefetch: int = 2,
    evaluation: Literal["public", "unprotected"] | None = None,
) -> Training:
    """A private training run around your own loop.

    ```
    with private(model, optimizer, (x, y), schedule, ledger=ledger, rng=secure()) as training:
        for batch in training:
            training.step(loss_fn(model(batch.x), batch.y))     # one loss a row
    print(training.guarantee)
    ```

    Each step t draws a Poisson sample with rate q_t (or what `sampler` says), and hands it out in
    parts of at most `micro_batch` rows: `batch.last` marks the end of a step. `training.step` clips
    every example's gradient to C_t and adds up; with the last part it adds Gaussian noise of
    standard deviation z_t C_t once, divides by the expected batch, and lets the optimiser step. An
    empty sample is one batch of no rows, and a step like any other.

    - `ledger`: charged before release, `charge_block` steps at a time (a quarter of the schedule,
      or with checkpoints as many as lie between two of them, unless told); when its cap is reached
      the loop ends and `training.stopped_early` is true. None: one that only counts (kept in the
      checkpoint's folder, if there is one).
    - `delta`: for `epsilon_spent` and `guarantee`; the ledger's unless told.
    - `n_public`: the nominal number of records, in the divisor. If it is given the true number is a
      secret, and neighbours are add-remove; products of matrices then take twice as long, since a
      record less shifts everybody. Left out, the number is counted and public: zero-out.
    - `groups`: the user of each record; users are then drawn in place of records, and the guarantee
      and the ledger are per user. A user's gradient is the mean over at most `rows_each` of their
      records (drawn anew in each step), clipped once. `n_public` is then the number of users.
      Lists of owners, for records that belong to several people: see `bounds.assign_owners`.
    - `clipping`: makes the rule from C_t, such as `lambda c: PerLayerClipping(bound=c)`.
    - `micro_batch`: examples at a time; what fits the model's shapes and a
      processor's cache, unless told. It bounds the memory and changes the result by rounding alone.
      Convolutions are brought to channels-last layout, model and rows; nothing else changes.
    - `views`, `augment`: each example appears `views` times, every appearance changed by
      `augment(row, generator)`; an example's gradient is the mean over its views, then clipped.
    - `ema`: decay of a moving average of the weights, see `training.averaged_model`.
    - `learning_rates`: eta_t for all groups of the optimiser; left alone if None.
    - `scheduler`: one of torch.optim.lr_scheduler instead, stepped after every step and kept in
      checkpoints; a loop that steps one by itself starts it anew when it is resumed.
    - `checkpoints`: where to save; a run found there goes on from its last checkpoint, a seeded one
      bit for bit as if it had never stopped.
    - `limit`: the epsilon at which a run that is resumed ends, all its attempts together: steps
      after the checkpoint were charged before, and a secure run pays for them again.
    - `kernel_choice`: how the engine picks kernels; by shapes for a seeded run, measured for a
      secure one, unless told.
    - `layers`: per-example gradients of layers of your own, `{MyLayer: rule}` where
      `rule(module, x, g)` gives the gradient of every row by parameter name (docs/extending.md).
    - `through_func`: names of modules to run by torch.func though the engine knows their kind, for
      those that use the parameters of other layers; '' is the whole model.
    - `check_mixing`: before the first step the loop is given a few small batches of made-up rows
      (`batch.made_up`), and what it answers shows whether examples mix (see `mixing`) and whether
      every parameter's gradient is what plain autograd says (`agreement`). Without the check the
      first is assumed.
    - `batch_invariant`: every example is computed by itself, in shapes that are always the same, so
      that its gradient cannot depend on who else was drawn, to the last bit; several times slower.
    - `show_unprotected`: warn at the end of how many gradients were not finite, an exact number.
    - `num_workers`, `prefetch`: processes that read the rows of coming batches, each so many ahead,
      and apply `augment`; the run is the same as without them. Without processes the rows of files
      that are mapped into memory are read by a thread, `prefetch` parts ahead.
    - `evaluation`: say so where the loop evaluates the model, and perhaps ends, before the schedule
      does: on "public" records, which is free, or on records left "unprotected", which the
      guarantee then lists as a premise not met. The whole schedule is charged at its start, since
      the end is chosen by looking at the model.
    - `run`: a name for the ledger's tokens, never used for another run; a new one unless told.
    - under `torchrun` (torch.distributed initialised) the processes share each step.

    **Guarantee**: `training.guarantee`: exact composition of all steps charged, per record.

    **Assumes** what `training.guarantee.premises` lists; above all that an example's loss
    depends on that example only, and that the loop body does nothing else with the batch.

    >>> import torch
    >>> from privet.noise import seeded
    >>> model = torch.nn.Linear(2, 1)
    >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    >>> data = torch.randn(100, 2), torch.randn(100, 1)
    >>> schedule = Schedule(steps=5, sample_rate=0.2, noise_multiplier=2.0)
    >>> with private(model, optimizer, data, schedule, delta=1e-5, rng=seeded(0)) as training:
    ...     for batch in training:
    ...         training.step((model(batch.x) - batch.y).square().mean(1))
    >>> training.steps_done, round(training.epsilon_spent, 2)
    (5, 1.21)
    """
    records = records_of(dataset)
    if not isinstance(rng, Source):
        raise InvalidArgument(
            "rng", rng, "a noise source", "use privet.noise.secure() or seeded(1)"
        )
    unit = Unit.RECORD if groups is None else Unit.USER
    views = _check.count("views", views)
    if groups is None:
        rows_each = 1
    else:
        records = UserRecords(records, groups, rows_each=rows_each)
        views *= rows_each
    if delta is None and ledger is None:
        raise InvalidArgument("delta", None, "a number in (0, 1) where no ledger is given")
    if delta is None:
        assert ledger is not None
        delta = ledger.cap_delta
    delta = _check.open_unit("delta", delta)
    if sampler is None:
        sampler = PoissonSampler(
            n=len(records), rates=schedule.rates, rng=rng, n_public=n_public, unit=unit
        )
    elif sampler.unit is not unit:
        raise InvalidArgument("sampler", f"one of {sampler.unit.value}s", f"one of {unit.value}s")
    elif sampler.steps != schedule.steps:
        raise InvalidArgument(
            "sampler", f"{sampler.steps} steps", f"one for {schedule.steps} steps"
        )
    elif not (sampler.rates == schedule.rates).all():
        raise InvalidArgument("sampler", sampler.rates, "one with the rates of the schedule")
    if records.several and sampler.relation is Adjacency.ADD_REMOVE:
        raise InvalidArgument(
            "n_public", sampler.expected_batch(0) / float(sampler.rates[0]),
            "left out where records have several owners", "who owns what is public there",
        )  # fmt: skip
    processes = current() if processes is None else processes
    leave_sums_to_us(model)
    if ledger is None:
        ledger = _counting_ledger(delta, sampler, checkpoints if processes.first else None)
    how: KernelChoice = kernel_choice or ("measured" if rng.secret else "cost-model")
    if evaluation not in (None, *EVALUATIONS):
        raise InvalidArgument("evaluation", evaluation, "'public', 'unprotected' or None")
    if evaluation and charge_block not in (None, schedule.steps):
        raise InvalidArgument(
            "charge_block", charge_block, "left out with `evaluation`",
            "the whole schedule is charged at its start where its end may be chosen",
        )  # fmt: skip
    if charge_block is None:
        charge_block = schedule.steps if evaluation else -(-schedule.steps // 4)
        if checkpoints is not None and not evaluation:
            charge_block = max(checkpoints.every, -(-schedule.steps // 20))
    rates = (
        None if learning_rates is None else values("learning_rates", learning_rates, schedule.steps)
    )
    if rates is not None and scheduler is not None:
        raise InvalidArgument("scheduler", "given", "left out where learning_rates are given")
    if isinstance(scheduler, ReduceLROnPlateau):
        raise InvalidArgument(
            "scheduler", "ReduceLROnPlateau", "one that follows the number of steps alone",
            "evaluate, and set the optimiser's rates, in your own loop",
        )  # fmt: skip
    if batch_invariant and micro_batch not in (None, 1):
        raise InvalidArgument("micro_batch", micro_batch, "1, or none, with batch_invariant=True")
    shifts = sampler.relation is Adjacency.ADD_REMOVE
    kind = ShardedGradients if is_sharded(model) else PerExampleGradients
    engine = kind(model, kernel_choice=how, wide=shifts, layers=layers, through_func=through_func)
    if isinstance(engine, ShardedGradients):
        processes = Spread(engine, ema=ema, checkpoints=checkpoints)
    engine.prepare()
    make_ready(rng.child("ready"))
    wide.make_ready()
    return Training(
        model=model,
        optimizer=optimizer,
        records=records,
        schedule=schedule,
        sampler=sampler,
        engine=engine,
        ledger=ledger,
        delta=delta,
        rng=rng,
        average=None if ema is None else Average(model, decay=ema),
        settings=Settings(
            clipping=clipping,
            micro_batch=1 if batch_invariant else _micro_batch(micro_batch),
            views=views,
            rows_each=rows_each,
            augment=augment,
            learning_rates=rates,
            scheduler=scheduler,
            checkpoints=checkpoints,
            charge_block=_check.count("charge_block", charge_block),
            limit=limit,
            check_mixing=check_mixing,
            batch_invariant=batch_invariant,
            show_unprotected=show_unprotected,
            evaluation=() if evaluation is None else (EVALUATIONS[evaluation],),
            reader=Reader(
                num_workers=_check.count("num_workers", num_workers, minimum=0),
                prefetch=_check.count("prefetch", prefetch),
            ),
        ),
        processes=processes,
        run=run,
    )


def _micro_batch(given: int | None) -> int | None:
    return None if given is None else _check.count("micro_batch", given)


def _counting_ledger(delta: float, sampler: Sampler, checkpoints: Checkpoints | None) -> Ledger:
    """A ledger without a cap; in a file where the run itself is kept in files."""
    terms: dict[str, Any] = {"adjacency": sampler.relation, "unit": sampler.unit}
    if checkpoints is None:
        return Ledger.in_memory(cap_epsilon=math.inf, cap_delta=delta, **terms)
    path = checkpoints.folder / "run.ledger"
    if path.exists():
        return Ledger.open(path)
    checkpoints.folder.mkdir(parents=True, exist_ok=True)
    return Ledger.create(path, cap_epsilon=math.inf, cap_delta=delta, **terms)
