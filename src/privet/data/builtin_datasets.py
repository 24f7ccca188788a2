"""Data sets by name: two of scikit-learn's and a generated one, which need no files, and others."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privet.data import cifar, mnist
from privet.data.adult import adult
from privet.data.data_folder import data_folder
from privet.data.dataset import Dataset
from privet.data.declarations import load_declared
from privet.errors import InvalidArgument
from privet.plugins import DATASETS, plugins

_SPLIT_SEED = 20240229  # any number: it fixes who is a test record of the built-in sets

# Ranges of the thirty measurements, from the summary table in the data set's public documentation,
# rounded outward. For this long-published set they are common knowledge; for data of your own,
# declare what the instrument can read.
_CELL_RANGES = {
    "radius": ((5, 30), (0, 3), (5, 40)),
    "texture": ((9, 40), (0, 5), (10, 50)),
    "perimeter": ((40, 190), (0, 22), (50, 260)),
    "area": ((140, 2600), (0, 550), (180, 4300)),
    "smoothness": ((0.05, 0.17), (0, 0.04), (0.07, 0.23)),
    "compactness": ((0, 0.35), (0, 0.14), (0, 1.1)),
    "concavity": ((0, 0.45), (0, 0.4), (0, 1.3)),
    "concave points": ((0, 0.21), (0, 0.055), (0, 0.3)),
    "symmetry": ((0.1, 0.31), (0, 0.08), (0.15, 0.67)),
    "fractal dimension": ((0.045, 0.1), (0, 0.03), (0.05, 0.21)),
}


def digits() -> Dataset:
    """1,797 grey 8x8 digits, 0 to 16 (UCI, inside scikit-learn); a fixed fifth is for testing."""
    from sklearn.datasets import load_digits

    raw = load_digits()
    return Dataset(
        name="digits",
        about="1,797 handwritten digits of 8x8 pixels, 0 to 16 (UCI, shipped with scikit-learn)",
        classes=tuple(str(k) for k in range(10)),
        low=np.array(0),
        high=np.array(16),
        feature_names=(),
        **_split(raw.images.astype(np.float32), raw.target),
    )


def breast_cancer() -> Dataset:
    """569 breast masses with 30 measurements, malignant or benign (UCI, inside scikit-learn)."""
    from sklearn.datasets import load_breast_cancer

    raw = load_breast_cancer()
    ranges = [_CELL_RANGES[name][kind] for kind in range(3) for name in _CELL_RANGES]
    return Dataset(
        name="breast_cancer",
        about="569 breast masses, 30 measurements of cell nuclei (UCI, shipped with scikit-learn)",
        classes=("malignant", "benign"),
        low=np.array([low for low, _ in ranges], dtype=np.float64),
        high=np.array([high for _, high in ranges], dtype=np.float64),
        feature_names=tuple(str(name) for name in raw.feature_names),
        **_split(raw.data.astype(np.float32), raw.target),
    )


def blobs() -> Dataset:
    """Three overlapping Gaussian clouds in ten dimensions, generated: 2,000 + 500 records."""
    rng = np.random.default_rng(_SPLIT_SEED)
    centres = rng.normal(0.0, 1.2, size=(3, 10))
    y = rng.integers(0, 3, size=2500)
    x = centres[y] + rng.normal(size=(2500, 10))
    return Dataset(
        name="blobs",
        about="2,500 generated records: three Gaussian clouds in ten dimensions",
        classes=("a", "b", "c"),
        low=np.array(-8),
        high=np.array(8),
        feature_names=(),
        **_split(x.astype(np.float32), y),
    )


def _split(x: NDArray[Any], y: NDArray[Any]) -> dict[str, Any]:
    """A fixed permutation; the last fifth is the test part. Reads neither values nor labels."""
    order = np.random.default_rng(_SPLIT_SEED).permutation(len(x))
    cut = len(x) - len(x) // 5
    train, test = order[:cut], order[cut:]
    return {"x_train": x[train], "y_train": y[train], "x_test": x[test], "y_test": y[test]}


_BUILT_IN = {
    "digits": digits,
    "breast_cancer": breast_cancer,
    "blobs": blobs,
}
_IN_FILES = {
    "mnist": mnist.mnist,
    "cifar10": cifar.cifar10,
    "cifar100": cifar.cifar100,
    "adult": adult,
    "breastmnist": mnist.breastmnist,
}
SUFFIXES = (".csv", ".npz")
NAMES = (*_BUILT_IN, *_IN_FILES)


def dataset_names() -> tuple[str, ...]:
    """The names of all data sets, ours first, then those of other packages."""
    return (*NAMES, *(name for name in plugins(DATASETS) if name not in NAMES))


def load(
    name: str,
    folder: str | os.PathLike[str] | None = None,
    *,
    download: bool = False,
    label: str | None = None,
    declaration: Path | None = None,
    user: str | None = None,
) -> Dataset:
    """A data set by name, see `dataset_names`; or a file of your own, as `declaration` says of it.

    `digits`, `breast_cancer` and `blobs` need no files. The others are read from `folder`, else
    from `$PRIVET_DATA`, else from ~/.cache/privet/data. Nothing is downloaded unless
    `download=True`, which fetches MNIST.
    """
    path = Path(name)
    own = path.is_dir() and (name not in dataset_names() or declaration is not None)
    if own or path.suffix in SUFFIXES:
        return load_declared(path, label=label, declaration=declaration, user=user)
    if user is not None:
        raise InvalidArgument("--user", user, "left out: only a CSV file has such a column")
    if name in _BUILT_IN:
        return _BUILT_IN[name]()
    if name not in _IN_FILES and name in plugins(DATASETS):
        found: Dataset = plugins(DATASETS)[name].load()(data_folder(folder))
        return found
    if name not in _IN_FILES:
        raise InvalidArgument(
            "name",
            name,
            f"one of {', '.join(dataset_names())}",
            "a file of your own must end in .csv or .npz (load_csv, load_npz)",
        )
    if download and name == "mnist":
        mnist.download_mnist()
    return _IN_FILES[name](data_folder(folder))
