"""CIFAR-10 and CIFAR-100 in their usual folders, on made-up files of the right layout."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest

from privet import data
from privet.errors import InvalidArgument, MissingFile


def _rows(n: int, seed: int, classes: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.integers(0, 256, (n, 3072), dtype=np.uint8), rng.integers(0, classes, n)


def write(root: Path, layout: str) -> None:
    """Files as the published archives have them: 6 training and 4 test pictures."""
    classes = 100 if "100" in layout else 10
    names = {"train": 0, "test": 9} if classes == 100 else {"data_batch_1": 0, "test_batch": 9}
    if classes == 10:
        names["data_batch_2"] = 1
    place = root / layout
    place.mkdir(parents=True)
    for name, seed in names.items():
        rows, labels = _rows(4 if "test" in name else 3, seed, classes)
        if layout.endswith(("python", "py")):
            key = b"labels" if classes == 10 else b"fine_labels"
            told = {b"data": rows, key: labels.tolist(), b"batch_label": b"made up"}
            (place / name).write_bytes(pickle.dumps(told, protocol=2))
        else:
            front = labels[:, None].astype(np.uint8)
            coarse = [np.full_like(front, 7)] if classes == 100 else []
            (place / f"{name}.bin").write_bytes(np.hstack([*coarse, front, rows]).tobytes())


@pytest.mark.parametrize(
    ("name", "layouts"),
    [
        ("cifar10", ("cifar-10-batches-py", "cifar-10-batches-bin")),
        ("cifar100", ("cifar-100-python", "cifar-100-binary")),
    ],
)
def test_both_layouts_hold_the_same(name: str, layouts: tuple[str, str], tmp_path: Path) -> None:
    found = []
    for k, layout in enumerate(layouts):
        root = tmp_path / str(k) / (name if k else ".")
        write(root, layout)
        both = (tmp_path / str(k), root / layout)  # the data folder, or the folder itself
        found += [data.load(name, given) for given in both]
    first = found[0]
    train, test = (6 if name == "cifar10" else 3), 4
    assert first.x_train.shape == (train, 32, 32, 3) and first.x_test.shape == (test, 32, 32, 3)
    rows, labels = _rows(3, 0, first.n_classes)
    assert (first.x_train[:3].transpose(0, 3, 1, 2).reshape(3, -1) == rows).all()
    assert first.y_train[:3].tolist() == labels.tolist()
    assert first.n_classes == (10 if name == "cifar10" else 100)
    for other in found[1:]:
        assert (other.x_train == first.x_train).all() and (other.y_test == first.y_test).all()


def test_a_pickle_runs_no_code(tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self):  # type: ignore[no-untyped-def]
            return (Path.touch, (tmp_path / "ran",))

    write(tmp_path, "cifar-100-python")
    (tmp_path / "cifar-100-python" / "train").write_bytes(pickle.dumps({b"data": Trap()}))
    with pytest.raises(InvalidArgument, match="it asks for"):
        data.load("cifar100", tmp_path)
    assert not (tmp_path / "ran").exists()


def test_what_is_missing_or_cut_short_is_told_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PRIVET_CACHE", str(tmp_path / "cache"))
    with pytest.raises(MissingFile, match="cifar-100-python"):
        data.load("cifar100", tmp_path)
    write(tmp_path, "cifar-10-batches-bin")
    assert len(data.load("cifar10", tmp_path).y_train) == 6
    file = tmp_path / "cifar-10-batches-bin" / "data_batch_1.bin"
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(InvalidArgument, match="no whole number of pictures"):
        data.load("cifar10", tmp_path)


def test_missing_cifar10_asks_for_the_official_archives(tmp_path):
    """It asked for a layout of our own, which nobody can download."""
    with pytest.raises(MissingFile, match=r"cifar-10-batches-py or cifar-10-batches-bin") as found:
        data.load("cifar10", tmp_path)
    assert "webp" not in str(found.value)
