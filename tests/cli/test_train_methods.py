"""`privet train METHOD` for every method but DP-SGD: what it leaves, what it charges, what it refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import load_file

from privet.cli.main import main
from privet.guarantee import Adjacency, Unit
from privet.ledger import Ledger


def run(capsys: pytest.CaptureFixture[str], method: str, *words: object) -> dict[str, Any]:
    capsys.readouterr()
    with pytest.raises(SystemExit) as stopped:
        main(["train", method, *map(str, words), "--json"])
    said = capsys.readouterr()
    return json.loads(said.out) if stopped.value.code == 0 else {"error": said.err}


def test_adaptive_laplace_leaves_a_folder(tmp_path: Path, capsys) -> None:
    out = tmp_path / "run"
    usual = ["--data", "digits", "--epsilon", 4, "--out", out]
    found = run(capsys, "adaptive-laplace", *usual, "--seed", 0)
    assert found["method"] == "adaptive-laplace" and found["claim"] is None
    assert found["test_accuracy"] > 0.6 and found["seconds"] > 0.0
    assert found["guarantee"]["epsilon"] <= 4.0 and found["guarantee"]["standing"] == "proved"
    wanted = {"model.safetensors", "config.json", "guarantee.json", "private", "run.ledger"}
    assert {p.name for p in out.iterdir()} >= wanted
    assert load_file(out / "model.safetensors")["weights"].shape == (64, 10)
    assert Ledger.open(out / "run.ledger").spent() == pytest.approx(4.0, rel=0.01)
    assert "without a run" in run(capsys, "adaptive-laplace", *usual)["error"]


@pytest.mark.slow
def test_pure_epsilon_and_a_shared_ledger(tmp_path: Path, capsys) -> None:
    path = tmp_path / "budget"
    Ledger.create(path, cap_epsilon=1.0, cap_delta=0.0)
    usual = ["--data", "digits", "--epsilon", 1, "--delta", 0, "--ledger", path]
    first = run(capsys, "adaptive-laplace", *usual, "--out", tmp_path / "a")
    assert first["guarantee"]["delta"] == 0.0 and first["guarantee"]["epsilon"] <= 1.0
    second = run(capsys, "adaptive-laplace", *usual, "--out", tmp_path / "b")
    assert "error" in second and not (tmp_path / "b").exists()


@pytest.mark.slow
def test_a_network_with_shaped_noise(tmp_path: Path, capsys) -> None:
    usual = ["--data", "digits", "--epsilon", 8, "--records", 600, "--seed", 0]
    found = run(capsys, "adaptive-laplace-network", *usual, "--out", tmp_path / "n")
    assert 7.8 < found["guarantee"]["epsilon"] <= 8.0 and found["test_accuracy"] > 0.3


def test_the_auto_encoder(tmp_path: Path, capsys) -> None:
    out = tmp_path / "run"
    usual = ["--data", "digits", "--epsilon", 8, "--out", out]
    found = run(capsys, "autoencoder", *usual, "--layers", "30,20", "--seed", 0)
    assert found["test_accuracy"] > 0.6 and found["guarantee"]["epsilon"] <= 8.0
    assert json.loads((out / "config.json").read_text())["settings"]["layers"] == [30, 20]
    assert Ledger.open(out / "run.ledger").spent() == pytest.approx(8.0, rel=0.01)


@pytest.mark.slow
def test_pate_and_repeatability(tmp_path: Path, capsys) -> None:
    """Digits at (8, 1e-5) per teacher shard: chance is 10%."""
    usual = ["--data", "digits", "--epsilon", 8, "--teachers", 50, "--public", 100, "--seed", 1]
    first = run(capsys, "pate", *usual, "--out", tmp_path / "a")
    assert 0.6 < first["test_accuracy"] <= 1.0 and first["claim"] is None
    g = first["guarantee"]
    assert 7.99 < g["epsilon"] <= 8.0 and g["delta"] == 1e-5
    assert (g["standing"], g["adjacency"], g["unit"]) == ("proved", "replace-one", "teacher shard")
    assert any("public inputs" in p["text"] for p in g["premises"])
    second = run(capsys, "pate", *usual, "--out", tmp_path / "b")
    assert second["test_accuracy"] == first["test_accuracy"]


@pytest.mark.slow
def test_residual(tmp_path: Path, capsys) -> None:
    out = tmp_path / "run"
    usual = ["--data", "blobs", "--epsilon", 60, "--seed", 0, "--epochs", 3]
    answer = run(capsys, "residual", *usual, "--out", out)
    assert answer["guarantee"]["epsilon"] <= 60.0 and answer["guarantee"]["adjacency"] == "zero-out"
    assert answer["test_accuracy"] > 0.5
    declared = run(capsys, "residual", *usual, "--n-public", 400, "--out", tmp_path / "other")
    assert declared["guarantee"]["adjacency"] == "add-remove"


@pytest.mark.parametrize(
    ("method", "wrong", "told"),
    [
        ("adaptive-laplace", ["--epsilon", "-1"], "epsilon"),
        ("adaptive-laplace", ["--features", "strokes"], "plain for data that are not pictures"),
        ("adaptive-laplace", ["--public", "5"], "asks no questions"),
        ("autoencoder", ["--layers", "ten"], "numbers with commas between"),
        ("autoencoder", ["--layers", "0"], "layers"),
        ("pate", ["--public", "100000"], "fewer than the"),
        ("pate", ["--public", "0"], "public"),
        ("residual", ["--labels", "none"], "one of randomised, public"),
        ("residual", ["--delta", "0"], "delta"),
    ],
)
def test_wrong_options_are_one_line(tmp_path: Path, capsys, method, wrong, told) -> None:
    usual = ["--data", "blobs", "--epsilon", 8, "--out", tmp_path / "w"]
    error = run(capsys, method, *usual, *wrong)["error"]
    assert told in error and error.startswith("error: ") and error.count("\n") == 1
    assert not (tmp_path / "w").exists()


def test_a_ledger_for_something_else(tmp_path: Path, capsys) -> None:
    other = tmp_path / "records.ledger"
    Ledger.create(other, cap_epsilon=9.0, cap_delta=1e-5)
    usual = ["--data", "blobs", "--epsilon", 8, "--out", tmp_path / "s", "--ledger", other]
    assert "per teacher shard" in run(capsys, "pate", *usual)["error"]
    users = tmp_path / "users.ledger"
    Ledger.create(users, cap_epsilon=9.0, cap_delta=1e-5, unit=Unit.USER)
    usual[-1] = users
    assert "per record" in run(capsys, "adaptive-laplace", *usual)["error"]
    declared = tmp_path / "declared.ledger"
    Ledger.create(declared, cap_epsilon=9.0, cap_delta=1e-5, adjacency=Adjacency.ADD_REMOVE)
    usual[-1] = declared
    assert "declare the number of records" in run(capsys, "adaptive-laplace", *usual)["error"]


def test_a_method_without_delta_is_judged_by_the_budget_that_was_asked_for(
    tmp_path: Path, capsys
) -> None:
    """Its own promise has delta 0, where the rule of noise and records says something else."""
    usual = ["--data", "digits", "--epsilon", 1, "--delta", 1e-5, "--out", tmp_path / "run"]
    assert "noise would be longer than all of them" in run(capsys, "local-records", *usual)["error"]
    assert not (tmp_path / "run").exists()
