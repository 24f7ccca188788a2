"""Adaptive Laplace Mechanism: accuracy against epsilon and epochs, relevance, and the audit.

Figures 4a-c (MNIST), 5a-c (CIFAR-10), 1 and 3 of the paper, and what can be proved beside them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, ClassVar, Self, final

import torch
from torch import nn

from privet.jobs import Cell, Tell
from privet.noise import seeded
from privet_papers.adaptive_laplace import figures
from privet_papers.adaptive_laplace.counter_example import audit_record, audit_shared
from privet_papers.adaptive_laplace.findings import (
    noise_against_signal,
    paired_t_tests,
    summarise,
)
from privet_papers.adaptive_laplace.training_runs import (
    ACTIVATIONS,
    ADAPTIVE,
    AUTHORS_CODE,
    BOUNDS,
    FULL_WIDTH,
    LOSSES,
    METHODS,
    OPTIMIZERS,
    PSGD_SAMPLE_RATE,
    RELEVANCE_MODELS,
    WITH_PROOF,
    AdaptiveLaplaceRuns,
    run_method,
)
from privet_papers.experiment import Experiment, Row, Settings, Shown, seconds_of, setting
from privet_papers.result_tables import Table, mean_and_spread
from privet_papers.taylor_error import truncation_error

AUDIT_EPSILONS = (0.25, 0.5, 1.0)
"""Claims that are tested: the two budgets whose accuracies the paper prints, and 1."""
MOMENTS_SECONDS = 20.0
"""Seconds, about, of one-shot moments of the paper's number of records."""
CHANCE = 12.0
"""Test accuracy, in per cent, of a model that answers one class of ten, and a little more."""
FEATURES = "public features"
AUDITS = {"one record": audit_record, "shared noise": audit_shared}


@final
@dataclass(frozen=True, kw_only=True)
class AdaptiveLaplaceSettings(Settings):
    """What is run; the quick ones take minutes on two cores, the paper's days."""

    data: str = "mnist"
    records: int = setting(18_000, help="The first so many records only.", least=10)
    maps: tuple[int, ...] = setting(
        (8, 16), help="Feature maps of the convolutions; 0: a dense layer.", least=0
    )
    wide: tuple[int, ...] = (32, 64)
    """Maps of the paper's own network, which the quick run trains in one row alone."""
    wide_epochs: int = setting(2, help="Epochs of the paper's own network.", least=1)
    activation: str = setting("ReLU", help="Of AdLM, ILM and pSGD.", among=ACTIVATIONS)
    dense_bound: str = setting(
        "LRN", help="What holds dense layers in [0, 1]; pSGD has LRN always.", among=BOUNDS
    )
    optimizer: str = setting("Adam", help="Of AdLM and ILM; line 29 has SGD.", among=OPTIMIZERS)
    relevance_model: str = setting(
        "the same", help="Network that relevance is computed on.", among=RELEVANCE_MODELS
    )
    rebuilding_epochs: int = setting(
        0, help="Epochs in which a dense first layer is an auto-encoder of noisy records.", least=0
    )
    units: int = 32
    kernel: tuple[int, ...] = (5, 5)
    hidden: int = 25
    shares: tuple[float, ...] = setting(
        (1.0, 1.0, 1.0), help="epsilon1 : epsilon2 : epsilon3 of AdLM and ILM.", option="share"
    )
    loss: str = setting("cross-entropy", help="Of AdLM and ILM.", among=LOSSES)
    batch_size: int = setting(1800, help="|L| of the published methods.", least=1)
    epochs: int = setting(4, help="Epochs of the published methods.", least=1)
    released_epochs: int = setting(24, help="Epochs of the released code.", least=1)
    learning_rate: float = setting(5e-3, help="Of AdLM and ILM.", least=1e-9)
    """Of the published methods. The paper does not say; chosen on drawn strokes, without noise."""
    pretraining_epochs: int = setting(
        2, help="Epochs of the network that relevance is computed on.", least=0
    )
    psgd_steps: int = setting(300, help="Steps of pSGD.", least=1)
    epsilons: tuple[float, ...] = setting(
        (0.5, 2.0), help="Budgets instead of the usual ones.", option="epsilon",
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
        tuple(m for m in METHODS if m != "AdLM, |h0| = 1"),
        help="Only these methods.",
        option="method",
        among=METHODS,
        picks=True,
    )
    audit_trials: int = setting(50_000, help="Draws a side of the audit.", least=100)

    def given(self, **values: Any) -> Self:
        """Other budgets come without the larger ones, which stand beside the usual."""
        if values.get("maps") == (0,):
            values["maps"] = ()
        if "epsilons" in values:
            values = {"larger": ()} | values
        return super().given(**values)


QUICK = AdaptiveLaplaceSettings()
PAPER = AdaptiveLaplaceSettings(
    records=60_000, maps=(32, 64), kernel=(5, 5), epochs=500, released_epochs=2400,
    pretraining_epochs=12, psgd_steps=12_000, methods=tuple(m for m in METHODS if m != FULL_WIDTH),
    epsilons=(0.2, 0.25, 0.3, 0.4, 0.5, 1.0, 2.0, 4.0, 8.0), seeds=5, audit_trials=100_000,
)  # fmt: skip


@final
class AdaptiveLaplaceExperiment(Experiment[AdaptiveLaplaceSettings]):
    """Accuracy of AdLM, ILM, pSGD and the sound reading; relevance; the claim tested."""

    name = "adaptive-laplace"
    version = 6
    quick: ClassVar = {
        "mnist": QUICK,
        "cifar10": replace(
            QUICK, data="cifar10", epsilons=(2.5, 8.0), curves=(2.5, 8.0), released_epochs=12,
            methods=tuple(m for m in QUICK.methods if m != FULL_WIDTH),
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
        Shown(of="t-tests, section IV", rows="t_tests"),
        Shown(of="Lemma 7", rows="lemma_7"),
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
    def runs(self) -> AdaptiveLaplaceRuns:
        """The data, loaded once."""
        return AdaptiveLaplaceRuns(self.settings, keep=self.kept_arrays, folder=self.folder)

    def cells(self) -> Iterator[Cell]:
        """What several methods need, a method at a budget with a seed, then the audits."""
        s = self.settings
        if "sound" in s.methods:
            yield Cell(FEATURES, self._make_features, shared=True)
        if set(ADAPTIVE) & set(s.methods):
            for seed in range(s.seeds):
                yield Cell(
                    f"relevance, seed {seed}", partial(self._compute_relevance, seed), shared=True
                )
        for method, epsilon in self._budgets():
            for seed in range(s.seeds):
                name = f"{method}, epsilon {epsilon:g}, seed {seed}"
                run = partial(self._train, method, epsilon, seed)
                needs = {"sound": FEATURES} | dict.fromkeys(ADAPTIVE, f"relevance, seed {seed}")
                yield Cell(name, run, needs=(needs[method],) if method in needs else ())
        for what in AUDITS:
            for epsilon in AUDIT_EPSILONS:
                name = f"audit of {what} at eps_2 = {epsilon:g}"
                yield Cell(name, partial(self._audit, what, epsilon))

    def _make_features(self, report: Tell) -> None:
        """Into the user's cache, which teaches the public network once on a machine."""
        self.kept(FEATURES, lambda: {"columns": self.runs.features[0].shape[1]})

    def _compute_relevance(self, seed: int, report: Tell) -> None:
        self.runs.relevance(seed)

    def _train(self, method: str, epsilon: float, seed: int, report: Tell) -> Row:
        def run() -> Row:
            return run_method(
                self.runs, method, epsilon, seed, lambda at: report(f"{method}: {at}")
            )

        return self.kept([method, epsilon, seed], run)

    def _audit(self, what: str, epsilon: float, report: Tell) -> Row:
        trials = self.settings.audit_trials

        def run() -> Row:
            return AUDITS[what](epsilon=epsilon, trials=trials, rng=seeded(0)).to_dict()

        return self.kept(["audit", what, epsilon], run)

    def expected_seconds(self) -> float:
        """Rows that networks are shown, times what one takes; and seconds for the moments."""
        s, rows = self.settings, len(self.runs.rows)
        own, released = self._seconds_a_row()
        shown = {"pSGD": s.psgd_steps * PSGD_SAMPLE_RATE, "sound": 0.0}
        each = {
            m: rows * released * s.released_epochs
            if m in AUTHORS_CODE
            else rows * own * shown.get(m, s.epochs) + (MOMENTS_SECONDS if m == "sound" else 0.0)
            for m in s.methods
        }
        return s.seeds * sum(each[method] for method, _ in self._budgets())

    def _seconds_a_row(self) -> tuple[float, float]:
        """Of a step of the paper's network and of the released one."""
        few = torch.from_numpy(self.runs.rows[:100])

        def each(net: nn.Module) -> float:
            return seconds_of(lambda: net(few).square().sum().backward()) / len(few)

        released = self.runs.authors_script("ILM as released", 0)
        return each(self.runs.network(0)), each(released.network)

    def _budgets(self) -> Iterator[tuple[str, float]]:
        """Which method is run at which budget."""
        s = self.settings
        for method in s.methods:
            larger = () if method in WITH_PROOF or method in AUTHORS_CODE else s.larger
            budgets = s.epsilons[:1] if method == FULL_WIDTH else s.epsilons
            yield from ((method, epsilon) for epsilon in (*budgets, *larger))

    def collect(self, found: list[Any]) -> Row:
        """Rows, their means over seeds, and the audits."""
        trained = len(found) - len(AUDIT_EPSILONS) * len(AUDITS)
        rows, audits = found[:trained], found[trained:]
        network = str(self.runs.network(0)).splitlines()
        return {
            "rows": rows, "audits": audits, "summary": summarise(rows),
            "t_tests": paired_t_tests(rows, self.settings.epsilons),
            "lemma_7": truncation_error(self.runs.data.n_classes), "network": network,
            "noise_against_signal": list(self._noise_against_signal()),
        }  # fmt: skip

    def _noise_against_signal(self) -> Iterator[Row]:
        """For AdLM and ILM at each budget, all features alike (AdLM's ratios are not)."""
        runs = self.runs
        for method, epsilon in self._budgets():
            if method in ("AdLM", "ILM", FULL_WIDTH):
                made, plan = runs.published(method, epsilon, 0)
                yield {"method": method, "epsilon": epsilon} | noise_against_signal(
                    runs.rows, runs.labels, classes=runs.data.n_classes, loss=made.loss,
                    feature_scale=plan.feature_scale, label_scale=plan.label_scale,
                )  # fmt: skip

    def draw(self, results: Row) -> list[Path]:
        """Figs. 1, 3 and 4 (5 on CIFAR-10)."""
        return figures.draw(self.out, results, self.runs)

    def tables(self, results: Row) -> Iterator[Table]:
        """A row for each method and budget beside what the paper prints, then the audits."""
        printed = figures.PUBLISHED if results["settings"]["data"] == "mnist" else {}
        yield Table.of(
            f"Test accuracy on {results['settings']['data']}, per cent",
            ("method", "epsilon", "ours", "printed", "claimed", "proved", "seconds"),
            (
                (
                    r["method"], f"{r['epsilon']:g}", _describe_accuracy(r),
                    printed.get(r["method"], {}).get(r["epsilon"]),
                    None if r["claimed"] is None else f"{r['claimed']:g}",
                    r["proved"] if isinstance(r["proved"], str) else f"{r['proved']:.4g}",
                    f"{r['seconds']:.0f}",
                )
                for r in results["summary"]
            ),
        )  # fmt: skip
        yield Table.of(
            "Audits of the claim for epsilon_2",
            ("what", "claimed", "audited", "proved", "verdict"),
            (
                (a["what"], f"{a['claimed']:g}", f"{a['audited']:.3f}", a["proved"], a["verdict"])
                for a in results["audits"]
            ),
        )

    def remarks(self, results: Row) -> Iterator[str]:
        """The t-tests, noise against signal, and Lemma 7."""
        for t in results["t_tests"]:
            yield (
                f"t-test, {t['better']} above {t['worse']} {_describe_budget(t['epsilon'])}: by "
                f"{t['difference']:.2f} points, p = {_describe_p(t['p'])}; "
                f"the paper says {t['printed']}"
            )
        for n in results["noise_against_signal"]:
            yield (
                f"{n['method']}, epsilon {n['epsilon']:g}: noise of scale {n['feature_scale']:.3g} "
                f"on features in [0, 1], {n['label_scale']:.3g} on label coefficients; covariances "
                f"of the two are {n['ratio']:.2g} times as long as their noise"
                f"{_describe_records_needed(n)}"
            )
        lemma = results["lemma_7"]
        yield (
            f"Lemma 7, error of order 2 for |z| <= 1: printed {lemma['printed']:.3f}, "
            f"right {lemma['right']:.4f}"
        )


def _describe_accuracy(row: Row) -> str:
    """Mean and spread over seeds, and a word where all records get one class."""
    chance = " *did not learn*" if row["accuracy"] <= CHANCE else ""
    return mean_and_spread(row["each"]) + chance


def _describe_budget(epsilon: float | None) -> str:
    return "over all budgets" if epsilon is None else f"at epsilon {epsilon:g}"


def _describe_records_needed(found: Row) -> str:
    """What would help, where noise is longer than the signal."""
    if found["records_needed"] is None or found["ratio"] >= 1.0:
        return ""
    return f"; {found['records_needed']:.2g} records would make them as long"


def _describe_p(p: float | None) -> str:
    return "none, the seeds do not differ" if p is None else f"{p:.2g}"
