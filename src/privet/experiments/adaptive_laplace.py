"""Adaptive Laplace Mechanism: accuracy against epsilon and epochs, relevance, and the audit.

Every cell (a method, a budget, a seed) is run once and kept as JSON in the output folder, so that
an interrupted run goes on where it stopped. Figures 4a-c (MNIST), 1 and 3 of the paper; Fig. 5 with
`data="cifar10"` and the paper's settings.
"""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from privet import data as datasets
from privet.audit import Finding, OneShotAudit, laplace_score
from privet.data import Dataset
from privet.methods.adaptive_laplace import AdaptiveLaplaceClassifier
from privet.methods.adaptive_laplace import published_noise as noise
from privet.methods.adaptive_laplace.published import Count, Published, PublishedPlan, Reading
from privet.methods.adaptive_laplace.published_nets import PublishedNet
from privet.methods.base import PublicFacts
from privet.methods.dpsgd.estimator import DPSGDClassifier
from privet.noise import Source, seeded

METHODS = ("AdLM", "ILM", "AdLM, |h0| = 1", "AdLM as released", "pSGD", "sound")
DELTA = 1e-5
Progress = Callable[[str, int, int], None]
"""Told what is being done, how many cells are done, and of how many."""


@final
@dataclass(frozen=True, kw_only=True)
class Settings:
    """What is run; `QUICK` takes minutes on two cores, `PAPER` days."""

    data: str = "mnist"
    records: int = 60_000
    maps: tuple[int, ...] = ()
    units: int = 32
    kernel: int = 5
    hidden: int = 25
    batch_size: int = 1800
    epochs: int = 8
    pretraining_epochs: int = 2
    psgd_steps: int = 150
    epsilons: tuple[float, ...] = (0.25, 0.5, 2.0, 8.0)
    larger: tuple[float, ...] = (1e6,)
    """Budgets at which the published noise is small; the last one is no noise to speak of."""
    curves: tuple[float, ...] = (0.5, 2.0)
    seeds: tuple[int, ...] = (0,)
    methods: tuple[str, ...] = METHODS
    audit_trials: int = 50_000


QUICK = Settings()
PAPER = Settings(
    maps=(32, 64),
    epochs=500,
    pretraining_epochs=12,
    psgd_steps=2000,
    epsilons=(0.2, 0.25, 0.3, 0.4, 0.5, 1.0, 2.0, 4.0, 8.0),
    seeds=(0, 1, 2, 3, 4),
    audit_trials=100_000,
)
CIFAR10 = replace(
    PAPER, data="cifar10", records=50_000, maps=(128, 128, 256), hidden=30, batch_size=7200,
    epochs=800, pretraining_epochs=50, epsilons=(2.0, 2.5, 4.0, 8.0), curves=(2.5, 8.0),
)  # fmt: skip


@final
class Bench:
    """The data of a run, and what its cells share."""

    def __init__(self, settings: Settings, folder: Path | None = None) -> None:
        whole = datasets.load(settings.data, folder)
        self.settings = settings
        self.data: Dataset = whole.subset(min(settings.records, len(whole.x_train)))
        self.shape = (1, *whole.shape) if len(whole.shape) == 2 else whole.shape
        self.rows, self.labels = self._channels_first(self.data.train_rows()), self.data.y_train
        self.test = torch.from_numpy(self._channels_first(self.data.test_rows()))
        if len(self.shape) == 3 and self.shape[-1] == 3:
            self.shape = (3, *self.shape[:2])

    def _channels_first(self, rows: NDArray[np.float32]) -> NDArray[np.float32]:
        shape = self.data.shape
        if len(shape) != 3 or shape[-1] != 3:
            return rows
        return np.ascontiguousarray(rows.reshape(-1, *shape).transpose(0, 3, 1, 2)).reshape(
            len(rows), -1
        )

    def network(self, seed: int) -> PublishedNet:
        """The network of all cells with this seed."""
        s = self.settings
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            return PublishedNet(
                self.shape, classes=self.data.n_classes, maps=s.maps, kernel=s.kernel,
                units=s.units, hidden=s.hidden,
            )  # fmt: skip

    def published(self, method: str, epsilon: float, seed: int) -> tuple[Published, PublishedPlan]:
        """AdLM, ILM, the released variant, or AdLM where |h0| is read as 1: the least noise."""
        s = self.settings
        made = Published(
            network=self.network(seed),
            adaptive=method != "ILM",
            reading=Reading.RELEASED if method == "AdLM as released" else Reading.PAPER,
            count=1 if method == "AdLM, |h0| = 1" else Count.FEATURE_MAPS,
            batch_size=s.batch_size,
            epochs=s.epochs,
            pretraining_epochs=s.pretraining_epochs,
        )
        facts = PublicFacts(
            records=len(self.rows),
            features=self.rows.shape[1],
            outputs=self.data.n_classes,
            epsilon=epsilon,
            delta=0.0,
        )
        return made, made.plan(facts)

    def accuracy(self, predicted: NDArray[Any]) -> float:
        """On the test records."""
        return float((predicted == self.data.y_test).mean())

    @torch.no_grad()
    def network_accuracy(self, model: nn.Module) -> float:
        """The same for a network."""
        found = [model(part).argmax(1) for part in self.test.split(2000)]
        return self.accuracy(torch.cat(found).numpy())


def cell(bench: Bench, method: str, epsilon: float, seed: int) -> dict[str, Any]:
    """Train one method at one budget; what came out, with claim and proof."""
    began = time.perf_counter()
    run = {"pSGD": _psgd, "sound": _sound}.get(method, _published)
    return {
        "method": method,
        "epsilon": epsilon,
        "seed": seed,
        **run(bench, method, epsilon, seed),
        "seconds": round(time.perf_counter() - began, 2),
    }


def _published(bench: Bench, method: str, epsilon: float, seed: int) -> dict[str, Any]:
    made, plan = bench.published(method, epsilon, seed)
    curve: list[float] = []

    def watch(epoch: int, model: nn.Module) -> None:
        curve.append(bench.network_accuracy(model))

    made = replace(made, watcher=watch)
    release = made.fit(bench.rows, bench.labels, plan, ledger=None, rng=seeded(seed))
    assert release.claim is not None
    return {
        "accuracy": curve[-1],
        "curve": curve,
        "claimed": release.claim.epsilon,
        "proved": _number(release.guarantee.epsilon),
        "local_features": _number(plan.local_features),
        "local_labels": _number(plan.local_labels),
        "delta": 0.0,
    }


def _psgd(bench: Bench, method: str, epsilon: float, seed: int) -> dict[str, Any]:
    """DP-SGD on the same network with cross-entropy; its epsilon is proved (add-remove)."""
    s = bench.settings
    classifier = DPSGDClassifier(
        epsilon=epsilon, delta=DELTA, classes=range(bench.data.n_classes),
        module=_Plain(bench.network(seed)), steps=s.psgd_steps,
        sample_rate=min(1.0, s.batch_size / len(bench.rows)), random_state=seed,
    )  # fmt: skip
    classifier.fit(bench.rows, bench.labels)
    return _outcome(bench, classifier)


class _Plain(nn.Module):
    """The same layers without their normalisation, as pSGD trains them."""

    def __init__(self, net: PublishedNet) -> None:
        super().__init__()
        first: nn.Module
        if isinstance(net.first, nn.Conv2d):
            maps, kernel = net.first.out_channels, net.first.kernel_size[0]
            first = nn.Conv2d(net.first.in_channels, maps, kernel, padding=kernel // 2)
            self.shape = net.shape
        else:
            first = nn.Linear(net.first.in_features, net.first.out_features)
            self.shape = (-1,)
        first.load_state_dict({k: v for k, v in net.first.state_dict().items() if k != "constant"})
        kept = (nn.Conv2d, nn.Linear, nn.MaxPool2d, nn.ReLU, nn.Flatten)
        layers = [layer for layer in net.body if isinstance(layer, kept)]
        self.layers = nn.Sequential(first, *layers, nn.Linear(net.hidden, net.classes))

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        out: Tensor = self.layers(x.reshape(len(x), *self.shape))
        return out


def _sound(bench: Bench, method: str, epsilon: float, seed: int) -> dict[str, Any]:
    """One-shot moments of plain pixels: independent of epochs too, with a proof (add-remove)."""
    classifier = AdaptiveLaplaceClassifier(
        epsilon=epsilon, delta=DELTA, classes=range(bench.data.n_classes), bounds=(0.0, 1.0),
        random_state=seed,
    )  # fmt: skip
    classifier.fit(bench.rows, bench.labels)
    return _outcome(bench, classifier)


def _outcome(bench: Bench, classifier: Any) -> dict[str, Any]:
    return {
        "accuracy": bench.accuracy(classifier.predict(bench.test.numpy())),
        "curve": None,
        "claimed": None,
        "proved": _number(classifier.guarantee_.epsilon),
        "delta": DELTA,
    }


def audit_record(
    *, epsilon: float, trials: int, rng: Source, confidence: float = 0.999, batch_size: int = 1800,
    features: int = 784, h0: int = 32,
) -> Finding:  # fmt: skip
    """The claim eps_2 against the likelihood ratio of one released record, black or white.

    **Guarantee** a true claim is called falsified with probability at most 1 - confidence.
    """
    sensitivity = noise.first_layer_sensitivity(h0, features)
    scales = noise.feature_scales(
        np.ones(features), epsilon=epsilon, sensitivity=sensitivity, batch_size=batch_size
    )

    def draw(pixel: float, factor: float) -> Callable[[int, Source], NDArray[np.float64]]:
        def scores(n: int, own: Source) -> NDArray[np.float64]:
            parts = []
            for start in range(0, n, 4096):
                record = np.full((min(4096, n - start), features), pixel)
                out = noise.perturb_records(record, factor * scales, own.child(start))
                parts.append(laplace_score(out, present=1.0, absent=0.0, scale=scales))
            return np.concatenate(parts)

        return scores

    return OneShotAudit(trials=trials, pilot=max(trials // 4, 100), confidence=confidence).run(
        what=f"one record under ILM, |L|={batch_size}, d={features}, |h0|={h0}",
        with_record=draw(1.0, 1.0),
        without_record=draw(0.0, 1.0),
        control=(draw(1.0, 1e-6), draw(0.0, 1e-6)),
        claimed=epsilon,
        proved=noise.local_feature_epsilon(epsilon=epsilon, batch_size=batch_size, neurons=h0),
        rng=rng,
    )


def reproduce(
    out: Path, settings: Settings, *, folder: Path | None = None, progress: Progress | None = None
) -> dict[str, Any]:
    """Run what is missing, write `results.json` and the pictures; returns the results."""
    from privet.experiments import adaptive_laplace_pictures as pictures

    bench = Bench(settings, folder)
    jobs = list(_jobs(settings))
    rows = []
    for i, (method, epsilon, seed) in enumerate(jobs):
        if progress is not None:
            progress(f"{method}, epsilon {epsilon:g}, seed {seed}", i, len(jobs))
        key = [method, epsilon, seed]
        rows.append(
            _kept(out, settings, key, lambda k=key: cell(bench, k[0], k[1], k[2]))  # type: ignore[misc]
        )
    audits = []
    for epsilon in (0.25, 0.5, 1.0):
        if progress is not None:
            progress(f"audit at eps_2 = {epsilon:g}", len(jobs), len(jobs))
        audits.append(
            _kept(
                out,
                settings,
                ["audit", epsilon],
                lambda e=epsilon: audit_record(  # type: ignore[misc]
                    epsilon=e, trials=settings.audit_trials, rng=seeded(0)
                ).to_dict(),
            )
        )
    results = {"settings": asdict(settings), "rows": rows, "audits": audits}
    results["pictures"] = [str(p) for p in pictures.draw(out, results, bench)]
    (out / "results.json").write_text(json.dumps(results, indent=2, allow_nan=False) + "\n")
    return results


def _jobs(settings: Settings) -> Iterator[tuple[str, float, int]]:
    for method in settings.methods:
        published = method not in ("pSGD", "sound")
        for epsilon in (*settings.epsilons, *(settings.larger if published else ())):
            for seed in settings.seeds:
                yield method, epsilon, seed


def _kept(
    out: Path, settings: Settings, key: list[Any], run: Callable[[], dict[str, Any]]
) -> dict[str, Any]:
    """The cell from its file, or run and written: whole or not at all."""
    relevant = {
        k: v
        for k, v in asdict(settings).items()
        if k not in ("epsilons", "larger", "seeds", "methods", "curves")
    }
    digest = hashlib.sha256(json.dumps([relevant, key], sort_keys=True).encode()).hexdigest()[:16]
    path = out / "cells" / f"{digest}.json"
    if path.exists():
        found: dict[str, Any] = json.loads(path.read_text())
        return found
    value = run()
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".part")
    unfinished.write_text(json.dumps(value, allow_nan=False))
    unfinished.replace(path)
    return value


def _number(x: float) -> float | str:
    return x if math.isfinite(x) else "inf"
