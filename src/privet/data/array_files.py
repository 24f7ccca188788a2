"""Tables of the user's own: CSV and npz, with bounds, categories and classes declared."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privet.data.columns import Bounds, Columns, Fill
from privet.data.dataset import Dataset
from privet.data.files import damaged
from privet.data.pictures import read_npz
from privet.data.split import BY_CONTENT, sent_to_tests
from privet.errors import InvalidArgument, MissingFile


def load_csv(
    path: str | os.PathLike[str],
    *,
    label: str,
    classes: Sequence[str] = (),
    target_bounds: tuple[float, float] | None = None,
    bounds: Bounds | None = None,
    categories: Mapping[str, Sequence[str]] | None = None,
    ignore: Sequence[str] = (),
    fill: Fill = None,
    user: str | None = None,
    test_path: str | os.PathLike[str] | None = None,
    test_fraction: float = 0.2,
    seed: int = 0,
) -> Dataset:
    """A data set from a CSV file with a header line.

    Numeric columns are those of `bounds` (column -> (low, high)), categorical ones those of
    `categories` (column -> every value that may occur), one-hot coded. The label column holds one
    of `classes`, or a number in `target_bounds`. Every other column must be named in `ignore`, so
    that none is left out by accident. A missing cell counts as `fill` says (column -> value, or
    "middle"), and is an error without. The test part is `test_path`, or the rows that a hash of
    their own cells, those of `ignore` too and the label not, sends there: about `test_fraction`.
    With `user`, the column that says whose a record is, all records of a person go to one part.

    **Assumes**: bounds, categories and classes are known apart from the data; a record's cells are
    its own, none of them its place in the file. Values outside the bounds are kept as they are and
    clipped by `Dataset.train_rows`.
    """
    bounds, categories = dict(bounds or {}), dict(categories or {})
    for name, pair in bounds.items():
        _check_pair(name, pair)
    columns = Columns(
        label, tuple(map(str, classes)), bounds, categories, tuple(ignore), fill=fill,
        target_bounds=target_pair(target_bounds, classes), user=user,
    )  # fmt: skip
    place = Path(path)
    whose: list[str] = []
    if test_path is not None:
        (x, y), _ = columns.read(place)
        whose = list(columns.users)
        (x_test, y_test), _ = columns.read(Path(test_path))
    else:
        goes = sent_to_tests(share=test_fraction, seed=seed)
        (x, y), (x_test, y_test) = columns.read(place, goes)
        whose = columns.users
    check_labels(place, np.concatenate([y, y_test]), columns.classes)
    if test_path is None:
        check_parts(place, len(y), len(y_test))
    low, high = columns.limits()
    return Dataset(
        name=Path(path).stem,
        about=f"{Path(path).name}: {len(columns.names())} features, label {label!r}",
        classes=columns.classes,
        target_bounds=columns.target_bounds,
        low=low,
        high=high,
        feature_names=columns.names(),
        x_train=x,
        y_train=y,
        x_test=x_test,
        y_test=y_test,
        split_assumes=BY_CONTENT,
        groups=None if user is None else np.array(whose),
        user=user,
    )


def load_npz(
    path: str | os.PathLike[str],
    *,
    bounds: tuple[Any, Any],
    classes: Sequence[str] = (),
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
    classes: Sequence[str] = (),
    target_bounds: tuple[float, float] | None = None,
    name: str = "arrays",
    about: str = "arrays of your own",
    place: Path = Path("arrays"),
) -> Dataset:
    """A data set from arrays x_train, y_train, x_test, y_test, or with the names of MedMNIST.

    MedMNIST's `train_images` and `val_images` are trained on together. Labels may be a column, of
    shape (n, 1). `bounds` is (low, high): numbers, or arrays with one entry for each feature.

    >>> told = {"x_train": [[1.0], [9.0]], "y_train": [[0], [1]], "x_test": [[2.0]], "y_test": [0]}
    >>> from_arrays(told, bounds=(0, 10), classes=("low", "high")).y_train.tolist()
    [0, 1]
    """
    found = {key: np.asarray(value) for key, value in arrays.items()}
    if "train_images" in found:
        found = _of_medmnist(found)
    for key in ("x_train", "y_train", "x_test", "y_test"):
        if key not in found:
            raise damaged(place, f"it has no array {key!r}, only {', '.join(found)}")
        if key.startswith("x"):
            _check_numbers(place, key, found[key])
        elif found[key].ndim == 2 and found[key].shape[1] == 1:
            found[key] = found[key][:, 0]
    data = Dataset(
        name=name,
        about=about,
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


def _of_medmnist(found: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
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
        raise damaged(place, f"{name} holds {x.dtype}, not numbers")
    if not np.isfinite(x).all():
        raise damaged(place, f"{name} has values that are not finite; fill or drop those records")


def target_pair(bounds: Any, classes: Sequence[Any]) -> tuple[float, float] | None:
    """The declared range of a number to predict; None where classes are predicted."""
    if (bounds is None) != bool(classes):
        raise InvalidArgument(
            "target_bounds", bounds, "given for a number to predict, or classes for classes",
            "one of the two",
        )  # fmt: skip
    if bounds is None:
        return None
    _check_pair("target", bounds)
    return float(bounds[0]), float(bounds[1])


def check_labels(path: Path, y: NDArray[Any], classes: tuple[str, ...]) -> None:
    """Refuse a file without records, or whose records are all of one class."""
    found = np.unique(y)
    if len(found) == 0:
        raise damaged(path, "it has no records")
    if len(found) == 1:
        only = classes[found[0]] if classes else found[0]
        problem = f"all its labels are {only!r}, and there is nothing to learn"
        raise damaged(path, f"{problem}; see that the right column is named as the label")


def check_parts(path: Path, train: int, test: int) -> None:
    """Refuse a split that leaves a part empty."""
    if not (train and test):
        problem = f"too few different records ({train + test}) to keep some for tests"
        raise damaged(path, f"{problem}; a number of its own, under `ignore`, tells copies apart")


def _check_pair(name: str, pair: Any) -> None:
    try:
        low, high = (float(value) for value in pair)
    except (TypeError, ValueError):
        raise InvalidArgument(f"bounds[{name!r}]", pair, "a pair (low, high)") from None
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise InvalidArgument(f"bounds[{name!r}]", pair, "a finite pair with low below high")
