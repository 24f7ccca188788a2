"""Checkpoints: where they are written, what they hold, and when a run may go on from one.

A checkpoint is one safetensors file, replaced whole or not at all, nothing pickled.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, final

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from privet._atomic_files import write_whole
from privet._check import Checked, checked, count, path
from privet.errors import InvalidArgument, PrivetError
from privet.methods.contract import ReleaseContext
from privet.methods.dpsgd.optimizer_step import OptimizerStep
from privet.methods.dpsgd.samplers import Sampler
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
        """Where the checkpoint lies."""
        return self.folder / NAME

    def write(self, tensors: dict[str, Tensor], facts: dict[str, Any]) -> None:
        """Replace the checkpoint: written beside it, flushed to disk, then renamed."""
        plain = {
            k: t.detach().clone(memory_format=torch.contiguous_format) for k, t in tensors.items()
        }
        note = json.dumps({"format": FORMAT, **facts}, allow_nan=False)
        try:
            write_whole(self.path, save(plain, metadata={"privet": note}))
        except OSError as error:
            raise CheckpointError(
                self.path, f"cannot be written ({error.strerror})",
                "the one before is whole: make room and start again, what was charged counts",
            ) from None  # fmt: skip

    def remove_parts(self) -> None:
        """Take away what attempts that were killed while writing left beside the checkpoint."""
        for part in self.folder.glob(f".{NAME}.*.part"):
            part.unlink(missing_ok=True)

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

    def check_same(self, now: dict[str, Any], then: dict[str, Any]) -> None:
        """Refuse to go on with a run whose settings, data or seed were others."""
        for what, value in now.items():
            if then.get(what) != value:
                raise CheckpointError(
                    self.path,
                    f"belongs to a run with another {what}",
                    "go on with the settings it began with, or start anew in another folder",
                )


def checkpoints_in(context: ReleaseContext, steps: int) -> Checkpoints | None:
    """The checkpoints of a run that has a folder; a run that was begun there keeps its name."""
    if context.folder is None:
        return None
    found = Checkpoints(folder=context.folder, every=max(1, steps // 10))
    if (before := found.read()) is not None:
        context.run = str(before[1]["run"])
    return found


@final
class TrainingState:
    """Everything that a step changes, as tensors and JSON: what a checkpoint holds of a run."""

    def __init__(self, descent: OptimizerStep) -> None:
        self._descent = descent

    def pack(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Tensors by name, and what is JSON."""
        descent = self._descent
        tensors, optimizer = pack_optimizer(descent.optimizer)
        tensors |= {f"model/{name}": t for name, t in descent.model.state_dict().items()}
        facts: dict[str, Any] = {
            "optimizer": optimizer,
            "scheduler": pack_scheduler(descent.scheduler),
        }
        if descent.average is not None:
            tensors |= {f"average/{name}": t for name, t in descent.average.tensors.items()}
            facts["averaged"] = descent.average.steps
        return tensors, facts

    def restore(self, tensors: dict[str, Tensor], facts: dict[str, Any]) -> None:
        """Bring everything back to where it was packed."""
        descent = self._descent
        unpack_model(descent.model, tensors)
        unpack_optimizer(descent.optimizer, tensors, facts["optimizer"])
        if descent.average is not None:
            for name, t in descent.average.tensors.items():
                t.copy_(tensors[f"average/{name}"])
            descent.average.steps = int(facts["averaged"])
        if descent.scheduler is not None:
            descent.scheduler.load_state_dict(facts["scheduler"])


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class RunIdentity:
    """What must not change between the attempts of one run.

    A seeded run repeats its noise when it is resumed, so that noise must meet the same sums: seed
    and data must be the same (the data's fingerprint is keyed by the seed). A secure run draws new
    noise.
    """

    schedule: Schedule
    sampler: Sampler
    rng: Source
    data: Callable[[bytes], str]
    """The keyed fingerprint of the records."""
    model: list[Any]
    micro_batch: int | None
    views: int = 1
    ema: float | None = None

    @property
    def settings(self) -> dict[str, Any]:
        """Digests of everything that a resumed run must share, but for the records."""
        s, sampler = self.schedule, self.sampler
        out = {
            "schedule": settings_digest(s.rates, s.noise_multipliers, s.bounds, repr(s.adaptive)),
            "sampler": f"{type(sampler).__name__} {settings_digest(sampler.rates)}",
            "expected batch": sampler.expected_batch(0),
            "model": settings_digest(self.model),
            "micro_batch or views": [self.micro_batch, self.views],
            "ema": self.ema,
            "kind of noise source": "secure" if self.rng.secret else "seeded",
        }
        if not self.rng.secret:
            out["seed"] = f"{int(self.rng.child('sameness').uint64(1)[0]):016x}"
        return out

    @cached_property
    def resume_fingerprint(self) -> dict[str, Any]:
        """Settings and, for a seeded run, records: what a checkpoint keeps to compare with."""
        if self.rng.secret:
            return self.settings
        stream = self.rng.child("sameness")
        stream.uint64(1)  # the first word is in `settings`
        return self.settings | {"data set": self.data(stream.uint64(4).tobytes())}


def settings_digest(*parts: Any) -> str:
    """A short name for arrays and whatever has a repr."""
    h = hashlib.sha256()
    for part in parts:
        h.update(part.tobytes() if isinstance(part, np.ndarray) else repr(part).encode())
    return h.hexdigest()[:16]


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
