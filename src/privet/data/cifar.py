"""CIFAR-10 and CIFAR-100 from the folders that people have: pickled batches, .bin, or sheets.

A folder is looked for in the data folder, in its cifar10 or cifar100, or it is the data folder:

    cifar-10-batches-py/{data_batch_1..5,test_batch}       cifar-100-python/{train,test}
    cifar-10-batches-bin/{data_batch_1..5,test_batch}.bin  cifar-100-binary/{train,test}.bin
    cifar10/{data_batch_1..5,test_batch}.webp, labels.npz  (lossless sheets of 100x100 pictures)

Pickles are read without running what is in them: nothing but arrays of bytes is made.
"""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from privet.data.array_files import read_npz
from privet.data.data_folder import damaged_file, download_folder, find
from privet.data.dataset import Dataset
from privet.errors import MissingFile

Bytes = NDArray[np.uint8]
Part = tuple[Bytes, NDArray[np.int64]]
CLASSES = (
    "airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck",
)  # fmt: skip
_PIXELS = 3 * 32 * 32


def cifar10(folder: Path) -> Dataset:
    """50,000 + 10,000 pictures of 32x32 in colour, 10 classes; the training batches there are."""
    batches = [f"data_batch_{k}" for k in range(1, 6)]
    if (place := _place(folder, "cifar10", "cifar-10-batches-py", "data_batch_1")) is not None:
        there = [place / name for name in batches if (place / name).is_file()]
        train = [_pickled(path, b"labels") for path in there]
        test = _pickled(place / "test_batch", b"labels")
    elif (
        place := _place(folder, "cifar10", "cifar-10-batches-bin", "data_batch_1.bin")
    ) is not None:
        there = [place / f"{name}.bin" for name in batches if (place / f"{name}.bin").is_file()]
        train = [_binary(path, labels=1) for path in there]
        test = _binary(place / "test_batch.bin", labels=1)
    elif not (folder / "cifar10" / "data_batch_1.webp").is_file():
        raise MissingFile(
            folder / "cifar-10-batches-py" / "data_batch_1",
            "put cifar-10-batches-py or cifar-10-batches-bin there, or pass folder= or set "
            "PRIVET_DATA",
        )
    else:
        train, test = _sheets(folder)
    return _dataset("cifar10", "CIFAR-10", CLASSES, train, test)


def cifar100(folder: Path) -> Dataset:
    """50,000 + 10,000 pictures of 32x32 in colour, 100 classes (the fine labels)."""
    if (place := _place(folder, "cifar100", "cifar-100-python", "train")) is not None:
        train, test = (_pickled(place / part, b"fine_labels") for part in ("train", "test"))
    elif (place := _place(folder, "cifar100", "cifar-100-binary", "train.bin")) is not None:
        train, test = (_binary(place / f"{part}.bin", labels=2) for part in ("train", "test"))
    else:
        raise MissingFile(
            folder / "cifar-100-python" / "train",
            "put cifar-100-python or cifar-100-binary there, or pass folder= or set PRIVET_DATA",
        )
    return _dataset("cifar100", "CIFAR-100", tuple(map(str, range(100))), [train], test)


def _place(folder: Path, name: str, inner: str, first: str) -> Path | None:
    """Where the folder of this layout is, if it is anywhere."""
    for root in (folder, download_folder()):
        for place in (root / inner, root / name / inner, root / name, root):
            if (place / first).is_file():
                return place
    return None


def _dataset(
    name: str, title: str, classes: tuple[str, ...], train: list[Part], test: Part
) -> Dataset:
    x, y = (np.concatenate(parts) for parts in zip(*train, strict=True))
    if max(y.max(initial=0), test[1].max(initial=0)) >= len(classes):
        raise damaged_file(Path(name), f"a label of {len(classes)} or more")
    return Dataset(
        name=name, about=f"{title}: {len(y):,} + {len(test[1]):,} images, 32x32 in colour",
        classes=classes, low=np.array(0), high=np.array(255), x_train=x, y_train=y,
        x_test=test[0], y_test=test[1],
    )  # fmt: skip


def _pictures(rows: Bytes) -> Bytes:
    """Rows of a red, a green and a blue plane as pictures with colours last."""
    return np.ascontiguousarray(rows.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1))


def _pickled(path: Path, labels: bytes) -> Part:
    """One pickled batch: a dictionary with rows under `data` and a list of labels."""
    try:
        with path.open("rb") as file:
            found: Any = _Unpickler(file, encoding="bytes").load()
        rows, numbers = np.asarray(found[b"data"]), np.asarray(found[labels], dtype=np.int64)
    except FileNotFoundError:
        raise MissingFile(path) from None
    except Exception as error:  # a pickle that is not whole raises anything
        raise damaged_file(path, f"not a batch of CIFAR ({error})") from None
    if rows.dtype != np.uint8 or rows.ndim != 2 or rows.shape != (len(numbers), _PIXELS):
        raise damaged_file(path, f"{rows.dtype} {rows.shape} instead of rows of {_PIXELS} bytes")
    return _pictures(rows), numbers


@final
class _Unpickler(pickle.Unpickler):
    """Makes arrays of numbers and refuses every other class, so that no code of a file runs."""

    def find_class(self, module: str, name: str) -> Any:
        """What numpy's arrays are made of."""
        inner = module.removeprefix("numpy.").replace("_core", "core")
        if (inner, name) == ("core.multiarray", "_reconstruct"):
            return np.empty(0).__reduce__()[0]
        if (module, name) == ("numpy", "ndarray"):
            return np.ndarray
        if (module, name) == ("numpy", "dtype"):
            return np.dtype
        if (module, name) == ("_codecs", "encode"):  # bytes, as Python 2 wrote them
            return _latin1
        raise pickle.UnpicklingError(f"it asks for {module}.{name}")


def _latin1(text: str, encoding: str) -> bytes:
    return text.encode("latin1")


def _binary(path: Path, *, labels: int) -> Part:
    """One .bin file: for each picture its labels, the last of which counts, and its planes."""
    try:
        raw = np.frombuffer(path.read_bytes(), dtype=np.uint8)
    except FileNotFoundError:
        raise MissingFile(path) from None
    if not raw.size or raw.size % (labels + _PIXELS):
        raise damaged_file(path, f"{raw.size} bytes are no whole number of pictures")
    rows = raw.reshape(-1, labels + _PIXELS)
    return _pictures(rows[:, labels:]), rows[:, labels - 1].astype(np.int64)


def _sheets(folder: Path) -> tuple[list[Part], Part]:
    """Lossless WebP sheets of 100x100 tiles; the training batches that are there."""
    sheets = []
    for index in range(1, 6):
        try:
            sheets.append(_sheet(find(f"cifar10/data_batch_{index}.webp", folder=folder)))
        except MissingFile:
            if index == 1:
                raise
            break
    test = _sheet(find("cifar10/test_batch.webp", folder=folder))
    labels = read_npz(find("cifar10/labels.npz", folder=folder), ("train_labels", "test_labels"))
    parts = [
        (pictures, labels["train_labels"][10_000 * k : 10_000 * (k + 1)].astype(np.int64))
        for k, pictures in enumerate(sheets)
    ]
    return parts, (test, labels["test_labels"].astype(np.int64))


def _sheet(path: Path) -> Bytes:
    """10,000 images of 32x32 from one sheet of 100x100 tiles."""
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(path) as picture:
            pixels = np.asarray(picture.convert("RGB"))
    except (OSError, UnidentifiedImageError) as error:
        raise damaged_file(path, f"not a readable picture ({error})") from None
    if pixels.shape != (3200, 3200, 3):
        raise damaged_file(path, f"{pixels.shape} pixels instead of a 3200x3200 sheet")
    tiles = pixels.reshape(100, 32, 100, 32, 3).transpose(0, 2, 1, 3, 4)
    return tiles.reshape(10_000, 32, 32, 3)
