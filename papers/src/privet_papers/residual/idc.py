"""Invasive Ductal Carcinoma patches from a folder, split by patient."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privet.data.data_folder import damaged_file
from privet.data.dataset import Dataset
from privet.errors import MissingFile

TRAINING, TEST = 39_952, 43_420
"""Patches in the paper's training and test parts."""
CLASS_COUNTS = {"whole": (198_738, 78_786), "training": (29_164, 10_788), "test": (31_825, 11_595)}
"""Patches without and with carcinoma, as the paper prints them."""
_SIDE = 50


def idc(folder: Path, *, training: int = TRAINING, test: int = TEST) -> Dataset:
    """Patches of 50x50 in colour, 0 without and 1 with carcinoma, from FOLDER/idc.

    The layout is that of the published archive: idc/PATIENT/0/*.png and idc/PATIENT/1/*.png, or the
    same one or two folders further down (idc/IDC_regular_ps50_idx5/PATIENT/...). Whole patients, in
    the order of their names, fill the training part until it has `training` patches, then the test
    part, so that no patient is in both (the paper does not give its patients). Where there are
    fewer patches than that in all, both parts shrink in proportion; one patient is not enough.
    Within a part patches stand in a fixed random order: the first thousand are of many patients.
    Patches at the edge of a slide, which are smaller, are padded with white.

    **Assumes** a patch as the unit: patches of one patient are many records, so a guarantee per
    record is not one per patient.
    """
    root = folder / "idc"
    counts = _patients(root)
    if len(counts) < 2:
        raise MissingFile(
            root,
            "put the archive's patients there, two at least, as idc/PATIENT/0/*.png and "
            f"idc/PATIENT/1/*.png; {len(counts)} found",
        )
    whole = sum(counts.values())
    if whole < training + test:
        largest = whole - min(counts.values())  # leaves a patient for the test
        training = min(largest, max(1, whole * training // (training + test)))
    patients = list(counts)
    parts: list[list[tuple[Path, int]]] = [[], []]
    for patient in patients:
        where = 0 if len(parts[0]) < training else 1
        if where == 1 and len(parts[1]) >= test:
            break
        for label in (0, 1):
            found = sorted((patient / str(label)).glob("*.png"))
            parts[where].extend((path, label) for path in found)
    (x_train, y_train), (x_test, y_test) = map(_shuffled, parts)
    return Dataset(
        name="idc",
        about=f"IDC: {len(x_train):,} + {len(x_test):,} patches of 50x50 in colour, by patient",
        classes=("no carcinoma", "carcinoma"),
        low=np.array(0),
        high=np.array(255),
        x_train=x_train,
        y_train=y_train,
        x_test=x_test,
        y_test=y_test,
    )


def _shuffled(part: list[tuple[Path, int]]) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Patches and labels in one fixed random order, so that the first ones are of all patients."""
    order = np.random.default_rng(0).permutation(len(part))
    chosen = [part[k] for k in order]
    labels = np.array([label for _, label in chosen], dtype=np.int64)
    return _patches([path for path, _ in chosen]), labels


def _patients(root: Path) -> dict[Path, int]:
    """Folders that have a folder 0 or 1, by name, and how many patches each has."""
    for depth in ("*", "*/*", "*/*/*"):
        found = sorted(p for p in root.glob(depth) if (p / "0").is_dir() or (p / "1").is_dir())
        counts = {p: sum(1 for label in "01" for _ in (p / label).glob("*.png")) for p in found}
        if any(counts.values()):
            return {p: n for p, n in counts.items() if n}
    return {}


def _patches(paths: list[Path]) -> NDArray[Any]:
    from PIL import Image, UnidentifiedImageError

    out = np.full((len(paths), _SIDE, _SIDE, 3), 255, dtype=np.uint8)
    for own, path in zip(out, paths, strict=True):
        try:
            with Image.open(path) as picture:
                pixels = np.asarray(picture.convert("RGB"))[:_SIDE, :_SIDE]
        except (OSError, UnidentifiedImageError) as error:
            raise damaged_file(path, f"not a readable picture ({error})") from None
        own[: pixels.shape[0], : pixels.shape[1]] = pixels
    return out
