"""Data sets come with public bounds, are read-only, and say in one line what is missing."""

from __future__ import annotations

import gzip
import hashlib
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from privet import data
from privet.data import mnist
from privet.data.data_folder import download
from privet.errors import InvalidArgument, MissingFile

SHARED = Path(os.environ.get("PRIVET_DATA") or Path(__file__).parents[3] / "shared" / "data")
needs_files = pytest.mark.skipif(not (SHARED / "mnist").is_dir(), reason="needs PRIVET_DATA")


def one_line(error: pytest.ExceptionInfo[BaseException]) -> str:
    message = str(error.value)
    assert "\n" not in message
    return message


def idx(array: np.ndarray) -> bytes:
    header = bytes([0, 0, 8, array.ndim]) + b"".join(n.to_bytes(4, "big") for n in array.shape)
    return gzip.compress(header + array.tobytes())


@pytest.mark.parametrize("name", ["digits", "breast_cancer", "blobs"])
def test_built_in_sets_lie_within_their_declared_bounds(name: str) -> None:
    got = data.load(name)
    for x in (got.x_train, got.x_test):
        assert (x >= got.low).all() and (x <= got.high).all()
    assert got.train_rows().shape == (len(got.x_train), got.n_features)
    assert set(np.unique(got.y_train)) == set(range(got.n_classes))
    assert got.fingerprint == data.load(name).fingerprint


def test_fingerprint_follows_content() -> None:
    whole = data.load("blobs")
    assert whole.subset(10).fingerprint != whole.subset(11).fingerprint
    assert whole.subset(len(whole.x_train)).fingerprint == whole.fingerprint


def test_arrays_cannot_be_changed_and_do_not_follow_the_callers() -> None:
    got = data.load("blobs")
    with pytest.raises(ValueError):
        got.x_train[0, 0] = 1.0
    mine = np.zeros((3, 2))
    kept = data.Dataset(
        name="n", about="", classes=("a",), low=0, high=1, x_train=mine, y_train=[0, 0, 0],
        x_test=mine, y_test=[0, 0, 0],
    )  # fmt: skip
    mine[:] = 7
    assert kept.x_train.max() == 0


@pytest.mark.parametrize("name", ["mnist", "cifar10", "adult", "breastmnist"])
def test_a_missing_set_names_folder_and_variable(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PRIVET_CACHE", str(tmp_path / "cache"))
    with pytest.raises(MissingFile) as error:
        data.load(name, tmp_path)
    message = one_line(error)
    assert str(tmp_path) in message and "PRIVET_DATA" in message


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(InvalidArgument) as error:
        data.load("minst")
    assert "mnist" in one_line(error) and "load_csv" in one_line(error)


def test_small_mnist_by_download_from_a_local_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(0)
    mirror = tmp_path / "mirror"
    mirror.mkdir()
    sums = {}
    for name in mnist.MNIST_FILES:
        count = 6 if name.startswith("train") else 4
        shape = (count, 28, 28) if "images" in name else (count,)
        (mirror / name).write_bytes(idx(rng.integers(0, 10, shape).astype(np.uint8)))
        sums[name] = hashlib.sha256((mirror / name).read_bytes()).hexdigest()
    monkeypatch.setattr(mnist, "MNIST_FILES", sums)
    monkeypatch.setenv("PRIVET_CACHE", str(tmp_path / "cache"))
    gone = (tmp_path / "nowhere").as_uri() + "/"
    mnist.download_mnist((gone, mirror.as_uri() + "/"))
    got = data.load("mnist", tmp_path / "empty")
    assert got.x_train.shape == (6, 28, 28) and got.x_test.shape == (4, 28, 28)


def test_a_download_with_the_wrong_checksum_leaves_nothing(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_bytes(b"not it")
    target = tmp_path / "kept" / "file"
    with pytest.raises(MissingFile) as error:
        download(target, urls=(source.as_uri(),), sha256="0" * 64)
    assert "checksum" in one_line(error)
    assert list(target.parent.iterdir()) == []


@pytest.mark.parametrize("cut", [0, 5, 30, -4])
def test_a_damaged_idx_file_is_one_line(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "x.gz"
    path.write_bytes(idx(np.zeros((4, 3), dtype=np.uint8))[:cut])
    with pytest.raises(InvalidArgument) as error:
        mnist.read_idx(path)
    assert "x.gz" in one_line(error)


@pytest.mark.slow
def test_importing_data_needs_neither_torch_nor_sklearn() -> None:
    heavy = "'torch', 'sklearn', 'PIL'"
    code = f"import sys, privet.data; print([m for m in ({heavy}) if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


@needs_files
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "train", "test", "shape"),
    [
        ("mnist", 60_000, 10_000, (28, 28)),
        ("cifar10", 50_000, 10_000, (32, 32, 3)),
        ("adult", 32_561, 16_281, (108,)),
        ("breastmnist", 624, 156, (28, 28)),
    ],
)
def test_real_sets(name: str, train: int, test: int, shape: tuple[int, ...]) -> None:
    got = data.load(name, SHARED)
    assert (len(got.x_train), len(got.x_test), got.shape) == (train, test, shape)
    assert (got.x_train >= got.low).all() and (got.x_train <= got.high).all()
    if name == "cifar10":  # all five batches: every class as often as the others
        assert (np.bincount(got.y_train) == 5_000).all() and (
            np.bincount(got.y_test) == 1_000
        ).all()
    if name == "adult":
        assert abs(got.y_train.mean() - 0.2408) < 1e-4  # as adult.names says
        assert (got.x_train[:, 6:].sum(axis=1) == 8).all()  # one value of each of eight categories
