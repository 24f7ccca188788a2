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
from privet.guarantee import number_to_json
from privet.jobs import Arrays
from privet.methods.dpsgd import Batch, Charging, Schedule, private
from privet.networks.bounded_layers import LocalResponseNorm, MinMax
from privet.noise import seeded
from privet_papers.adaptive_laplace.authors_code import AuthorsNet, AuthorsScript
from privet_papers.adaptive_laplace.networks import PublishedNet
from privet_papers.adaptive_laplace.noise import CROSS_ENTROPY, SQUARED_ERROR
from privet_papers.adaptive_laplace.public_features import FloatRows, sound_rows
from privet_papers.adaptive_laplace.published import (
    AdaptiveLaplaceMechanism,
    AdaptiveLaplacePlan,
    NeuronCount,
)
from privet_papers.published_classifier import PublishedFacts, PublishedRelease

if TYPE_CHECKING:
    from privet.jobs import Tell
    from privet_papers.adaptive_laplace.experiment import AdaptiveLaplaceSettings

FULL_WIDTH = "ILM, full width"
METHODS = (
    "AdLM", "ILM", FULL_WIDTH, "AdLM, |h0| = 1", "AdLM as released", "ILM as released", "pSGD",
    "sound",
)  # fmt: skip
AUTHORS_CODE = ("AdLM as released", "ILM as released")
ADAPTIVE = ("AdLM", "AdLM, |h0| = 1")
"""Of Algorithm 1, those that look at relevance."""
WITH_PROOF = ("pSGD", "sound")
"""The methods whose epsilon is proved; that of the others is claimed."""
Keep = Callable[[Any, Callable[[], Arrays]], Arrays]
"""Arrays from their file, or computed and written."""
DELTA = 1e-5
"""Of pSGD and of one-shot moments; Abadi et al.'s for MNIST. The published methods claim 0."""
PSGD_SAMPLE_RATE = 0.01
"""The sampling rate of pSGD, Abadi et al.'s for MNIST."""
LOSSES = {"cross-entropy": CROSS_ENTROPY, "squared error": SQUARED_ERROR}
ACTIVATIONS = {"ReLU": nn.ReLU, "sigmoid": nn.Sigmoid, "softplus": nn.Softplus}
"""Those without negative values, which the normalisation needs."""
OPTIMIZERS = {"Adam": torch.optim.Adam, "SGD": torch.optim.SGD}
"""Line 29 is SGD; Adam learns in fewer epochs."""
BOUNDS = ("LRN", "min-max")
RELEVANCE_MODELS = ("the same", "dense")


@final
class AdaptiveLaplaceRuns:
    """The data of a run, and the networks and settings that its cells share."""

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
    def features(self) -> tuple[FloatRows, FloatRows]:
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
                min_max=s.dense_bound == "min-max",
            )  # fmt: skip

    def relevance_network(self, seed: int) -> PublishedNet:
        """What relevance is computed on: the same network, or a simpler one (section V)."""
        if self.settings.relevance_model == "the same":
            return self.network(seed)
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            return PublishedNet(
                self.shape, classes=self.data.n_classes, maps=(), units=self.settings.units
            )

    def published(
        self, method: str, epsilon: float, seed: int
    ) -> tuple[AdaptiveLaplaceMechanism, AdaptiveLaplacePlan]:
        """AdLM, ILM, or AdLM where |h0| is read as 1: the least noise."""
        s, wide = self.settings, method == FULL_WIDTH
        made = AdaptiveLaplaceMechanism(
            network=self.network(seed, wide=wide),
            adaptive=method in ADAPTIVE,
            shares=s.shares,
            loss=LOSSES[s.loss],
            count=1 if method == "AdLM, |h0| = 1" else NeuronCount.FEATURE_MAPS,
            batch_size=s.batch_size,
            epochs=s.wide_epochs if wide else s.epochs,
            learning_rate=s.learning_rate,
            optimizer=OPTIMIZERS[s.optimizer],
            pretraining_epochs=s.pretraining_epochs,
            rebuilding_epochs=s.rebuilding_epochs,
        )
        facts = PublishedFacts(
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
            made = replace(made, network=self.relevance_network(seed))
            rows, labels = np.require(self.rows, None, "W"), self.labels.astype(np.int64)
            return {"mean": made.average_relevance(rows, labels, seeded(seed))}

        return self.keep(["relevance", seed], run)["mean"]

    def authors_script(self, method: str, seed: int) -> AuthorsScript:
        """The authors' script at the sizes of this run, with their learning rate."""
        s, network = self.settings, self.relevance_network(seed)
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            net = AuthorsNet(
                self.shape if s.maps else (self.rows.shape[1],), classes=self.data.n_classes,
                maps=s.maps, kernel=s.kernel, units=s.units, hidden=s.hidden,
            )  # fmt: skip
        return AuthorsScript(
            network=net, relevance_network=network if method == "AdLM as released" else None,
            batch_size=s.batch_size, epochs=s.released_epochs,
            pretraining_epochs=s.pretraining_epochs,
        )  # fmt: skip

    def accuracy(self, predicted: NDArray[Any]) -> float:
        """Share of test records that are predicted rightly."""
        return float((predicted == self.data.y_test).mean())

    @torch.no_grad()
    def network_accuracy(self, model: nn.Module) -> float:
        """The same for a network; the released one has moments of the rows that it is shown."""
        rows = 2000 if isinstance(model, AuthorsNet) else 100
        found = [model(part).argmax(1) for part in self.test.split(rows)]
        return self.accuracy(torch.cat(found).numpy())


def run_method(
    runs: AdaptiveLaplaceRuns, method: str, epsilon: float, seed: int, report: Tell
) -> dict[str, Any]:
    """Train one method at one budget; what came out, with claim and proof."""
    began = time.perf_counter()
    if method == "pSGD":
        found = _run_psgd(runs, epsilon, seed, report)
    elif method == "sound":
        found = _run_one_shot_moments(runs, epsilon, seed)
    else:
        found = _run_published(runs, method, epsilon, seed, report)
    seconds = round(time.perf_counter() - began, 2)
    return {"method": method, "epsilon": epsilon, "seed": seed, **found, "seconds": seconds}


def _run_published(
    runs: AdaptiveLaplaceRuns, method: str, epsilon: float, seed: int, report: Tell
) -> dict[str, Any]:
    curve: list[float] = []

    def watch(epoch: int, model: nn.Module) -> None:
        curve.append(runs.network_accuracy(model))
        report(f"epoch {epoch}")

    release: PublishedRelease[Any]
    if method in AUTHORS_CODE:
        script = replace(runs.authors_script(method, seed), watcher=watch)
        release = script.fit(runs.rows, runs.labels, epsilon=epsilon, rng=seeded(seed))
    else:
        made, plan = runs.published(method, epsilon, seed)
        known = runs.relevance(seed) if made.adaptive else None
        made = replace(made, watcher=watch, known_relevance=known)
        release = made.fit(runs.rows, runs.labels, plan, ledger=None, rng=seeded(seed))
    assert release.claim is not None
    return {
        "accuracy": curve[-1],
        "curve": curve,
        "claimed": release.claim.epsilon,
        "proved": number_to_json(release.guarantee.epsilon),
        "delta": 0.0,
    }


def _run_psgd(runs: AdaptiveLaplaceRuns, epsilon: float, seed: int, report: Tell) -> dict[str, Any]:
    """DP-SGD on the same network with Abadi et al.'s settings; its epsilon is proved (zero-out).

    Lots of 1%, C = 4 and learning rate .05 are theirs; the noise is what the budget leaves for
    `psgd_steps` steps (theirs at .5, 2 and 8 are z = 8, 4 and 2, for as long as the budget lasts).
    """
    steps, curve = runs.settings.psgd_steps, []
    schedule = Schedule.for_budget(
        epsilon=epsilon, delta=DELTA, steps=steps, sample_rate=PSGD_SAMPLE_RATE, clipping_bound=4.0
    )
    net = DPSGDNetwork(runs.network(seed))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    tensors = torch.from_numpy(runs.rows), torch.from_numpy(runs.labels.astype(np.int64))
    with private(
        net, optimizer, tensors, schedule, losses=_cross_entropy, delta=DELTA, rng=seeded(seed),
        charging=Charging(evaluation="public"),
    ) as training:  # fmt: skip
        for step in training:
            if step.number % 100 == 0 or step.number == steps:
                curve.append(runs.network_accuracy(net))
                report(f"step {step.number} of {steps}")
    return {
        "accuracy": curve[-1],
        "curve": curve,
        "claimed": None,
        "proved": number_to_json(training.guarantee.epsilon),
        "noise_multiplier": float(schedule.noise_multipliers[0]),
        "delta": DELTA,
    }


def _cross_entropy(model: nn.Module, batch: Batch) -> Tensor:
    return F.cross_entropy(model(batch.x), batch.y, reduction="none")


class DPSGDNetwork(nn.Module):
    """The same design with every activation and LRN, its first layer a plain one.

    The paper trains the three models with one design. Min-max, which mixes the records of a batch,
    has no gradient of one record: pSGD has LRN in its place.
    """

    def __init__(self, net: PublishedNet) -> None:
        super().__init__()
        first: nn.Module
        if isinstance(net.first, nn.Conv2d):
            maps, kernel = net.first.out_channels, net.first.kernel_size[0]
            first = nn.Conv2d(net.first.in_channels, maps, kernel, padding=kernel // 2)
            self.shape = net.shape
        else:
            first = nn.Linear(net.first.in_features, net.first.out_features)
            self.shape = (net.first.in_features,)  # said, since an empty sample has no size
        first.load_state_dict({k: v for k, v in net.first.state_dict().items() if k != "constant"})
        body = (LocalResponseNorm() if isinstance(m, MinMax) else m for m in net.body)
        self.layers = nn.Sequential(first, *body, net.output)

    def forward(self, x: Tensor) -> Tensor:
        """Logits of rows."""
        out: Tensor = self.layers(x.reshape(len(x), *self.shape))
        return out


def _run_one_shot_moments(runs: AdaptiveLaplaceRuns, epsilon: float, seed: int) -> dict[str, Any]:
    """One-shot moments of public features: independent of epochs too, with a proof (add-remove)."""
    train, test = runs.features
    classifier = AdaptiveLaplaceClassifier(
        epsilon=epsilon, delta=DELTA, classes=range(runs.data.n_classes), bounds=1.0,
        random_state=seed,
    )  # fmt: skip
    classifier.fit(train, runs.labels)
    return {
        "accuracy": runs.accuracy(classifier.predict(test)),
        "curve": None,
        "claimed": None,
        "proved": number_to_json(classifier.guarantee_.epsilon),
        "delta": DELTA,
    }
