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

NAMES = (
    "digits", "breast_cancer", "blobs", "mnist", "cifar10", "cifar100", "adult", "breastmnist",
    "idc",
)  # fmt: skip

__all__ = ["NAMES", "Dataset", "from_arrays", "load", "load_csv", "load_npz"]


def load(
    name: str, folder: str | os.PathLike[str] | None = None, *, download: bool = False
) -> Dataset:
    """A data set by name; see `NAMES`.

    `digits`, `breast_cancer` and `blobs` need no files. The others are read from `folder`, else
    from `$PRIVET_DATA`, else from ~/.cache/privet/data. Nothing is downloaded unless
    `download=True`, which fetches MNIST.
    """
    place = data_folder(folder)
    match name:
        case "digits":
            return builtin.digits()
        case "breast_cancer":
            return builtin.breast_cancer()
        case "blobs":
            return builtin.blobs()
        case "mnist":
            if download:
                pictures.download_mnist()
            return pictures.mnist(place)
        case "cifar10":
            return cifar.cifar10(place)
        case "cifar100":
            return cifar.cifar100(place)
        case "adult":
            return adult(place)
        case "breastmnist":
            return pictures.breastmnist(place)
        case "idc":
            return idc(place)
        case _:
            raise InvalidArgument(
                "name",
                name,
                f"one of {', '.join(NAMES)}",
                "a file of your own must end in .csv or .npz (load_csv, load_npz)",
            )
