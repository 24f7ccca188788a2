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

import torch

from privet.data.volumes import Volumes
from privet.guarantee import number_to_json
from privet.jobs import Cell, Tell
from privet.methods.pate import CentredLogits
from privet.networks import segmentation
from privet_papers.experiment import Experiment, Row, Shown, seconds_of
from privet_papers.pate import row_names as names
from privet_papers.pate import table_rows
from privet_papers.pate.findings import (
    compare_orderings,
    dice_table,
    solve_equation_3,
    summarise,
)
from privet_papers.pate.pca_sensitivity import count_useful_components
from privet_papers.pate.settings import GENERATED, PAPER, PATESettings, load_volumes
from privet_papers.pate.training_runs import VolumeRuns
from privet_papers.result_tables import Table


@final
class PATEExperiment(Experiment[PATESettings]):
    """Segmentation by PATE: teachers, ensemble, students, DP-SGD and the control; Dice by class."""

    name = "pate"
    version = 2
    quick: ClassVar = {"hippocampus": PATESettings(), "spheres": GENERATED}
    paper: ClassVar = {
        "Task01_BrainTumour": PAPER,
        "hippocampus": PATESettings(steps=4_000, channels=(16, 32, 64, 128, 256), plain_epochs=300),
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
        """From a step of a teacher: two trainings a row at the most, and 22 for each of `few`."""
        s = self.settings
        runs = self.runs(0)
        few = segmentation.soft_targets(runs.labelled_volumes.labels[:2], runs.classes).numpy()
        volumes, maps = (
            segmentation.volumes_of(runs.labelled_volumes.images[:2]),
            torch.from_numpy(few),
        )
        recipe, net = replace(s.recipe, steps=1), runs.new_network()
        step = seconds_of(lambda: segmentation.train(net, volumes, maps, recipe, seed=0))
        swept = len(s.sweep) * len(set(s.methods) & set(table_rows.SWEEP_METHODS))
        shared = s.teachers + 2 + (2 * s.folds if self._guesses else 0)
        networks = s.seeds * (shared + 2 * (len(s.methods) + swept))
        networks += 22 * len(s.few) * s.few_seeds
        return step * s.steps * networks

    @property
    def _guesses(self) -> bool:
        """Whether a row needs what public networks say of volumes that they were not taught."""
        return bool(self.settings.few) or not names.NEED_GUESSES.isdisjoint(self.settings.methods)

    @cached_property
    def volumes(self) -> Volumes:
        """All volumes of the run, loaded once."""
        return load_volumes(self.settings, self.folder)

    @cache  # noqa: B019 (an experiment lives as long as the command)
    def runs(self, seed: int, labelled: int | None = None) -> VolumeRuns:
        """A split of the volumes for each seed, with its networks in a folder of their own."""
        place = self.out / "cells" / self.settings.digest() / f"seed-{seed}"
        return VolumeRuns(self.volumes, self.settings, seed, place, labelled)

    def cells(self) -> Iterator[Cell]:
        """Networks that many rows need; the table for every seed, then the sweep."""
        s = self.settings
        for seed in range(s.seeds):
            yield from self._networks(seed)
        for seed in range(s.seeds):
            for method in s.methods:
                private = table_rows.METHODS[method][1]
                yield self._cell(method, s.epsilon if private else math.inf, seed)
        for seed in range(s.seeds):
            for method in table_rows.SWEEP_METHODS:
                for epsilon in s.sweep if method in s.methods else ():
                    if math.isfinite(epsilon) or method != names.DPSGD:
                        yield self._cell(method, epsilon, seed)

        for seed in range(min(s.few_seeds, s.seeds)):
            for labelled in s.few:
                yield from self._networks(seed, labelled)
                for method, (_, private) in table_rows.FEW_LABELS_METHODS.items():
                    yield self._cell(method, s.epsilon if private else math.inf, seed, labelled)

    def _networks(self, seed: int, labelled: int | None = None) -> Iterator[Cell]:
        """Teachers, and the networks that know public labels; each is trained once."""
        runs = self.runs(seed, labelled)
        trainings: dict[str, Callable[[], Any]] = {}
        if labelled is None:  # otherwise those of all labels
            count = self.settings.teachers
            trainings |= {f"teacher {k}": partial(runs.teacher, k) for k in range(count)}
        trainings |= {"all public labels": runs.public_labels_network}
        trainings |= {
            f"public labels but part {k}": partial(runs.network_without_fold, k)
            for k in range(runs.folds if self._guesses else 0)
        }
        for name, run in trainings.items():
            whole = partial(self._network, run, runs)
            yield Cell(self._name(name, seed, labelled), whole, shared=True)

    def _network(self, run: Callable[[], Any], runs: VolumeRuns, report: Tell) -> None:
        runs.report = report
        run()

    def _name(self, what: str, seed: int, labelled: int | None) -> str:
        return f"{what}, seed {seed}" + ("" if labelled is None else f", {labelled} labelled")

    def _cell(self, method: str, epsilon: float, seed: int, labelled: int | None = None) -> Cell:
        def name(of: str) -> str:
            return self._name(f"{of}, epsilon {epsilon:g}", seed, labelled)

        needs = [self._name(f"teacher {k}", seed, None) for k in range(self.settings.teachers)]
        needs += [cell.name for cell in self._networks(seed, labelled)]
        needs += [name(names.CONTINUES[method])] if method in names.CONTINUES else []
        run = partial(self._row, method, epsilon, seed, labelled)
        return Cell(name(method), run, needs=tuple(needs))

    def _row(
        self, method: str, epsilon: float, seed: int, labelled: int | None, report: Tell
    ) -> Row:
        runs = self.runs(seed, labelled)
        runs.report = report

        def earlier(other: str) -> Row:
            private = (table_rows.METHODS | table_rows.FEW_LABELS_METHODS)[other][1]
            return self._row(other, epsilon if private else math.inf, seed, labelled, report)

        few = [] if labelled is None else [labelled]
        row = self.kept(
            [method, number_to_json(epsilon), seed, *few],
            lambda: table_rows.make_row(runs, method, epsilon, earlier),
        )
        return row if labelled is None else row | {"labelled": labelled}

    def collect(self, found: list[Any]) -> Row:
        """Rows, their means over seeds, and the paper's orderings."""
        s = self.settings
        few = [row for row in found if "labelled" in row]
        found = [row for row in found if "labelled" not in row]
        sums = summarise(found)
        return {
            "volumes": {"private": s.teachers * s.shard, "public": s.public, "test": s.test,
                        "grid": list(self.volumes.grid)},
            "classes": list(self.volumes.classes[1:]),
            "rows": found,
            "summary": sums,
            "findings": compare_orderings(sums, s.epsilon),
            "equation_3": solve_equation_3(self.runs(0).truth, s.teachers),
            "equation_7": self._equation_7(),
            "few": [
                {"labelled": n} | row
                for n in s.few
                for row in summarise([r for r in few if r["labelled"] == n])
            ],
        }  # fmt: skip

    def _equation_7(self) -> list[Row]:
        """How many components of public maps are worth the printed noise, by what is averaged."""
        s, truth, logits = self.settings, self.runs(0).truth, CentredLogits()
        return [
            {"of": of} | count_useful_components(
                maps, width=width, teachers=s.teachers, queries=s.public, epsilon=s.epsilon,
                delta=s.delta,
            )
            for of, maps, width in (
                ("probabilities", truth, 1.0),
                ("logits", logits.to_coordinates(truth), 2.0 * logits.limit),
            )
        ]  # fmt: skip

    def draw(self, results: Row) -> list[Path]:
        """Dice by method and against epsilon, and outlines on slices."""
        from privet_papers.pate import figures

        return figures.draw(self.out, results, self.runs(0))

    def tables(self, results: Row) -> Iterator[Table]:
        """Dice of all rows, also with few labels, and which orderings hold."""
        s = results["settings"]
        budget = f"({s['epsilon']:g}, {s['delta']:g})"
        yield dice_table(f"Dice on {s['data']}, budget {budget}", results["summary"], results)
        for n in s["few"] if results["few"] else ():
            rows = [r for r in results["few"] if r["labelled"] == n]
            title = f"With labels for {n} public volumes, the others asked about"
            yield dice_table(title, rows, results)
        yield Table.of(
            "Orderings",
            ("claim", "holds", "difference", "seeds"),
            (
                (f["claim"], "yes" if f["holds"] else "no", f"{f['difference']:+.3f}",
                 len(f["by_seed"]))
                for f in results["findings"]
            ),
        )  # fmt: skip

    def remarks(self, results: Row) -> Iterator[str]:
        """Equations 3 and 7 in numbers."""
        for e in results["equation_3"]:
            yield (
                f"eq. 3, {e['components']} component{'s' * (e['components'] > 1)} of the public "
                f"maps: a teacher moves the mean by at most {e['exact']:.4g}; the paper's bound "
                f"{e['bound']:.4g}"
            )
        for e in results["equation_7"]:
            yield (
                f"eq. 7, {e['of']}: {e['components']} components are worth the printed noise of "
                f"{e['noise']:.4g}; the first has a spread of {e['largest_spread']:.4g}"
            )

    def expected_memory(self) -> float:
        """All volumes, the maps of the split and the answers of all teachers are held at once."""
        s, v = self.settings, math.prod(self.settings.grid)
        channels, classes = self.volumes.channels, len(self.volumes.classes)
        images = 4.0 * s.volumes * v * channels  # float32, and labels of a byte
        maps = 4.0 * (s.teachers * s.shard + 2 * s.public) * v * classes
        answers = 2.0 * s.teachers * s.public * v * classes  # float16
        return images + s.volumes * v + maps + answers
