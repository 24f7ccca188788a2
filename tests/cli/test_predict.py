"""`privet predict`, `attack` and `audit` on every kind of run, and on every kind of data."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from privet import load as load_run
from privet.cli._attack_target import attack_target
from privet.cli.main import main

KINDS = {
    "dpsgd": [],
    "dpsgd-network": ["--steps", "20"],
    "adaptive-laplace": [],
    "adaptive-laplace-network": [],
    "autoencoder": ["--layers", "20"],
    "autoencoder --layers 20,10": ["--layers", "20,10"],
    "residual": ["--epochs", "1"],
    "pate": ["--public", "100"],
    "pate-by-votes": ["--public", "100"],
}
QUICK = ("autoencoder", "pate")


def run(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> str:
    capsys.readouterr()
    with pytest.raises(SystemExit) as left:
        main(list(words))
    out, err = capsys.readouterr()
    assert int(left.value.code or 0) == code, err
    return out if code == 0 else err


def trained(capsys: pytest.CaptureFixture[str], kind: str, *words: str) -> dict[str, object]:
    method = kind.split()[0]
    common = ["--epsilon", "8", "--seed", "1", "--out", "run", "--json"]
    return json.loads(run(capsys, "train", method, *KINDS[kind], *common, *words))


@pytest.mark.parametrize(
    "kind", [pytest.param(k, marks=[] if k in QUICK else [pytest.mark.slow]) for k in KINDS]
)
def test_every_kind_of_run_can_be_asked_and_attacked(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The model that answers is the one that was released: its test accuracy is the run's own."""
    from privet import data

    monkeypatch.chdir(tmp_path)
    told = trained(capsys, kind, "--data", "digits", "--records", "300")
    digits = data.load("digits")
    np.save("new.npy", digits.x_test)
    rows = list(csv.DictReader(io.StringIO(run(capsys, "predict", "run", "new.npy"))))
    right = np.mean([int(r["predicted"]) == y for r, y in zip(rows, digits.y_test, strict=True)])
    assert right == pytest.approx(told["test_accuracy"], abs=1e-9)
    assert sum(float(rows[0][str(k)]) for k in range(10)) == pytest.approx(1.0, abs=1e-4)
    in_python = load_run("run").predict(digits.x_test)
    assert [r["predicted"] for r in rows] == in_python.tolist()
    found = json.loads(run(capsys, "attack", "run", "--references", "0", "--json"))
    assert 0.35 < found["auc"] < 0.75
    target = attack_target(load_run("run"), None)
    members = 200 if kind.startswith("pate") else 300  # 100 of them were public questions
    assert int(target.members.sum()) == members


@pytest.mark.parametrize(
    "kind",
    ["adaptive-laplace", *(pytest.param(k, marks=pytest.mark.slow) for k in ("residual", "pate"))],
)
def test_every_kind_of_run_can_be_audited(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    trained(capsys, kind, "--data", "digits", "--records", "300")
    found = json.loads(run(capsys, "audit", "run", "--trials", "100", "--json"))
    assert found["verdict"] in ("consistent", "uninformative")
    assert found["proved"] <= 8.0
    assert found["what"] == f"{kind} in small, at the budget of run (digits[:300])"


@pytest.fixture
def pets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Bright cats and dark dogs."""
    rng = np.random.default_rng(0)
    for name, grey in (("cat", 200), ("dog", 50)):
        (tmp_path / "pets" / name).mkdir(parents=True)
        for i in range(120):
            pixels = rng.normal(grey, 20, (9, 7)).clip(0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(tmp_path / "pets" / name / f"{name}{i}.png")
    (tmp_path / "new").mkdir()
    for name, grey in (("b", 200), ("a", 50)):
        Image.new("RGB", (20, 20), (grey,) * 3).save(tmp_path / "new" / f"{name}.jpg")
    (tmp_path / "pets.json").write_text(json.dumps({"classes": ["cat", "dog"], "shape": [8, 8]}))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.slow
def test_pictures_in_folders(pets: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = trained(capsys, "dpsgd", "--data", "pets", "--bounds", "pets.json")
    assert told["test_accuracy"] > 0.9
    rows = json.loads(run(capsys, "predict", "run", "new", "--json"))
    assert [(r["file"], r["predicted"]) for r in rows] == [("a.jpg", "dog"), ("b.jpg", "cat")]
    assert load_run("run").predict("new").tolist() == ["dog", "cat"]
    (pets / "none").mkdir()
    assert "at least one record" in run(capsys, "predict", "run", "none", code=2)


@pytest.mark.slow
def test_a_network_on_pictures(pets: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (pets / "pets.json").write_text(json.dumps({"classes": ["cat", "dog"], "shape": [16, 16]}))
    words = ["--data", "pets", "--bounds", "pets.json"]
    assert trained(capsys, "dpsgd-network", *words)["test_accuracy"] > 0.9
    rows = json.loads(run(capsys, "predict", "run", "new", "--json"))
    assert [r["predicted"] for r in rows] == ["dog", "cat"]


def test_arrays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 500)
    x = rng.normal(size=(500, 3)) + 2.0 * y[:, None]
    np.savez("a.npz", x_train=x[:400], y_train=y[:400], x_test=x[400:], y_test=y[400:])
    (tmp_path / "a.json").write_text(json.dumps({"bounds": [-4, 6], "classes": ["low", "high"]}))
    told = trained(capsys, "autoencoder", "--layers", "3", "--data", "a.npz", "--bounds", "a.json")
    np.savez("new.npz", x=x[400:])
    rows = json.loads(run(capsys, "predict", "run", "new.npz", "--json"))
    right = np.mean([("low", "high").index(r["predicted"]) == k for r, k in zip(rows, y[400:], strict=True)])  # fmt: skip
    assert right == pytest.approx(told["test_accuracy"], abs=1e-9)
    for name, wrong in (
        ("wide", np.zeros((2, 4))), ("nan", np.full((2, 3), np.nan)), ("none", np.zeros((0, 3))),
        ("flat", np.zeros(3)), ("text", np.array([["a"] * 3])),
    ):  # fmt: skip
        np.save(f"{name}.npy", wrong)
        said = run(capsys, "predict", "run", f"{name}.npy", code=2)
        assert said.startswith("error: ") and said.count("\n") == 1
    assert "an array x" in run(capsys, "predict", "run", "a.json", code=2)
    assert "no such file" in run(capsys, "predict", "run", "gone.npy", code=2)
    run(capsys, "predict", "run", "new.npz", "--out", "said.csv")
    assert len((tmp_path / "said.csv").read_text().splitlines()) == 101
    assert "not a folder" in run(capsys, "predict", "run", "new.npz", "--out", "run", code=2)


@pytest.mark.slow
def test_a_student_of_several_sites(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The student that `privet pate` leaves answers too; only owners of shards can attack it."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, 2)).astype(np.float32)
    truth = (x[:, 0] > 0).astype(int)
    np.save("x.npy", x)
    np.save("y.npy", np.eye(2)[truth])
    for k in range(6):  # each site errs by itself; equal answers would be one site under two names
        np.save(f"y{k}.npy", np.eye(2)[np.where(np.arange(40) == k, 1 - truth, truth)])
    budget = ["--teachers", "6", "--queries", "40", "--epsilon", "200"]
    run(
        capsys, "pate", "reducer", "--targets", "y.npy", "--kind", "identity", "--out", "r", *budget
    )
    for k in range(6):
        run(capsys, "pate", "answer", "--reducer", "r", "--inputs", "x.npy", "--site", f"s{k}",
            "--predictions", f"y{k}.npy", "--out", f"a{k}")  # fmt: skip
    files = [f"a{k}" for k in range(6)]
    run(capsys, "pate", "aggregate", "--reducer", "r", "--epsilon", "200", "--seed", "0",
        "--out", "labels", *files)  # fmt: skip
    run(capsys, "pate", "student", "--labels", "labels", "--inputs", "x.npy", "--out", "student")
    rows = json.loads(run(capsys, "predict", "student", "x.npy", "--json"))
    assert np.mean([int(r["predicted"]) == t for r, t in zip(rows, truth, strict=True)]) > 0.9
    assert "with its data" in run(capsys, "attack", "student", code=2)
    found = json.loads(run(capsys, "audit", "student", "--trials", "100", "--json"))
    assert found["verdict"] in ("consistent", "uninformative")
    np.save("wide.npy", np.zeros((2, 5)))
    assert "of shape (2,)" in run(capsys, "predict", "student", "wide.npy", code=2)
