"""PATE for high-dimensional targets: the paper's comparison on hippocampus volumes.

Rows: the mean teacher, the ensemble without noise, the students of PCA-PATE and autoencoded PATE,
DP-SGD on the same U-Net, the control that the paper lacks (the public labels alone), and training
without privacy.

Two units: PATE protects a teacher's whole shard (replace-one), DP-SGD a single volume (add-remove).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any, ClassVar, final

import numpy as np
import torch

from privet.data.nifti import Volumes
from privet.kept import number_to_json
from privet.methods.pate import CentredLogits
from privet.nets import segmentation
from privet.papers.experiment import (
    Cell,
    Experiment,
    Row,
    Shown,
    Told,
    seconds_of,
)
from privet.papers.pate.rows import (
    ABOUT_PUBLIC,
    AUTOENCODED,
    CONTROL,
    DPSGD,
    FEW,
    GOES_ON_FROM,
    GUESS,
    MEAN_MAP,
    MEAN_TEACHER,
    METHODS,
    SWEPT,
    WITH_PUBLIC,
    made_row,
)
from privet.papers.pate.sensitivity import largest_code, worth_their_noise
from privet.papers.pate.settings import GENERATED, PAPER, PATESettings, load
from privet.papers.pate.trial import Trial


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
        """From a step of a teacher: 37 networks a seed, and 22 for each of `few`."""
        s = self.settings
        trial = self.trial(0)
        few = segmentation.soft_targets(trial.known.labels[:2], trial.classes).numpy()
        volumes, maps = segmentation.volumes_of(trial.known.images[:2]), torch.from_numpy(few)
        recipe, net = replace(s.recipe, steps=1), trial.fresh()
        step = seconds_of(lambda: segmentation.train(net, volumes, maps, recipe, seed=0))
        networks = s.seeds * (s.teachers + 29 + 4 * len(s.sweep)) + 22 * len(s.few) * s.few_seeds
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
        """Networks that many rows need; the table for every seed, then the sweep."""
        s = self.settings
        for seed in range(s.seeds):
            yield from self._networks(seed)
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
                yield from self._networks(seed, labelled)
                for method, (_, private) in FEW.items():
                    yield self._cell(method, s.epsilon if private else math.inf, seed, labelled)

    def _networks(self, seed: int, labelled: int | None = None) -> Iterator[Cell]:
        """Teachers, and the networks that know public labels; each is trained once."""
        trial = self.trial(seed, labelled)
        runs: dict[str, Callable[[], Any]] = {}
        if labelled is None:  # otherwise those of all labels
            count = self.settings.teachers
            runs |= {f"teacher {k}": partial(trial.teacher, k) for k in range(count)}
        runs |= {"all public labels": trial.control}
        runs |= {
            f"public labels but part {k}": partial(trial.all_but, k) for k in range(trial.folds)
        }
        for name, run in runs.items():
            whole = partial(self._network, run, trial)
            yield Cell(self._name(name, seed, labelled), whole, shared=True)

    def _network(self, run: Callable[[], Any], trial: Trial, told: Told) -> None:
        trial.told = told
        run()

    def _name(self, what: str, seed: int, labelled: int | None) -> str:
        return f"{what}, seed {seed}" + ("" if labelled is None else f", {labelled} labelled")

    def _cell(self, method: str, epsilon: float, seed: int, labelled: int | None = None) -> Cell:
        def name(of: str) -> str:
            return self._name(f"{of}, epsilon {epsilon:g}", seed, labelled)

        needs = [self._name(f"teacher {k}", seed, None) for k in range(self.settings.teachers)]
        needs += [cell.name for cell in self._networks(seed, labelled)]
        needs += [name(GOES_ON_FROM[method])] if method in GOES_ON_FROM else []
        run = partial(self._row, method, epsilon, seed, labelled)
        return Cell(name(method), run, needs=tuple(needs))

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
            "equation_7": self._equation_7(),
            "few": [
                {"labelled": n} | row
                for n in s.few
                for row in summary([r for r in few if r["labelled"] == n])
            ],
        }  # fmt: skip

    def _equation_7(self) -> list[Row]:
        """How many components of public maps are worth the printed noise, by what is averaged."""
        s, truth, logits = self.settings, self.trial(0).truth, CentredLogits()
        return [
            {"of": of} | worth_their_noise(
                maps, width=width, teachers=s.teachers, queries=s.public, epsilon=s.epsilon,
                delta=s.delta,
            )
            for of, maps, width in (
                ("probabilities", truth, 1.0),
                ("logits", logits.bounded(truth), 2.0 * logits.limit),
            )
        ]  # fmt: skip

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
        lines += [
            f"eq. 7, {e['of']}: {e['components']} components are worth the printed noise of "
            f"{e['noise']:.4g}; the first has a spread of {e['largest_spread']:.4g}"
            for e in results["equation_7"]
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
