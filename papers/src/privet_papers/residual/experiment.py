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
from privet.methods.residual import Training
from privet.nets.residual import Strategy
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
from privet.papers.residual import attacks, figures, inversion_figure
from privet.papers.residual.networks import DELTA, Bench, Job
from privet.papers.residual.printed import PRINTED, budgets, lower_bounds

PLAIN = Job(part="target", half=0)


@final
@dataclass(frozen=True, kw_only=True)
class ResidualSettings(Settings):
    """One data set's run."""

    data: str
    records: int = setting(help="The first so many records only.", least=16)
    """Of the training part; a quarter trains a target and a quarter its shadow."""
    test_records: int
    epochs: int = setting(help="Epochs of every network.", least=1)
    batch_size: int = setting(64, help="Records in a batch.", least=1)
    learning_rate: float = 0.1
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
    "batch_size": 128, "test_records": 10_000, "pool": 1, "seeds": 3,
}  # fmt: skip
_PAPER: dict[str, dict[str, Any]] = {
    "mnist": {"records": 60_000, "epochs": 546, "gammas": (0.5, 1.0)},
    "cifar10": {"records": 50_000, "epochs": 655, "gammas": (0.5, 0.75),
                "multiplicative": (1.0, 2.0)},
    "cifar100": {"records": 50_000, "epochs": 655, "gammas": (0.5,), "multiplicative": (1.0, 2.0)},
    "idc": {"records": 39_952, "test_records": 43_420, "epochs": 100, "gammas": (0.1, 0.2),
            "multiplicative": (0.5, 1.0, 2.0)},
    "breastmnist": {"records": 624, "test_records": 156, "epochs": 100, "gammas": (0.1, 0.2, 1.0)},
}  # fmt: skip
"""64,000 steps of 128 as He et al. on MNIST and CIFAR, 100 epochs on IDC."""


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
    def bench(self) -> Bench:
        """The data in the paper's split, and the networks trained on it."""
        return Bench(self.settings, keep=self.kept_arrays, folder=self.folder)

    def cells(self) -> Iterator[Cell]:
        """One for each network."""
        for job in networks(self.bench):
            yield Cell(str(job), partial(self._trained, job))

    def _trained(self, job: Job, told: Told) -> None:
        self.bench.answers(job)

    def collect(self, found: list[Any]) -> Row:
        """Attacks on the networks, Theorem 1 beside what is printed, and inversions."""
        inverted, _ = self._inverted
        rows = list(_rows(self.bench))
        return {
            "rows": rows,
            "printed": PRINTED.get(self.settings.data, {}),
            "skips": _skips(rows),
            "lower_bounds": lower_bounds(self.settings.data, rows),
            "budgets": budgets(self.settings.data),
            "dpsgd_epsilon": self.bench.dpsgd.epsilon(DELTA),
            "inversion": inverted,
        }

    @cached_property
    def _inverted(self) -> tuple[list[Row], dict[str, Any]]:
        return inversion_figure.invert(self.bench.raw)

    def draw(self, results: Row) -> list[Path]:
        """Figs. 2-7 and 9-12 of this data set, and Figs. 1 and 8."""
        drawn = inversion_figure.picture(self.out, *self._inverted)
        return [*figures.draw(self.out, results, self.bench.raw), *drawn]

    def text(self, results: Row) -> str:
        """A line for each network with what is printed for it, and for each inversion."""
        lines = [
            f"{'model':<32} {'AUC':>6} {'train':>6} {'test':>6} {'LiRA':>6} {'RMIA':>6} "
            f"{'eps >=':>7}  printed: AUC, train, test"
        ]
        keys = ("shadow_auc", "train_accuracy", "test_accuracy", "lira_auc", "rmia_auc")
        for row in results["rows"]:
            numbers = [f"{row[k]:6.3f}" if k in row else f"{'':6}" for k in keys]
            beside = results["printed"].get(row["name"])
            shown = "" if beside is None else "  " + " ".join(map(_number, beside))
            lines.append(f"{row['name']:<32} {' '.join(numbers)} {row['lower_bound']:7.3f}{shown}")
        for row in results["inversion"]:
            found = f"{row['psnr']:.1f} dB, SSIM {row['ssim']:.2f}"
            lines.append(f"inversion of {row['equation']}, {row['way']}: {found}")
        cost = results["dpsgd_epsilon"]
        lines.append(f"DP-SGD of this run costs epsilon {cost:.3g} at 1e-5, exactly")
        if (stated := results["budgets"]) is not None:
            lines += [
                f"Theorem 1 at the paper's settings for {stated['of']}: epsilon "
                f"{stated['theorem_1']:.2g}; the paper prints {stated['theorem_1_as_printed']:.2g}",
                "its mappings and last layer by themselves: "
                + ", ".join(f"{e:.2g}" for e in stated["theorem_1_by_layer"]),
                f"DP-SGD at the paper's settings for {stated['of']}: epsilon "
                f"{stated['dpsgd']:.3g}; the paper prints {stated['dpsgd_as_printed']:g}",
            ]
        lines += [
            f"lower bound of epsilon, {b['of']}: {b['found']:.3f}{_beside(b['printed'])}"
            for b in results["lower_bounds"]
        ]
        lines += [
            f"En{k['members']} at gamma {k['gamma']:g}: test accuracy {k['with']:.3f} with skips, "
            f"{k['without']:.3f} without"
            for k in results["skips"]
        ]
        return "\n".join(lines)

    def expected_seconds(self) -> float:
        """Steps of all networks times one of them."""
        bench, s = self.bench, self.settings
        jobs = networks(bench)
        few = torch.randn(s.batch_size, *bench.pictures.shape[1:])
        labels = torch.zeros(s.batch_size, dtype=torch.long)
        step, network = Training(epochs=1, batch_size=s.batch_size), bench.network(PLAIN, 0)
        each = seconds_of(lambda: step.run(network, lambda _: few, labels))
        steps = s.epochs * max(1, len(bench.where["target"]) // 2 // s.batch_size)
        return each * steps * sum(job.together for job in jobs)


def kinds(settings: ResidualSettings) -> Iterator[tuple[str, Job, int, bool]]:
    """(name, kind of network, members, whether stronger attacks are run on it) of each row."""

    def noisy(gamma: float, **kw: Any) -> Job:
        return Job(part="target", half=0, gamma=gamma, **kw)

    two = Strategy.MULTIPLICATIVE
    yield "ResNet8", PLAIN, 1, True
    yield f"En1 ResNet8, gamma {settings.gamma:g}", noisy(settings.gamma), 1, True
    yield "ResNet8 (DPSGD)", Job(part="target", half=0, dpsgd=True), 1, False
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


def networks(bench: Bench) -> list[Job]:
    """Every network that the rows need, the main comparison first, none twice."""
    s = bench.settings
    wanted: list[Job] = []
    main = [kind for _, kind, _, compared in kinds(s) if compared]
    for seed in range(s.seeds):
        wanted.append(attacks.shadow_job(seed))
        wanted += [attacks.target_job(kind, seed) for kind in main]
    for seed in range(s.seeds):
        for kind in main:
            wanted += attacks.reference_jobs(bench, kind, seed)
            wanted.append(attacks.own_shadow_job(kind, seed))
    for _, kind, members, _ in kinds(s):
        job = attacks.target_job(kind, 0)
        if s.joint and members > 1:
            wanted.append(replace(job, together=members))
        else:
            wanted += [replace(job, member=m) for m in range(members)]
    return list(dict.fromkeys(wanted))


def _rows(bench: Bench) -> Iterator[Row]:
    for name, kind, members, compared in kinds(bench.settings):
        seeds = range(bench.settings.seeds if compared else 1)
        found = [attacks.outcome(bench, kind, seed, members) for seed in seeds]
        if compared:
            for one in found:
                one |= attacks.stronger(bench, kind, one["seed"])
        yield {
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


def _beside(printed: float | None) -> str:
    return "" if printed is None else f"; the paper prints {printed:g}"


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
