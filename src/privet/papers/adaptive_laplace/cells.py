"""A cell of the experiments: one method at one budget with one seed."""

from __future__ import annotations

import time
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from privet import data as datasets
from privet.data import Dataset
from privet.estimators import AdaptiveLaplaceClassifier, DPSGDClassifier, PrivateClassifier
from privet.kept import number_to_json
from privet.methods.adaptive_laplace import RelevanceShapedTraining
from privet.methods.dpsgd.method import NetworkDPSGD
from privet.noise import seeded
from privet.papers.adaptive_laplace.features import Rows, sound_rows
from privet.papers.adaptive_laplace.networks import PublishedNet
from privet.papers.adaptive_laplace.published import Count, Published, PublishedPlan, Reading
from privet.papers.classifier import Facts

if TYPE_CHECKING:
    from privet.papers.adaptive_laplace.experiment import AdaptiveLaplaceSettings
    from privet.papers.experiment import Told

METHODS = (
    "AdLM", "ILM", "AdLM, |h0| = 1", "AdLM as released", "pSGD", "sound", "sound network",
)  # fmt: skip
PROVED = ("pSGD", "sound", "sound network")
"""The methods whose epsilon is proved; that of the others is claimed."""
DELTA = 1e-5


@final
class Bench:
    """The data of a run, and what its cells share."""

    def __init__(self, settings: AdaptiveLaplaceSettings, folder: Path | None = None) -> None:
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

    @cached_property
    def features(self) -> tuple[Rows, Rows]:
        """Public features of training and test records, for the one-shot moments."""
        return sound_rows(self.data)

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
            learning_rate=s.learning_rate,
            pretraining_epochs=s.pretraining_epochs,
        )
        facts = Facts(
            records=len(self.rows),
            features=self.rows.shape[1],
            outputs=self.data.n_classes,
            epsilon=epsilon,
        )
        return made, made.plan(facts)

    @property
    def sample_rate(self) -> float:
        """Of DP-SGD, for batches as large as the published ones on average."""
        return min(1.0, self.settings.batch_size / len(self.rows))

    def accuracy(self, predicted: NDArray[Any]) -> float:
        """On the test records."""
        return float((predicted == self.data.y_test).mean())

    @torch.no_grad()
    def network_accuracy(self, model: nn.Module) -> float:
        """The same for a network."""
        found = [model(part).argmax(1) for part in self.test.split(2000)]
        return self.accuracy(torch.cat(found).numpy())


def cell(bench: Bench, method: str, epsilon: float, seed: int, told: Told) -> dict[str, Any]:
    """Train one method at one budget; what came out, with claim and proof."""
    began = time.perf_counter()
    if method == "pSGD":
        found = _psgd(bench, epsilon, seed)
    elif method == "sound":
        found = _sound(bench, epsilon, seed)
    elif method == "sound network":
        found = _sound_network(bench, epsilon, seed)
    else:
        found = _published(bench, method, epsilon, seed, told)
    seconds = round(time.perf_counter() - began, 2)
    return {"method": method, "epsilon": epsilon, "seed": seed, **found, "seconds": seconds}


def _published(bench: Bench, method: str, epsilon: float, seed: int, told: Told) -> dict[str, Any]:
    made, plan = bench.published(method, epsilon, seed)
    curve: list[float] = []

    def watch(epoch: int, model: nn.Module) -> None:
        curve.append(bench.network_accuracy(model))
        told(f"epoch {epoch} of {bench.settings.epochs}")

    made = replace(made, watcher=watch)
    release = made.fit(bench.rows, bench.labels, plan, ledger=None, rng=seeded(seed))
    assert release.claim is not None
    return {
        "accuracy": curve[-1],
        "curve": curve,
        "claimed": release.claim.epsilon,
        "proved": number_to_json(release.guarantee.epsilon),
        "local_features": number_to_json(plan.local_features),
        "local_labels": number_to_json(plan.local_labels),
        "delta": 0.0,
    }


def _psgd(bench: Bench, epsilon: float, seed: int) -> dict[str, Any]:
    """DP-SGD on the same network with cross-entropy; its epsilon is proved (add-remove)."""
    classifier = DPSGDClassifier(
        epsilon=epsilon, delta=DELTA, classes=range(bench.data.n_classes),
        module=_Plain(bench.network(seed)), steps=bench.settings.psgd_steps,
        sample_rate=bench.sample_rate, bounds=(-1.0, 1.0), random_state=seed,
    )  # fmt: skip
    classifier.fit(bench.rows, bench.labels)
    return _outcome(bench, classifier, bench.test.numpy())


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
    return _outcome(bench, classifier, test)


def _sound_network(bench: Bench, epsilon: float, seed: int) -> dict[str, Any]:
    """The layers and steps of pSGD with noise shaped by private relevance (add-remove)."""
    trainer = NetworkDPSGD(
        network=_Plain(bench.network(seed)),
        steps=bench.settings.psgd_steps,
        sample_rate=bench.sample_rate,
    )
    classifier = PrivateClassifier(
        RelevanceShapedTraining(trainer=trainer), epsilon=epsilon, delta=DELTA,
        classes=range(bench.data.n_classes), bounds=(0.0, 1.0), random_state=seed,
    )  # fmt: skip
    classifier.fit(bench.rows, bench.labels)
    return _outcome(bench, classifier, bench.test.numpy())


def _outcome(bench: Bench, classifier: Any, test: Rows) -> dict[str, Any]:
    return {
        "accuracy": bench.accuracy(classifier.predict(test)),
        "curve": None,
        "claimed": None,
        "proved": number_to_json(classifier.guarantee_.epsilon),
        "delta": DELTA,
    }
