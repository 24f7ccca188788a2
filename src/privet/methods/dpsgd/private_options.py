"""The options of `private`: who takes part, what a step does, and when it is charged."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, final

from torch import nn
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from privet import _check
from privet.errors import InvalidArgument
from privet.gradients import Clipping, FlatClipping, LayerRule
from privet.gradients.kernel_choice import KernelChoice
from privet.methods.dpsgd.dataset_rows import Augment
from privet.methods.dpsgd.samplers import Sampler
from privet.methods.dpsgd.schedule import Values

MakeClipping = Callable[[float], Clipping]
"""Makes the clipping rule of a step from its bound C_t."""


def flat_clipping(bound: float) -> Clipping:
    """Every example's whole gradient scaled to norm at most `bound`."""
    return FlatClipping(bound=bound)


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Sampling:
    """Who takes part in a step, and how their rows are read.

    - `n_public`: the nominal number of records, in the divisor. If it is given the true number is a
      secret, and neighbours are add-remove; products of matrices then take twice as long, since a
      record less shifts everybody. Left out, the number is counted and public: zero-out.
    - `groups`: the user of each record; users are then drawn in place of records, and the guarantee
      and the ledger are per user. A user's gradient is the mean over at most `max_rows_per_user` of
      their records (drawn anew in each step), clipped once. `n_public` is then the number of users.
      Lists of owners, for records that belong to several people: see `sensitivity.assign_owners`.
    - `sampler`: draws the records of each step and states the price; Poisson sampling unless given.
    - `views`, `augment`: each example appears `views` times, every appearance changed by
      `augment(row, generator)`; an example's gradient is the mean over its views, then clipped.
    - `num_workers`, `prefetch`: processes that read the rows of coming batches, each so many ahead,
      and apply `augment`; the run is the same as without them. Without processes the rows of files
      that are mapped into memory are read by a thread, `prefetch` parts ahead.
    """

    n_public: int | None = None
    groups: Any = None
    max_rows_per_user: int = 8
    sampler: Sampler | None = None
    views: int = 1
    augment: Augment | None = None
    num_workers: int = 0
    prefetch: int = 2

    def __post_init__(self) -> None:
        _check.count("views", self.views)
        _check.count("max_rows_per_user", self.max_rows_per_user)
        _check.count("num_workers", self.num_workers, minimum=0)
        _check.count("prefetch", self.prefetch)


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class StepOptions:
    """How a step clips, sums and descends; none of it changes the price.

    - `clipping`: makes the rule from C_t, such as `lambda c: PerLayerClipping(bound=c)`.
    - `micro_batch`: examples at a time; what fits the model's shapes and a processor's cache if
      None. It bounds the memory and changes the result by rounding alone. Convolutions are brought
      to channels-last layout, model and rows; nothing else changes.
    - `batch_invariant`: every example is computed by itself, in shapes that are always the same, so
      that its gradient cannot depend on who else was drawn, to the last bit; several times slower.
    - `learning_rates`: eta_t for all groups of the optimiser; left alone if None.
    - `scheduler`: one of torch.optim.lr_scheduler instead, stepped after every step and saved in
      checkpoints; a loop that steps one by itself starts it anew when it is resumed.
    - `ema`: decay of a moving average of the weights, see `Training.averaged_model`.
    - `layers`: per-example gradients of layers of your own, `{MyLayer: rule}` where
      `rule(module, x, g)` gives the gradient of every row by parameter name (docs/extending.md).
    - `through_func`: names of modules to run by torch.func though the engine knows their kind, for
      those that use the parameters of other layers; '' is the whole model.
    - `kernel_choice`: how the engine picks kernels; by shapes for a seeded run and measured for a
      secure one if None.
    - `independence`: how it is known that an example's loss depends on that example only, where
      `private` is given `losses`. "enforced": they are traced on a made-up row at every step, and
      on records only the operations of torch that this shows are run, on each row by itself; what
      cannot be traced (Python looks at a value of a row) is refused. "tested": they see whole
      batches, and are tried on made-up rows before the first step (see `Training.check`).
      "assumed": neither. None: enforced if possible, else tested, with a warning.
    - `show_unprotected`: warn at the end of how many gradients were not finite, an exact number.
    """

    clipping: MakeClipping = flat_clipping
    micro_batch: int | None = None
    batch_invariant: bool = False
    learning_rates: Values | None = None
    scheduler: LRScheduler | None = None
    ema: float | None = None
    layers: Mapping[type[nn.Module], LayerRule] = field(default_factory=dict)
    through_func: Collection[str] = ()
    kernel_choice: KernelChoice | None = None
    independence: Literal["enforced", "tested", "assumed"] | None = None
    show_unprotected: bool = False

    def __post_init__(self) -> None:
        if self.independence not in ("enforced", "tested", "assumed", None):
            raise InvalidArgument(
                "independence", self.independence, "'enforced', 'tested', 'assumed' or None"
            )
        if self.micro_batch is not None:
            _check.count("micro_batch", self.micro_batch)
        if self.batch_invariant and self.micro_batch not in (None, 1):
            raise InvalidArgument(
                "micro_batch", self.micro_batch, "1, or none, with batch_invariant=True"
            )
        if self.learning_rates is not None and self.scheduler is not None:
            raise InvalidArgument("scheduler", "given", "left out where learning_rates are given")
        if isinstance(self.scheduler, ReduceLROnPlateau):
            raise InvalidArgument(
                "scheduler", "ReduceLROnPlateau", "one that follows the number of steps alone",
                "evaluate, and set the optimiser's rates, in your own loop",
            )  # fmt: skip


@final
@dataclass(frozen=True, kw_only=True)
class Charging:
    """When a run's steps are charged to its ledger.

    - `evaluation`: say so where the loop evaluates the model, and perhaps ends, before the schedule
      does: on "public" records, which is free, or on records left "unprotected", which the
      guarantee then lists as a premise not met. The whole schedule is charged at its start, since
      the end is chosen by looking at the model.
    - `block`: how many steps are charged at a time, before the first of them; a quarter of the
      schedule, or with checkpoints as many as lie between two of them, if None.
    - `limit`: the epsilon at which a run that is resumed ends, all its attempts together: steps
      after the checkpoint were charged before, and a secure run pays for them again.
    - `run`: a name for the ledger's tokens, never used for another run; a new one if None.
    """

    evaluation: Literal["public", "unprotected"] | None = None
    block: int | None = None
    limit: float | None = None
    run: str | None = None

    def __post_init__(self) -> None:
        if self.evaluation not in ("public", "unprotected", None):
            raise InvalidArgument("evaluation", self.evaluation, "'public', 'unprotected' or None")
        if self.block is not None:
            _check.count("block", self.block)

    def block_of(self, steps: int, every: int | None) -> int:
        """How many of `steps` are charged at a time, with a checkpoint `every` so many or none."""
        if self.evaluation and self.block not in (None, steps):
            raise InvalidArgument(
                "block", self.block, "left out with `evaluation`",
                "the whole schedule is charged at its start where its end may be chosen",
            )  # fmt: skip
        if self.block is not None:
            return self.block
        if self.evaluation:
            return steps
        # twenty entries at most: each further one costs a composition when the ledger is read
        return -(-steps // 4) if every is None else max(every, -(-steps // 20))
