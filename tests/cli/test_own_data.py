"""Your own data in five minutes: declare, train, attack, predict; and the mistakes on the way."""

from __future__ import annotations

import csv
import io
import json
import shutil
from pathlib import Path

import jsonschema
import numpy as np
import pytest

import privet
import privet.report
from privet.cli.main import main
from privet.data.declarations import load_declared, template

SCHEMA = json.loads((Path(privet.report.__file__).parent / "guarantee.schema.json").read_text())
DECLARED = {
    "bounds": {"age": [0, 120], "marker": [-5, 5]},
    "categories": {"sex": ["f", "m"]},
    "classes": ["ill", "well"],
    "ignore": ["id"],
}
METHODS = ("dpsgd", "adaptive-laplace", "residual", "pate", "autoencoder")
OTHERS = ("dpsgd-network", "adaptive-laplace-network", "local-records", "pate-by-votes")


@pytest.fixture
def clinic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    rng = np.random.default_rng(0)
    lines = ["id,age,marker,sex,outcome"]
    for i in range(600):
        marker = rng.normal()
        state = "ill" if marker + 0.3 * rng.normal() > 0 else "well"
        lines.append(f"{i},{rng.integers(20, 90)},{marker:.3f},{'fm'[i % 2]},{state}")
    (tmp_path / "patients.csv").write_text("\n".join(lines) + "\n")
    (tmp_path / "bounds.json").write_text(json.dumps(DECLARED))
    new = ["marker,age,sex", "3.0,50,f", "-3.0,50,m"]
    (tmp_path / "new.csv").write_text("\n".join(new) + "\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_records_without_a_label_can_be_left_out(clinic: Path) -> None:
    """A rule for each record alone, declared; without it the message says so."""
    lines = (clinic / "patients.csv").read_text().splitlines()
    holes = [line.rpartition(",")[0] + "," if i % 3 == 1 else line for i, line in enumerate(lines)]
    (clinic / "patients.csv").write_text("\n".join(holes) + "\n")
    file, declared = clinic / "patients.csv", clinic / "bounds.json"
    with pytest.raises(ValueError, match=r'line 2, .*"missing_labels": "drop"'):
        load_declared(file, label="outcome", declaration=declared)
    declared.write_text(json.dumps(DECLARED | {"missing_labels": "drop"}))
    found = load_declared(file, label="outcome", declaration=declared)
    assert len(found.x_train) + len(found.x_test) == 400
    assert found.drops_unlabelled


def test_an_index_without_a_name_is_left_out(clinic: Path) -> None:
    """As pandas writes it; a record keeps its side whatever its place in the file."""
    file, declared = clinic / "patients.csv", clinic / "bounds.json"
    plain = load_declared(file, label="outcome", declaration=declared)
    lines = file.read_text().splitlines()
    numbered = [f"{i - 1 if i else ''},{line}" for i, line in enumerate(lines)]
    file.write_text("\n".join(numbered) + "\n")
    found = load_declared(file, label="outcome", declaration=declared)
    assert found.fingerprint == plain.fingerprint
    assert list(template(file, label="outcome")["bounds"]) == ["id", "age", "marker", "sex"]


def run(*words: str) -> int:
    with pytest.raises(SystemExit) as left:
        main(list(words))
    return int(left.value.code or 0)


def train(method: str, *more: str) -> int:
    options = ["--data", "patients.csv", "--label", "outcome", "--bounds", "bounds.json",
               "--epsilon", "4", "--out", "run", "--seed", "0"]  # fmt: skip
    asked = ["--public", "60"] if method.startswith("pate") else []
    return run("train", method, *options, *asked, *more)


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_train_leaves_a_whole_folder(
    method: str, clinic: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert train(method, "--json") == 0
    answer = json.loads(capsys.readouterr().out)
    promise = json.loads((clinic / "run" / "guarantee.json").read_text())
    jsonschema.validate(promise, SCHEMA)
    assert promise["guarantee"] == answer["guarantee"]
    assert answer["guarantee"]["epsilon"] <= 4.0
    premises = " ".join(a["text"] for a in answer["guarantee"]["premises"])
    assert "number of records, " in premises and "not a release" in premises
    split = "kept for tests is public" in premises  # each record goes its way by itself, unless
    assert split == (answer["guarantee"]["adjacency"] == "replace-one")  # it may change sides
    card = (clinic / "run" / "README.md").read_text()
    assert card.startswith(f"# {method} on patients") and "What is not promised" in card
    assert str(clinic).encode() not in (clinic / "run" / "model.safetensors").read_bytes()
    assert str(clinic) not in card and "- label: " in card  # where records lie is not shown
    assert not list((clinic / "run").glob("*.part"))


@pytest.mark.slow
@pytest.mark.parametrize("method", [*METHODS, *OTHERS])
def test_predict_without_the_training_file(
    method: str, clinic: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert train(method, "--epsilon", "20") == 0  # answers beyond doubt: files are what is tested
    (clinic / "patients.csv").unlink()
    capsys.readouterr()
    assert run("predict", "run", "new.csv") == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert float(rows[0]["ill"]) + float(rows[0]["well"]) == pytest.approx(1.0, abs=1e-5)
    if method != "residual":  # local noise: that table teaches it little
        assert [r["predicted"] for r in rows] == ["ill", "well"]
    answers_equal_those_in_python(rows)


def answers_equal_those_in_python(rows: list[dict[str, str]]) -> None:
    """`privet.load(run)` takes the same table: from a file, a frame, with more and other columns."""
    pandas = pytest.importorskip("pandas")
    saved = privet.load("run")
    frame = pandas.read_csv("new.csv")
    moved = frame.assign(id=7, height="1.80", outcome="")[["height", "sex", "id", "age", "marker"]]
    moved.to_csv("moved.csv")  # with an index that has no name
    for X in ("new.csv", frame, moved, frame.astype(str), Path("moved.csv")):
        probabilities = saved.predict_proba(X)
        for row, p, said in zip(rows, probabilities, saved.predict(X), strict=True):
            assert said == row["predicted"]
            assert [float(row[str(k)]) for k in saved.classes] == [round(float(q), 6) for q in p]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("marker,sex\n3.0,f\n", "no column 'age'"),
        ("marker,age,sex\nhigh,50,f\n", "'high' is not a number"),
        ("marker,age,sex\n3.0,nan,f\n", "is not finite"),
        ("marker,age,sex\n3.0,50,x\n", "'x' is not among f, m"),
        ("marker,age,sex\n", "at least one record"),
        ("", "it is empty"),
        (None, "no such file"),
    ],
)
@pytest.mark.parametrize("method", ["adaptive-laplace", "autoencoder"])
def test_mistakes_in_new_records(
    method: str, text: str | None, says: str, clinic: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert train(method) == 0
    if text is None:
        (clinic / "new.csv").unlink()
    else:
        (clinic / "new.csv").write_text(text)
    capsys.readouterr()
    assert run("predict", "run", "new.csv", "--out", "said.csv") == 2
    said = capsys.readouterr().err
    assert says in said and said.startswith("error: ") and said.count("\n") == 1
    assert not (clinic / "said.csv").exists()


@pytest.mark.parametrize("command", ["attack"])
def test_a_training_file_that_is_gone(
    command: str, clinic: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The data of a run are looked for where they were."""
    assert train("adaptive-laplace") == 0
    (clinic / "patients.csv").unlink()
    capsys.readouterr()
    assert run(command, "run") == 2
    said = capsys.readouterr().err
    assert "no such file" in said and said.count("\n") == 1


def test_pate_takes_nothing_as_public_unasked(
    clinic: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--data", "patients.csv", "--label", "outcome", "--bounds", "bounds.json"]
    assert run("train", "pate", *words, "--epsilon", "4", "--out", "run") == 2
    assert "how many of the last training inputs are public" in capsys.readouterr().err


def test_describe_reads_the_header_alone(clinic: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("data", "describe", "patients.csv", "--label", "outcome") == 0
    told = json.loads(capsys.readouterr().out)
    assert list(told["bounds"]) == ["id", "age", "marker", "sex"]
    assert run("data", "describe", "patients.csv") == 0


@pytest.mark.parametrize(
    ("spoil", "words", "message"),
    [
        ({"bounds": {"age": [0, 120], "weight": [0, 9], "marker": [-5, 5]}}, (), "no column 'weight'"),
        ({"bounds": {"age": [0, 120], "marker": [-5, 5], "sex": [0, 1]}, "categories": {}}, (), "'f' is not a number"),
        ({"classes": ["ill"]}, (), "two or more"),
        ({"classes": "ill"}, (), "a list in bounds.json"),
        ({"classes": ["ill", "dead"]}, (), "'well' is not among ill, dead; declare every value"),
        ({"bounds": None}, (), "an object or a list in bounds.json"),
        ({"bounds": [0, 1]}, (), "for a CSV file"),
        ({}, ("--label", "outcom"), "no column 'outcom'"),
        ({}, ("--out", "/proc/x"), "a folder that can be made"),
        ({}, ("--epsilon", "0"), "epsilon must be"),
        ({}, ("--ledger", "bounds.json"), "is not an SQLite database"),
    ],
)  # fmt: skip
def test_newcomers_mistakes(
    spoil: dict[str, object], words: tuple[str, ...], message: str, clinic: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    (clinic / "bounds.json").write_text(json.dumps(DECLARED | spoil))
    assert train("dpsgd", *words) == 2
    said = capsys.readouterr().err
    assert message in said and said.startswith("error: ") and said.count("\n") == 1
    assert not (clinic / "run" / "guarantee.json").exists()


def test_no_bounds_says_how_to_declare_them(
    clinic: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("train", "dpsgd", "--data", "patients.csv", "--label", "outcome", "--epsilon", "1",
               "--out", "run") == 2  # fmt: skip
    assert "privet data describe patients.csv` writes" in capsys.readouterr().err


def test_a_typo_in_a_method(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("train", "dpsdg") == 2
    assert capsys.readouterr().err.startswith("error: No such command 'dpsdg'")


def test_many_rows_a_person(clinic: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With --user people are covered, and none is in both parts; without, one record each."""
    lines = (clinic / "patients.csv").read_text().splitlines()
    visits = [lines[0]] + [line.replace(line.split(",")[0], f"p{i % 150}", 1)
                           for i, line in enumerate(lines[1:])]  # fmt: skip
    (clinic / "patients.csv").write_text("\n".join(visits) + "\n")
    assert train("adaptive-laplace", "--user", "id", "--json") == 0
    told = json.loads(capsys.readouterr().out)["guarantee"]
    people = next(p for p in told["premises"] if p["about"] == "people")
    assert told["unit"] == "user" and "one value of id" in people["text"]
    card = (clinic / "run" / "README.md").read_text()
    assert "Each person, with all records" in card and "people who have several" not in card
    found = load_declared(
        clinic / "patients.csv", label="outcome", declaration=clinic / "bounds.json", user="id"
    )
    assert found.groups is not None and len(found.groups) == len(found.x_train)
    inside = set(found.groups)
    assert sum(line.split(",")[0] in inside for line in visits[1:]) == len(found.x_train)
    assert 0 < len(found.x_test) == 600 - len(found.x_train)
    shutil.rmtree(clinic / "run")
    assert train("adaptive-laplace") == 0
    card = (clinic / "run" / "README.md").read_text()
    assert "- assumed: each person has one record" in card
    assert "people who have several records, as people" in card
    assert train("residual", "--user", "id", "--out", "other") == 2
    assert "residual protects records" in capsys.readouterr().err
