"""What the PATE experiment runs, and on which volumes."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import final

from privet.data.nifti import Volumes, hippocampus, spheres
from privet.errors import InvalidArgument
from privet.nets.segmentation import Recipe


@final
@dataclass(frozen=True, kw_only=True)
class Settings:
    """What is run. The split follows the paper: K shards, the student's volumes, the rest for test.

    The student's volumes are public, and so are their labels: the reducer is fitted on them (as in
    the paper), and the control is trained on them.
    """

    data: str = "hippocampus"
    teachers: int = 8
    shard: int = 20
    public: int = 50
    test: int = 50
    channels: tuple[int, ...] = (8, 16, 32, 64)
    recipe: Recipe = field(default_factory=lambda: Recipe(steps=400, learning_rate=1e-2))
    epsilon: float = 8.0
    delta: float = 1e-3
    sweep: tuple[float, ...] = (2.0, 4.0, 16.0, math.inf)
    seeds: tuple[int, ...] = (0, 1, 2)
    dimension: int = 4
    """Numbers in an autoencoder's code."""
    widths: tuple[int, ...] = (8, 16, 32)
    reducer_steps: int = 500
    dpsgd_steps: int = 100
    dpsgd_rate: float = 0.2
    dpsgd_bound: float = 1.0
    dpsgd_learning_rate: float = 5e-3

    @property
    def volumes(self) -> int:
        """How many volumes the split needs."""
        return self.teachers * self.shard + self.public + self.test

    def dpsgd_name(self, start: str, epsilon: float) -> str:
        """A cell of DP-SGD with these settings."""
        s = self
        chosen = f"{s.dpsgd_steps}-{s.dpsgd_rate:g}-{s.dpsgd_bound:g}-{s.dpsgd_learning_rate:g}"
        return f"{start} {epsilon:g} {chosen}"

    def digest(self) -> str:
        """Names all that changes a cell; seeds, budgets and DP-SGD's are in the cell's own name."""
        left_out = ("sweep", "seeds", "epsilon")
        kept = {
            k: v
            for k, v in asdict(self).items()
            if k not in left_out and not k.startswith("dpsgd_")
        }
        return hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()[:12]


def load(settings: Settings, folder: Path | None) -> Volumes:
    """The volumes of a run."""
    match settings.data:
        case "hippocampus":
            found = hippocampus(folder)
        case "spheres":
            found = spheres(settings.volumes, seed=0)
        case _:
            raise InvalidArgument("data", settings.data, "hippocampus or spheres")
    if len(found) < settings.volumes:
        raise InvalidArgument(
            "data", f"{len(found)} volumes", f"at least {settings.volumes}, what the split needs"
        )
    return found


QUICK = Settings()
GENERATED = Settings(
    data="spheres", teachers=4, shard=4, public=6, test=4, channels=(8, 16),
    recipe=Recipe(steps=40, patch=(16, 16, 16), learning_rate=1e-2), sweep=(2.0, math.inf),
    seeds=(0,), dimension=4, widths=(4, 8), reducer_steps=60, dpsgd_steps=5, dpsgd_rate=0.5,
)  # fmt: skip
"""Balls in shells instead of files: a minute, to see everything run."""


def settings_for(data: str, seeds: int | None) -> Settings:
    """The quick settings for a data set, with other seeds if told."""
    chosen = GENERATED if data == "spheres" else replace(QUICK, data=data)
    return chosen if seeds is None else replace(chosen, seeds=tuple(range(seeds)))
