"""`privet train dpsgd`: the folder it leaves, the keys it prints, resuming, and refusals."""

import json

import numpy as np
import pytest
from safetensors import safe_open
from typer.testing import CliRunner

from privet.cli.train import app
from privet.data import Dataset
from privet.features import Scattering
from privet.guarantee import Guarantee
from privet.ledger import Ledger
from privet.methods.dpsgd import linear_dpsgd as method_module
from privet.runs import verify

runner = CliRunner()
COMMAND = ["dpsgd", "--data", "digits", "--epsilon", "2", "--delta", "1e-5", "--json"]


def train(out, *more, code=0):
    result = runner.invoke(app, [*COMMAND, "--out", str(out), *more])
    assert result.exit_code == code, result.output
    return json.loads(result.stdout) if code == 0 else result.stderr


def pictures(name, folder=None, **how):
    x = np.random.default_rng(0).integers(0, 256, (40, 16, 16), dtype=np.uint8)
    return Dataset(
        name=name, about="noise", x_train=x, y_train=np.arange(40) % 2, x_test=x[:4],
        y_test=[0, 1, 0, 1], classes=("a", "b"), low=0.0, high=255.0,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("told", "expected"),
    [([], "--epsilon must be a budget"), (["--epsilon", "1e-6"], "epsilon must be at least")],
)
def test_a_budget_is_refused_before_features_are_made(tmp_path, monkeypatch, told, expected):
    def made(*_):
        raise AssertionError("minutes of work for nothing")

    monkeypatch.setattr("privet.data.load", pictures)
    monkeypatch.setattr(Scattering, "transform", made)
    result = runner.invoke(app, ["dpsgd", "--data", "noise", "--out", str(tmp_path / "run"), *told])
    assert result.exit_code == 2 and expected in result.stderr
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_keys_and_folder(tmp_path):
    answer = train(tmp_path / "run", "--seed", "1")
    assert 0.85 < answer["test_accuracy"] <= 1.0
    g = answer["guarantee"]
    assert 1.99 < g["epsilon"] <= 2.0 and g["delta"] == 1e-5
    assert (g["standing"], g["adjacency"], g["unit"]) == ("proved", "zero-out", "record")
    assert answer["claim"]["epsilon"] > 0 and answer["seconds"] > 0
    folder = tmp_path / "run"
    assert {p.name for p in folder.iterdir()} >= {
        "model.safetensors", "config.json", "guarantee.json", "private"
    }  # fmt: skip
    told = json.loads((folder / "guarantee.json").read_text())
    assert Guarantee.from_dict(told["guarantee"]).epsilon == g["epsilon"]
    assert (
        json.loads((folder / "private" / "metrics.json").read_text())["test_accuracy"]
        == answer["test_accuracy"]
    )
    assert json.loads((folder / "config.json").read_text())["seed"] == 1
    with safe_open(folder / "model.safetensors", framework="np") as file:
        assert "weights" in file.keys()  # noqa: SIM118


@pytest.mark.slow
def test_seeded_runs_repeat(tmp_path):
    first, second = (train(tmp_path / name, "--seed", "1") for name in "ab")
    assert first["test_accuracy"] == second["test_accuracy"]
    files = [(tmp_path / name / "model.safetensors").read_bytes() for name in "ab"]
    assert files[0] == files[1]


@pytest.mark.slow
def test_no_run_is_overwritten(tmp_path):
    train(tmp_path, "--seed", "1")
    assert "a folder without a run" in train(tmp_path, "--seed", "1", code=2)
    assert "a folder without a run" in train(tmp_path, "--seed", "1", "--resume", code=2)
    assert "no run to resume" in train(tmp_path / "other", "--seed", "1", "--resume", code=2)


def interrupt(monkeypatch, *, at):
    """Ctrl-C in the middle of a training, at that sum of gradients."""
    real = method_module.add_softmax
    calls = []

    def fails(*a):
        calls.append(1)
        if len(calls) == at:
            raise KeyboardInterrupt
        return real(*a)

    monkeypatch.setattr(method_module, "add_softmax", fails)


@pytest.mark.slow
def test_resume_after_a_crash(tmp_path, monkeypatch):
    """Killed in mid-run: the same model as without, and no step charged twice."""
    whole = train(tmp_path / "whole", "--seed", "1")
    interrupt(monkeypatch, at=12)
    crashed = runner.invoke(app, [*COMMAND, "--out", str(tmp_path / "run"), "--seed", "1"])
    assert crashed.exit_code != 0
    assert "another seed" in train(tmp_path / "run", "--seed", "2", "--resume", code=2)
    again = train(tmp_path / "run", "--seed", "1", "--resume")
    assert again["guarantee"]["epsilon"] == whole["guarantee"]["epsilon"]
    models = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("whole", "run")]
    assert models[0] == models[1]
    assert "without a run" in train(tmp_path / "run", "--seed", "1", "--resume", code=2)


@pytest.mark.slow
def test_secure_resume_pays_again_and_keeps_the_promise(tmp_path, monkeypatch):
    interrupt(monkeypatch, at=12)
    assert runner.invoke(app, [*COMMAND, "--out", str(tmp_path)]).exit_code != 0
    again = train(tmp_path, "--resume")
    assert again["stopped_early"] and again["guarantee"]["epsilon"] <= 2.0


@pytest.mark.slow
def test_a_resumed_run_stops_at_the_budget_asked_for(tmp_path, monkeypatch):
    """Also where the ledger would have more: it paid again for what was lost, and ends earlier."""
    path = tmp_path / "budget.ledger"
    Ledger.create(path, cap_epsilon=10, cap_delta=1e-5)
    interrupt(monkeypatch, at=12)
    out = ["--out", str(tmp_path / "run"), "--ledger", str(path)]
    assert runner.invoke(app, [*COMMAND, *out]).exit_code != 0
    result = runner.invoke(app, [*COMMAND[:-1], *out, "--resume"])
    assert result.exit_code == 0, result.output
    assert "ended at its budget after" in result.stdout and "a new --out" in result.stdout
    record = json.loads((tmp_path / "run" / "guarantee.json").read_text())
    assert 1.5 < record["guarantee"]["epsilon"] <= 2.0 + 1e-6
    assert Ledger.open(path).spent() == pytest.approx(record["guarantee"]["epsilon"], rel=1e-9)
    assert verify(tmp_path / "run", ledger=path).ok


@pytest.mark.slow
def test_a_ledger_is_charged(tmp_path):
    path = tmp_path / "budget.ledger"
    Ledger.create(path, cap_epsilon=2.5, cap_delta=1e-5)
    answer = train(tmp_path / "a", "--seed", "1", "--ledger", str(path))
    assert Ledger.open(path).spent() == pytest.approx(answer["guarantee"]["epsilon"], rel=1e-9)
    assert "over the cap" in train(tmp_path / "b", "--seed", "2", "--ledger", str(path), code=2)
    assert Ledger.open(path).spent() == pytest.approx(answer["guarantee"]["epsilon"], rel=1e-9)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--seed", "1", "--secure"], "one of the two"),
        (["--sample-rate", "2"], "rate"),
        (["--features", "magic"], "scattering, strokes"),
        (["--features", "strokes"], "28x28"),
        (["--records", "0"], "records"),
        (["--delta", "2"], "delta"),
    ],
)
def test_mistakes_are_one_line(tmp_path, options, message):
    error = train(tmp_path / "run", *options, code=2)
    assert error.startswith("error: ") and error.count("\n") == 1
    assert message in error or message == "records"


def test_unknown_data(tmp_path):
    result = runner.invoke(
        app, ["dpsgd", "--data", "nothing", "--epsilon", "1", "--out", str(tmp_path)]
    )
    assert result.exit_code == 2 and "one of" in result.stderr
