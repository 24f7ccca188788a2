"""Tables of the user's own: what is public is declared; a fault is one line that says where."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from privet.data import load_csv, load_npz
from privet.errors import InvalidArgument, MissingFile

PEOPLE = [f"{20 + 5 * k},{'FM'[k % 2]},{'no' if k % 3 else 'yes'}" for k in range(40)]
GOOD = "\n".join(["age,sex,sick", *PEOPLE]) + "\n"
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
    assert len(got.x_train) + len(got.x_test) == 40 and 3 <= len(got.x_test) <= 15
    assert got.high.tolist() == [120, 1, 1]
    everyone = np.concatenate([got.train_rows(), got.test_rows()])
    assert everyone.max() == 1.0  # an age of 215 is clipped by the declared bound
    assert (everyone[:, 1:].sum(axis=1) == 1).all()


def test_no_record_moves_another(tmp_path: Path) -> None:
    """Without one record, or with another label on it, all others stay on their side, in order."""
    whole = load_csv(write(tmp_path, GOOD), **SETTINGS)
    for k in (0, 17, 39):
        fewer = "\n".join(["age,sex,sick", *PEOPLE[:k], *PEOPLE[k + 1 :]])
        part = load_csv(write(tmp_path, fewer), **SETTINGS)
        gone = 20.0 + 5 * k
        for side in ("x_train", "x_test"):
            ages = getattr(whole, side)[:, 0]
            assert getattr(part, side)[:, 0].tolist() == ages[ages != gone].tolist()
    other = write(tmp_path, GOOD.replace(PEOPLE[17], PEOPLE[17].replace("no", "yes")))
    assert (load_csv(other, **SETTINGS).x_train == whole.x_train).all()
    assert whole.split_assumes == "" and "trained on" in whole.subset(9).split_assumes


def test_copies_stay_together_unless_told_apart(tmp_path: Path) -> None:
    lines = [f"{k},{30 + k % 4},F,{'no' if k % 2 else 'yes'}" for k in range(400)]
    path = write(tmp_path, "\n".join(["id,age,sex,sick", *lines]) + "\n")
    apart = load_csv(path, **SETTINGS, ignore=("id",))
    assert 50 < len(apart.x_test) < 110
    assert set(apart.x_test[:, 0]) == set(apart.x_train[:, 0])


def test_a_test_file_of_its_own(tmp_path: Path) -> None:
    path = write(tmp_path, GOOD)
    got = load_csv(path, test_path=path, **SETTINGS)
    assert len(got.x_train) == len(got.x_test) == 40


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
        ("age,sex,sick\n", "it has no records"),
        ("age,sex,sick\n1,F,no\n2,F,no\n", "all its labels are 'no'"),
        ("age,sex,sick\n1,F,no\n1,F,yes\n", "too few different records"),
        ("age,sex,sick\n1,F\n", "line 2 has 2 cells instead of 3"),
        ("age,sex,sick,weight\n1,F,no,70\n", "name it in ignore"),
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
