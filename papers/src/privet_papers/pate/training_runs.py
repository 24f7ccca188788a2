"""PATE on volumes: what is trained on one split of the data, every network kept in a file."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Callable
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from privet.data.volumes import Volumes
from privet.guarantee import Adjacency, Guarantee, Unit
from privet.jobs import write_whole
from privet.methods.pate import (
    PATE,
    Aggregator,
    Answers,
    AutoencoderReducer,
    CentredLogits,
    IdentityReducer,
    NoisyAnswers,
    PCAReducer,
    Reducer,
    hash_inputs,
    shard_ledger,
    unit_noise,
)
from privet.networks import segmentation
from privet.networks.segmentation import Segmenter
from privet.noise import seeded
from privet_papers.pate.dpsgd_baseline import (
    DPSGDBudget,
    PrivateRecipe,
    records,
    schedule_of,
    start_at_frequencies,
    train_privately,
)
from privet_papers.pate.pca_sensitivity import count_useful_components
from privet_papers.pate.pooled_unet import PooledUNet
from privet_papers.pate.printed_pca import PrintedPCA
from privet_papers.pate.shape_reducer import ShapeReducer

if TYPE_CHECKING:
    from privet.jobs import Tell
    from privet_papers.pate.settings import PATESettings

Array = NDArray[Any]
PrivateNetwork = tuple[nn.Module, Guarantee]
"""A network, and what it promises."""


@final
class VolumeRuns:
    """One split of the volumes, and what is trained on it.

    The seed decides the split, the networks' first weights and the noise. Networks are kept in
    `place`, whole or not at all, and read from there when they are asked for again.

    The public volumes are `labelled_volumes`, those with labels, and `query_volumes`, those that
    teachers are asked about: all of them are both, as in the paper, unless only the first
    `labelled` have labels.
    """

    def __init__(
        self,
        volumes: Volumes,
        settings: PATESettings,
        seed: int,
        place: Path,
        labelled: int | None = None,
    ) -> None:
        s = settings
        order = np.random.default_rng(seed).permutation(len(volumes))
        ends = np.cumsum([s.test, s.public, s.teachers * s.shard])
        self.test, self.public = (
            volumes.take(order[: ends[0]]),
            volumes.take(order[ends[0] : ends[1]]),
        )
        self.private = volumes.take(order[ends[1] : ends[2]])
        self.labelled_volumes = self.query_volumes = self.public
        self.settings, self.seed, self.place, self.shared = s, seed, place, place
        if labelled is not None:
            self.labelled_volumes = self.public.take(range(labelled))
            self.query_volumes = self.public.take(range(labelled, s.public))
            self.place = place / f"{labelled} labelled"
        self.folds = min(s.folds, len(self.labelled_volumes))
        self.part = np.arange(len(self.labelled_volumes)) % self.folds
        self.report: Tell = lambda what: None
        self.classes = len(volumes.classes)
        self.segmenter = Segmenter(classes=self.classes, channels=s.channels, recipe=s.recipe)
        self.truth = segmentation.soft_targets(self.labelled_volumes.labels, self.classes).numpy()
        self.place.mkdir(parents=True, exist_ok=True)

    # Networks

    def load_or_train(
        self,
        name: str,
        train: Callable[[], nn.Module],
        channels: tuple[int, ...] | None = None,
        place: Path | None = None,
    ) -> nn.Module:
        """The network of this name, from its file or trained and written."""
        from safetensors.torch import load_file, save

        path = (place or self.place) / f"{name}.safetensors"
        if path.exists():
            network = self.new_network(0, channels)
            network.load_state_dict(load_file(path))
            return network.eval()
        self.report(name)
        network = train()
        write_whole(path, save({k: v.contiguous() for k, v in network.state_dict().items()}))
        return network.eval()

    def new_network(self, number: int = 0, channels: tuple[int, ...] | None = None) -> nn.Module:
        """A U-Net before training, of the settings' widths by default."""
        with torch.random.fork_rng(devices=()):
            torch.manual_seed(1000 * self.seed + number)
            return PooledUNet(
                classes=self.classes, channels=channels or self.settings.channels,
                inputs=self.public.channels,
            )  # fmt: skip

    def train_network(
        self, images: Array, targets: Array, *, number: int, start: nn.Module | None = None
    ) -> nn.Module:
        """Train a network without privacy on images and soft targets."""
        return segmentation.train(
            self.new_network(number) if start is None else copy.deepcopy(start),
            segmentation.volumes_of(images),
            torch.as_tensor(targets, dtype=torch.float32),
            self.settings.recipe,
            seed=1000 * self.seed + number,
        )

    def probabilities(self, network: nn.Module, images: Array) -> NDArray[np.float32]:
        """Class probabilities of whole volumes, by sliding windows."""
        return self.segmenter.predictor(network)(images)

    def teacher(self, k: int) -> nn.Module:
        """The teacher trained on shard k alone."""
        s = self.settings
        shard = self.private.take(range(k * s.shard, (k + 1) * s.shard))
        maps = segmentation.soft_targets(shard.labels, self.classes).numpy()
        return self.load_or_train(
            f"teacher-{k}",
            lambda: self.train_network(shard.images, maps, number=k),
            place=self.shared,
        )

    def train_longer(self, images: Array, targets: Array, *, number: int) -> nn.Module:
        """Train for twice as long as a teacher, who has fewer volumes."""
        first = self.train_network(images, targets, number=number)
        return self.train_network(images, targets, number=number + 1, start=first)

    def public_labels_network(self) -> nn.Module:
        """The control: a network trained on the public volumes and their labels."""
        return self.load_or_train(
            "public labels only",
            lambda: self.train_longer(self.labelled_volumes.images, self.truth, number=100),
        )

    def nonprivate_network(self) -> nn.Module:
        """A network trained on private and public volumes without privacy."""
        return self.load_or_train(
            "non-private", lambda: self.train_longer(*self._private_and_public(), number=102)
        )

    def _private_records(self) -> tuple[Array, Array]:
        """The private volumes and their maps."""
        maps = segmentation.soft_targets(self.private.labels, self.classes).numpy()
        return self.private.images, maps

    def _private_and_public(self) -> tuple[Array, Array]:
        images, maps = self._private_records()
        return np.concatenate([images, self.labelled_volumes.images]), np.concatenate(
            [maps, self.truth]
        )

    # What is publicly known of a label map

    @property
    def mean_map(self) -> Array:
        """The mean of the public label maps, one for all volumes."""
        return np.asarray(self.truth.mean(axis=0, keepdims=True))

    @cached_property
    def crossed_guess(self) -> Array:
        """What a network says about each labelled public volume that was trained on the others.

        Cross-fitted: no network labels a volume whose label it was trained on, so that departures
        of public labels from the guess are like those of answers about an unlabelled volume.
        """
        guess = np.empty_like(self.truth)
        for k in range(self.folds):
            mine = self.part == k
            guess[mine] = self.probabilities(
                self.network_without_fold(k), self.labelled_volumes.images[mine]
            )
        return guess

    def network_without_fold(self, k: int) -> nn.Module:
        """A network trained on the labelled public volumes but those of part k."""
        others = self.part != k
        images, maps = self.labelled_volumes.images[others], self.truth[others]
        train = partial(self.train_longer, images, maps, number=400 + 2 * k)
        return self.load_or_train(f"public labels but fold {k}", train)

    @cached_property
    def public_guess(self) -> Array:
        """What public networks say about the volumes that are asked about."""
        if self.query_volumes is self.labelled_volumes:
            return self.crossed_guess
        return self.probabilities(self.public_labels_network(), self.query_volumes.images)

    # PATE

    @cached_property
    def answers(self) -> list[NDArray[np.float16]]:
        """What every teacher says about the public volumes: private."""
        return [
            self.probabilities(self.teacher(k), self.query_volumes.images).astype(np.float16)
            for k in range(self.settings.teachers)
        ]

    def pca(self, epsilon: float) -> Reducer:
        """Components of the public label maps, as many as are worth their noise."""
        return PCAReducer.fit(self.truth, noise=self.unit_noise(epsilon))

    def pca_of_logits(self, epsilon: float) -> Reducer:
        """The same of logits, which the paper averages "prior to the softmax layer"; clipped."""
        return PCAReducer.fit(
            self.truth, noise=self.unit_noise(epsilon), space=CentredLogits(), folds=5
        )

    def printed_pca(self, epsilon: float) -> Reducer:
        """Algorithm 1's own: as many components as eq. 7 says, and one where it says none."""
        s = self.settings
        found = count_useful_components(
            self.truth, width=1.0, teachers=s.teachers, queries=len(self.query_volumes),
            epsilon=epsilon, delta=s.delta,
        )  # fmt: skip
        return PrintedPCA.fit(self.truth, components=max(1, int(found["components"])))

    def per_voxel(self, epsilon: float) -> Reducer:
        """No reduction: every voxel of every volume is a question of its own."""
        return IdentityReducer(shape=self.truth.shape[1:])

    def plain_autoencoder(self, epsilon: float) -> Reducer:
        """Algorithm 2's own: whole public label maps, under the paper's noise, no centre."""
        s = self.settings
        return AutoencoderReducer.fit(
            self.truth, noise=self.published_aggregator(epsilon).noise, dimension=s.dimension,
            widths=s.widths, epochs=s.plain_epochs, batch_size=8, seed=self.seed,
        )  # fmt: skip

    def autoencoder(self, epsilon: float, centre: Array) -> ShapeReducer:
        """Taught with departures of public label maps from a public centre, under the noise."""
        s = self.settings
        return ShapeReducer.fit(
            self.truth, centre=centre, noise=self.unit_noise(epsilon), dimension=s.dimension,
            widths=s.widths, steps=s.reducer_steps, seed=self.seed,
        )  # fmt: skip

    def about_mean_map(self, epsilon: float) -> Reducer:
        """The autoencoder of departures from the mean public map."""
        return self.autoencoder(epsilon, self.mean_map)

    def about_public(self, epsilon: float) -> Reducer:
        """The same about what public networks say, volume by volume."""
        found = self.autoencoder(epsilon, self.crossed_guess)
        return found.with_centre(self.public_guess)

    def unit_noise(self, epsilon: float) -> float:
        """sigma for codes of length 1; none for an infinite budget."""
        s = self.settings
        if math.isinf(epsilon):
            return 0.0
        return unit_noise(
            teachers=s.teachers, queries=len(self.query_volumes), epsilon=epsilon, delta=s.delta
        )

    def published_aggregator(self, epsilon: float) -> Aggregator:
        """The noise of Algorithm 2, by Renyi composition: more than the budget needs."""
        return self._published_noise(epsilon, 1.0)

    def _published_noise(self, epsilon: float, radius: float) -> Aggregator:
        s = self.settings
        return Aggregator.published(
            teachers=s.teachers, queries=len(self.query_volumes), epsilon=epsilon, delta=s.delta,
            radius=radius,
        )  # fmt: skip

    def teacher_codes(self, reducer: Reducer) -> list[Answers]:
        """What every teacher sends: its clipped codes."""
        name = hash_inputs(self.query_volumes.images)
        return [
            Answers.clip(
                reducer.encode(maps), radius=reducer.radius, site=f"site-{k}",
                reducer=reducer.name, queries=name,
            )
            for k, maps in enumerate(self.answers)
        ]  # fmt: skip

    def release_as_printed(self, method: str, reducer: Reducer, epsilon: float) -> NoisyAnswers:
        """The mean of codes with the paper's noise, which is for their greatest length."""
        delta = self.settings.delta
        return self._published_noise(epsilon, reducer.radius).release(
            self.teacher_codes(reducer), rng=seeded(self.seed).child(method, f"{epsilon:g}"),
            delta=delta, ledger=shard_ledger(epsilon=epsilon, delta=delta), reducer=reducer.name,
        )  # fmt: skip

    def release_labels(
        self, method: str, reducer: Reducer, epsilon: float
    ) -> tuple[Array, NoisyAnswers | None]:
        """Labels for the public volumes, and the release they come from (None without noise)."""
        teacher_codes = self.teacher_codes(reducer)
        if math.isinf(epsilon):
            return reducer.decode(np.mean([a.codes() for a in teacher_codes], axis=0)), None
        delta = self.settings.delta
        pate = PATE(
            teachers=self.segmenter, student=self.segmenter, reducer=reducer, epsilon=epsilon,
            delta=delta, ledger=shard_ledger(epsilon=epsilon, delta=delta),
        )  # fmt: skip
        found = pate.aggregate(teacher_codes, rng=seeded(self.seed).child(method, f"{epsilon:g}"))
        return reducer.decode(found.codes, noise=found.noise), found

    def labels_of_noise_alone(self, reducer: Reducer, epsilon: float) -> Array:
        """The labels if every teacher sent zeros: what is decoded from noise alone."""
        noise = self.unit_noise(epsilon) * reducer.radius
        rng = np.random.default_rng(self.seed)
        codes = rng.normal(scale=noise, size=(len(self.query_volumes), reducer.dimension))
        return reducer.decode(codes, noise=noise)

    def student(self, name: str, labels: Array) -> nn.Module:
        """Trained on the public volumes and what was answered, the likeliest class of each voxel.

        Soft Dice has its best answer at hard maps even where targets are soft, so we harden first.
        """
        maps = segmentation.soft_targets(labels.argmax(axis=1), self.classes).numpy()
        return self.load_or_train(
            name, lambda: self.train_longer(self.query_volumes.images, maps, number=200)
        )

    def with_public_labels(self, name: str, student: nn.Module) -> nn.Module:
        """A student that goes on to learn from the public labels."""
        return self.load_or_train(
            f"{name}, then public labels",
            lambda: self.train_network(
                self.labelled_volumes.images, self.truth, number=202, start=student
            ),
        )

    # DP-SGD

    def dpsgd(self, epsilon: float) -> PrivateNetwork:
        """From fresh weights on private and public volumes: the paper's baseline."""
        recipe = self.settings.dpsgd
        return self._private(
            f"DP-SGD {epsilon:g}", self._untrained(recipe), recipe,
            records(*self._private_and_public()),
            self._budget(epsilon, Adjacency.ADD_REMOVE, Unit.RECORD),
        )  # fmt: skip

    def dpsgd_as_teachers(self, epsilon: float) -> PrivateNetwork:
        """The same with the loss and the random start that teachers have."""
        recipe = self.settings.dpsgd_as_teachers
        return self._private(
            f"DP-SGD as teachers {epsilon:g}", self._untrained(recipe), recipe,
            records(*self._private_and_public()),
            self._budget(epsilon, Adjacency.ADD_REMOVE, Unit.RECORD),
        )  # fmt: skip

    def dpsgd_as_printed(self, epsilon: float) -> tuple[PrivateNetwork, float]:
        """On the same U-Net, 4 a layer and variance 6; and the epsilon if layers counted once."""
        recipe = self.settings.dpsgd_as_printed
        budget = self._budget(epsilon, Adjacency.ADD_REMOVE, Unit.RECORD)
        made = self._private(
            "DP-SGD as printed",
            self._untrained(recipe),
            recipe,
            records(*self._private_and_public()),
            budget,
        )
        once = schedule_of(recipe, budget, 1).loss(Adjacency.ADD_REMOVE)
        return made, once.epsilon(self.settings.delta)

    def dpsgd_from_public(self, epsilon: float) -> PrivateNetwork:
        """From the network trained on public labels, on the private volumes."""
        return self._private(
            f"DP-SGD from public labels {epsilon:g}", copy.deepcopy(self.public_labels_network()),
            self.settings.dpsgd_from_public, records(*self._private_records()),
            self._budget(epsilon, Adjacency.ADD_REMOVE, Unit.RECORD),
        )  # fmt: skip

    def dpsgd_by_shard(self, epsilon: float) -> PrivateNetwork:
        """From fresh weights, a teacher's shard is a record: the unit that PATE protects."""
        recipe = self.settings.dpsgd_by_shard
        return self._private(
            f"DP-SGD by shard {epsilon:g}", self._untrained(recipe), recipe,
            records(*self._private_records(), volumes=self.settings.shard),
            self._budget(epsilon, Adjacency.REPLACE_ONE, Unit.SHARD),
        )  # fmt: skip

    def _untrained(self, recipe: PrivateRecipe) -> nn.Module:
        """The U-Net that a recipe starts from, with public frequencies of classes if it says so."""
        fresh = self.new_network(300, recipe.channels)
        if recipe.start == "random":
            return fresh
        frequencies = self.truth.mean(axis=(0, 2, 3, 4), dtype=np.float64)
        return start_at_frequencies(fresh, frequencies)

    def _budget(self, epsilon: float, adjacency: Adjacency, unit: Unit) -> DPSGDBudget:
        return DPSGDBudget(
            epsilon=epsilon, delta=self.settings.delta, adjacency=adjacency, unit=unit
        )

    def _private(
        self, name: str, start: nn.Module, recipe: PrivateRecipe, data: Tensor, budget: DPSGDBudget
    ) -> PrivateNetwork:
        """The network, and what it promises, which is written beside it before it is."""
        stated = self.place / f"{name} guarantee.json"

        def train() -> nn.Module:
            promise = train_privately(
                start, data, recipe, budget, patches=self.settings.recipe,
                rng=seeded(self.seed).child(name), inputs=self.public.channels,
            )  # fmt: skip
            stated.write_text(json.dumps(promise.to_dict()))
            return start

        network = self.load_or_train(name, train, recipe.channels)
        return network, Guarantee.from_dict(json.loads(stated.read_text()))

    # Scores

    def dice(self, probabilities: Array) -> list[float]:
        """Dice by class but the background, mean over test volumes."""
        found = segmentation.dice(probabilities.argmax(axis=1), self.test.labels, self.classes)
        return [float(x) for x in found.mean(axis=0)]

    def score(self, network: nn.Module) -> list[float]:
        """Dice of a network on the test volumes, by class."""
        return self.dice(self.probabilities(network, self.test.images))

    def label_dice(self, labels: Array) -> list[float]:
        """Dice of answered labels against the truth, by class."""
        found = segmentation.dice(labels.argmax(axis=1), self.query_volumes.labels, self.classes)
        return [float(x) for x in found.mean(axis=0)]
