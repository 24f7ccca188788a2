"""Residual perturbation: the paper's tables and figures, and what stronger attacks find."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, ClassVar, final

import numpy as np
import torch

from privet.errors import InvalidArgument
from privet.jobs import Cell, Tell
from privet.methods.noisy_inputs import PlainTraining
from privet.networks.residual import Strategy
from privet_papers.experiment import Experiment, Row, Settings, Shown, seconds_of, setting
from privet_papers.residual import figures
from privet_papers.residual import membership_attacks as attacks
from privet_papers.residual.findings import PAPER_RESULTS, compare_budgets, compare_lower_bounds
from privet_papers.residual.idc import CLASS_COUNTS
from privet_papers.residual.inversion import invert
from privet_papers.residual.step_training import AUGMENTATIONS, SCHEDULES
from privet_papers.residual.training_runs import DELTA, NetworkJob, ResidualRuns
from privet_papers.result_tables import Table

PLAIN = NetworkJob(part="target", half=0)
NO_BETTER = 0.02
"""A network that is so little above the share of the largest class has learned nothing."""


@final
@dataclass(frozen=True, kw_only=True)
class ResidualSettings(Settings):
    """What is run on one data set."""

    data: str
    records: int = setting(help="The first so many records only.", least=16)
    """Of the training part; a quarter trains a target and a quarter its shadow."""
    test_records: int
    epochs: int = setting(help="Epochs of every network.", least=1)
    batch_size: int = setting(64, help="Records in a batch.", least=1)
    learning_rate: float = 0.1
    schedule: str = setting(
        "cosine", help="Of the rate: tenths is He et al.'s, quarters the paper's for IDC.",
        among=("cosine", *SCHEDULES),
    )  # fmt: skip
    augmentation: str = setting("none", help="Needs a schedule in steps.", among=AUGMENTATIONS)
    depth: int = 8
    blocks: str = setting(
        "pre-activated", help="Of the networks; He et al.'s first have a ReLU behind each sum.",
        among=("pre-activated", "post-activated"),
    )  # fmt: skip
    pool: int = setting(1, help="Pixels averaged, so many by so many.", least=1)
    noise_multiplier: float = setting(1.1, help="z of DP-SGD; its bound is 1.", least=0.3)
    joint: bool = setting(False, help="Members of an ensemble trained together.", picks=True)
    gamma: float = setting(help="Noise of the main comparison.", least=0, picks=True)
    gammas: tuple[float, ...] = setting(
        help="Further gammas, for the curves.", option="other-gamma", least=0, picks=True
    )
    multiplicative: tuple[float, ...] = setting(
        help="gamma of Strategy II.", option="multiplicative-gamma", least=0, picks=True
    )
    members: tuple[int, ...] = setting((1,), help="Sizes of ensembles.", least=1, picks=True)
    seeds: int = setting(3, help="How many targets of each kind.", least=1, picks=True)
    references: int = setting(4, help="Reference models of LiRA and RMIA: 4, 6, 8.", picks=True)
    thresholds: tuple[float, ...] = setting(
        (0.5, 0.6, 0.7, 0.8), help="Thresholds of the attack.", option="threshold", picks=True
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.augmentation != "none" and self.schedule == "cosine":
            raise InvalidArgument("augmentation", self.augmentation, "none with a cosine schedule")
        if self.references % 2 or self.references < 4:
            raise InvalidArgument("references", self.references, "an even number from 4 on")

    @property
    def halves(self) -> int:
        """How many target models are trained, in pairs that complement each other."""
        return 2 * max(self.seeds, self.references // 2 + 1)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Sizes of ensembles, one always among them."""
        return tuple(sorted({1, *self.members}))


_QUICK: dict[str, Any] = {
    "records": 8_000, "test_records": 2_000, "epochs": 16, "pool": 2, "seeds": 1,
    "members": (1, 3, 5), "multiplicative": (0.5, 2.0),
}  # fmt: skip
QUICK = {
    "mnist": ResidualSettings(data="mnist", gamma=2.5, gammas=(0.5,), **_QUICK),
    "cifar10": ResidualSettings(data="cifar10", gamma=4.5, gammas=(0.5, 0.75), **_QUICK),
    "cifar100": ResidualSettings(data="cifar100", gamma=3.25, gammas=(0.5,), **_QUICK),
    "idc": ResidualSettings(data="idc", gamma=0.5, gammas=(0.2,), **_QUICK),
    "breastmnist": ResidualSettings(
        data="breastmnist", gamma=0.5, gammas=(0.2,),
        **_QUICK | {"records": 624, "test_records": 156, "epochs": 100, "batch_size": 32},
    ),
}  # fmt: skip
"""Minutes: a sixth of the records, pictures of half the side, 500 steps; the paper's gammas."""

_SCALE: dict[str, Any] = {
    "batch_size": 128, "test_records": 10_000, "pool": 1, "seeds": 3, "schedule": "tenths",
    "augmentation": "crops and flips",
}  # fmt: skip
_PAPER: dict[str, dict[str, Any]] = {
    "mnist": {"records": 60_000, "epochs": 546, "gammas": (0.5, 1.0), "augmentation": "crops"},
    "cifar10": {"records": 50_000, "epochs": 655, "gammas": (0.5, 0.75),
                "multiplicative": (1.0, 2.0)},
    "cifar100": {"records": 50_000, "epochs": 655, "gammas": (0.5,), "multiplicative": (1.0, 2.0)},
    "idc": {"records": 39_952, "test_records": 43_420, "epochs": 100, "gammas": (0.1, 0.2),
            "multiplicative": (0.5, 1.0, 2.0), "schedule": "quarters"},
    "breastmnist": {"records": 624, "test_records": 156, "epochs": 100, "gammas": (0.1, 0.2, 1.0),
                    "schedule": "quarters"},
}  # fmt: skip
"""64,000 steps of 128 as He et al. on MNIST and CIFAR, with their rates and augmentation; on IDC
100 epochs, a quarter of the rate after every 20."""


@final
class ResidualExperiment(Experiment[ResidualSettings]):
    """Tables I-V, Figs. 1-12, and LiRA and RMIA on the same models."""

    name = "residual"
    version = 3
    quick: ClassVar = QUICK
    paper: ClassVar = {name: replace(QUICK[name], **_SCALE | own) for name, own in _PAPER.items()}
    shows: ClassVar = (
        *(
            Shown(of=f"Table {number}", data=data, rows="rows")
            for number, data in
            (("I", "idc"), ("II", "mnist"), ("III", "cifar10"), ("IV", "cifar100"), ("V", "idc"))
        ),
        Shown(of="Fig. 1", data="mnist", picture="inversion", rows="inversion"),
        Shown(of="Fig. 2", data="idc", picture="pictures"),
        Shown(of="Fig. 3", data="idc", picture="strategy-1"),
        Shown(of="Fig. 4", data="cifar10", picture="strategy-1"),
        Shown(of="Fig. 5", data="cifar100", picture="strategy-1"),
        Shown(of="Fig. 6", data="cifar10", picture="ensembles"),
        Shown(of="Fig. 7", picture="roc-1"),
        Shown(of="Fig. 8", data="mnist", picture="inversion", rows="inversion"),
        Shown(of="Fig. 9", data="idc", picture="strategy-2"),
        Shown(of="Fig. 10", data="cifar10", picture="strategy-2"),
        Shown(of="Fig. 11", data="cifar100", picture="strategy-2"),
        Shown(of="Fig. 12", picture="roc-2"),
        Shown(of="IV-D, skip connections", data="cifar10", rows="skips"),
        Shown(of="IV-F, Theorem 1", data="cifar10", rows="budgets"),
        Shown(of="IV-F, DPSGD", data="cifar10", rows="budgets"),
        Shown(of="IV-F, lower bounds of epsilon", data="cifar10", rows="lower_bounds"),
    )  # fmt: skip

    @cached_property
    def runs(self) -> ResidualRuns:
        """The data in the paper's split, and the networks trained on it."""
        return ResidualRuns(self.settings, keep=self.kept_arrays, folder=self.folder)

    def cells(self) -> Iterator[Cell]:
        """A cell for each network."""
        for job in list_jobs(self.runs):
            yield Cell(str(job), partial(self._train, job))

    def _train(self, job: NetworkJob, report: Tell) -> None:
        self.runs.answers(job)

    def collect(self, found: list[Any]) -> Row:
        """Attacks on the networks, Theorem 1 beside what is printed, and inversions."""
        inverted, _ = self._inversion
        rows = list(_rows(self.runs))
        return {
            "rows": rows,
            "printed": PAPER_RESULTS.get(self.settings.data, {}),
            "skips": _skips(rows),
            "lower_bounds": compare_lower_bounds(self.settings.data, rows),
            "class_counts": class_counts(self.runs),
            "chance": float(np.bincount(self.runs.test_labels).max() / len(self.runs.test_labels)),
            "budgets": compare_budgets(self.settings.data),
            "dpsgd_epsilon": self.runs.dpsgd.epsilon(DELTA),
            "inversion": inverted,
        }

    @cached_property
    def _inversion(self) -> tuple[list[Row], dict[str, Any]]:
        return invert(self.runs.raw_pictures)

    def draw(self, results: Row) -> list[Path]:
        """Figs. 2-7 and 9-12 of this data set, and Figs. 1 and 8."""
        drawn = figures.draw_inversion(self.out, *self._inversion)
        return [*figures.draw(self.out, results, self.runs.raw_pictures), *drawn]

    def tables(self, results: Row) -> Iterator[Table]:
        """A row for each network beside what is printed for it, bounds of epsilon, inversions."""
        keys = ("shadow_auc", "train_accuracy", "test_accuracy", "lira_auc", "rmia_auc")
        rows = []
        for row in results["rows"]:
            numbers = [f"{row[k]:.3f}" if k in row else None for k in keys]
            if row["train_accuracy"] <= results["chance"] + NO_BETTER:
                numbers[2] = f"{numbers[2]} *did not learn*"
            beside = results["printed"].get(row["name"])
            printed = None if beside is None else " / ".join(map(_number, beside))
            rows.append((row["name"], *numbers, f"{row['lower_bound']:.3f}", printed))
        head = (
            "model",
            "AUC",
            "train",
            "test",
            "LiRA",
            "RMIA",
            "epsilon ≥",
            "printed: AUC/train/test",
        )
        yield Table.of(f"{results['settings']['data']}: attacks and accuracy", head, rows)
        yield Table.of(
            "Lower bounds of epsilon at delta 1e-5, 95%",
            ("model", "one network", "all of its kind", "networks", "printed"),
            (
                (b["of"], f"{b['found']:.3f}", f"{b['pooled']:.3f}", b["networks"], b["printed"])
                for b in results["lower_bounds"]
            ),
        )
        yield Table.of(
            "Inversion",
            ("equation", "way", "PSNR, dB", "SSIM"),
            (
                (r["equation"], r["way"], f"{r['psnr']:.1f}", f"{r['ssim']:.2f}")
                for r in results["inversion"]
            ),
        )
        yield Table.of(
            "Records by class",
            ("part", "ours", "printed"),
            ((c["part"], c["ours"], c["printed"]) for c in results["class_counts"]),
        )

    def remarks(self, results: Row) -> Iterator[str]:
        """What DP-SGD costs, Theorem 1 beside what is printed, and skip connections."""
        yield f"DP-SGD of this run costs epsilon {results['dpsgd_epsilon']:.3g} at 1e-5, exactly"
        if (stated := results["budgets"]) is not None:
            yield (
                f"Theorem 1 at the paper's settings for {stated['of']}: epsilon "
                f"{stated['theorem_1']:.2g}; the paper prints {stated['theorem_1_as_printed']:.2g}"
            )
            layers = ", ".join(f"{e:.2g}" for e in stated["theorem_1_by_layer"])
            yield f"its mappings and last layer by themselves: {layers}"
            yield (
                f"DP-SGD at the paper's settings for {stated['of']}: epsilon "
                f"{stated['dpsgd']:.3g}; the paper prints {stated['dpsgd_as_printed']:g}"
            )
        for k in results["skips"]:
            yield (
                f"En{k['members']} at gamma {k['gamma']:g}: test accuracy {k['with']:.3f} with "
                f"skips, {k['without']:.3f} without"
            )

    def expected_seconds(self) -> float:
        """Steps of all networks times one of them."""
        runs, s = self.runs, self.settings
        jobs = list_jobs(runs)
        few = torch.randn(s.batch_size, *runs.pictures.shape[1:])
        labels = torch.zeros(s.batch_size, dtype=torch.long)
        step, network = PlainTraining(epochs=1, batch_size=s.batch_size), runs.network(PLAIN, 0)
        each = seconds_of(lambda: step.run(network, lambda _: few, labels))
        steps = s.epochs * max(1, len(runs.where["target"]) // 2 // s.batch_size)
        return each * steps * sum(job.together for job in jobs)


def network_kinds(settings: ResidualSettings) -> Iterator[tuple[str, NetworkJob, int, bool]]:
    """(name, kind of network, members, whether stronger attacks are run on it) of each row."""

    def noisy(gamma: float, **kw: Any) -> NetworkJob:
        return NetworkJob(part="target", half=0, gamma=gamma, **kw)

    two = Strategy.MULTIPLICATIVE
    yield "ResNet8", PLAIN, 1, True
    yield f"En1 ResNet8, gamma {settings.gamma:g}", noisy(settings.gamma), 1, True
    yield "ResNet8 (DPSGD)", NetworkJob(part="target", half=0, dpsgd=True), 1, False
    for gamma in settings.gammas:
        yield f"En1 ResNet8, gamma {gamma:g}", noisy(gamma), 1, False
    for gamma in settings.multiplicative:
        yield f"Strategy II, En1, gamma {gamma:g}", noisy(gamma, strategy=two), 1, False
    yield f"no skips, gamma {settings.gamma:g}", noisy(settings.gamma, skip=False), 1, False
    for gamma in settings.gammas[-1:]:  # section IV-D
        k = settings.sizes[-1]
        yield f"no skips, En{k}, gamma {gamma:g}", noisy(gamma, skip=False), k, False
    for k in settings.sizes[1:]:
        for gamma in (0.0, settings.gamma, *settings.gammas):
            yield f"En{k} ResNet8, gamma {gamma:g}", noisy(gamma), k, False
        for gamma in settings.multiplicative:
            yield f"Strategy II, En{k}, gamma {gamma:g}", noisy(gamma, strategy=two), k, False


def list_jobs(runs: ResidualRuns) -> list[NetworkJob]:
    """Every network that the rows need, the main comparison first, none twice."""
    s = runs.settings
    wanted: list[NetworkJob] = []
    main = [kind for _, kind, _, compared in network_kinds(s) if compared]
    for seed in range(s.seeds):
        wanted.append(attacks.shadow_job(seed))
        wanted += [attacks.target_job(kind, seed) for kind in main]
    for seed in range(s.seeds):
        for kind in main:
            wanted += attacks.reference_jobs(runs, kind, seed)
            wanted.append(attacks.same_kind_shadow_job(kind, seed))
    for _, kind, members, _ in network_kinds(s):
        job = attacks.target_job(kind, 0)
        if s.joint and members > 1:
            wanted.append(replace(job, together=members))
        else:
            wanted += [replace(job, member=m) for m in range(members)]
    return list(dict.fromkeys(wanted))


def _rows(runs: ResidualRuns) -> Iterator[Row]:
    for name, kind, members, compared in network_kinds(runs.settings):
        seeds = range(runs.settings.seeds if compared else 1)
        found = [attacks.attack_target(runs, kind, seed, members) for seed in seeds]
        if compared:
            for one in found:
                one |= attacks.run_stronger_attacks(runs, kind, one["seed"])
        pooled = attacks.pooled_lower_bound(runs, kind, members, compared=compared)
        yield {
            **pooled,
            "name": name,
            "gamma": kind.gamma,
            "strategy": kind.strategy.value,
            "skip": kind.skip,
            "dpsgd": kind.dpsgd,
            "members": members,
            **_means(found),
            "seeds": found,
        }


def _skips(rows: list[Row]) -> list[Row]:
    """Section IV-D: test accuracy of the networks without skips beside that of the same with."""
    same = ("gamma", "members", "strategy", "dpsgd")
    return [
        {"gamma": bare["gamma"], "members": bare["members"], "with": row["test_accuracy"],
         "without": bare["test_accuracy"]}
        for bare in rows if not bare["skip"]
        for row in rows if row["skip"] and all(row[key] == bare[key] for key in same)
    ]  # fmt: skip


def _number(printed: float | None) -> str:
    return "-" if printed is None else f"{printed:.3f}"


def class_counts(runs: ResidualRuns) -> list[Row]:
    """How many records of each class both parts have, and what the paper prints for IDC."""
    parts = {"training": runs.labels, "test": runs.test_labels}
    printed = CLASS_COUNTS if runs.settings.data == "idc" else {}
    return [
        {"part": part, "ours": _counts(np.bincount(labels, minlength=runs.classes)),
         "printed": _counts(printed[part]) if part in printed else None}
        for part, labels in parts.items()
    ]  # fmt: skip


def _counts(numbers: Any) -> str:
    return " + ".join(f"{int(n):,}" for n in numbers)


def _means(found: list[Row]) -> dict[str, float]:
    """Averages over seeds of what the tables show."""
    out: dict[str, float] = {
        key: float(np.mean([f[key] for f in found]))
        for key in (
            "train_accuracy",
            "test_accuracy",
            "control_auc",
            "seconds",
            "lower_bound",
            "audited_epsilon",
        )
        if key in found[0]
    }
    for attack in ("shadow", "loss", "adapted", "lira", "rmia"):
        if attack in found[0]:
            for key in ("auc", "tpr_at_1pct_fpr"):
                out[f"{attack}_{key}"] = float(np.mean([f[attack][key] for f in found]))
    return out
