"""`privet train adaptive-laplace`: what it leaves, what it charges, what it refuses."""

from __future__ import annotations

import json

import numpy as np
import pytest
from safetensors.numpy import load_file

from privet.cli.main import main
from privet.ledger import Ledger


def run(capsys, *arguments: object) -> dict:
    with pytest.raises(SystemExit) as stopped:
        main(["train", "adaptive-laplace", "--data", "digits", *map(str, arguments), "--json"])
    said = capsys.readouterr()
    return json.loads(said.out) if stopped.value.code == 0 else {"error": said.err}


def test_a_run_leaves_model_guarantee_and_metrics(tmp_path, capsys) -> None:
    out = tmp_path / "run"
    found = run(capsys, "--epsilon", 4, "--out", out, "--seed", 0)
    assert found["method"] == "adaptive-laplace" and found["claim"] is None
    assert found["test_accuracy"] > 0.6 and found["seconds"] > 0.0
    assert found["guarantee"]["epsilon"] <= 4.0
    assert found["guarantee"]["standing"] == "proved"
    assert {p.name for p in out.iterdir()} >= {
        "model.safetensors", "config.json", "guarantee.json", "metrics.json", "run.ledger",
    }  # fmt: skip
    model = load_file(out / "model.safetensors")
    assert model["weights"].shape == (64, 10) and np.isfinite(model["intercept"]).all()
    assert Ledger.open(out / "run.ledger").spent() == pytest.approx(4.0, rel=0.01)
    assert "without a run" in run(capsys, "--epsilon", 4, "--out", out)["error"]


def test_pure_epsilon_and_a_shared_ledger(tmp_path, capsys) -> None:
    path = tmp_path / "budget"
    Ledger.create(path, cap_epsilon=1.0, cap_delta=0.0)
    first = run(capsys, "--epsilon", 1, "--delta", 0, "--out", tmp_path / "a", "--ledger", path)
    assert first["guarantee"]["delta"] == 0.0 and first["guarantee"]["epsilon"] <= 1.0
    second = run(capsys, "--epsilon", 1, "--delta", 0, "--out", tmp_path / "b", "--ledger", path)
    assert "error" in second and not (tmp_path / "b" / "model.safetensors").exists()


def test_a_network_with_shaped_noise(tmp_path, capsys) -> None:
    found = run(
        capsys, "--epsilon", 8, "--kind", "network", "--records", 600, "--out", tmp_path / "n",
        "--seed", 0,
    )  # fmt: skip
    assert 7.8 < found["guarantee"]["epsilon"] <= 8.0 and found["test_accuracy"] > 0.3
    assert "shape" in load_file(tmp_path / "n" / "model.safetensors")


def test_the_published_reading_claims(tmp_path, capsys) -> None:
    found = run(
        capsys, "--epsilon", 1, "--reading", "published", "--epochs", 1, "--records", 200,
        "--out", tmp_path / "p", "--seed", 0,
    )  # fmt: skip
    assert found["claim"]["epsilon"] == pytest.approx(1.0)
    assert found["guarantee"]["epsilon"] == "inf"


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (["--kind", "x"], "moments, network"),
        (["--reading", "x"], "sound, published"),
        (["--epsilon", "-1"], "epsilon"),
        (["--reading", "published", "--ledger", "x"], "a published reading"),
    ],
)
def test_wrong_options_are_one_line(tmp_path, capsys, wrong, told) -> None:
    error = run(capsys, "--epsilon", 1, "--out", tmp_path / "w", *wrong)["error"]
    assert told in error and error.count("\n") == 1
