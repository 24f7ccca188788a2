"""A cell of the experiments: one method at one budget with one seed."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from privet import data as datasets
from privet.data import Dataset
from privet.estimators import AdaptiveLaplaceClassifier
from privet.kept import Arrays, number_to_json
from privet.methods.dpsgd.private import private
from privet.methods.dpsgd.schedule import Schedule
from privet.noise import seeded
from privet.papers.adaptive_laplace.features import Rows, sound_rows
from privet.papers.adaptive_laplace.networks import PublishedNet
from privet.papers.adaptive_laplace.noise import CROSS_ENTROPY, SQUARED_ERROR
from privet.papers.adaptive_laplace.published import Count, Published, PublishedPlan
from privet.papers.adaptive_laplace.released import Released, ReleasedNet
from privet.papers.classifier import Facts, Release

if TYPE_CHECKING:
    from privet.papers.adaptive_laplace.experiment import AdaptiveLaplaceSettings
    from privet.papers.experiment import Told

WIDE = "ILM, full width"
METHODS = (
    "AdLM", "ILM", WIDE, "AdLM, |h0| = 1", "AdLM as released", "ILM as released", "pSGD", "sound",
)  # fmt: skip
RELEASED = ("AdLM as released", "ILM as released")
ADAPTIVE = ("AdLM", "AdLM, |h0| = 1")
"""Of Algorithm 1, those that look at relevance."""
PROVED = ("pSGD", "sound")
"""The methods whose epsilon is proved; that of the others is claimed."""
Keep = Callable[[Any, Callable[[], Arrays]], Arrays]
"""Arrays from their file, or computed and written."""
DELTA = 1e-5
LOT = 0.01
"""The sampling rate of pSGD, Abadi et al.'s for MNIST."""
LOSSES = {"cross-entropy": CROSS_ENTROPY, "squared error": SQUARED_ERROR}
ACTIVATIONS = {"ReLU": nn.ReLU, "sigmoid": nn.Sigmoid, "softplus": nn.Softplus}
"""Those without negative values, which the normalisation needs."""


@final
class Bench:
    """The data of a run, and what its cells share."""

    def __init__(
        self, settings: AdaptiveLaplaceSettings, *, keep: Keep, folder: Path | None = None
    ) -> None:
        whole = datasets.load(settings.data, folder)
        self.settings, self.keep = settings, keep
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

    @cached_property
    def features(self) -> tuple[Rows, Rows]:
        """Public features of training and test records, for the one-shot moments."""
        return sound_rows(self.data)

    def network(self, seed: int, *, wide: bool = False) -> PublishedNet:
        """The network of all cells with this seed."""
        s = self.settings
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            return PublishedNet(
                self.shape, classes=self.data.n_classes, maps=s.wide if wide else s.maps,
                kernel=s.kernel, units=s.units, hidden=s.hidden,
                activation=ACTIVATIONS[s.activation], loss=LOSSES[s.loss],
            )  # fmt: skip

    def published(self, method: str, epsilon: float, seed: int) -> tuple[Published, PublishedPlan]:
        """AdLM, ILM, or AdLM where |h0| is read as 1: the least noise."""
        s, wide = self.settings, method == WIDE
        made = Published(
            network=self.network(seed, wide=wide),
            adaptive=method in ADAPTIVE,
            shares=s.shares,
            loss=LOSSES[s.loss],
            count=1 if method == "AdLM, |h0| = 1" else Count.FEATURE_MAPS,
            batch_size=s.batch_size,
            epochs=s.wide_epochs if wide else s.epochs,
            learning_rate=s.learning_rate,
            pretraining_epochs=s.pretraining_epochs,
            rebuilding_epochs=s.rebuilding_epochs,
        )
        facts = Facts(
            records=len(self.rows),
            features=self.rows.shape[1],
            outputs=self.data.n_classes,
            epsilon=epsilon,
        )
        return made, made.plan(facts)

    def relevance(self, seed: int) -> NDArray[np.float64]:
        """Average relevance as AdLM takes it, the same at all budgets: computed once a seed."""

        def run() -> Arrays:
            made, _ = self.published("AdLM", 1.0, seed)
            rows, labels = np.require(self.rows, None, "W"), self.labels.astype(np.int64)
            return {"mean": made.average_relevance(rows, labels, seeded(seed))}

        return self.keep(["relevance", seed], run)["mean"]

    def released(self, method: str, seed: int) -> Released:
        """The authors' script at the sizes of this run, with their learning rate."""
        s, network = self.settings, self.network(seed)
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            net = ReleasedNet(
                self.shape if s.maps else (self.rows.shape[1],), classes=self.data.n_classes,
                maps=s.maps, kernel=s.kernel, units=s.units, hidden=s.hidden,
            )  # fmt: skip
        return Released(
            network=net, relevance_network=network if method == "AdLM as released" else None,
            batch_size=s.batch_size, epochs=s.released_epochs,
            pretraining_epochs=s.pretraining_epochs,
        )  # fmt: skip

    def accuracy(self, predicted: NDArray[Any]) -> float:
        """On the test records."""
        return float((predicted == self.data.y_test).mean())

    @torch.no_grad()
    def network_accuracy(self, model: nn.Module) -> float:
        """The same for a network; the released one has moments of the rows that it is shown."""
        rows = 2000 if isinstance(model, ReleasedNet) else 100
        found = [model(part).argmax(1) for part in self.test.split(rows)]
        return self.accuracy(torch.cat(found).numpy())


def cell(bench: Bench, method: str, epsilon: float, seed: int, told: Told) -> dict[str, Any]:
    """Train one method at one budget; what came out, with claim and proof."""
    began = time.perf_counter()
    if method == "pSGD":
        found = _psgd(bench, epsilon, seed, told)
    elif method == "sound":
        found = _sound(bench, epsilon, seed)
    else:
        found = _published(bench, method, epsilon, seed, told)
    seconds = round(time.perf_counter() - began, 2)
    return {"method": method, "epsilon": epsilon, "seed": seed, **found, "seconds": seconds}


def _published(bench: Bench, method: str, epsilon: float, seed: int, told: Told) -> dict[str, Any]:
    curve: list[float] = []

    def watch(epoch: int, model: nn.Module) -> None:
        curve.append(bench.network_accuracy(model))
        told(f"epoch {epoch}")

    release: Release[Any]
    if method in RELEASED:
        script = replace(bench.released(method, seed), watcher=watch)
        release = script.fit(bench.rows, bench.labels, epsilon=epsilon, rng=seeded(seed))
    else:
        made, plan = bench.published(method, epsilon, seed)
        known = bench.relevance(seed) if made.adaptive else None
        made = replace(made, watcher=watch, known_relevance=known)
        release = made.fit(bench.rows, bench.labels, plan, ledger=None, rng=seeded(seed))
    assert release.claim is not None
    return {
        "accuracy": curve[-1],
        "curve": curve,
        "claimed": release.claim.epsilon,
        "proved": number_to_json(release.guarantee.epsilon),
        "delta": 0.0,
    }


def _psgd(bench: Bench, epsilon: float, seed: int, told: Told) -> dict[str, Any]:
    """DP-SGD on the same network with Abadi et al.'s settings; its epsilon is proved (zero-out).

    Lots of 1%, C = 4 and learning rate .05 are theirs; the noise is what the budget leaves for
    `psgd_steps` steps (theirs at .5, 2 and 8 are z = 8, 4 and 2, for as long as the budget lasts).
    """
    steps, curve = bench.settings.psgd_steps, []
    schedule = Schedule.for_budget(
        epsilon=epsilon, delta=DELTA, steps=steps, sample_rate=LOT, clipping_bound=4.0
    )
    net = _Plain(bench.network(seed))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    tensors = torch.from_numpy(bench.rows), torch.from_numpy(bench.labels.astype(np.int64))
    with private(net, optimizer, tensors, schedule, delta=DELTA, rng=seeded(seed)) as training:
        for batch in training:
            training.step(F.cross_entropy(net(batch.x), batch.y, reduction="none"))
            done = training.steps_done
            if batch.last and not batch.made_up and (done % 100 == 0 or done == steps):
                curve.append(bench.network_accuracy(net))
                told(f"step {done} of {steps}")
    return {
        "accuracy": curve[-1],
        "curve": curve,
        "claimed": None,
        "proved": number_to_json(training.guarantee.epsilon),
        "noise_multiplier": float(schedule.noise_multipliers[0]),
        "delta": DELTA,
    }


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


def _sound(bench: Bench, epsilon: float, seed: int) -> dict[str, Any]:
    """One-shot moments of public features: independent of epochs too, with a proof (add-remove)."""
    train, test = bench.features
    classifier = AdaptiveLaplaceClassifier(
        epsilon=epsilon, delta=DELTA, classes=range(bench.data.n_classes), bounds=1.0,
        random_state=seed,
    )  # fmt: skip
    classifier.fit(train, bench.labels)
    return {
        "accuracy": bench.accuracy(classifier.predict(test)),
        "curve": None,
        "claimed": None,
        "proved": number_to_json(classifier.guarantee_.epsilon),
        "delta": DELTA,
    }
