"""`privet train pate`: keys, folder, repeatability, refusals."""

import json

import pytest
from safetensors.numpy import load_file
from typer.testing import CliRunner

from privet.cli.main import app
from privet.ledger import Ledger

runner = CliRunner()
COMMAND = [
    "train",
    "pate",
    "--data",
    "digits",
    "--epsilon",
    "8",
    "--delta",
    "1e-5",
    "--teachers",
    "50",
    "--queries",
    "100",
    "--json",
]


def train(out, *more, code=0):
    result = runner.invoke(app, [*COMMAND, "--out", str(out), *more])
    assert result.exit_code == code, result.output
    return json.loads(result.stdout) if code == 0 else result.stderr


@pytest.mark.slow
def test_keys_folder_and_repeatability(tmp_path):
    """Digits at (8, 1e-5) per teacher shard: chance is 10%."""
    first = train(tmp_path / "a", "--seed", "1")
    assert 0.6 < first["test_accuracy"] <= 1.0 and first["claim"] is None and first["seconds"] > 0
    g = first["guarantee"]
    assert 7.99 < g["epsilon"] <= 8.0 and g["delta"] == 1e-5
    assert (g["standing"], g["adjacency"], g["unit"]) == ("proved", "replace-one", "teacher shard")
    assert any("inputs are public" in a["text"] for a in g["premises"])
    names = {p.name for p in (tmp_path / "a").iterdir()}
    assert names >= {"model.safetensors", "config.json", "guarantee.json", "metrics.json"}
    assert Ledger.open(tmp_path / "a" / "run.ledger").spent() == pytest.approx(8.0, rel=1e-6)
    assert load_file(tmp_path / "a" / "model.safetensors")
    second = train(tmp_path / "b", "--seed", "1")
    assert second["test_accuracy"] == first["test_accuracy"]
    assert "without a run" in train(tmp_path / "a", code=2)


@pytest.mark.slow
def test_published_reading_and_refusals(tmp_path):
    paper = train(
        tmp_path / "p",
        "--seed",
        "1",
        "--reading",
        "published",
        "--teachers",
        "20",
        "--queries",
        "30",
    )
    assert paper["claim"]["epsilon"] == 8.0 and paper["guarantee"]["epsilon"] < 8.0
    assert "--queries" in train(tmp_path / "q", "--queries", "1430", code=2)
    assert "--reading" in train(tmp_path / "r", "--reading", "best", code=2)
    other = tmp_path / "records.ledger"
    Ledger.create(other, cap_epsilon=9.0, cap_delta=1e-5)
    assert "adjacency" in train(tmp_path / "s", "--ledger", str(other), "--teachers", "3", code=2)
