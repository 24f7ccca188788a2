"""Adaptive Laplace Mechanism: accuracy against epsilon and epochs, relevance, and the audit.

Figures 4a-c (MNIST), 5a-c (CIFAR-10), 1 and 3 of the paper, and what can be proved beside them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, ClassVar, Self, final

import numpy as np

from privet.noise import seeded
from privet.papers.adaptive_laplace import figures
from privet.papers.adaptive_laplace.audit import audit_record
from privet.papers.adaptive_laplace.cells import METHODS, PROVED, Bench, cell
from privet.papers.experiment import Cell, Experiment, Row, Settings, Shown, Told, setting

AUDITED = (0.25, 0.5, 1.0)


@final
@dataclass(frozen=True, kw_only=True)
class AdaptiveLaplaceSettings(Settings):
    """What is run; the quick ones take minutes on two cores, the paper's days."""

    data: str = "mnist"
    records: int = setting(60_000, help="The first so many records only.", least=10)
    maps: tuple[int, ...] = ()
    units: int = 32
    kernel: tuple[int, ...] = (5,)
    hidden: int = 25
    batch_size: int = setting(1800, help="|L| of the published methods.", least=1)
    epochs: int = setting(8, help="Epochs of the published methods.", least=1)
    learning_rate: float = 2e-3
    """Of the published methods; the paper does not say."""
    pretraining_epochs: int = setting(
        2, help="Epochs of the network that relevance is computed on.", least=0
    )
    psgd_steps: int = setting(150, help="Steps of pSGD and of the sound network.", least=1)
    epsilons: tuple[float, ...] = setting(
        (0.25, 0.5, 2.0, 8.0), help="Budgets instead of the usual ones.", option="epsilon",
        picks=True,
    )  # fmt: skip
    larger: tuple[float, ...] = setting(
        (1e6,), help="Budgets at which the published noise is small.", picks=True
    )
    curves: tuple[float, ...] = setting(
        (0.5, 2.0), help="Budgets whose curves over epochs are drawn.", option="curve", picks=True
    )
    seeds: int = setting(1, help="How many seeds.", least=1, picks=True)
    methods: tuple[str, ...] = setting(
        METHODS, help="Only these methods.", option="method", among=METHODS, picks=True
    )
    audit_trials: int = setting(50_000, help="Draws a side of the audit.", least=100)

    def given(self, **values: Any) -> Self:
        """Other budgets come without the larger ones, which stand beside the usual."""
        if "epsilons" in values:
            values = {"larger": ()} | values
        return super().given(**values)


QUICK = AdaptiveLaplaceSettings()
PAPER = AdaptiveLaplaceSettings(
    maps=(32, 64), kernel=(5, 5), epochs=500, pretraining_epochs=12, psgd_steps=2000,
    epsilons=(0.2, 0.25, 0.3, 0.4, 0.5, 1.0, 2.0, 4.0, 8.0), seeds=5, audit_trials=100_000,
)  # fmt: skip


@final
class AdaptiveLaplaceExperiment(Experiment[AdaptiveLaplaceSettings]):
    """Accuracy of AdLM, ILM, pSGD and the sound reading; relevance; the claim tested."""

    name = "adaptive-laplace"
    version = 3
    quick: ClassVar = {
        "mnist": QUICK,
        "cifar10": replace(
            QUICK, data="cifar10", records=20_000, epochs=12, learning_rate=4e-4,
            epsilons=(2.0, 2.5, 8.0), curves=(2.5, 8.0),
        ),
    }  # fmt: skip
    paper: ClassVar = {
        "mnist": PAPER,
        "cifar10": replace(
            PAPER, data="cifar10", records=50_000, maps=(128, 128, 256), kernel=(3, 5, 5),
            hidden=30, batch_size=7200, epochs=800, pretraining_epochs=50,
            epsilons=(2.0, 2.5, 4.0, 8.0), curves=(2.5, 8.0),
        ),
    }  # fmt: skip

    shows: ClassVar = (
        Shown(of="Fig. 1", data="mnist", picture="relevance-of-records"),
        Shown(of="Fig. 2", rows="network"),
        Shown(of="Fig. 3", data="mnist", picture="average-relevance"),
        *(
            Shown(of=f"Fig. {figure}{panel}", data=data, picture=picture, rows="summary")
            for figure, data in ((4, "mnist"), (5, "cifar10"))
            for panel, picture in (
                ("a", "accuracy-against-epsilon"), ("b", "accuracy-against-epochs"),
                ("c", "accuracy-against-epochs"),
            )
        ),
    )  # fmt: skip

    @cached_property
    def bench(self) -> Bench:
        """The data, loaded once."""
        return Bench(self.settings, self.folder)

    def cells(self) -> Iterator[Cell]:
        """A method at a budget with a seed; then the audits."""
        s = self.settings
        for method in s.methods:
            larger = () if method in PROVED else s.larger
            for epsilon in (*s.epsilons, *larger):
                for seed in range(s.seeds):
                    name = f"{method}, epsilon {epsilon:g}, seed {seed}"
                    yield Cell(name, partial(self._trained, method, epsilon, seed))
        for epsilon in AUDITED:
            yield Cell(f"audit at eps_2 = {epsilon:g}", partial(self._audited, epsilon))

    def _trained(self, method: str, epsilon: float, seed: int, told: Told) -> Row:
        def run() -> Row:
            return cell(self.bench, method, epsilon, seed, lambda at: told(f"{method}: {at}"))

        return self.kept([method, epsilon, seed], run)

    def _audited(self, epsilon: float, told: Told) -> Row:
        trials = self.settings.audit_trials

        def run() -> Row:
            return audit_record(epsilon=epsilon, trials=trials, rng=seeded(0)).to_dict()

        return self.kept(["audit", epsilon], run)

    def collect(self, found: list[Any]) -> Row:
        """Rows, their means over seeds, and the audits."""
        rows, audits = found[: -len(AUDITED)], found[-len(AUDITED) :]
        network = str(self.bench.network(0)).splitlines()
        return {"rows": rows, "audits": audits, "summary": summary(rows), "network": network}

    def draw(self, results: Row) -> list[Path]:
        """Figs. 1, 3 and 4 (5 on CIFAR-10)."""
        return figures.draw(self.out, results, self.bench)

    def text(self, results: Row) -> str:
        """A line for each method and budget, and for each audit."""
        lines = []
        for row in results["summary"]:
            spread = "" if row["std"] is None else f" ({row['std']:.2f}, {row['seeds']} seeds)"
            stated = "" if row["claimed"] is None else f"claimed {row['claimed']:g}, "
            proved = row["proved"] if isinstance(row["proved"], str) else f"{row['proved']:.4g}"
            lines.append(
                f"{row['method']:<17} epsilon {row['epsilon']:<8g} accuracy {row['accuracy']:5.1f}%"
                f"{spread}  {stated}proved {proved}; {row['seconds']:.0f} s"
            )
        lines += [
            f"audit of {found['what']}: claimed {found['claimed']:g}, audited "
            f"{found['audited']:.3f}, proved {found['proved']:g}: {found['verdict']}"
            for found in results["audits"]
        ]
        return "\n".join(lines)


def summary(rows: list[Row]) -> list[Row]:
    """One row for each method and budget: mean and standard deviation over seeds, in per cent."""
    keys = dict.fromkeys((r["method"], r["epsilon"]) for r in rows)
    out = []
    for method, epsilon in keys:
        some = [r for r in rows if (r["method"], r["epsilon"]) == (method, epsilon)]
        accuracies = [100.0 * r["accuracy"] for r in some]
        out.append({
            "method": method, "epsilon": epsilon,
            "standing": "proved" if method in PROVED else "claimed",
            "claimed": some[0]["claimed"], "proved": some[0]["proved"], "seeds": len(some),
            "accuracy": round(float(np.mean(accuracies)), 2),
            "std": round(float(np.std(accuracies, ddof=1)), 2) if len(some) > 1 else None,
            "seconds": round(float(np.mean([r["seconds"] for r in some])), 1),
        })  # fmt: skip
    return out
