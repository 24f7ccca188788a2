"""Data sets with public bounds: built in, from a folder, or the user's own tables.

>>> from privet import data
>>> blobs = data.load("blobs")
>>> blobs.x_train.shape, blobs.classes
((2000, 10), ('a', 'b', 'c'))
"""

from __future__ import annotations

import os

from privet.data import builtin, cifar, pictures
from privet.data.adult import adult
from privet.data.dataset import Dataset
from privet.data.files import data_folder
from privet.data.idc import idc
from privet.data.table import from_arrays, load_csv, load_npz
from privet.errors import InvalidArgument

_BUILT_IN = {
    "digits": builtin.digits,
    "breast_cancer": builtin.breast_cancer,
    "blobs": builtin.blobs,
}
_IN_FILES = {
    "mnist": pictures.mnist,
    "cifar10": cifar.cifar10,
    "cifar100": cifar.cifar100,
    "adult": adult,
    "breastmnist": pictures.breastmnist,
    "idc": idc,
}
NAMES = (*_BUILT_IN, *_IN_FILES)

__all__ = ["NAMES", "Dataset", "from_arrays", "load", "load_csv", "load_npz"]


def load(
    name: str, folder: str | os.PathLike[str] | None = None, *, download: bool = False
) -> Dataset:
    """A data set by name; see `NAMES`.

    `digits`, `breast_cancer` and `blobs` need no files. The others are read from `folder`, else
    from `$PRIVET_DATA`, else from ~/.cache/privet/data. Nothing is downloaded unless
    `download=True`, which fetches MNIST.
    """
    if name in _BUILT_IN:
        return _BUILT_IN[name]()
    if name not in _IN_FILES:
        raise InvalidArgument(
            "name",
            name,
            f"one of {', '.join(NAMES)}",
            "a file of your own must end in .csv or .npz (load_csv, load_npz)",
        )
    if download and name == "mnist":
        pictures.download_mnist()
    return _IN_FILES[name](data_folder(folder))
