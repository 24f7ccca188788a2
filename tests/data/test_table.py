"""Tables of the user's own: what is public is declared; a fault is one line that says where."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from privet.data import load_csv, load_npz
from privet.errors import InvalidArgument, MissingFile

GOOD = "age,sex,sick\n30,F,no\n200,M,yes\n50,F,yes\n41,M,no\n29,F,no\n"
SETTINGS = {
    "label": "sick",
    "classes": ("no", "yes"),
    "bounds": {"age": (0, 120)},
    "categories": {"sex": ("F", "M")},
}


def write(folder: Path, text: str) -> Path:
    path = folder / "people.csv"
    path.write_text(text)
    return path


def test_a_table_is_coded_by_what_was_declared(tmp_path: Path) -> None:
    got = load_csv(write(tmp_path, GOOD), **SETTINGS)
    assert got.feature_names == ("age", "sex=F", "sex=M")
    assert len(got.x_train) == 4 and len(got.x_test) == 1
    assert got.high.tolist() == [120, 1, 1]
    everyone = np.concatenate([got.train_rows(), got.test_rows()])
    assert everyone.max() == 1.0  # the age of 200 is clipped by the declared bound
    assert (everyone[:, 1:].sum(axis=1) == 1).all()


def test_a_test_file_of_its_own(tmp_path: Path) -> None:
    path = write(tmp_path, GOOD)
    got = load_csv(path, test_path=path, **SETTINGS)
    assert len(got.x_train) == len(got.x_test) == 5


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "empty"),
        ("age,sex\n1,F\n", "no column 'sick'"),
        ("age,sex,sick\nold,F,no\n", "line 2, column 'age': 'old' is not a number"),
        ("age,sex,sick\n1,F,no\n,F,no\n", "line 3, column 'age': '' is not a number"),
        ("age,sex,sick\nnan,F,no\n", "line 2, column 'age': 'nan' is not finite"),
        ("age,sex,sick\n1e999,F,no\n", "is not finite"),
        ("age,sex,sick\n1,X,no\n", "line 2, column 'sex': 'X' is not among F, M"),
        ("age,sex,sick\n1,F,maybe\n", "'maybe' is not among no, yes"),
        ("age,sex,sick\n1,F\n", "line 2 has 2 cells instead of 3"),
        ("age,sex,sick,weight\n1,F,no,70\n", "ignore=('weight',)"),
    ],
)
def test_faults_say_where(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(InvalidArgument) as error:
        load_csv(write(tmp_path, text), **SETTINGS)
    message = str(error.value)
    assert says in message and "\n" not in message


@pytest.mark.parametrize("pair", [(1, 1), (0, float("inf")), (0,), "no", None])
def test_bounds_must_be_a_pair(tmp_path: Path, pair: object) -> None:
    with pytest.raises(InvalidArgument, match="bounds"):
        load_csv(write(tmp_path, GOOD), **{**SETTINGS, "bounds": {"age": pair}})


def test_bounds_must_be_given(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="bounds"):
        load_csv(write(tmp_path, GOOD), label="sick", classes=("no", "yes"))


def test_no_such_file(tmp_path: Path) -> None:
    with pytest.raises(MissingFile):
        load_csv(tmp_path / "none.csv", **SETTINGS)
    with pytest.raises(MissingFile):
        load_npz(tmp_path / "none.npz", bounds=(0, 1), classes=("a", "b"))


def arrays(**changed: object) -> dict[str, object]:
    fine = {"x_train": np.zeros((4, 2)), "y_train": np.array([0, 1, 0, 1])}
    fine |= {"x_test": np.ones((2, 2)), "y_test": np.array([1, 1])}
    return fine | changed


def test_npz_round_trip(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", **arrays())
    got = load_npz(tmp_path / "a.npz", bounds=(0, 1), classes=("a", "b"))
    assert got.x_train.shape == (4, 2) and got.n_classes == 2


@pytest.mark.parametrize(
    "changed",
    [
        {"x_train": np.full((4, 2), np.nan)},
        {"x_train": np.full((4, 2), "text")},
        {"x_train": np.full((4, 2), None)},
        {"x_train": np.zeros((3, 2))},
        {"x_test": np.zeros((2, 5))},
        {"y_train": np.array([0, 1, 2, 1])},
        {"y_train": np.array([0.5, 1, 0, 1])},
        {"y_train": np.array([-1, 1, 0, 1])},
    ],
)
def test_npz_faults(tmp_path: Path, changed: dict[str, object]) -> None:
    np.savez(tmp_path / "a.npz", **arrays(**changed))
    with pytest.raises(InvalidArgument) as error:
        load_npz(tmp_path / "a.npz", bounds=(0, 1), classes=("a", "b"))
    assert "\n" not in str(error.value)


def test_npz_without_an_array_or_not_npz_at_all(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x_train=np.zeros((4, 2)))
    (tmp_path / "b.npz").write_text("hello")
    for name, says in (("a.npz", "no array 'y_train'"), ("b.npz", "not a readable npz")):
        with pytest.raises(InvalidArgument, match=says):
            load_npz(tmp_path / name, bounds=(0, 1), classes=("a", "b"))
