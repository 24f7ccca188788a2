"""What a run of the experiment does, and the volumes that it is done on."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import final

from privet.data.data_folder import data_folder
from privet.data.nifti import HIPPOCAMPUS_GRID, decathlon, hippocampus
from privet.data.volumes import Volumes, spheres
from privet.errors import InvalidArgument
from privet.networks.segmentation import Recipe
from privet_papers.experiment import Settings, setting
from privet_papers.pate.dpsgd_baseline import PrivateRecipe
from privet_papers.pate.row_names import METHOD_NAMES

FRESH = PrivateRecipe(steps=100, sample_rate=0.2, learning_rate=2e-2)
GOING_ON = PrivateRecipe(steps=50, sample_rate=0.2, learning_rate=1e-3)
BY_SHARD = PrivateRecipe(steps=30, sample_rate=1.0, learning_rate=2e-2, views=16)
AS_TEACHERS = replace(FRESH, loss="dice and entropy", start="random")
AS_PRINTED = PrivateRecipe(
    steps=50, sample_rate=0.2, learning_rate=1e-2, bound=4.0, variance=6.0, start="random",
    loss="dice and entropy",
)  # fmt: skip
"""The paper's baseline; it says neither its steps nor its batches."""


@final
@dataclass(frozen=True, kw_only=True)
class PATESettings(Settings):
    """What is run. The split follows the paper: K shards, the student's volumes, the rest for test.

    The student's volumes are public, and so are their labels: the reducer is fitted on them (as in
    the paper), and the control is trained on them.
    """

    data: str = "hippocampus"
    teachers: int = setting(8, help="K, the number of shards.", least=1)
    shard: int = setting(20, help="Volumes of a teacher.", least=1)
    public: int = setting(50, help="N, volumes of the student.", least=1)
    test: int = setting(50, help="Volumes for the test.", least=1)
    channels: tuple[int, ...] = setting(
        (4, 8, 16, 32, 64), help="Channels of every U-Net, one a level.", least=1
    )
    grid: tuple[int, ...] = setting(
        HIPPOCAMPUS_GRID, help="Voxels along each axis, three times: x, y and z.", least=1
    )
    patch: int = setting(32, help="Side of the patches that networks are trained on.", least=4)
    steps: int = setting(400, help="Steps of a teacher.", least=1)
    recipe: Recipe = field(default_factory=lambda: Recipe(learning_rate=1e-2))
    """All of it but the steps and the patch, which are fields of their own."""
    epsilon: float = setting(8.0, help="The budget of the table.", picks=True)
    delta: float = setting(1e-3, help="At this delta.")
    sweep: tuple[float, ...] = setting(
        (2.0, 16.0), help="Other budgets, for the curves.", option="other-epsilon", picks=True
    )
    seeds: int = setting(1, help="How many seeds.", least=1, picks=True)
    few: tuple[int, ...] = setting(
        (), help="Also with labels for so many public volumes.", option="labelled", least=1,
        picks=True,
    )  # fmt: skip
    few_seeds: int = setting(1, help="Seeds of that grid.", least=0, picks=True)
    dimension: int = setting(4, help="Numbers in an autoencoder's code.", least=1)
    widths: tuple[int, ...] = (8, 16, 32)
    reducer_steps: int = 500
    plain_epochs: int = setting(
        100, help="Epochs of Algorithm 2's own autoencoder, which sees whole maps.", least=1
    )
    """At 20 epochs every map is still background; at 100 it is about the mean map."""
    folds: int = 5
    """Parts of the public volumes, each labelled by a network that was trained on the others."""
    dpsgd: PrivateRecipe = FRESH
    dpsgd_from_public: PrivateRecipe = GOING_ON
    dpsgd_by_shard: PrivateRecipe = BY_SHARD
    dpsgd_as_teachers: PrivateRecipe = AS_TEACHERS
    dpsgd_as_printed: PrivateRecipe = AS_PRINTED
    methods: tuple[str, ...] = setting(
        METHOD_NAMES, help="Only these rows.", option="row", among=METHOD_NAMES, picks=True
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.grid) != 3:
            raise InvalidArgument("grid", self.grid, "three numbers of voxels")
        sides = (self.patch,) * 3
        recipe = replace(self.recipe, steps=self.steps, patch=sides)
        object.__setattr__(self, "recipe", recipe)
        if max(self.few, default=0) >= self.public:
            raise InvalidArgument(
                "labelled", max(self.few), f"fewer than {self.public} public ones"
            )

    @property
    def volumes(self) -> int:
        """How many volumes the split needs."""
        return self.teachers * self.shard + self.public + self.test

    def digest(self) -> str:
        """Names all that changes a network but its seed and its budget, which it names itself."""
        text = json.dumps(self.facts(), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]


_FEW_STEPS = PrivateRecipe(steps=5, sample_rate=0.5, learning_rate=1e-2)
GENERATED = PATESettings(
    data="spheres", teachers=4, shard=4, public=6, test=4, channels=(8, 16),
    steps=40, patch=16, sweep=(2.0, math.inf),
    seeds=1, dimension=4, widths=(4, 8), reducer_steps=60, plain_epochs=4, folds=2, few=(2,),
    dpsgd=_FEW_STEPS, dpsgd_from_public=_FEW_STEPS,
    dpsgd_by_shard=replace(_FEW_STEPS, sample_rate=1.0, views=2),
    dpsgd_as_teachers=replace(_FEW_STEPS, loss="dice and entropy", start="random"),
    dpsgd_as_printed=replace(AS_PRINTED, steps=5, sample_rate=0.5),
)  # fmt: skip
"""Balls in shells instead of files: a minute, to see everything run."""


PAPER = PATESettings(
    data="Task01_BrainTumour", teachers=8, shard=40, public=80, test=84, grid=(240, 240, 160),
    channels=(16, 32, 64, 128, 256), patch=64, steps=20_000, few=(), seeds=1, sweep=(),
    plain_epochs=300,
    dpsgd=PrivateRecipe(steps=1000, sample_rate=0.02, learning_rate=1e-3, bound=4.0),
    dpsgd_as_teachers=PrivateRecipe(
        steps=1000, sample_rate=0.02, learning_rate=1e-3, bound=4.0, loss="dice and entropy",
        start="random",
    ),
    dpsgd_as_printed=replace(AS_PRINTED, steps=1000, sample_rate=0.02, learning_rate=1e-3),
)  # fmt: skip
"""484 brain tumours, four poolings, 64^3 patches; DP-SGD on the same U-Net, its noise from the
budget (the paper prints a variance of 6 and no number of steps, from which nothing follows)."""


def load_volumes(settings: PATESettings, folder: Path | None) -> Volumes:
    """The volumes of a run."""
    x, y, z = settings.grid
    grid = (x, y, z)
    match settings.data:
        case "hippocampus":
            found = hippocampus(folder, grid=grid)
        case "spheres":
            found = spheres(settings.volumes, seed=0)
        case task:
            place = Path(task) if Path(task).is_dir() else data_folder(folder) / task
            if not place.is_dir():
                raise InvalidArgument(
                    "data", task, "hippocampus or spheres, or the folder of a Decathlon task"
                )
            found = decathlon(place, grid=grid, limit=settings.volumes)
    if len(found) < settings.volumes:
        raise InvalidArgument(
            "data", f"{len(found)} volumes", f"at least {settings.volumes}, what the split needs"
        )
    return found
