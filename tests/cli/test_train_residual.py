"""`privet train residual`: a run that leaves its folder."""

import json

import pytest

from privet.cli.main import main


def _run(arguments, code=0):
    with pytest.raises(SystemExit) as leaving:
        main(["train", "residual", *arguments])
    assert leaving.value.code == code


def test_a_sound_run_leaves_its_folder_and_charges_its_ledger(tmp_path, capsys):
    out = str(tmp_path / "run")
    usual = ["--data", "blobs", "--epsilon", "60", "--seed", "0", "--epochs", "3"]
    _run([*usual, "--out", out, "--json"])
    answer = json.loads(capsys.readouterr().out)
    assert answer["guarantee"]["standing"] == "proved" and answer["guarantee"]["epsilon"] <= 60.0
    assert answer["guarantee"]["adjacency"] == "add-remove" and answer["claim"] is None
    assert answer["test_accuracy"] > 0.5 and answer["seconds"] > 0
    names = {p.name for p in (tmp_path / "run").iterdir()}
    wanted = {"model.safetensors", "config.json", "guarantee.json", "metrics.json", "run.ledger"}
    assert wanted <= names
    _run([*usual, "--out", out], code=2)
    assert "folder without a run" in capsys.readouterr().err


def test_the_published_reading_claims(tmp_path, capsys):
    usual = ["--data", "blobs", "--epsilon", "1", "--seed", "0", "--epochs", "2", "--gamma", "1.0"]
    _run([*usual, "--reading", "published", "--out", str(tmp_path / "run"), "--json"])
    answer = json.loads(capsys.readouterr().out)
    assert answer["claim"]["standing"] == "claimed"
    assert answer["guarantee"]["protects"] == "features only"


def test_wrong_options_are_one_line(tmp_path, capsys):
    for bad in (["--reading", "both"], ["--epsilon", "0"], ["--labels", "none"]):
        _run(["--data", "blobs", "--epsilon", "1", "--out", str(tmp_path / "x"), *bad], code=2)
        assert capsys.readouterr().err.count("\n") == 1
