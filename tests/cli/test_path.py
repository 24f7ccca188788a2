"""What new users stumbled over on their way to a first model: docs/stumbles.md names these tests."""

from __future__ import annotations

import csv
import io
import json
import re
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from privet.cli.main import main
from privet.data import from_arrays, load_csv


def run(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> tuple[str, str]:
    capsys.readouterr()
    with pytest.raises(SystemExit) as left:
        main(list(words))
    out, err = capsys.readouterr()
    assert int(left.value.code or 0) == code, err
    return out, err


@pytest.fixture
def clinic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """700 patients of whom one in seven is ill; a twentieth of the cells is missing."""
    rng = np.random.default_rng(0)
    n = 700
    ill, age = rng.random(n) < 1 / 7, rng.integers(20, 90, n)
    marker = rng.normal(size=n) + 2.5 * ill
    cost = 20 * age + 300 * marker + 100 * rng.normal(size=n) + 1000
    cells = [["id", "age", "marker", "sex", "outcome", "cost"]]
    for i in range(n):
        row = [
            i,
            age[i],
            f"{marker[i]:.3f}",
            "fm"[i % 2],
            "ill" if ill[i] else "well",
            f"{cost[i]:.0f}",
        ]
        cells.append(
            ["" if 1 <= k <= 3 and rng.random() < 0.05 else str(c) for k, c in enumerate(row)]
        )
    (tmp_path / "patients.csv").write_text("\n".join(map(",".join, cells)) + "\n")
    declared = {
        "bounds": {"age": [0, 120], "marker": [-5, 7]}, "categories": {"sex": ["f", "m"]},
        "ignore": ["id", "cost"], "fill": {"age": 50, "marker": 0, "sex": None},
    }  # fmt: skip
    (tmp_path / "classes.json").write_text(json.dumps(declared | {"classes": ["ill", "well"]}))
    number = declared | {"target_bounds": [0, 6000], "ignore": ["id", "outcome"], "fill": "middle"}
    (tmp_path / "number.json").write_text(json.dumps(number))
    monkeypatch.chdir(tmp_path)
    return tmp_path


TRAIN = ("--data", "patients.csv", "--epsilon", "4", "--seed", "0")


@pytest.mark.slow
def test_metrics_say_what_accuracy_hides(clinic: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = (*TRAIN, "--label", "outcome", "--bounds", "classes.json", "--out")
    _, err = run(capsys, "train", "dpsgd", *words, "plain", "--json")
    assert all(re.match(r"\d+ s: ", line) for line in err.splitlines())  # progress, if slow
    plain = json.loads(Path("plain/private/metrics.json").read_text())
    confusion = np.array(plain["confusion"])
    assert plain["test_accuracy"] == pytest.approx(np.trace(confusion) / confusion.sum())
    assert plain["balanced_accuracy"] == pytest.approx(
        (np.diag(confusion) / confusion.sum(1)).mean()
    )
    assert plain["per_class"]["ill"]["records"] == confusion[0].sum() and plain["auroc"] > 0.9
    assert sum(b["records"] for b in plain["calibration"]["bins"]) == confusion.sum()
    card = Path("plain/README.md").read_text()
    assert "balanced" not in card and "AUROC" not in card  # exact results are not published
    # missing the ill costs ten times more: more of them are found, at the same price in privacy
    out, _ = run(capsys, "train", "dpsgd", *words, "weighted", "--class-weights", "ill=10")
    assert "balanced" in out and "AUROC" in out
    weighted = json.loads(Path("weighted/private/metrics.json").read_text())
    assert weighted["per_class"]["ill"]["recall"] > plain["per_class"]["ill"]["recall"]
    assert weighted["auroc"] == pytest.approx(plain["auroc"])
    told = [
        json.loads(Path(f"{f}/guarantee.json").read_text())["guarantee"]
        for f in ("plain", "weighted")
    ]
    assert told[0]["epsilon"] == told[1]["epsilon"]
    # predict answers like the run it is of, and measures where labels are there
    out, err = run(capsys, "predict", "weighted", "patients.csv", "--metrics", "m.json")
    assert "balanced" in err and len(list(csv.DictReader(io.StringIO(out)))) == 700
    assert json.loads(Path("m.json").read_text())["per_class"]["ill"]["recall"] > 0.7
    _, err = run(capsys, "train", "dpsgd", *words, "w", "--class-weights", "sick=2", code=2)
    assert "one of ill, well" in err


def test_a_class_that_is_never_found_is_told(
    clinic: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One in fifty is ill: the model never says so. The line says it, and what moves it."""
    lines = Path("patients.csv").read_text().splitlines()
    rare = [x for i, x in enumerate(lines) if ",ill," not in x or i % 8 == 0]
    Path("patients.csv").write_text("\n".join(rare) + "\n")
    words = ("--data", "patients.csv", "--epsilon", "1", "--seed", "0", "--label", "outcome",
             "--bounds", "classes.json", "--out")  # fmt: skip
    out, _ = run(capsys, "train", "dpsgd", *words, "rare")
    assert "no better than guessing, yet AUROC tells" in out and "--class-prior" in out
    declared = json.loads(Path("classes.json").read_text())
    declared["bounds"]["age"] = ["1930-01-01", "soon"]
    Path("classes.json").write_text(json.dumps(declared))
    _, err = run(capsys, "train", "dpsgd", *words, "dates", code=2)
    assert 'dates are ["2020-01-01", "2029-12-31"]' in err and "ignore" in err


@pytest.mark.slow
def test_a_number_to_predict(clinic: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = (*TRAIN, "--label", "cost", "--bounds", "number.json", "--out", "run")
    out, _ = run(capsys, "train", "dpsgd", *words)
    assert "mean absolute" in out and "R2" in out
    found = json.loads(Path("run/private/metrics.json").read_text())
    assert found["r2"] > 0.4 and found["mean_absolute_error"] < 300
    out, err = run(capsys, "predict", "run", "patients.csv")
    said = [float(row["predicted"]) for row in csv.DictReader(io.StringIO(out))]
    assert len(said) == 700 and min(said) >= 0 and max(said) <= 6000 and "R2" in err
    out, _ = run(capsys, "attack", "run", "--references", "2", "--json")
    assert 0.4 < json.loads(out)["auc"] < 0.6
    _, err = run(capsys, "train", "pate", *words[:-1], "other", code=2)
    assert "one that predicts numbers: dpsgd" in err
    _, err = run(capsys, "compare", "--data", "patients.csv", "--label", "cost", "--bounds",
                 "number.json", code=2)  # fmt: skip
    assert "data with classes" in err
    Path("number.json").write_text(json.dumps({"bounds": {"age": [0, 120]}}))
    _, err = run(capsys, "train", "dpsgd", *words[:-1], "none", code=2)
    assert "target_bounds" in err


def test_missing_cells_are_filled_as_declared_or_told(clinic: Path) -> None:
    told = json.loads(Path("classes.json").read_text())
    whole = load_csv("patients.csv", label="outcome", **told)
    lines = list(csv.DictReader(io.StringIO(Path("patients.csv").read_text())))
    x = np.concatenate([whole.x_train, whole.x_test])
    assert (x[:, 0] == 50).sum() >= sum(line["age"] == "" for line in lines) > 10
    assert (x[:, 2:].sum(axis=1) == 0).sum() == sum(line["sex"] == "" for line in lines) > 10
    told["fill"] = None
    with pytest.raises(ValueError, match=r"'' is not a number; .*`fill`"):
        load_csv("patients.csv", label="outcome", **told)
    told["fill"] = {"sex": "x"}
    with pytest.raises(ValueError, match="a value that the column can have"):
        load_csv("patients.csv", label="outcome", **told)


def test_arrays_with_the_names_of_medmnist() -> None:
    x = np.arange(12 * 4, dtype=np.uint8).reshape(12, 2, 2)
    y = (np.arange(12) % 2)[:, None]
    parts = {"train": slice(0, 6), "val": slice(6, 8), "test": slice(8, 12)}
    theirs = {f"{k}_{w}": a[s] for k, s in parts.items() for w, a in (("images", x), ("labels", y))}
    found = from_arrays(theirs, bounds=(0, 255), classes=("no", "yes"))
    assert found.x_train.shape == (8, 2, 2) and found.y_test.shape == (4,)
    assert "2 records of MedMNIST's validation part are trained on" in found.notes[0]
    assert "label 0 is 'no', 1 is 'yes'" in found.notes[1]
    named = from_arrays(theirs, bounds=(0, 255), classes={"yes": 1, "no": 0})
    assert len(named.notes) == 1 and named.classes == ("yes", "no")
    assert (named.y_test == 1 - found.y_test).all()
    numbers = from_arrays(theirs, bounds=(0, 255), classes=("1", "0"))  # by value, not by place
    assert (numbers.y_test == named.y_test).all()
    with pytest.raises(ValueError, match="no array 'y_test'"):
        from_arrays(
            {"x_train": x, "y_train": y, "x_test": x}, bounds=(0, 255), classes=("no", "yes")
        )


@pytest.mark.slow
def test_features_tell_how_far_they_are_and_change_nothing() -> None:
    from privet.features import pictures
    from privet.features.combined_extractors import FeaturesWithProgress

    x = np.random.default_rng(0).uniform(size=(300, 16, 16)).astype(np.float32)
    told: list[tuple[str, int, int]] = []
    inner = pictures((16, 16))
    watched = FeaturesWithProgress(inner, lambda *news: told.append(news))
    np.testing.assert_array_equal(watched.transform(x), inner.transform(x))
    assert [done for _, done, _ in told][-1] == 100 and len(told) == 3 and told[0][2] == 100


def test_small_work_takes_one_thread() -> None:
    import torch

    from privet.threads import SMALL, threads

    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        for count, numbers, expected in ((None, 1000, 1), (None, SMALL, 2), (3, SMALL, 3)):
            with threads(count, numbers=numbers):
                assert torch.get_num_threads() == expected
            assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


@pytest.mark.slow
def test_an_interrupt_by_hand_says_how_to_go_on(
    clinic: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from privet.methods.dpsgd import linear_dpsgd

    taken = linear_dpsgd.select_rows
    made = []

    def breaks(*some: Any) -> Any:
        made.append(some)
        if len(made) == 5:
            raise KeyboardInterrupt
        return taken(*some)

    words = (
        "train",
        "dpsgd",
        *TRAIN,
        "--label",
        "outcome",
        "--bounds",
        "classes.json",
        "--out",
        "run",
    )
    monkeypatch.setattr(linear_dpsgd, "select_rows", breaks)
    _, err = run(capsys, *words, code=2)
    said = [line for line in err.splitlines() if line.startswith("error: ")]
    assert len(said) == 1 and "--resume goes on in run" in said[0]
    monkeypatch.setattr(linear_dpsgd, "select_rows", taken)
    run(capsys, *words, "--resume")
    run(capsys, *words[:-1], "whole")
    one, other = (Path(f"{f}/model.safetensors") for f in ("run", "whole"))
    from safetensors.numpy import load_file

    for name, array in load_file(one).items():
        np.testing.assert_array_equal(array, load_file(other)[name])


@pytest.mark.slow
def test_a_table_takes_little_more_memory_than_its_numbers(tmp_path: Path) -> None:
    """Thirteen times the file before, as text cells; now below three times what is kept."""
    import tracemalloc

    rows = np.random.default_rng(0).normal(size=(20_000, 10))
    lines = [
        ",".join(f"{v:.3f}" for v in row) + f",{'no' if row[0] < 0 else 'yes'}" for row in rows
    ]
    path = tmp_path / "table.csv"
    path.write_text(",".join(f"c{j}" for j in range(10)) + ",outcome\n" + "\n".join(lines) + "\n")
    bounds = {f"c{j}": (-5.0, 5.0) for j in range(10)}
    tracemalloc.start()
    try:
        found = load_csv(path, label="outcome", classes=("no", "yes"), bounds=bounds)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    kept = found.x_train.nbytes + found.x_test.nbytes
    assert peak < 3 * kept + 2_000_000, (peak, kept)


def test_a_method_of_ones_own_is_a_row(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from privet.cli.compare import participant_from_path

    page = (Path(__file__).parents[2] / "docs" / "extending.md").read_text()
    code = page.split("```python\n")[1].split("```")[0]
    (tmp_path / "mine.py").write_text(code)
    assert participant_from_path(f"{tmp_path / 'mine.py'}:NearestMean").name == "nearest-mean"
    assert participant_from_path("privet.methods.dpsgd.linear_dpsgd:LinearDPSGD").name == "dpsgd"
    for wrong in ("nowhere.py:X", "privet.no_such:X", "privet.methods:Method2"):
        _, err = run(capsys, "compare", "--data", "blobs", "--methods", wrong, code=2)
        assert "--method" in err and err.count("\n") == 1


def test_completion_and_version(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    out, _ = run(capsys, "--version")
    assert out.startswith("privet ")
    for words, expected in (("privet tr", "train"), ("privet train adap", "adaptive-laplace")):
        monkeypatch.setenv("_PRIVET_COMPLETE", "complete_bash")
        monkeypatch.setenv("COMP_WORDS", words)
        monkeypatch.setenv("COMP_CWORD", str(words.count(" ")))
        with pytest.raises(SystemExit):
            main([])
        assert expected in capsys.readouterr().out.split()


@pytest.mark.slow
@pytest.mark.parametrize(("name", "least"), [
    ("AdaptiveLaplaceClassifier", 0.90), ("PrivateAutoencoderClassifier", 0.90), ("DPSGDClassifier", 0.93),
])  # fmt: skip
@pytest.mark.parametrize("declared", ["from zero", "tight", "three deviations"])
def test_breast_cancer_at_epsilon_1(name: str, least: float, declared: str) -> None:
    """Mean of 8 splits, however bounds are declared; splits and noise are seeded."""
    from sklearn.datasets import load_breast_cancer
    from sklearn.model_selection import train_test_split

    import privet

    x, y = load_breast_cancer(return_X_y=True)
    middle, spread = x.mean(axis=0), 3.0 * x.std(axis=0)
    bounds = {
        "from zero": (np.zeros(x.shape[1]), 1.2 * x.max(axis=0)),
        "tight": (x.min(axis=0), x.max(axis=0)),
        "three deviations": (middle - spread, middle + spread),
    }[declared]
    scores = []
    for seed in range(8):
        parts = train_test_split(x, y, test_size=0.25, random_state=seed)
        clf = getattr(privet, name)(epsilon=1.0, classes=[0, 1], bounds=bounds, random_state=seed)
        scores.append(clf.fit(parts[0], parts[2]).score(parts[1], parts[3]))
    assert np.mean(scores) >= least, scores


@pytest.mark.slow
@pytest.mark.parametrize("method", ["dpsgd", "adaptive-laplace", "autoencoder"])
def test_ultrasound_pictures_are_not_below_chance(
    method: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By the method's own threshold; seeded, so there is no false alarm."""
    from privet.data import load
    from privet.errors import MissingFile

    try:
        load("breastmnist")
    except MissingFile as e:
        pytest.skip(str(e))
    for epsilon in ("1", "4"):
        words = ("--data", "breastmnist", "--epsilon", epsilon, "--seed", "0", "--out")
        out, _ = run(capsys, "train", method, *words, str(tmp_path / epsilon), "--json")
        told = json.loads(out)
        assert told["balanced_accuracy"] >= 0.5 and told["auroc"] > 0.6


def test_a_log_tells_how_long_it_takes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Not on a terminal: a line now and then, with the time left where something is counted."""
    from privet.cli import console

    clock = iter(range(0, 10_000, 10))
    printed = threading.Event()
    monkeypatch.setattr(console.time, "monotonic", lambda: float(next(clock)))
    monkeypatch.setattr(console, "FIRST_LINE", 0.01)
    monkeypatch.setattr(console, "print", lambda *a, **k: (print(*a, **k), printed.set()), False)
    with console.show_progress() as progress:
        for done in range(4):
            progress("steps", done, 100)
        assert printed.wait(30)
        printed.clear()
        assert printed.wait(30)
    last = capsys.readouterr().err.splitlines()[-1]
    assert re.fullmatch(r"\d+ s: steps \(3 of 100, about 16 min left\)", last), last
