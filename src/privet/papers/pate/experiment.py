"""PATE for high-dimensional targets: the paper's comparison on hippocampus volumes.

Rows: the mean teacher, the ensemble without noise, the students of PCA-PATE and autoencoded PATE,
DP-SGD on the same U-Net, the control that the paper lacks (the public labels alone), and training
without privacy.

Two units: PATE protects a teacher's whole shard (replace-one), DP-SGD a single volume (add-remove).
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any, ClassVar, final

import numpy as np
import torch

from privet.data.files import data_folder
from privet.data.nifti import HIPPOCAMPUS_GRID, Volumes, decathlon, hippocampus, spheres
from privet.errors import InvalidArgument
from privet.kept import number_to_json
from privet.nets import segmentation
from privet.nets.segmentation import Recipe
from privet.papers.experiment import (
    Cell,
    Experiment,
    Row,
    Settings,
    Shown,
    Told,
    seconds_of,
    setting,
)
from privet.papers.pate.dpsgd import PrivateRecipe
from privet.papers.pate.rows import (
    ABOUT_PUBLIC,
    AUTOENCODED,
    CONTROL,
    DPSGD,
    FEW,
    GUESS,
    MEAN_MAP,
    MEAN_TEACHER,
    METHODS,
    SWEPT,
    WITH_PUBLIC,
    made_row,
)
from privet.papers.pate.sensitivity import largest_code
from privet.papers.pate.trial import Trial

FRESH = PrivateRecipe(channels=(4, 8, 16), steps=100, sample_rate=0.2, learning_rate=2e-2)
GOING_ON = PrivateRecipe(channels=(8, 16, 32, 64), steps=50, sample_rate=0.2, learning_rate=1e-3)
BY_SHARD = PrivateRecipe(
    channels=(4, 8, 16), steps=30, sample_rate=1.0, learning_rate=2e-2, views=16
)  # fmt: skip

AS_PRINTED = PrivateRecipe(
    channels=(8, 16, 32, 64), steps=50, sample_rate=0.2, learning_rate=1e-2, bound=4.0, variance=6.0
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
        (8, 16, 32, 64), help="Channels of the U-Net, one a level.", least=1
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
    folds: int = 5
    """Parts of the public volumes, each labelled by a network that was trained on the others."""
    dpsgd: PrivateRecipe = FRESH
    dpsgd_from_public: PrivateRecipe = GOING_ON
    dpsgd_by_shard: PrivateRecipe = BY_SHARD
    dpsgd_as_printed: PrivateRecipe = AS_PRINTED

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


GENERATED = PATESettings(
    data="spheres", teachers=4, shard=4, public=6, test=4, channels=(8, 16),
    steps=40, patch=16, sweep=(2.0, math.inf),
    seeds=1, dimension=4, widths=(4, 8), reducer_steps=60, folds=2, few=(2,),
    dpsgd=PrivateRecipe(channels=(4, 8), steps=5, sample_rate=0.5, learning_rate=1e-2),
    dpsgd_from_public=PrivateRecipe(
        channels=(8, 16), steps=5, sample_rate=0.5, learning_rate=1e-2),
    dpsgd_by_shard=PrivateRecipe(
        channels=(4, 8), steps=5, sample_rate=1.0, learning_rate=1e-2, views=2),
    dpsgd_as_printed=replace(AS_PRINTED, channels=(8, 16), steps=5, sample_rate=0.5),
)  # fmt: skip
"""Balls in shells instead of files: a minute, to see everything run."""


PAPER = PATESettings(
    data="Task01_BrainTumour", teachers=8, shard=40, public=80, test=84, grid=(240, 240, 160),
    channels=(16, 32, 64, 128, 256), patch=64, steps=20_000, few=(), seeds=1, sweep=(),
    dpsgd=PrivateRecipe(
        channels=(16, 32, 64, 128, 256), steps=1000, sample_rate=0.02, learning_rate=1e-3, bound=4.0
    ),
    dpsgd_as_printed=replace(
        AS_PRINTED, channels=(16, 32, 64, 128, 256), steps=1000, sample_rate=0.02,
        learning_rate=1e-3,
    ),
)  # fmt: skip
"""484 brain tumours, four poolings, 64^3 patches; DP-SGD on the same U-Net, its noise from the
budget (the paper prints a variance of 6 and no number of steps, from which nothing follows)."""


def load(settings: PATESettings, folder: Path | None) -> Volumes:
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


@final
class PATEExperiment(Experiment[PATESettings]):
    """Segmentation by PATE: teachers, ensemble, students, DP-SGD and the control; Dice by class."""

    name = "pate"
    quick: ClassVar = {"hippocampus": PATESettings(), "spheres": GENERATED}
    paper: ClassVar = {
        "Task01_BrainTumour": PAPER,
        "hippocampus": PATESettings(steps=4_000, channels=(16, 32, 64, 128)),
    }
    shows: ClassVar = (
        Shown(of="Figure 1", picture="logistic-and-normal"),
        Shown(of="Figure 2", picture="activation"),
        Shown(of="Results", rows="summary"),
    )

    @classmethod
    def from_folder(cls, settings: PATESettings, folder: str) -> PATESettings:
        """Any task of the Decathlon, by its folder; say `--grid` as well."""
        return replace(settings, data=folder)

    def expected_seconds(self) -> float:
        """From a step of a teacher: 33 networks a seed, and 22 for each of `few`."""
        s = self.settings
        trial = self.trial(0)
        few = segmentation.soft_targets(trial.known.labels[:2], trial.classes).numpy()
        volumes, maps = segmentation.volumes_of(trial.known.images[:2]), torch.from_numpy(few)
        recipe, net = replace(s.recipe, steps=1), trial.fresh()
        step = seconds_of(lambda: segmentation.train(net, volumes, maps, recipe, seed=0))
        networks = s.seeds * (s.teachers + 25 + 4 * len(s.sweep)) + 22 * len(s.few) * s.few_seeds
        return step * s.steps * networks

    @cached_property
    def volumes(self) -> Volumes:
        """Loaded once."""
        return load(self.settings, self.folder)

    @cache  # noqa: B019 (an experiment lives as long as the command)
    def trial(self, seed: int, labelled: int | None = None) -> Trial:
        """A split of the volumes for each seed, with its networks in a folder of their own."""
        place = self.out / "cells" / self.settings.digest() / f"seed-{seed}"
        return Trial(self.volumes, self.settings, seed, place, labelled)

    def cells(self) -> Iterator[Cell]:
        """The table for every seed first, then the sweep."""
        s = self.settings
        for seed in range(s.seeds):
            for method, (_, private) in METHODS.items():
                yield self._cell(method, s.epsilon if private else math.inf, seed)
        for seed in range(s.seeds):
            for method in SWEPT:
                for epsilon in s.sweep:
                    if math.isfinite(epsilon) or method != DPSGD:
                        yield self._cell(method, epsilon, seed)

        for seed in range(min(s.few_seeds, s.seeds)):
            for labelled in s.few:
                for method, (_, private) in FEW.items():
                    yield self._cell(method, s.epsilon if private else math.inf, seed, labelled)

    def _cell(self, method: str, epsilon: float, seed: int, labelled: int | None = None) -> Cell:
        few = "" if labelled is None else f", {labelled} labelled"
        name = f"{method}, epsilon {epsilon:g}, seed {seed}{few}"
        return Cell(name, partial(self._row, method, epsilon, seed, labelled))

    def _row(self, method: str, epsilon: float, seed: int, labelled: int | None, told: Told) -> Row:
        trial = self.trial(seed, labelled)
        trial.told = told

        def earlier(other: str) -> Row:
            private = (METHODS | FEW)[other][1]
            return self._row(other, epsilon if private else math.inf, seed, labelled, told)

        few = [] if labelled is None else [labelled]
        row = self.kept(
            [method, number_to_json(epsilon), seed, *few],
            lambda: made_row(trial, method, epsilon, earlier),
        )
        return row if labelled is None else row | {"labelled": labelled}

    def collect(self, found: list[Any]) -> Row:
        """Rows, their means over seeds, and the paper's orderings."""
        s = self.settings
        few = [row for row in found if "labelled" in row]
        found = [row for row in found if "labelled" not in row]
        sums = summary(found)
        return {
            "volumes": {"private": s.teachers * s.shard, "public": s.public, "test": s.test,
                        "grid": list(self.volumes.grid)},
            "classes": list(self.volumes.classes[1:]),
            "rows": found,
            "summary": sums,
            "findings": findings(sums, s.epsilon),
            "equation_3": equation_3(self.trial(0).truth, s.teachers),
            "few": [
                {"labelled": n} | row
                for n in s.few
                for row in summary([r for r in few if r["labelled"] == n])
            ],
        }  # fmt: skip

    def draw(self, results: Row) -> list[Path]:
        """Dice by method and against epsilon, and outlines on slices."""
        from privet.papers.pate import figures

        return figures.draw(self.out, results, self.trial(0))

    def text(self, results: Row) -> str:
        """The table, and which orderings hold."""
        lines = [table(results)]
        lines += [
            f"{found['claim']}: {'yes' if found['holds'] else 'no'} "
            f"({found['difference']:+.3f}, mean of {len(found['by_seed'])} seeds)"
            for found in results["findings"]
        ]
        lines += [
            f"eq. 3, {e['components']} component{'s' * (e['components'] > 1)} of the public maps: "
            f"a teacher moves the mean by at most {e['exact']:.4g}; the paper's bound "
            f"{e['bound']:.4g}"
            for e in results["equation_3"]
        ]
        for n in results["settings"]["few"] if results["few"] else ():
            lines += ["", f"With labels for {n} public volumes, the others asked about:", ""]
            lines.append(
                table(results | {"summary": [r for r in results["few"] if r["labelled"] == n]})
            )
        return "\n".join(lines)


def summary(rows: list[Row]) -> list[Row]:
    """Mean over seeds, and the standard error of that mean, for every method and budget."""
    groups: dict[tuple[str, Any], list[Row]] = {}
    for row in rows:
        groups.setdefault((row["method"], row["epsilon"]), []).append(row)
    out = []
    for (method, epsilon), same in groups.items():
        means = [row["mean_dice"] for row in same]
        error = float(np.std(means, ddof=1) / math.sqrt(len(means))) if len(means) > 1 else None
        guarantee = same[0]["guarantee"]
        out.append(
            {
                "method": method,
                "epsilon": epsilon,
                "seeds": len(same),
                "dice": np.mean([row["dice"] for row in same], axis=0).tolist(),
                "mean_dice": float(np.mean(means)),
                "standard_error": error,
                "by_seed": means,
                "unit": None if guarantee is None else guarantee["unit"],
                **(
                    {}
                    if "claimed" not in same[0]
                    else {"claimed": same[0]["claimed"], "proved": guarantee["epsilon"]}
                ),
            }
        )
    return out


def equation_3(maps: Any, teachers: int) -> list[Row]:
    """S_2 for the first components of public maps, solved, beside its bound sqrt(d) / K."""
    flat = maps.reshape(len(maps), -1)
    size = flat.shape[1]
    basis = np.linalg.svd(flat - flat.mean(axis=0), full_matrices=False)[2]
    return [
        {"components": k, "exact": largest_code(basis[:k]) / teachers,
         "bound": math.sqrt(size) / teachers}
        for k in (1, 2)
    ]  # fmt: skip


def findings(rows: list[Row], epsilon: float) -> list[Row]:
    """The paper's two comparisons and ours against the control: by how much, in each seed."""
    by = {(row["method"], row["epsilon"]): row for row in rows}

    def at(method: str) -> Row:
        private = METHODS[method][1]
        found: Row = by[method, number_to_json(epsilon if private else math.inf)]
        return found

    out = []
    claims = [
        (first, second)
        for first in (AUTOENCODED, ABOUT_PUBLIC, WITH_PUBLIC)
        for second in (MEAN_TEACHER, DPSGD, CONTROL)
    ]
    for first, second in [*claims, (AUTOENCODED, MEAN_MAP), (ABOUT_PUBLIC, GUESS)]:
        a, b = at(first), at(second)
        gaps = [x - y for x, y in zip(a["by_seed"], b["by_seed"], strict=True)]
        out.append(
            {
                "claim": f"{first} above {second}",
                "difference": float(np.mean(gaps)),
                "by_seed": gaps,
                "holds": float(np.mean(gaps)) > 0.0,
            }
        )
    return out


def table(results: dict[str, Any]) -> str:
    """The summary as Markdown."""
    classes = results["classes"]
    head = [
        "method", "epsilon", *(f"Dice {c}" for c in classes), "mean", "s.e.", "each seed",
        "unit protected",
    ]  # fmt: skip
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for row in results["summary"]:
        error = row["standard_error"]
        cells = [
            row["method"],
            _budget(row),
            *(_short(x) for x in row["dice"]),
            _short(row["mean_dice"]),
            "" if error is None else _short(error),
            " ".join(map(_short, row["by_seed"])),
            row["unit"] or "nothing",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _budget(row: Row) -> str:
    """The epsilon of a row; a recipe that fixes its noise says what is claimed and proved."""
    if "claimed" in row:
        return f"{row['claimed']:.3g} claimed, {row['proved']:.3g} proved"
    return "none" if row["epsilon"] == "inf" else f"{row['epsilon']:g}"


def _short(x: float) -> str:
    """.812 rather than 0.812."""
    return f"{x:.3f}".removeprefix("0")
