"""A method from outside: everything works with it, and nothing else was told about it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import privet
from privet.cli.main import main
from privet.methods import conforming, replay
from privet.methods.catalogue import method_names, method_type
from privet.noise import seeded

LONGEST = 60
"""Lines that a method of this kind may take."""


def run(*words: str, code: int = 0) -> None:
    with pytest.raises(SystemExit) as left:
        main(list(words))
    assert int(left.value.code or 0) == code


def test_it_is_short() -> None:
    assert (
        len((Path(__file__).parent / "outside" / "nearest_mean.py").read_text().splitlines())
        <= LONGEST
    )


def test_from_python(installed: Path, tmp_path: Path) -> None:
    """Fit, promise, save, load, predict."""
    assert method_names()[-1] == "nearest-mean"
    method = method_type("nearest-mean")()
    digits = privet.data.load("digits")
    clf = privet.PrivateClassifier(
        method, epsilon=4.0, classes=range(10), bounds=(0, 16), random_state=0
    )
    clf.fit(digits.x_train, digits.y_train)
    assert clf.score(digits.x_test, digits.y_test) > 0.7
    assert clf.guarantee_.epsilon <= 4.0 and "zero-out, proved" in str(clf.guarantee_)
    clf.save(tmp_path / "run")
    loaded = privet.load(tmp_path / "run")
    assert np.array_equal(loaded.predict_proba(digits.x_test), clf.predict_proba(digits.x_test))


@pytest.mark.slow
def test_conforms_and_is_audited(installed: Path) -> None:
    """False alarm of the noise check 1e-6; of the audit's bound 5%, with a fixed seed."""
    method = method_type("nearest-mean").small()
    facts = replay.small_facts(method)
    plan = method.plan(facts)
    worst = method.neighbours(plan)
    assert replay.replay(method, plan, worst).problems() == []
    assert replay.charge_problems(method, plan, worst.present) == []
    assert replay.noise_problems(method, plan, worst.present, runs=60) == []
    assert replay.stream_problems(method, plan, worst.present) == []
    assert conforming.problems(method, facts) == []
    found = replay.audit_method(method, facts, trials=150, rng=seeded(0))
    assert found.verdict.value == "consistent" and found.control > found.proved


@pytest.mark.slow
def test_from_the_command_line(
    installed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / "run")
    run("train", "nearest-mean", "--data", "digits", "--epsilon", "4", "--seed", "0",
        "--shrink", "2.0", "--out", out, "--json")  # fmt: skip
    answer = json.loads(capsys.readouterr().out)
    assert answer["test_accuracy"] > 0.7 and answer["guarantee"]["epsilon"] <= 4.0
    assert json.loads((tmp_path / "run" / "config.json").read_text())["settings"] == {"shrink": 2.0}
    rows = tmp_path / "new.npy"
    np.save(rows, privet.data.load("digits").x_test[:3])
    run("predict", out, str(rows))
    assert len(capsys.readouterr().out.splitlines()) == 4
    run("attack", out, "--references", "0", "--json")
    assert 0.3 < json.loads(capsys.readouterr().out)["auc"] < 0.7
    run("audit", out, "--trials", "100", "--json")
    assert json.loads(capsys.readouterr().out)["verdict"] in ("consistent", "uninformative")
    run("train", "nearest-mean", "--help")
    assert "What class means are multiplied by" in capsys.readouterr().out


@pytest.mark.slow
def test_in_a_comparison(
    installed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run("compare", "--data", "digits", "--epsilon", "3", "--methods", "nearest-mean", "--jobs", "1",
        "--backend", "threading", "--out", str(tmp_path / "out"), "--json")  # fmt: skip
    rows = {row["method"]: row for row in json.loads(capsys.readouterr().out)["rows"]}
    row = rows["nearest-mean"]  # beside the non-private limit
    assert row["accuracy"] > 0.7
    assert row["proved_epsilon"] <= 3.0 and row["audited_epsilon"] > 0.0
    assert (tmp_path / "out" / "report.html").exists()
