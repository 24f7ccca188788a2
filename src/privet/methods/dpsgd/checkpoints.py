"""What a run keeps so that it can be resumed: charges ahead of its steps, and checkpoints.

Steps are paid for before they are made, in blocks, so that a crash can only lose money. A
checkpoint is one safetensors file, replaced whole or not at all, nothing pickled.
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from privet._check import Checked, checked, count, path
from privet._files import write_whole
from privet.errors import BudgetExceeded, InvalidArgument, LedgerError, PrivetError
from privet.ledger import Entry, Ledger, Scope
from privet.loss import PrivacyLoss, compose
from privet.methods.contract import Spending
from privet.methods.dpsgd.averaging import Average
from privet.methods.dpsgd.sampling import Sampler
from privet.methods.dpsgd.schedule import Schedule
from privet.noise import Source

FORMAT = 1
NAME = "checkpoint.safetensors"


class CheckpointError(PrivetError):
    """A checkpoint that cannot be used, and why."""

    def __init__(self, path: Any, problem: str, hint: str = "") -> None:
        self.path, self.problem, self.hint = path, problem, hint
        super().__init__(f"checkpoint {path}: {problem}" + (f"; {hint}" if hint else ""))


@final
@dataclass(frozen=True, kw_only=True)
class Checkpoints(Checked):
    """Where a run is saved, and after how many steps each time.

    If the folder holds a checkpoint of the same run, training goes on from it. What is stored
    (weights, optimiser state, averages) is a function of released sums only, so the file is as
    private as what was charged for it. Exact counts, such as of bad rows, are not stored.
    """

    folder: Path = checked(path)  # noqa: RUF009  (a field, not a value)
    every: int = checked(count, 100)

    @property
    def path(self) -> Path:
        """The file."""
        return self.folder / NAME

    def write(self, tensors: dict[str, Tensor], facts: dict[str, Any]) -> None:
        """Replace the checkpoint: written beside it, flushed to disk, then renamed."""
        plain = {
            k: t.detach().clone(memory_format=torch.contiguous_format) for k, t in tensors.items()
        }
        note = json.dumps({"format": FORMAT, **facts}, allow_nan=False)
        write_whole(self.path, save(plain, metadata={"privet": note}))

    def read(self) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        """The tensors and facts of the checkpoint, or None where there is none."""
        if not self.path.exists():
            return None
        try:
            with safe_open(self.path, framework="pt") as file:
                facts = json.loads((file.metadata() or {})["privet"])
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        except (SafetensorError, KeyError, ValueError) as error:
            raise CheckpointError(self.path, f"is not one of ours ({error})") from None
        if facts["format"] != FORMAT:
            raise CheckpointError(self.path, f"has format {facts['format']}, expected {FORMAT}")
        return tensors, facts


def kept_by(spending: Spending, steps: int) -> Checkpoints | None:
    """Where a run is kept in files; the run that was begun there goes on under its name."""
    if spending.folder is None:
        return None
    found = Checkpoints(folder=spending.folder, every=max(1, steps // 10))
    if (before := found.read()) is not None:
        spending.run = str(before[1]["run"])
    return found


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Kept:
    """What a checkpoint holds of a run besides its name and place: all that a step changes."""

    model: nn.Module
    optimizer: Optimizer
    average: Average | None = None
    scheduler: LRScheduler | None = None

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Tensors by name, and what is JSON."""
        tensors, optimizer = pack_optimizer(self.optimizer)
        tensors |= {f"model/{name}": t for name, t in self.model.state_dict().items()}
        facts: dict[str, Any] = {
            "optimizer": optimizer,
            "scheduler": pack_scheduler(self.scheduler),
        }
        if self.average is not None:
            tensors |= {f"average/{name}": t for name, t in self.average.tensors.items()}
            facts["averaged"] = self.average.steps
        return tensors, facts

    def restore(self, tensors: dict[str, Tensor], facts: dict[str, Any]) -> None:
        """Bring everything back to where `state` was taken."""
        unpack_model(self.model, tensors)
        unpack_optimizer(self.optimizer, tensors, facts["optimizer"])
        if self.average is not None:
            for name, t in self.average.tensors.items():
                t.copy_(tensors[f"average/{name}"])
            self.average.steps = int(facts["averaged"])
        if self.scheduler is not None:
            self.scheduler.load_state_dict(facts["scheduler"])


def sameness(
    schedule: Schedule,
    sampler: Sampler,
    rng: Source,
    fingerprint: Callable[[bytes], str],
    *,
    model: list[Any],
    micro_batch: int | None,
    views: int = 1,
    ema: float | None = None,
) -> dict[str, Any]:
    """What must not change between the attempts of one run, in digests.

    A seeded run repeats its noise when it is resumed, so that noise must meet the same sums: seed
    and data must be the same (the data's fingerprint is keyed by the seed). A secure run draws new
    noise.
    """
    s = schedule
    out = {
        "schedule": digest(s.rates, s.noise_multipliers, s.bounds, repr(s.adaptive)),
        "sampler": f"{type(sampler).__name__} {digest(sampler.rates)}",
        "expected batch": sampler.expected_batch(0),
        "model": digest(model),
        "micro_batch or views": [micro_batch, views],
        "ema": ema,
        "kind of noise source": "secure" if rng.secret else "seeded",
    }
    if not rng.secret:
        own = rng.child("sameness")
        out["seed"] = f"{int(own.uint64(1)[0]):016x}"
        out["data set"] = fingerprint(own.uint64(4).tobytes())
    return out


def digest(*parts: Any) -> str:
    """A short name for arrays and whatever has a repr."""
    h = hashlib.sha256()
    for part in parts:
        h.update(part.tobytes() if isinstance(part, np.ndarray) else repr(part).encode())
    return h.hexdigest()[:16]


def check_same(where: Checkpoints | None, now: dict[str, Any], then: dict[str, Any]) -> None:
    """Refuse to go on with a run whose settings, data or seed were others."""
    for what, value in now.items():
        if then.get(what) != value:
            raise CheckpointError(
                where and where.path,
                f"belongs to a run with another {what}",
                "go on with the settings it began with, or start anew in another folder",
            )


@torch.no_grad()
def unpack_model(model: nn.Module, tensors: dict[str, Tensor]) -> None:
    """Write saved parameters and buffers into the model, keeping its memory layout."""
    mine = model.state_dict()
    theirs = {n.removeprefix("model/"): t for n, t in tensors.items() if n.startswith("model/")}
    if {n: t.shape for n, t in mine.items()} != {n: t.shape for n, t in theirs.items()}:
        raise CheckpointError("of the model", "has other parameters than the model given")
    for name, t in mine.items():
        t.copy_(theirs[name])


def pack_optimizer(optimizer: Optimizer) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The optimiser's state as tensors and JSON-ready settings."""
    state = optimizer.state_dict()
    tensors: dict[str, Tensor] = {}
    scalars: dict[str, dict[str, Any]] = {}
    for index, entries in state["state"].items():
        for name, value in entries.items():
            if isinstance(value, Tensor):
                tensors[f"optimizer/{index}/{name}"] = value
            else:
                scalars.setdefault(str(index), {})[name] = value
    facts = {"scalars": scalars, "groups": state["param_groups"]}
    try:
        json.dumps(facts, allow_nan=False)
    except (TypeError, ValueError):
        raise InvalidArgument(
            "optimizer", type(optimizer).__name__, "one whose settings are numbers, words and lists"
        ) from None
    return tensors, facts


def pack_scheduler(scheduler: LRScheduler | None) -> dict[str, Any] | None:
    """A learning-rate scheduler's state, JSON-ready."""
    if scheduler is None:
        return None
    state = scheduler.state_dict()
    try:
        return dict(json.loads(json.dumps(state, allow_nan=False)))
    except (TypeError, ValueError):
        raise InvalidArgument(
            "scheduler", type(scheduler).__name__, "one whose state is numbers, words and lists"
        ) from None


def unpack_optimizer(
    optimizer: Optimizer, tensors: dict[str, Tensor], facts: dict[str, Any]
) -> None:
    """Restore what `pack_optimizer` gave, each tensor in the layout of its parameter."""
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    state: dict[int, dict[str, Any]] = {
        int(index): dict(values) for index, values in facts["scalars"].items()
    }
    for name, value in tensors.items():
        if not name.startswith("optimizer/"):
            continue
        _, index, key = name.split("/", 2)
        parameter = parameters[int(index)]
        if value.shape == parameter.shape:
            value = torch.empty_like(parameter, dtype=value.dtype).copy_(value)
        state.setdefault(int(index), {})[key] = value
    optimizer.load_state_dict({"state": state, "param_groups": facts["groups"]})


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
        ledger.refuse_other(relation, sampler.unit)
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
