"""A method from outside: everything works with it, and nothing else was told about it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

import privet
from privet.cli.main import main
from privet.methods import contract_checks, neighbour_replay
from privet.methods.catalogue import method_names, method_type
from privet.noise import seeded


def run(*words: str, code: int = 0) -> None:
    with pytest.raises(SystemExit) as left:
        main(list(words))
    assert int(left.value.code or 0) == code


def test_the_page_shows_it_and_it_needs_one_room_only() -> None:
    """At most 50 lines, with imports from `privet` and `privet.methods`: docs/extending.md."""
    code = (Path(__file__).parent / "outside" / "nearest_mean.py").read_text()
    assert len(code.splitlines()) <= 50
    assert set(re.findall(r"^(?:from|import) (privet[\w.]*)", code, re.M)) == {
        "privet",
        "privet.methods",
    }
    page = (Path(__file__).parents[2] / "docs" / "extending.md").read_text()
    assert code.split("\n", 2)[2] in page


def test_from_python(installed: Path, tmp_path: Path) -> None:
    """Fit, promise, save, load, predict."""
    assert "nearest-mean" in method_names()
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
    method = method_type("nearest-mean").for_audit()
    facts = neighbour_replay.small_facts(method)
    plan = method.plan(facts)
    worst = method.neighbours(plan)
    assert neighbour_replay.replay(method, plan, worst).problems() == []
    assert neighbour_replay.charge_problems(method, plan, worst.present) == []
    assert neighbour_replay.noise_problems(method, plan, worst.present, runs=60) == []
    assert neighbour_replay.stream_problems(method, plan, worst.present) == []
    assert contract_checks.problems(method, facts) == []
    found = neighbour_replay.audit_method(method, facts, trials=150, rng=seeded(0))
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
