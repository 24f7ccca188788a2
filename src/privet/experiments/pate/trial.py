"""PATE on volumes: what is trained on one split of the data, every network kept in a file."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from privet._files import write_whole
from privet.data.nifti import Volumes
from privet.experiments.pate.reducer import ShapeReducer
from privet.experiments.pate.settings import Settings
from privet.guarantee import Guarantee
from privet.methods.dpsgd import Schedule, private
from privet.methods.pate import (
    PATE,
    Answers,
    NoisyAnswers,
    PCAReducer,
    Reducer,
    shard_ledger,
    unit_noise,
)
from privet.methods.pate.method import inputs_name
from privet.nets import segmentation
from privet.nets.segmentation import Segmenter
from privet.noise import seeded

Array = NDArray[Any]
Told = Callable[[str], None]
"""Told what is being trained."""


@final
class Trial:
    """One split of the volumes, and what is trained on it.

    The seed decides the split, the networks' first weights and the noise. Networks are kept in
    `place`, whole or not at all, and read from there when they are asked for again.
    """

    def __init__(
        self, volumes: Volumes, settings: Settings, seed: int, place: Path, told: Told
    ) -> None:
        s = settings
        order = np.random.default_rng(seed).permutation(len(volumes))
        ends = np.cumsum([s.test, s.public, s.teachers * s.shard])
        self.test, self.public = (
            volumes.take(order[: ends[0]]),
            volumes.take(order[ends[0] : ends[1]]),
        )
        self.private = volumes.take(order[ends[1] : ends[2]])
        self.settings, self.seed, self.place, self.told = s, seed, place, told
        self.classes = len(volumes.classes)
        self.segmenter = Segmenter(classes=self.classes, channels=s.channels, recipe=s.recipe)
        self.truth = segmentation.soft_targets(self.public.labels, self.classes).numpy()
        place.mkdir(parents=True, exist_ok=True)

    # Networks

    def kept(self, name: str, train: Callable[[], nn.Module]) -> nn.Module:
        """The network of this name, from its file or trained and written."""
        from safetensors.torch import load_file, save

        path = self.place / f"{name}.safetensors"
        if path.exists():
            network = self.fresh()
            network.load_state_dict(load_file(path))
            return network.eval()
        self.told(name)
        network = train()
        write_whole(path, save({k: v.contiguous() for k, v in network.state_dict().items()}))
        return network.eval()

    def fresh(self, number: int = 0) -> nn.Module:
        """A U-Net before training."""
        s = self.settings
        return segmentation.unet(
            classes=self.classes, channels=s.channels, seed=1000 * self.seed + number
        )

    def taught(
        self, images: Array, targets: Array, *, number: int, start: nn.Module | None = None
    ) -> nn.Module:
        """A network trained without privacy on images and soft targets."""
        return segmentation.train(
            self.fresh(number) if start is None else copy.deepcopy(start),
            segmentation.volumes_of(images),
            torch.as_tensor(targets, dtype=torch.float32),
            self.settings.recipe,
            seed=1000 * self.seed + number,
        )

    def probabilities(self, network: nn.Module, images: Array) -> NDArray[np.float32]:
        """Of whole volumes, by sliding windows."""
        return self.segmenter.predictor(network)(images)

    def teacher(self, k: int) -> nn.Module:
        """Trained on shard k alone."""
        s = self.settings
        shard = self.private.take(range(k * s.shard, (k + 1) * s.shard))
        maps = segmentation.soft_targets(shard.labels, self.classes).numpy()
        return self.kept(f"teacher-{k}", lambda: self.taught(shard.images, maps, number=k))

    def control(self) -> nn.Module:
        """Trained on the public volumes and their labels, twice as long as a teacher."""

        def train() -> nn.Module:
            first = self.taught(self.public.images, self.truth, number=100)
            return self.taught(self.public.images, self.truth, number=101, start=first)

        return self.kept("public labels only", train)

    def everything(self) -> nn.Module:
        """Trained on private and public volumes without privacy, twice as long as a teacher."""

        def train() -> nn.Module:
            images, maps = self._all()
            first = self.taught(images, maps, number=102)
            return self.taught(images, maps, number=103, start=first)

        return self.kept("non-private", train)

    def _all(self) -> tuple[Array, Array]:
        images = np.concatenate([self.private.images, self.public.images])
        labels = np.concatenate([self.private.labels, self.public.labels])
        return images, segmentation.soft_targets(labels, self.classes).numpy()

    # PATE

    @cached_property
    def answers(self) -> list[NDArray[np.float16]]:
        """What every teacher says about the public volumes: private."""
        return [
            self.probabilities(self.teacher(k), self.public.images).astype(np.float16)
            for k in range(self.settings.teachers)
        ]

    def pca(self, epsilon: float) -> Reducer:
        """Components of the public label maps, as many as are worth their noise."""
        return PCAReducer.fit(self.truth, noise=self.unit_noise(epsilon))

    def autoencoder(self, epsilon: float) -> Reducer:
        """Taught with the public label maps under the noise that will be added."""
        s = self.settings
        return ShapeReducer.fit(
            self.truth, noise=self.unit_noise(epsilon), dimension=s.dimension, widths=s.widths,
            steps=s.reducer_steps, seed=self.seed,
        )  # fmt: skip

    def unit_noise(self, epsilon: float) -> float:
        """sigma for codes of length 1; none for an infinite budget."""
        s = self.settings
        if math.isinf(epsilon):
            return 0.0
        return unit_noise(teachers=s.teachers, queries=s.public, epsilon=epsilon, delta=s.delta)

    def noisy(self, reducer: Reducer, epsilon: float) -> tuple[Array, NoisyAnswers | None]:
        """Labels for the public volumes, and the release they come from (None without noise)."""
        name = inputs_name(self.public.images)
        sent = [
            Answers.clipped(
                reducer.encode(maps), radius=reducer.radius, site=f"site-{k}",
                reducer=reducer.name, queries=name,
            )
            for k, maps in enumerate(self.answers)
        ]  # fmt: skip
        if math.isinf(epsilon):
            return reducer.decode(np.mean([a.codes() for a in sent], axis=0)), None
        delta = self.settings.delta
        pate = PATE(
            teachers=self.segmenter, student=self.segmenter, reducer=reducer, epsilon=epsilon,
            delta=delta, ledger=shard_ledger(epsilon=epsilon, delta=delta),
        )  # fmt: skip
        kind = type(reducer).__name__
        found = pate.aggregate(sent, rng=seeded(self.seed).child(kind, f"{epsilon:g}"))
        return reducer.decode(found.codes, noise=found.noise), found

    def student(self, name: str, labels: Array) -> nn.Module:
        """Trained on the public volumes and what was answered, the likeliest class of each voxel.

        Soft Dice has its best answer at hard maps even where targets are soft, so we harden first.
        """
        maps = segmentation.soft_targets(labels.argmax(axis=1), self.classes).numpy()
        return self.kept(name, lambda: self.taught(self.public.images, maps, number=200))

    def with_public_labels(self, name: str, student: nn.Module) -> nn.Module:
        """A student that goes on to learn from the public labels."""
        return self.kept(
            f"{name}, then public labels",
            lambda: self.taught(self.public.images, self.truth, number=201, start=student),
        )

    # DP-SGD

    def dpsgd(self, epsilon: float, start: nn.Module | None) -> tuple[nn.Module, Guarantee]:
        """The same U-Net by DP-SGD, a volume is a record.

        From fresh weights on private and public volumes (the paper's baseline), or from a network
        trained on public labels, on the private volumes.
        """
        s = self.settings
        images, maps = (
            self._all()
            if start is None
            else (
                self.private.images,
                segmentation.soft_targets(self.private.labels, self.classes).numpy(),
            )
        )
        packed = torch.cat(
            [segmentation.volumes_of(images), torch.as_tensor(maps, dtype=torch.float32)], dim=1
        )
        network = self.fresh(300) if start is None else copy.deepcopy(start)
        optimizer = torch.optim.Adam(network.parameters(), lr=s.dpsgd_learning_rate)
        schedule = Schedule.for_budget(
            epsilon=epsilon, delta=s.delta, steps=s.dpsgd_steps, sample_rate=s.dpsgd_rate,
            clipping_bound=s.dpsgd_bound,
        )  # fmt: skip

        def augment(rows: Tensor, generator: torch.Generator) -> Tensor:
            return segmentation.random_patches(rows, s.recipe, generator)

        with private(
            network.train(), optimizer, packed, schedule, delta=s.delta, n_public=len(packed),
            rng=seeded(self.seed).child("dpsgd"), augment=augment, micro_batch=8,
        ) as training:  # fmt: skip
            for batch in training:
                logits = network(batch.x[:, :1])
                training.step(segmentation.dice_and_entropy(logits, batch.x[:, 1:]))
        return network.eval(), training.guarantee

    # Scores

    def dice(self, probabilities: Array) -> list[float]:
        """By class but the background, mean over test volumes."""
        found = segmentation.dice(probabilities.argmax(axis=1), self.test.labels, self.classes)
        return [float(x) for x in found.mean(axis=0)]

    def score(self, network: nn.Module) -> list[float]:
        """Of a network on the test volumes."""
        return self.dice(self.probabilities(network, self.test.images))

    def label_dice(self, labels: Array) -> list[float]:
        """Of answered labels against the public truth."""
        found = segmentation.dice(labels.argmax(axis=1), self.public.labels, self.classes)
        return [float(x) for x in found.mean(axis=0)]
