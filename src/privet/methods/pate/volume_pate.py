"""PATE for volumes in folders: a class for every voxel, U-Nets as teachers and student."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Self, final

import numpy as np
from numpy.typing import NDArray

from privet import _check
from privet.data.dataset import Dataset
from privet.data.domain import RowKind, Rows
from privet.data.nifti import decathlon, load_images, nifti_files
from privet.data.records import PublicFacts, Records
from privet.errors import InvalidArgument
from privet.methods.contract import Files, InputFeatures, setting
from privet.methods.neighbouring_pairs import NeighbouringPair
from privet.methods.pate.learner_adapters import (
    FunctionLearner,
    Learner,
    ModulePredictor,
    Predictor,
)
from privet.methods.pate.mean_aggregation import unit_noise
from privet.methods.pate.pca_reducer import PCAReducer
from privet.methods.pate.pipeline import CodeAggregation
from privet.methods.pate.single_machine_pate import PATEPlan, ShardedPATE
from privet.methods.pate.target_spaces import ClassProbabilities
from privet.networks import segmentation
from privet.networks.architectures import VolumeStudent, on_one_grid
from privet.networks.segmentation import SHORT_RECIPE, SMALL_CHANNELS, Grid

Array = NDArray[Any]
RANGE = 5.0
"""Voxels are standardised by their own volume; what is more deviations away is held there: of
normal voxels one in two million."""
TEST_EVERY = 5
"""One volume in so many is kept for tests, a fifth as is usual."""


@final
@dataclass(frozen=True, kw_only=True)
class VolumeLearner(Learner):
    """A U-Net taught on patches; it answers for whole volumes, and can be saved as a student.

    Taught with label maps, or with probabilities, of which the likeliest class of a voxel counts:
    soft Dice has its best answer at hard maps.
    """

    classes: int
    channels: tuple[int, ...] = SMALL_CHANNELS
    steps: int = SHORT_RECIPE.steps
    epochs: int | None = None
    """Passes over the inputs, in place of `steps`."""
    patch: Grid = (32, 32, 32)
    watcher: Callable[[int, int], None] | None = field(default=None, repr=False)
    """Called after every step with how many are done, and of how many."""

    @staticmethod
    def suits(input_shape: tuple[int, ...], target_shape: tuple[int, ...]) -> bool:
        """Whether targets are maps of volumes that a U-Net can halve twice, and MONAI is there."""
        sides = target_shape[1:]
        halved = len(sides) == 3 and not any(side % 4 for side in sides)
        installed = importlib.util.find_spec("monai") is not None
        return halved and on_one_grid(input_shape, target_shape) and installed

    def train(self, inputs: Any, targets: Any, *, seed: int) -> Predictor:
        x, y = np.asarray(inputs, dtype=np.float32), np.asarray(targets)
        sides = x.shape[-3:]
        student = VolumeStudent(
            shape=x.shape[1:], targets=(self.classes, *sides), channels=self.channels, seed=seed
        )
        if len(x):  # a shard without a sound volume has a teacher that knows nothing
            maps = y.argmax(axis=1) if y.ndim == len(sides) + 2 else y
            recipe = replace(SHORT_RECIPE, steps=self.steps, patch=self.patch)
            if self.epochs is not None:
                passes = _check.count("epochs", self.epochs)
                recipe = replace(recipe, steps=math.ceil(passes * len(x) / recipe.batch_size))
            volumes = segmentation.volumes_of(VolumeStudent.centred(x))
            soft = segmentation.soft_targets(maps, self.classes)
            report = self.watcher or (lambda done, of: None)
            segmentation.train(
                student.unet, volumes, soft, recipe, seed=seed,
                watcher=lambda step, loss: report(step + 1, recipe.steps),
            )  # fmt: skip
        return ModulePredictor(module=student.eval())


@final
@dataclass(frozen=True, kw_only=True)
class VolumeFiles(Files):
    """A folder as the Medical Segmentation Decathlon lays it out: dataset.json, NIfTI files."""

    record: ClassVar[str] = "volume"

    grid: tuple[int, ...] = setting(
        (), help="Of a folder of NIfTI files: voxels that hold every label, 32,56,40."
    )
    dimension: int | None = setting(None, help="Numbers in the code of a map; by rule.")
    channels: tuple[int, ...] = setting(SMALL_CHANNELS, help="Of U-Nets, a number a level.")
    unet_steps: int = setting(
        SHORT_RECIPE.steps, help="Of every U-Net on volumes; they cost no privacy."
    )
    patch: int = setting(32, help="Voxels a side of what a U-Net is taught with at a time.")

    @classmethod
    def takes(cls, data: Path) -> bool:
        """Whether a path is a folder with imagesTr in it."""
        return (data / "imagesTr").is_dir()

    def read_training(
        self, data: Path, declaration: Path | None, method: Any
    ) -> tuple[Any, Dataset]:
        """One volume in five, by its place, is kept for tests."""
        if declaration is not None:
            raise InvalidArgument(
                "--bounds", str(declaration), "left out: dataset.json and --grid declare volumes"
            )
        folder = decathlon(data, grid=self._sides())
        test = np.arange(len(folder)) % TEST_EVERY == TEST_EVERY - 1
        learner = VolumeLearner(
            classes=len(folder.classes), channels=self.channels, patch=(self.patch,) * 3,
            steps=_check.count("--unet-steps", self.unet_steps),
        )  # fmt: skip
        volume_method = VolumePATE(
            teachers=method.teachers, queries=method.queries, backend=method.backend,
            workers=method.workers, dimension=self.dimension, teacher=learner, student=learner,
        )  # fmt: skip
        return volume_method, Dataset(
            name=folder.name, about="volumes with a class for every voxel", classes=folder.classes,
            low=np.array(-RANGE), high=np.array(RANGE),
            x_train=folder.images[~test], y_train=folder.labels[~test],
            x_test=folder.images[test], y_test=folder.labels[test],
        )  # fmt: skip

    def read_inputs(
        self, data: Path, declaration: Path | None, method: Any, shape: tuple[int, ...]
    ) -> tuple[Array, list[str]]:
        """The pictures of a folder, or those in its imagesTs."""
        place = data / "imagesTs" if (data / "imagesTs").is_dir() else data
        x, y, z = shape[-3:]
        return load_images(place, grid=(x, y, z)), [p.name for p in nifti_files(place)]

    def _sides(self) -> Grid:
        halved = 2 ** (len(self.channels) - 1)
        if len(self.grid) != 3 or any(side < 1 or side % halved for side in self.grid):
            raise InvalidArgument(
                "--grid", ",".join(map(str, self.grid)) or None,
                f"three numbers of voxels such as 32,56,40, multiples of {halved}",
            )  # fmt: skip
        x, y, z = self.grid
        return x, y, z


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class VolumePATE(ShardedPATE):
    """A student U-Net taught by noisy codes of the maps that many teachers draw.

    `public_inputs` and `public_maps`: volumes with their labels that are public. Principal
    components of the maps make the codes; the student learns the inputs with the answers.

    **Guarantee**: replace-one, per teacher shard. **Assumes** that both are public.

    Fay, Sjoelund and Oechtering (2020), algorithm 1.
    """

    name: ClassVar[str] = "pate-of-volumes"
    input_features: ClassVar[InputFeatures] = InputFeatures.NONE
    files: ClassVar[type[Files] | None] = VolumeFiles
    audit_shape: ClassVar[tuple[int, ...]] = (1, 4, 4, 4)
    public_labels_field: ClassVar[str | None] = "public_maps"

    public_maps: Any = setting(None, help="Class numbers of the public inputs.", option=False)
    dimension: int | None = setting(None, help="Numbers in a code; by default by eq. 7.")

    @classmethod
    def for_audit(cls) -> Self:
        """Four teachers who say what they were shown, as far from one another as maps can be."""
        shape = (4, *cls.audit_shape)
        blank = Rows(values=np.zeros(shape, np.float32), kind=RowKind.BALL, null=np.zeros(4, bool))
        maps = np.tile([0, 1, 0, 1], (4, 4, 4, 1)).T
        return cls(
            public_inputs=blank, public_maps=maps, teachers=4, dimension=1, backend="threading",
            teacher=FunctionLearner(function=_repeat_first_map),
            student=VolumeLearner(classes=2, channels=(1, 2), steps=1, patch=(4, 4, 4)),
        )  # fmt: skip

    def neighbours(self, plan: PATEPlan) -> NeighbouringPair:
        """A shard all of whose voxels are of class 0, or of class 1; all others are null."""
        worst = super().neighbours(plan)

        def of_voxels(records: Records) -> Records:
            whole = (len(records), *(plan.facts.shape or ())[-3:])
            targets = records.targets[:, None, None, None]
            return replace(records, targets=np.broadcast_to(targets, whole))

        return NeighbouringPair(present=of_voxels(worst.present), absent=of_voxels(worst.absent))

    def sizes(self, facts: PublicFacts) -> tuple[int, int]:
        """Teachers as for classes; all public volumes are asked about: codes are short."""
        teachers, _ = super().sizes(facts)
        return teachers, self.queries or len(self.public_inputs)

    def plan(self, facts: PublicFacts) -> PATEPlan:
        """Components of public maps, as many as are worth their noise."""
        teachers, queries = self.sizes(facts)
        noise = unit_noise(
            teachers=teachers, queries=queries, epsilon=facts.epsilon, delta=facts.delta
        )
        maps = np.moveaxis(np.eye(facts.outputs, dtype=np.float32)[self.public_maps], -1, 1)
        reducer = PCAReducer.fit(
            maps, noise=noise, components=self.dimension, space=ClassProbabilities(),
            folds=min(5, len(maps)),  # cross-validated on public maps, as usual in five parts
        )  # fmt: skip
        aggregation = CodeAggregation.for_budget(
            reducer=reducer, teachers=teachers, queries=queries, epsilon=facts.epsilon,
            delta=facts.delta,
        )  # fmt: skip
        return PATEPlan(
            facts=facts,
            teachers=teachers,
            queries=queries,
            aggregation=aggregation,
            # enough where a tenth of an answer can be heard (`Aggregator.signal_share`)
            signal_numbers=math.ceil(4 * queries * reducer.dimension / 9),
            details={
                "numbers_in_a_code": reducer.dimension,
                "noise_on_codes": aggregation.aggregator.noise,
            },
        )


def _repeat_first_map(inputs: Array, targets: Array, seed: int) -> Predictor:
    """A teacher whose every map is that of its first volume; without any, all is even."""
    one = targets[0] if len(targets) else np.full(inputs.shape[-3:], 0.5)
    p = np.stack([1.0 - one, one]) if one.ndim == 3 else one
    return lambda inputs: np.broadcast_to(p, (len(inputs), *p.shape))
