"""Volumes with a class for every voxel: NIfTI files from a folder, or generated ones."""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from privet import _check
from privet.data.files import damaged, data_folder, find
from privet.errors import InvalidArgument, PrivetError

Grid = tuple[int, int, int]

HIPPOCAMPUS_GRID: Grid = (32, 56, 40)
"""Holds every labelled voxel of the hippocampus set, and can be halved three times."""


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Volumes:
    """Images and label maps on one grid.

    `images` is (n, x, y, z), or (n, channels, x, y, z), each channel with mean 0 and variance 1 *of
    its own voxels*: what happens to one record depends on that record alone. `labels` has the
    number of a declared class for every voxel; class 0 is the background.

    >>> made = spheres(3, seed=0)
    >>> made.images.shape, made.classes, made.take([2, 0]).names
    ((3, 16, 16, 16), ('background', 'core', 'shell'), ('sphere_2', 'sphere_0'))
    """

    name: str
    images: NDArray[np.float32]
    labels: NDArray[np.uint8]
    classes: tuple[str, ...]
    names: tuple[str, ...]

    def __post_init__(self) -> None:
        sides = self.images.shape[-3:]
        if self.images.ndim not in (4, 5) or (len(self.images), *sides) != self.labels.shape:
            raise InvalidArgument(
                "labels", self.labels.shape, f"a map for each volume, {self.images.shape}"
            )
        if len(self.names) != len(self.images):
            raise InvalidArgument("names", len(self.names), f"{len(self.images)} names")
        if not np.isfinite(self.images).all():
            raise InvalidArgument("images", "NaN or infinity", "finite voxels")
        if self.labels.size and int(self.labels.max()) >= len(self.classes):
            raise InvalidArgument(
                "labels", int(self.labels.max()), f"below {len(self.classes)}, declared classes"
            )

    def __len__(self) -> int:
        return len(self.images)

    @property
    def grid(self) -> Grid:
        """Voxels along each axis."""
        x, y, z = self.labels.shape[1:]
        return x, y, z

    @property
    def channels(self) -> int:
        """Pictures of each volume (modalities)."""
        return 1 if self.images.ndim == 4 else int(self.images.shape[1])

    def take(self, indices: Sequence[int] | NDArray[np.int64]) -> Volumes:
        """The volumes with these numbers, in this order."""
        chosen = np.asarray(indices, dtype=np.int64)
        return replace(
            self,
            images=self.images[chosen],
            labels=self.labels[chosen],
            names=tuple(self.names[i] for i in chosen),
        )


def standardised(volume: NDArray[Any]) -> NDArray[np.float32]:
    """Mean 0 and variance 1 over the volume's own voxels; a constant volume becomes zeros.

    >>> standardised(np.array([1.0, 3.0, 3.0, 1.0])).tolist()
    [-1.0, 1.0, 1.0, -1.0]
    """
    values = np.asarray(volume, dtype=np.float64)
    spread = float(values.std())
    out: NDArray[np.float64] = (values - values.mean()) / (spread if spread > 0.0 else 1.0)
    return out.astype(np.float32)


def to_grid(volume: NDArray[Any], grid: Grid) -> NDArray[Any]:
    """The volume in the middle of a grid: cut where it is longer, zeros where it is shorter.

    >>> to_grid(np.ones((1, 3, 1), dtype=int), (3, 1, 1))[:, 0, 0].tolist()
    [0, 1, 0]
    """
    if volume.ndim != len(grid):
        raise InvalidArgument("volume", volume.shape, f"of {len(grid)} axes")
    out = np.zeros(grid, dtype=volume.dtype)
    source, target = [], []
    for have, want in zip(volume.shape, grid, strict=True):
        both, before = min(have, want), abs(want - have) // 2
        cut, padded = (before, 0) if have > want else (0, before)
        source.append(slice(cut, cut + both))
        target.append(slice(padded, padded + both))
    out[tuple(target)] = volume[tuple(source)]
    return out


def read_nifti(path: str | os.PathLike[str]) -> tuple[NDArray[Any], NDArray[np.float64]]:
    """Voxels of a NIfTI file, axes turned to right, anterior, superior, and the affine.

    Several channels, the fourth axis of a file, come first.
    """
    try:
        import nibabel
    except ImportError:
        raise PrivetError(
            "reading NIfTI files needs nibabel: pip install 'privet[segmentation]'"
        ) from None
    from nibabel.filebasedimages import ImageFileError

    file = Path(path)
    found = find(file.name, folder=file.parent)
    try:
        turned: Any = nibabel.as_closest_canonical
        picture = turned(nibabel.load(found))
        voxels = np.asanyarray(picture.dataobj)
    except (ImageFileError, EOFError, OSError, ValueError, zlib.error) as error:
        raise damaged(found, str(error)) from None
    if voxels.ndim == 4 and voxels.shape[3] == 1:
        voxels = voxels[..., 0]
    if voxels.ndim not in (3, 4):
        raise damaged(found, f"three axes wanted, or four with channels; it has {voxels.shape}")
    voxels = np.moveaxis(voxels, 3, 0) if voxels.ndim == 4 else voxels
    return voxels, np.asarray(picture.affine, dtype=np.float64)


def load_volumes(
    folder: str | os.PathLike[str],
    *,
    classes: Sequence[str],
    grid: Grid,
    images: str = "imagesTr",
    labels: str = "labelsTr",
    limit: int | None = None,
) -> Volumes:
    """A folder as the Medical Segmentation Decathlon lays it out: two folders, equal file names.

    `classes` and `grid` are declared, not read from the files. A volume whose labelled voxels do
    not fit into the grid is refused by name, so that a Dice on the grid is a Dice on the volume.
    """
    place = Path(folder)
    most = None if limit is None else _check.count("limit", limit)
    paths = nifti_files(place / images)[:most]
    if not paths:
        find(f"{images}/*.nii.gz", folder=place)
    pairs = [_pair(path, place / labels / path.name, classes=classes, grid=grid) for path in paths]
    return Volumes(
        name=place.name,
        images=np.stack([image for image, _ in pairs]),
        labels=np.stack([label for _, label in pairs]),
        classes=tuple(classes),
        names=tuple(path.name.split(".nii")[0] for path in paths),
    )


def _pair(
    path: Path, label_path: Path, *, classes: Sequence[str], grid: Grid
) -> tuple[NDArray[np.float32], NDArray[np.uint8]]:
    image, where = read_nifti(path)
    label, label_where = read_nifti(label_path)
    if image.shape[-3:] != label.shape or not np.allclose(where, label_where, atol=1e-3):
        raise damaged(label_path, f"not on the grid of its image: {label.shape}, {image.shape}")
    if not np.isfinite(image).all():
        raise damaged(path, "NaN or infinite voxels")
    if not np.isin(label, np.arange(len(classes))).all():
        raise damaged(label_path, f"labels other than 0 to {len(classes) - 1}")
    placed = to_grid(label.astype(np.uint8), grid)
    lost = int(np.count_nonzero(label)) - int(np.count_nonzero(placed))
    if lost:
        raise InvalidArgument(
            "grid", grid, f"large enough for {path.name}", f"{lost} labelled voxels fall outside"
        )
    return _placed(image, grid), placed


def _placed(image: NDArray[Any], grid: Grid) -> NDArray[np.float32]:
    """A picture of one channel or several, each standardised by itself, on the grid."""
    if image.ndim == 3:
        return to_grid(standardised(image), grid)
    return np.stack([to_grid(standardised(channel), grid) for channel in image])


def nifti_files(folder: Path) -> list[Path]:
    """The NIfTI files of a folder, by name."""
    return [p for p in sorted(folder.glob("*.nii*")) if not p.name.startswith(".")]


def load_images(folder: Path, *, grid: Grid) -> NDArray[np.float32]:
    """The pictures of a folder without labels, standardised, on a declared grid."""
    found = nifti_files(folder)
    if not found:
        find("*.nii.gz", folder=folder)
    pictures = [_placed(read_nifti(path)[0], grid) for path in found]
    if len({p.shape for p in pictures}) > 1:
        raise damaged(folder, "its files have different numbers of channels")
    return np.stack(pictures)


def load_labels(folder: Path, *, grid: Grid) -> NDArray[np.uint8]:
    """The label maps of a folder, class numbers on a declared grid."""
    found = nifti_files(folder)
    if not found:
        find("*.nii.gz", folder=folder)
    return np.stack([to_grid(read_nifti(path)[0].astype(np.uint8), grid) for path in found])


def decathlon(folder: str | os.PathLike[str], *, grid: Grid, limit: int | None = None) -> Volumes:
    """A task of the Medical Segmentation Decathlon: classes are those that dataset.json names.

    `grid` is declared: large enough for every labelled voxel, and the same for all volumes.
    `limit`: the first so many volumes only.
    """
    index = find("dataset.json", folder=Path(folder))
    try:
        named = json.loads(index.read_text())["labels"]
        numbers = sorted(map(int, named))
    except (ValueError, KeyError, TypeError) as error:
        raise damaged(index, f"labels by their number are wanted ({error})") from None
    if numbers != list(range(len(numbers))):
        raise damaged(index, f"labels are {numbers}, not 0, 1, 2, ...")
    classes = [str(named[str(k)]).lower() for k in numbers]
    return load_volumes(index.parent, classes=classes, grid=grid, limit=limit)


def hippocampus(
    folder: str | os.PathLike[str] | None = None, *, grid: Grid = HIPPOCAMPUS_GRID
) -> Volumes:
    """260 MRI crops around the hippocampus, 1 mm voxels: anterior and posterior part.

    Medical Segmentation Decathlon, task 4 (Simpson et al. 2019), CC BY-SA 4.0; read from
    `folder`, `$PRIVET_DATA` or the download folder.
    """
    index = find("Task04_Hippocampus/dataset.json", folder=data_folder(folder))
    return replace(decathlon(index.parent, grid=grid), name="hippocampus")


def spheres(n: int, *, seed: int, grid: Grid = (16, 16, 16)) -> Volumes:
    """Generated volumes: a bright ball in a grey shell, off centre, under noise.

    >>> made = spheres(2, seed=1)
    >>> sorted(set(made.labels.ravel().tolist())), bool((made.images[0] != made.images[1]).any())
    ([0, 1, 2], True)
    """
    count = _check.count("n", n)
    rng = np.random.default_rng(_check.count("seed", seed, minimum=0))
    axes = np.meshgrid(*(np.linspace(-1.0, 1.0, side) for side in grid), indexing="ij")
    images, labels = [], []
    for _ in range(count):
        centre, size = rng.uniform(-0.25, 0.25, size=3), rng.uniform(0.5, 0.7)
        away = np.sqrt(sum((axis - c) ** 2 for axis, c in zip(axes, centre, strict=True)))
        label = np.where(away < 0.6 * size, 1, np.where(away < size, 2, 0)).astype(np.uint8)
        image = np.array([0.0, 2.0, 1.0])[label] + rng.normal(0.0, 0.3, size=grid)
        images.append(standardised(image))
        labels.append(label)
    return Volumes(
        name="spheres",
        images=np.stack(images),
        labels=np.stack(labels),
        classes=("background", "core", "shell"),
        names=tuple(f"sphere_{i}" for i in range(count)),
    )
