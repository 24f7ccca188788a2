"""`privet attack`: the keys it prints, what it finds on good and bad runs, and refusals."""

import json
import shutil

import pytest
from safetensors.numpy import save_file
from typer.testing import CliRunner

from privet.cli._attack_target import attack_target
from privet.cli.main import app
from privet.runs.guarantee_record import read_record
from privet.runs.run_folder import write_record

runner = CliRunner()


def attack(run, *more, code=0):
    result = runner.invoke(app, ["attack", str(run), *more])
    assert result.exit_code == code, result.output
    return json.loads(result.stdout) if code == 0 and "--json" in more else result.output


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("attack") / "run"
    command = ["train", "dpsgd", "--data", "digits", "--records", "400", "--epsilon", "1"]
    result = runner.invoke(app, [*command, "--seed", "1", "--out", str(folder), "--json"])
    assert result.exit_code == 0, result.output
    return folder


@pytest.mark.slow
def test_keys_and_a_private_run_that_holds(run):
    """epsilon 1 bounds the area by about .73, and a linear model of 400 records leaks far less."""
    found = attack(run, "--references", "4", "--json")
    assert 0.4 < found["auc"] < 0.6
    assert found["auc_interval"][0] <= found["auc"] <= found["auc_interval"][1]
    assert 0 <= found["tpr_at_1pct_fpr"] < 0.1
    assert found["attack"] == "RMIA, 4 references" and found["members"] == 400
    names = [a["attack"].split(",")[0] for a in found["attacks"]]
    assert names == ["loss", "LiRA", "BaVarIA", "RMIA"]
    assert set(found["by_class"]) == {str(k) for k in range(10)}
    assert "not covered" in found["note"]
    assert len(found["roc"]["fpr"]) > 10


@pytest.mark.slow
def test_nothing_is_left_in_the_run(run):
    before = sorted(p.name for p in run.iterdir())
    attack(run, "--references", "0")
    assert sorted(p.name for p in run.iterdir()) == before


@pytest.mark.slow
def test_loss_alone_cache_and_picture(run, tmp_path):
    found = attack(run, "--references", "0", "--json")
    assert found["attack"] == "loss" and len(found["attacks"]) == 1
    options = ("--references", "2", "--cache", str(tmp_path / "refs"))
    text = attack(run, *options, "--plot", str(tmp_path / "roc.png"))
    assert "RMIA, 2 references: AUC" in text and "LiRA" not in text
    assert len(list((tmp_path / "refs").glob("reference-*.npz"))) == 2
    assert (tmp_path / "roc.png").stat().st_size > 5000
    assert attack(run, *options) == text


@pytest.mark.slow
def test_a_model_that_fits_its_records_is_caught(run, tmp_path):
    """The same folder with a least-squares fit in place of the private weights: 0 privacy."""
    import numpy as np

    from privet import data, load

    bad = tmp_path / "bad"
    shutil.copytree(run, bad)
    config = json.loads((bad / "config.json").read_text()) | {"data": "digits[:80]"}
    (bad / "config.json").write_text(json.dumps(config))
    digits = data.load("digits").subset(80)
    rows = load(run).domain.rows(digits.x_train).ball().astype(np.float64)
    weights = np.linalg.pinv(rows, rcond=1e-6) @ (20.0 * np.eye(10)[digits.y_train])
    save_file({"weights": weights, "intercept": np.zeros(10)}, bad / "model.safetensors")
    write_record(bad, read_record(bad))  # sealed anew
    found = attack(bad, "--references", "0", "--json")
    assert found["members"] == 80 and found["auc_interval"][0] > 0.7


@pytest.mark.slow
@pytest.mark.parametrize("method", ["dpsgd", "adaptive-laplace"])
def test_the_model_that_is_attacked_is_the_one_that_was_released(method, tmp_path):
    """Its test accuracy is the run's own, to the last record."""
    from privet import load

    command = ["train", method, "--data", "digits", "--records", "300", "--epsilon", "8"]
    result = runner.invoke(app, [*command, "--seed", "1", "--out", str(tmp_path / "run"), "--json"])
    assert result.exit_code == 0, result.output
    target = attack_target(load(tmp_path / "run"), None)
    out = ~target.members
    right = target.answer(target.x[out]).argmax(axis=1) == target.y[out]
    told = json.loads(result.stdout)["test_accuracy"]
    assert right.mean() == pytest.approx(told, abs=1e-9)
    found = attack(tmp_path / "run", "--references", "2", "--json")
    assert found["references"] == 2 and 0.35 < found["auc"] < 0.75


@pytest.mark.slow
def test_refusals(run, tmp_path):
    def refused(*arguments):
        error = attack(*arguments, code=2)
        assert error.startswith("error: ") and error.count("\n") == 1
        return error

    assert "privet train" in refused(tmp_path)
    assert "0, or 2 and more" in refused(run, "--references", "1")
    other = tmp_path / "other"
    shutil.copytree(run, other)
    config = json.loads((other / "config.json").read_text())
    (other / "config.json").write_text(json.dumps(config | {"method": "another"}))
    assert "not the file of this record" in refused(other)
    write_record(other, read_record(other))  # sealed anew
    assert "one of dpsgd" in refused(other)
    mine = {k: v for k, v in config.items() if k != "seed"}
    (other / "config.json").write_text(json.dumps(mine))
    write_record(other, read_record(other))
    assert "guide on membership" in refused(other)
    (other / "model.safetensors").unlink()
    assert "has not finished" in refused(other)
    (other / "config.json").write_text("{}")
    assert "with its method" in refused(other)
    (other / "config.json").write_text("{")
    assert "JSON" in refused(other)
