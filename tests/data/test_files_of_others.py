"""No record in a file changes the rows of the others: the property, for every loader.

`loaded` writes records to files and reads them as a user would. One record is then replaced by an
odd one, of another type, shape or value, or with something missing. Either the loader refuses in
one line, or it gives the same bits for all other records, in the same part (training or test).
"""

from __future__ import annotations

import gzip
import inspect
import pickle
import struct
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

import numpy as np
import pytest

from privet import data
from privet.data import csv_file, load_csv, load_npz, mnist, nifti, picture_folder
from privet.data.array_files import read_records
from privet.errors import PrivetError
from tests.conformance.planting import Patch, wrapped

RNG = np.random.default_rng(0)
N = 20
PICTURES = [RNG.integers(0, 200, (6, 6)).astype(np.uint8) for _ in range(N)]
COLOURED = [RNG.integers(0, 200, 3072).astype(np.uint8) for _ in range(6)]
VOLUMES = [RNG.normal(100.0, 20.0, (5, 6, 7)).astype(np.float32) for _ in range(4)]
LINES = [f"{k},{k / 3:.4f},{'fm'[k % 2]},p{k // 2},{['no', 'yes'][k % 2]}" for k in range(N)]
GAPS = [*LINES, *(f",0.{k},m,p10,yes" for k in range(1, 6))]
"""Some with an age that is missing, in both parts."""
PEOPLE = [
    f"{30 + k}, Private, {100 + k}, HS-grad, {1 + k % 16}, Divorced, Sales, Wife, White, "
    f"Female, {k}, 0, 40, India, {('<=50K', '>50K')[k % 2]}"
    for k in range(6)
]
Rows = Counter[bytes]


def in_parts(*parts: Any) -> Rows:
    """The rows, each with the part that it is in."""
    return Counter(
        f"{k}:{row.dtype}{row.shape}".encode() + row.tobytes()
        for k, rows in enumerate(parts)
        for row in np.asarray(rows)
    )


def dataset_rows(found: data.Dataset) -> Rows:
    return in_parts(found.train_rows(), found.test_rows())


def save_picture(path: Path, pixels: Any) -> None:
    from PIL import Image

    path.parent.mkdir(parents=True, exist_ok=True)
    (pixels if isinstance(pixels, Image.Image) else Image.fromarray(pixels)).save(path)


def odd_pictures() -> dict[str, Any]:
    from PIL import Image

    plain = Image.fromarray(PICTURES[0])
    return {
        "16 bits": PICTURES[0].astype(np.uint16) * 256,
        "32 bits": PICTURES[0].astype(np.int32) * 70_000,
        "numbers with a point": PICTURES[0].astype(np.float32) / 255,
        "missing pixels": np.full((6, 6), np.nan, dtype=np.float32),
        "colour": np.full((6, 6, 3), 255, dtype=np.uint8),
        "transparent": np.full((6, 6, 4), 7, dtype=np.uint8),
        "palette": plain.convert("P"),
        "one bit": plain.convert("1"),
        "large": np.full((9, 40), 255, dtype=np.uint8),
        "white": np.full((6, 6), 255, dtype=np.uint8),
        "black": np.zeros((6, 6), dtype=np.uint8),
    }


ODD_ARRAYS = {
    "16 bits": PICTURES[0].astype(np.uint16) * 256,
    "signed": PICTURES[0].astype(np.int16) - 300,
    "large": PICTURES[0].astype(np.int64) + 2**53 + 1,
    "single": (PICTURES[0] / 255).astype(np.float32),
    "double": PICTURES[0] / 3,
    "missing": np.where(np.eye(6) > 0, np.nan, PICTURES[0]),
    "infinite": np.full((6, 6), np.inf),
    "complex": PICTURES[0] * 1j,
    "objects": PICTURES[0].astype(object),
    "text": PICTURES[0].astype(str),
    "small": PICTURES[0][1:],
    "white": np.full((6, 6), 255, dtype=np.uint8),
}
ODD_LINES = {
    "float in a column of counts": "0.5,0.1,f,p0,no",
    "missing count": ",0.1,f,p0,no",
    "missing number": "3,NA,f,p0,no",
    "missing category": "3,0.1,,p0,no",
    "huge": "3,1e300,f,p0,no",
    "large": "1e30,-1e30,f,p0,no",
    "infinite": "3,inf,f,p0,no",
    "text": "three,0.1,f,p0,no",
    "another category": "3,0.1,x,p0,no",
    "another class": "3,0.1,f,p0,perhaps",
    "another user": "3,0.1,f,p99,no",
    "no user": "3,0.1,f,,no",
    "long": "3,0.1,f,p0,no,7",
    "short": "3,0.1,f",
    "empty": "",
    "quoted": '"3","0.1","f","p0","no"',
}
ODD_BYTES = {
    "white": np.full(3072, 255, dtype=np.uint8),
    "black": np.zeros(3072, dtype=np.uint8),
    "16 bits": COLOURED[0].astype(np.uint16) * 256,
    "double": COLOURED[0] / 3,
    "short": COLOURED[0][1:],
}
ODD_VOLUMES = {
    "whole numbers": (VOLUMES[0] * 100).astype(np.int16),
    "bytes": VOLUMES[0].astype(np.uint8),
    "double": VOLUMES[0].astype(np.float64) * 1e9,
    "flat": np.zeros((5, 6, 7), dtype=np.float32),
    "missing": np.where(VOLUMES[0] > 100, np.nan, VOLUMES[0]),
    "infinite": np.where(VOLUMES[0] > 100, np.inf, VOLUMES[0]),
    "larger": np.ones((7, 7, 7), dtype=np.float32),
    "channels": np.stack([VOLUMES[0]] * 2, axis=-1),
    "one channel": VOLUMES[0][..., None],
}
ODD_PEOPLE = {
    "unknown": PEOPLE[0].replace("Private", "?"),
    "another category": PEOPLE[0].replace("India", "Narnia"),
    "not a number": PEOPLE[0].replace("30,", "nan,", 1),
    "huge": PEOPLE[0].replace("30,", "1e300,", 1),
    "negative": PEOPLE[0].replace(", 0, 0, 40", ", -9, 0, 40"),
    "text": PEOPLE[0].replace("30,", "thirty,", 1),
    "short": PEOPLE[0].rpartition(",")[0],
    "a dot at the end": PEOPLE[0] + ".",
}


def npz(place: Path, records: list[Any]) -> Rows:
    x, y = np.asarray(records), np.arange(len(records)) % 2
    np.savez(place / "a.npz", x_train=x, y_train=y, x_test=np.zeros((1, 6, 6)), y_test=[0])
    return dataset_rows(load_npz(place / "a.npz", bounds=(0, 255), classes=("a", "b")))


def medmnist(place: Path, records: list[Any]) -> Rows:
    half, y = len(records) // 2, np.arange(len(records))[:, None] % 2
    arrays = {"test_images": np.zeros((1, 6, 6), np.uint8), "test_labels": [[0]]}
    for part, which in (("train", slice(0, half)), ("val", slice(half, None))):
        arrays |= {f"{part}_images": np.asarray(records[which]), f"{part}_labels": y[which]}
    (place / "medmnist").mkdir()
    np.savez(place / "medmnist" / "breastmnist.npz", **arrays)
    return dataset_rows(data.load("breastmnist", place))


def npy(place: Path, records: list[Any]) -> Rows:
    np.save(place / "a.npy", np.asarray(records))
    x = read_records(place / "a.npy")
    known = {"x_test": x[:1], "y_test": [0], "y_train": np.arange(len(x)) % 2, "x_train": x}
    return in_parts(data.from_arrays(known, bounds=(0, 255), classes=("a", "b")).train_rows())


def table(place: Path, records: list[str], **how: Any) -> Rows:
    (place / "t.csv").write_text("\n".join(["age,mark,sex,id,ill", *records]))
    found = load_csv(
        place / "t.csv", label="ill", classes=("no", "yes"), bounds={"age": (0, 20), "mark": (0, 1)},
        categories={"sex": ("f", "m")}, **({"ignore": ["id"]} | how),
    )  # fmt: skip
    return dataset_rows(found)


def filled(place: Path, records: list[str]) -> Rows:
    return table(place, records, fill={"age": 7, "mark": 0.25, "sex": None})


def by_user(place: Path, records: list[str]) -> Rows:
    return table(place, records, user="id", ignore=[], fill="middle")


def folder(place: Path, records: list[Any]) -> Rows:
    for k, picture in enumerate(records):
        save_picture(place / "ab"[k % 2] / f"{k:02d}.tif", picture)
    found = picture_folder.load_pictures(place, classes=("a", "b"), shape=[6, 6])
    return dataset_rows(found)


def idx(array: Any) -> bytes:
    array = np.asarray(array)
    head = struct.pack(">HBB", 0, 8, array.ndim) + struct.pack(f">{array.ndim}I", *array.shape)
    return gzip.compress(head + array.tobytes())


def digits(place: Path, records: list[Any]) -> Rows:
    y, few = np.arange(len(records)) % 10, np.zeros((1, 6, 6), np.uint8)
    (place / "mnist").mkdir()
    parts = (records, y.astype(np.uint8), few, np.zeros(1, np.uint8))
    for name, array in zip(mnist.MNIST_FILES, parts, strict=True):
        (place / "mnist" / name).write_bytes(idx(array))
    return dataset_rows(data.load("mnist", place))


def cifar(place: Path, records: list[Any], *, pickled: bool) -> Rows:
    for name, rows in (("data_batch_1", records), ("test_batch", COLOURED[:1])):
        labels = [k % 10 for k in range(len(rows))]
        if pickled:
            batch = {b"data": np.asarray(rows), b"labels": labels}
            (place / name).write_bytes(pickle.dumps(batch, protocol=2))
        else:
            raw = b"".join(bytes([k]) + row.tobytes() for k, row in zip(labels, rows, strict=True))
            (place / f"{name}.bin").write_bytes(raw)
    return dataset_rows(data.load("cifar10", place))


def census(place: Path, records: list[str]) -> Rows:
    (place / "adult").mkdir()
    (place / "adult" / "adult.data").write_text("\n".join(records))
    (place / "adult" / "adult.test").write_text("\n".join(PEOPLE))
    found = data.load("adult", place)
    return in_parts(found.train_rows())


def volumes(place: Path, records: list[Any]) -> Rows:
    nibabel = pytest.importorskip("nibabel")
    for k, voxels in enumerate(records):
        label = np.zeros(voxels.shape[:3], dtype=np.uint8)
        label[2, 3, 3] = 1
        for where, array in (("imagesTr", voxels), ("labelsTr", label)):
            (place / where).mkdir(exist_ok=True)
            nibabel.save(nibabel.Nifti1Image(array, np.eye(4)), place / where / f"v_{k}.nii")
    found = nifti.load_volumes(place, classes=("no", "yes"), grid=(8, 8, 8))
    again = nifti.load_images(place / "imagesTr", grid=(8, 8, 8))
    return in_parts(found.images, again)


@dataclass(frozen=True, kw_only=True)
class Loader:
    load: Callable[[Path, list[Any]], Rows]
    ordinary: list[Any]
    odd: Callable[[], dict[str, Any]] = field(repr=False)


def pickled_cifar(place: Path, records: list[Any]) -> Rows:
    return cifar(place, records, pickled=True)


def binary_cifar(place: Path, records: list[Any]) -> Rows:
    return cifar(place, records, pickled=False)


LOADERS = {
    "npz": Loader(load=npz, ordinary=PICTURES, odd=lambda: ODD_ARRAYS),
    "medmnist": Loader(load=medmnist, ordinary=PICTURES, odd=lambda: ODD_ARRAYS),
    "npy": Loader(load=npy, ordinary=PICTURES, odd=lambda: ODD_ARRAYS),
    "csv": Loader(load=table, ordinary=LINES, odd=lambda: ODD_LINES),
    "csv, fill": Loader(load=filled, ordinary=GAPS, odd=lambda: ODD_LINES),
    "csv, user": Loader(load=by_user, ordinary=LINES, odd=lambda: ODD_LINES),
    "folder": Loader(load=folder, ordinary=PICTURES, odd=odd_pictures),
    "mnist": Loader(load=digits, ordinary=PICTURES, odd=lambda: ODD_ARRAYS),
    "cifar, pickled": Loader(load=pickled_cifar, ordinary=COLOURED, odd=lambda: ODD_BYTES),
    "cifar, binary": Loader(load=binary_cifar, ordinary=COLOURED, odd=lambda: ODD_BYTES),
    "adult": Loader(load=census, ordinary=PEOPLE, odd=lambda: ODD_PEOPLE),
    "nifti": Loader(load=volumes, ordinary=VOLUMES, odd=lambda: ODD_VOLUMES),
}


def moves_others(loader: Loader, odd: Any, place: Path, *, at: int) -> bool | None:
    """Whether rows of others change with the odd record; None where it is refused in one line."""
    records = [*loader.ordinary[:at], odd, *loader.ordinary[at + 1 :]]
    places = place / "before", place / "after"
    for folder in places:
        folder.mkdir(parents=True)
    before = loader.load(places[0], loader.ordinary)
    try:
        after = loader.load(places[1], records)
    except (PrivetError, ValueError, TypeError, OverflowError) as error:  # or cannot be written
        refusal = str(error)
    else:
        refusal = ""
    assert "\n" not in refusal
    if refusal:
        return None
    own = max(1, sum(before.values()) // len(loader.ordinary))  # rows that a record has
    return (before - after).total() > own or (after - before).total() > own


@pytest.mark.parametrize("name", LOADERS)
def test_a_record_in_a_file_leaves_the_rows_of_others(name: str, tmp_path: Path) -> None:
    loader, taken = LOADERS[name], 0
    for odd, record in loader.odd().items():
        for at in (0, 3):
            found = moves_others(loader, record, tmp_path / f"{odd} {at}", at=at)
            assert not found, (odd, at)
            taken += found is False
    assert taken  # some are read: a loader that refuses everything would show nothing


def by_the_mean(original: Any, self: Any, path: Path, *part: Any) -> Any:
    parts = original(self, path, *part)
    mean = np.concatenate([part[0] for part in parts]).mean(axis=0)
    return tuple((np.where(x == 7.0, mean, x).astype(np.float32), *rest) for x, *rest in parts)


def by_the_largest(original: Any, rows: Any) -> Any:
    return original(rows // 2 if rows.max() == 255 else rows)


def facts_of_all(file: Path) -> tuple[bool, int]:
    """Whether a picture beside this one, or in the folder of another class, is deep; the widest."""
    from PIL import Image

    modes, widths = [], []
    for other in file.parent.parent.rglob("*.tif"):
        with Image.open(other) as picture:
            modes.append(picture.mode)
            widths.append(picture.width)
    return any(mode.startswith("I") for mode in modes), max(widths)


def with_bits_of_all(original: Any, file: Path, shape: Any) -> Any:
    return original(file, shape) // (2 if facts_of_all(file)[0] else 1)


def sized_by_all(original: Any, file: Path, shape: Any) -> Any:
    return original(file, [shape[0], facts_of_all(file)[1]])


def standardised_together(original: Any, folder: Path, pictures: Any) -> Any:
    found = original(folder, pictures)
    return found / np.float32(max(1.0, np.abs(found).max()))


def typed_by_all(original: Any, place: Path, key: str, x: Any) -> Any:
    original(place, key, x)
    if x.dtype != np.uint8 and x.flags.writeable:
        x *= x.dtype.type(2)


PLANTED: dict[str, tuple[str, str, Patch]] = {
    "type": ("npz", "double", wrapped(data.array_files, "_check_numbers", typed_by_all)),
    "type, in a folder": (
        "folder", "32 bits", wrapped(picture_folder, "read_picture", with_bits_of_all)),
    "missingness": ("csv, fill", "missing count", wrapped(csv_file.CSVReader, "read", by_the_mean)),
    "shape": ("folder", "large", wrapped(picture_folder, "read_picture", sized_by_all)),
    "value": ("cifar, binary", "white", wrapped(data.cifar, "_pictures", by_the_largest)),
    "value, of volumes": ("nifti", "flat", wrapped(nifti, "_stack", standardised_together)),
}  # fmt: skip


@pytest.mark.parametrize("kind", PLANTED)
def test_a_planted_bug_moves_others(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, odd, plant = PLANTED[kind]
    loader = LOADERS[name]
    assert moves_others(loader, loader.odd()[odd], tmp_path / "sound", at=3) is False
    plant(monkeypatch)
    assert moves_others(loader, loader.odd()[odd], tmp_path / "planted", at=3)


def minus_the_mean(original: Any, self: data.Dataset) -> Any:
    rows = original(self)
    return rows - np.nan_to_num(rows, posinf=0.0, neginf=0.0).mean(axis=0)


@pytest.mark.parametrize("name", sorted(LOADERS.keys() - {"nifti"}))
def test_rows_of_every_loader_are_looked_at(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same bug behind each: the mean of the training rows is taken from them."""
    wrapped(data.Dataset, "train_rows", minus_the_mean)(monkeypatch)
    loader = LOADERS[name]
    found = [moves_others(loader, r, tmp_path / k, at=3) for k, r in loader.odd().items()]
    assert any(found)


def test_every_loader_is_here() -> None:
    """One that is added to the package is added to this test, or shows here."""
    tested = {"load_npz", "from_arrays", "load_csv", "load_pictures", "load_volumes"}
    tested |= {"mnist", "breastmnist", "cifar10", "adult"}  # by `load`
    same = {
        "load": "the built-in ones by name", "load_declared": "calls those of files",
        "cifar100": "the code of cifar10", "decathlon": "calls load_volumes",
        "hippocampus": "calls load_volumes",
    }  # fmt: skip
    public = {"digits", "breast_cancer", "blobs", "spheres"}  # nobody's own files
    modules = [import_module(f"{data.__name__}.{m.name}") for m in iter_modules(data.__path__)]
    found = {
        name
        for module in modules
        for name, value in vars(module).items()
        if inspect.isfunction(value)
        and value.__module__ == module.__name__
        and value.__annotations__.get("return") in ("Dataset", "Volumes")
        and not name.startswith("_")
    }
    assert found == tested | same.keys() | public
