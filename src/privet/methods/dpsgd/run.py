"""What belongs to a run besides its steps: settings, diagnostics, and what its promise rests on."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch.optim.lr_scheduler import LRScheduler

from privet import premises
from privet.guarantee import Premise, Unit
from privet.methods.dpsgd.checkpoint import Checkpoints
from privet.methods.dpsgd.reading import Reader
from privet.methods.dpsgd.records import Augment
from privet.methods.dpsgd.sampling import Sampler
from privet.methods.dpsgd.schedule import Array, Schedule
from privet.nets import Clipping
from privet.noise import Source

MakeClipping = Callable[[float], Clipping]


@dataclass(kw_only=True)
class Diagnostics:
    """Exact facts about the run, *not* covered by its guarantee: look, but do not publish.

    Nothing of it is printed or stored unless `private(..., show_unprotected=True)` asks for it.
    """

    examples: int = 0
    clipped: int = 0
    non_finite: int = 0
    loss: float = float("nan")
    """Mean loss of the last step that had examples."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What a run does besides its schedule; none of it changes the price."""

    clipping: MakeClipping
    micro_batch: int | None
    views: int
    augment: Augment | None
    learning_rates: Array | None
    scheduler: LRScheduler | None
    checkpoints: Checkpoints | None
    charge_block: int
    reader: Reader
    limit: float | None = None
    """The epsilon at which all attempts of a resumed run end."""
    rows_each: int = 1
    """Rows of a user in a step; `views` counts them too."""
    check_mixing: bool = True
    batch_invariant: bool = False
    show_unprotected: bool = False


PREMISES = (
    premises.CHARGED_FIRST,
    premises.EXACT_LAW,
    premises.SETTINGS,
    premises.STEPS_ONLY,
)


def clipped(unit: Unit, rows_each: int, several: bool = False) -> tuple[Premise, ...]:
    """Whose gradient is clipped, and how it is known who owns a record."""
    if unit is Unit.RECORD:
        return (premises.CLIPPED_GRADIENTS, premises.ONE_RECORD_EACH)
    people = premises.SEVERAL_OWNERS if several else premises.one_group_each("groups")
    return (premises.clipped_users(rows_each), people)


def new_run() -> str:
    """A name that no other run has."""
    return f"dpsgd-{secrets.token_hex(8)}"


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
