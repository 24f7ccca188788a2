"""`privet train autoencoder`: what it leaves, what it charges, what it refuses."""

from __future__ import annotations

import json

import pytest
from safetensors.numpy import load_file

from privet.cli.main import main
from privet.ledger import Ledger


def run(capsys, *arguments: object) -> dict:
    with pytest.raises(SystemExit) as stopped:
        main(["train", "autoencoder", "--data", "digits", *map(str, arguments), "--json"])
    said = capsys.readouterr()
    return json.loads(said.out) if stopped.value.code == 0 else {"error": said.err}


def test_a_run_leaves_model_guarantee_and_metrics(tmp_path, capsys) -> None:
    out = tmp_path / "run"
    found = run(capsys, "--epsilon", 8, "--layers", "30,20", "--out", out, "--seed", 0)
    assert found["method"] == "autoencoder" and found["claim"] is None
    assert found["test_accuracy"] > 0.6 and found["seconds"] > 0.0
    assert found["guarantee"]["standing"] == "proved" and found["guarantee"]["epsilon"] <= 8.0
    model = load_file(out / "model.safetensors")
    assert model["layer0.basis"].shape == (64, 30) and model["layer1.basis"].shape == (30, 20)
    assert model["output"].shape == (21, 10)
    assert json.loads((out / "config.json").read_text())["layers"] == [30, 20]
    assert Ledger.open(out / "run.ledger").spent() == pytest.approx(8.0, rel=0.01)
    assert "without a run" in run(capsys, "--epsilon", 8, "--out", out)["error"]


def test_the_published_reading_claims(tmp_path, capsys) -> None:
    found = run(
        capsys, "--epsilon", 1, "--reading", "published", "--layers", 4, "--epochs", 2,
        "--records", 200, "--out", tmp_path / "p", "--seed", 0,
    )  # fmt: skip
    assert found["claim"]["epsilon"] == 1.0 and found["claim"]["standing"] == "claimed"
    assert found["guarantee"]["epsilon"] == "inf" and found["guarantee"]["standing"] == "none"


def test_what_is_refused(tmp_path, capsys) -> None:
    for wrong in (
        ("--layers", "ten"),
        ("--layers", "0"),
        ("--reading", "mine"),
        ("--features", "strokes"),
        ("--reading", "published", "--ledger", tmp_path / "l"),
    ):
        said = run(capsys, "--epsilon", 1, "--out", tmp_path / "w", *wrong)["error"]
        assert said.startswith("error: ") and said.count("\n") == 1
    path = tmp_path / "budget"
    Ledger.create(path, cap_epsilon=0.5, cap_delta=1e-5)
    refused = run(capsys, "--epsilon", 1, "--out", tmp_path / "x", "--ledger", path)
    assert "error" in refused and not (tmp_path / "x" / "model.safetensors").exists()
