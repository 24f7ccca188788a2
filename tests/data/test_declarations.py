"""Files of the user's own: everything public is declared, nothing is read from the records."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from privet.data.declarations import load_declared, template
from privet.errors import InvalidArgument, MissingFile

DECLARED = {
    "bounds": {"age": [0, 120]},
    "categories": {"sex": ["f", "m"]},
    "classes": ["no", "yes"],
    "ignore": ["id"],
}


@pytest.fixture
def csv_file(tmp_path: Path) -> Path:
    path = tmp_path / "patients.csv"
    rows = [f"{i},{20 + i},{'f' if i % 2 else 'm'},{'yes' if i % 3 else 'no'}" for i in range(40)]
    path.write_text("id,age,sex,outcome\n" + "\n".join(rows) + "\n")
    return path


def declare(tmp_path: Path, **changes: object) -> Path:
    path = tmp_path / "bounds.json"
    path.write_text(json.dumps(DECLARED | changes))
    return path


def test_a_table_as_declared(csv_file: Path, tmp_path: Path) -> None:
    data = load_declared(csv_file, label="outcome", declaration=declare(tmp_path))
    assert data.classes == ("no", "yes")
    assert data.n_features == 3  # age, and sex one-hot
    assert len(data.y_train) + len(data.y_test) == 40
    assert float(data.high[0]) == 120.0


def test_an_npz_as_declared(tmp_path: Path) -> None:
    x, y = np.zeros((6, 2)), np.array([0, 1, 0, 1, 0, 1])
    np.savez(tmp_path / "a.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    told = tmp_path / "b.json"
    told.write_text(json.dumps({"bounds": [0, 1], "classes": ["a", "b"]}))
    assert load_declared(tmp_path / "a.npz", label=None, declaration=told).n_features == 2


def test_the_template_has_names_only(csv_file: Path) -> None:
    told = template(csv_file, label="outcome")
    assert told["bounds"] == {"id": [None, None], "age": [None, None], "sex": [None, None]}
    assert told["classes"] == []
    with pytest.raises(InvalidArgument, match="one of the columns: id, age"):
        template(csv_file, label="outcom")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"bounds": {"age": [None, None]}}, "two numbers"),
        ({"bounds": {"age": [0, 120], "weight": [0, 300]}}, "weight"),
        ({"classes": []}, "every label that may occur"),
        ({"clases": ["no"]}, "bounds, categories, classes, ignore"),
        ({"ignore": []}, "id"),
        ({"bounds": {"age": [0, 120], "sex": [0, 1]}, "categories": {}}, "sex"),
    ],
)
def test_newcomers_mistakes(
    csv_file: Path, tmp_path: Path, changes: dict[str, object], message: str
) -> None:
    with pytest.raises((InvalidArgument, ValueError), match=message):
        load_declared(csv_file, label="outcome", declaration=declare(tmp_path, **changes))


def test_templates_of_arrays_and_pictures_read_nothing(tmp_path: Path) -> None:
    (tmp_path / "a.npz").write_bytes(b"never opened")
    (tmp_path / "pets" / "cat").mkdir(parents=True)
    assert template(tmp_path / "a.npz", label=None) == {"bounds": [None, None], "classes": []}
    assert template(tmp_path / "pets", label=None) == {"classes": [], "shape": [None, None]}


def test_what_is_not_given(csv_file: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="privet data describe"):
        load_declared(csv_file, label="outcome", declaration=None)
    with pytest.raises(InvalidArgument, match="the column to predict"):
        load_declared(csv_file, label=None, declaration=declare(tmp_path))
    with pytest.raises(MissingFile):
        load_declared(tmp_path / "no.csv", label="x", declaration=declare(tmp_path))
    with pytest.raises(MissingFile):
        load_declared(csv_file, label="outcome", declaration=tmp_path / "no.json")


def test_a_folder_of_pictures(tmp_path: Path) -> None:
    from PIL import Image

    rng = np.random.default_rng(0)
    for name in ("cat", "dog"):
        (tmp_path / "pets" / name).mkdir(parents=True)
        for i in range(20):
            grey = rng.integers(0, 256, (9, 7), dtype=np.uint8)
            Image.fromarray(grey).save(tmp_path / "pets" / name / f"{i}.png")
    told = tmp_path / "pets.json"
    told.write_text(json.dumps({"classes": ["cat", "dog"], "shape": [8, 8]}))
    data = load_declared(tmp_path / "pets", label=None, declaration=told)
    assert (
        data.shape == (8, 8)
        and len(data.y_train) + len(data.y_test) == 40
        and 0 < len(data.y_test) < 20
        and float(data.high.max()) == 255.0
    )
    told.write_text(json.dumps({"classes": ["cat", "cow"], "shape": [8, 8]}))
    with pytest.raises(MissingFile, match="a folder of its own"):
        load_declared(tmp_path / "pets", label=None, declaration=told)
    for shape in (None, [None, None], [8], [8, 0], [8, 8, 4], ["8", "8"]):
        told.write_text(
            json.dumps({"classes": ["cat", "dog"]} | ({"shape": shape} if shape else {}))
        )
        with pytest.raises(InvalidArgument, match="height, width"):
            load_declared(tmp_path / "pets", label=None, declaration=told)
    (tmp_path / "pets" / "cat" / "9.png").write_text("not a picture")
    told.write_text(json.dumps({"classes": ["cat", "dog"], "shape": [8, 8, 3]}))
    with pytest.raises(InvalidArgument, match="a readable picture"):
        load_declared(tmp_path / "pets", label=None, declaration=told)


def test_a_replaced_picture_moves_no_other(tmp_path: Path) -> None:
    """One picture changes its class: all others stay where they were, in training and in test."""
    from PIL import Image

    told = tmp_path / "told.json"
    told.write_text(json.dumps({"classes": ["a", "b"], "shape": [2, 2]}))

    def loaded(changed: bool) -> tuple[list[int], list[int]]:
        place = tmp_path / str(changed)
        for i in range(30):
            kind = "b" if i % 2 or (changed and i == 0) else "a"
            (place / kind).mkdir(parents=True, exist_ok=True)
            Image.new("L", (2, 2), color=i).save(place / kind / f"{i:02}.png")
        data = load_declared(place, label=None, declaration=told)
        return [int(x.flat[0]) for x in data.x_train], [int(x.flat[0]) for x in data.x_test]

    assert loaded(False) == loaded(True)
