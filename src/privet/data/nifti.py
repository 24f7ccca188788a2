"""NIfTI files: volumes with a class for every voxel, from a folder."""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privet import _check
from privet.data.data_folder import damaged_file, data_folder, find
from privet.data.volumes import Grid, Volumes, crop_or_pad, standardise
from privet.errors import InvalidArgument, PrivetError

HIPPOCAMPUS_GRID: Grid = (32, 56, 40)
"""Holds every labelled voxel of the hippocampus set, and can be halved three times."""


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
        raise damaged_file(found, str(error)) from None
    if voxels.ndim == 4 and voxels.shape[3] == 1:
        voxels = voxels[..., 0]
    if voxels.ndim not in (3, 4):
        raise damaged_file(
            found, f"three axes wanted, or four with channels; it has {voxels.shape}"
        )
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
        images=_stack(place / images, [image for image, _ in pairs]),
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
        raise damaged_file(
            label_path, f"not on the grid of its image: {label.shape}, {image.shape}"
        )
    if not np.isfinite(image).all():
        raise damaged_file(path, "NaN or infinite voxels")
    if not np.isin(label, np.arange(len(classes))).all():
        raise damaged_file(label_path, f"labels other than 0 to {len(classes) - 1}")
    placed = crop_or_pad(label.astype(np.uint8), grid)
    lost = int(np.count_nonzero(label)) - int(np.count_nonzero(placed))
    if lost:
        raise InvalidArgument(
            "grid", grid, f"large enough for {path.name}", f"{lost} labelled voxels fall outside"
        )
    return _placed(image, grid), placed


def _placed(image: NDArray[Any], grid: Grid) -> NDArray[np.float32]:
    """A picture of one channel or several, each standardised by itself, on the grid."""
    if image.ndim == 3:
        return crop_or_pad(standardise(image), grid)
    return np.stack([crop_or_pad(standardise(channel), grid) for channel in image])


def nifti_files(folder: Path) -> list[Path]:
    """The NIfTI files of a folder, by name."""
    return [p for p in sorted(folder.glob("*.nii*")) if not p.name.startswith(".")]


def load_images(folder: Path, *, grid: Grid) -> NDArray[np.float32]:
    """The pictures of a folder without labels, standardised, on a declared grid."""
    found = nifti_files(folder)
    if not found:
        find("*.nii.gz", folder=folder)
    return _stack(folder, [_placed(read_nifti(path)[0], grid) for path in found])


def _stack(folder: Path, pictures: list[NDArray[np.float32]]) -> NDArray[np.float32]:
    """Pictures on one grid as an array."""
    if len({p.shape for p in pictures}) > 1:
        raise damaged_file(folder, "its files have different numbers of channels")
    return np.stack(pictures)


def load_labels(folder: Path, *, grid: Grid) -> NDArray[np.uint8]:
    """The label maps of a folder, class numbers on a declared grid."""
    found = nifti_files(folder)
    if not found:
        find("*.nii.gz", folder=folder)
    return np.stack([crop_or_pad(read_nifti(path)[0].astype(np.uint8), grid) for path in found])


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
        raise damaged_file(index, f"labels by their number are wanted ({error})") from None
    if numbers != list(range(len(numbers))):
        raise damaged_file(index, f"labels are {numbers}, not 0, 1, 2, ...")
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
