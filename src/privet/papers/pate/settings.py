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
class PrivateRecipe:
    """How DP-SGD trains a U-Net: Adam, every gradient scaled to length `bound`, Poisson samples.

    A record's gradient is the mean over `views` random patches of it.
    """

    channels: tuple[int, ...]
    steps: int
    sample_rate: float
    learning_rate: float
    views: int = 1
    bound: float = 1.0


FRESH = PrivateRecipe(channels=(4, 8, 16), steps=100, sample_rate=0.2, learning_rate=2e-2)
GOING_ON = PrivateRecipe(
    channels=(8, 16, 32, 64), steps=50, sample_rate=0.2, learning_rate=1e-3
)  # fmt: skip
BY_SHARD = PrivateRecipe(
    channels=(4, 8, 16), steps=30, sample_rate=1.0, learning_rate=2e-2, views=16
)  # fmt: skip


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
    sweep: tuple[float, ...] = (2.0, 4.0, 16.0)
    seeds: tuple[int, ...] = (0, 1, 2)
    dimension: int = 4
    """Numbers in an autoencoder's code."""
    widths: tuple[int, ...] = (8, 16, 32)
    reducer_steps: int = 500
    folds: int = 5
    """Parts of the public volumes, each labelled by a network that was trained on the others."""
    dpsgd: PrivateRecipe = FRESH
    dpsgd_from_public: PrivateRecipe = GOING_ON
    dpsgd_by_shard: PrivateRecipe = BY_SHARD

    @property
    def volumes(self) -> int:
        """How many volumes the split needs."""
        return self.teachers * self.shard + self.public + self.test

    def digest(self) -> str:
        """Names all that changes a cell but its seed and its budget, which it names itself."""
        left_out = ("sweep", "seeds", "epsilon")
        kept = {k: v for k, v in asdict(self).items() if k not in left_out}
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
    seeds=(0,), dimension=4, widths=(4, 8), reducer_steps=60, folds=2,
    dpsgd=PrivateRecipe(channels=(4, 8), steps=5, sample_rate=0.5, learning_rate=1e-2),
    dpsgd_from_public=PrivateRecipe(
        channels=(8, 16), steps=5, sample_rate=0.5, learning_rate=1e-2),
    dpsgd_by_shard=PrivateRecipe(
        channels=(4, 8), steps=5, sample_rate=1.0, learning_rate=1e-2, views=2),
)  # fmt: skip
"""Balls in shells instead of files: a minute, to see everything run."""


def settings_for(data: str, seeds: int | None) -> Settings:
    """The quick settings for a data set, with other seeds if told."""
    chosen = GENERATED if data == "spheres" else replace(QUICK, data=data)
    return chosen if seeds is None else replace(chosen, seeds=tuple(range(seeds)))
