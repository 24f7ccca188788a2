"""Data sets from arrays: in memory, .npz and .npy files; and the checks that all files share."""

from __future__ import annotations

import json
import os
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privet.data.data_folder import damaged_file
from privet.data.dataset import Dataset
from privet.data.table_columns import check_pair
from privet.errors import InvalidArgument, MissingFile

Classes = Sequence[str] | Mapping[str, int]
"""The names of the labels: by their numbers, or in the order 0, 1, 2, ..."""


def load_npz(
    path: str | os.PathLike[str],
    *,
    bounds: tuple[Any, Any],
    classes: Classes = (),
    target_bounds: tuple[float, float] | None = None,
) -> Dataset:
    """A data set from an npz file with the arrays that `from_arrays` wants; no object arrays."""
    place = Path(path)
    if not place.is_file():
        raise MissingFile(place, "give the path of an npz file")
    return from_arrays(
        read_npz(place, None), bounds=bounds, classes=classes, target_bounds=target_bounds,
        name=place.stem, about=place.name, place=place,
    )  # fmt: skip


def from_arrays(
    arrays: Mapping[str, Any],
    *,
    bounds: tuple[Any, Any],
    classes: Classes = (),
    target_bounds: tuple[float, float] | None = None,
    name: str = "arrays",
    about: str = "arrays of your own",
    place: Path = Path("arrays"),
) -> Dataset:
    """A data set from arrays x_train, y_train, x_test, y_test, or with the names of MedMNIST.

    MedMNIST's `train_images` and `val_images` are trained on together, which `notes` tell. Labels
    may be a column, of shape (n, 1). `bounds` is (low, high): numbers, or arrays with one entry for
    each feature. `classes` says which label has which name, {"low": 0, "high": 1}; a list names the
    labels 0, 1, 2, ... in its order, which `notes` tell, and names that are numbers are the labels.

    >>> a = {"x_train": [[1.0], [9.0]], "y_train": [[0], [1]], "x_test": [[2.0]], "y_test": [0]}
    >>> from_arrays(a, bounds=(0, 10), classes=("low", "high")).y_train.tolist()
    [0, 1]
    """
    found = {key: np.asarray(value) for key, value in arrays.items()}
    notes: list[str] = []
    if "train_images" in found:
        if "val_images" in found:
            n = len(found["val_images"])
            notes.append(f"the {n} records of MedMNIST's validation part are trained on")
        found = _rename_medmnist(found)
    for key in ("x_train", "y_train", "x_test", "y_test"):
        if key not in found:
            raise damaged_file(place, f"it has no array {key!r}, only {', '.join(found)}")
        if key.startswith("x"):
            _check_numbers(place, key, found[key])
        elif found[key].ndim == 2 and found[key].shape[1] == 1:
            found[key] = found[key][:, 0]
    if classes:
        names, values = _names_of_labels(classes, notes)
        for key in ("y_train", "y_test"):
            found[key] = _label_places(place, key, found[key], values)
        classes = names
    data = Dataset(
        name=name,
        about=about,
        notes=tuple(notes),
        classes=tuple(map(str, classes)),
        target_bounds=target_pair(target_bounds, classes),
        low=bounds[0],
        high=bounds[1],
        x_train=found["x_train"],
        y_train=found["y_train"],
        x_test=found["x_test"],
        y_test=found["y_test"],
    )
    check_labels(place, data.y_train, data.classes)
    return data


def _names_of_labels(classes: Classes, notes: list[str]) -> tuple[tuple[str, ...], list[int]]:
    """The classes by name, and the label of each; a note tells where only their order says it."""
    if isinstance(classes, Mapping):
        values = list(classes.values())
        if len(set(values)) < len(values) or not all(type(v) is int for v in values):
            raise InvalidArgument("classes", dict(classes), "a whole number for each name")
        return tuple(map(str, classes)), values
    names = tuple(map(str, classes))
    try:
        return names, [int(name) for name in names]
    except ValueError:
        listed = ", ".join(f"{k} is {name!r}" for k, name in enumerate(names))
        example = json.dumps({name: k for k, name in enumerate(names)})
        notes.append(f"by the order of `classes`, label {listed}; to be sure, declare {example}")
        return names, list(range(len(names)))


def _label_places(place: Path, name: str, y: NDArray[Any], values: list[int]) -> NDArray[Any]:
    """The place of each label among the classes."""
    if values == list(range(len(values))):
        return y  # the data set checks them
    if len(y) and not np.isin(y, values).all():
        other = y[~np.isin(y, values)][0]
        raise damaged_file(place, f"{name} has a label {other}; declared are {values}")
    order = np.argsort(values)
    return np.asarray(order[np.searchsorted(np.sort(values), y)], dtype=np.int64)


def _rename_medmnist(found: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """MedMNIST's arrays under our names."""
    parts = {}
    for ours, theirs in (("x", "images"), ("y", "labels")):
        kept = [
            found[f"{part}_{theirs}"] for part in ("train", "val") if f"{part}_{theirs}" in found
        ]
        parts[f"{ours}_train"] = np.concatenate(kept)
        parts[f"{ours}_test"] = found.get(f"test_{theirs}", kept[0][:0])
    return parts


def _check_numbers(place: Path, name: str, x: NDArray[Any]) -> None:
    if not np.issubdtype(x.dtype, np.number):
        raise damaged_file(place, f"{name} holds {x.dtype}, not numbers")
    if not np.isfinite(x).all():
        raise damaged_file(
            place, f"{name} has values that are not finite; fill or drop those records"
        )


def read_npz(path: Path, names: tuple[str, ...] | None) -> dict[str, NDArray[Any]]:
    """The named arrays of an npz file, or all; objects (pickles) are refused."""
    try:
        with np.load(path, allow_pickle=False) as archive:
            names = tuple(archive.files) if names is None else names
            missing = [name for name in names if name not in archive.files]
            if missing:
                raise damaged_file(
                    path, f"it has no array {missing[0]!r}, only {', '.join(archive.files)}"
                )
            return {name: archive[name] for name in names}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        if "it has no array" in str(error):
            raise
        raise damaged_file(path, f"not a readable npz file ({error})") from None


def read_records(path: Path) -> NDArray[Any]:
    """Records from .npy, or the array x of .npz; numbers that are finite, nothing pickled."""
    if not path.is_file():
        raise MissingFile(path, "give a .npy file, or an .npz file with an array x")
    if path.suffix == ".npz":
        x = read_npz(path, ("x",))["x"]
    elif path.suffix == ".npy":
        try:
            x = np.load(path, allow_pickle=False)
        except (OSError, ValueError, EOFError) as error:
            raise damaged_file(path, f"not a readable npy file ({error})") from None
    else:
        raise InvalidArgument("file", str(path), "a .npy file, or an .npz file with an array x")
    if not np.issubdtype(x.dtype, np.number) or not np.isfinite(x).all() or x.ndim < 2:
        raise damaged_file(path, "records must be rows of finite numbers")
    return x


def target_pair(bounds: Any, classes: Classes) -> tuple[float, float] | None:
    """The declared range of a number to predict; None where classes are predicted."""
    if (bounds is None) != bool(classes):
        raise InvalidArgument(
            "target_bounds", bounds, "given for a number to predict, or classes for classes",
            "one of the two",
        )  # fmt: skip
    if bounds is None:
        return None
    check_pair("target", bounds)
    return float(bounds[0]), float(bounds[1])


def check_labels(path: Path, y: NDArray[Any], classes: tuple[str, ...]) -> None:
    """Refuse a file without records, or whose records are all of one class."""
    found = np.unique(y)
    if len(found) == 0:
        raise damaged_file(path, "it has no records")
    if len(found) == 1:
        only = classes[found[0]] if classes else found[0]
        problem = f"all its labels are {only!r}, and there is nothing to learn"
        raise damaged_file(path, f"{problem}; see that the right column is named as the label")


def check_parts(path: Path, train: int, test: int) -> None:
    """Refuse a split that leaves a part empty."""
    if not (train and test):
        problem = f"too few different records ({train + test}) to keep some for tests"
        raise damaged_file(
            path, f"{problem}; a number of its own, under `ignore`, tells copies apart"
        )
