"""`privet ledger` from the outside."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from privet.accounting import Gaussian
from privet.cli.ledger import app
from privet.ledger import Ledger


def run(*arguments: object) -> str:
    result = CliRunner().invoke(app, [str(a) for a in arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def run_json(*arguments: object) -> dict[str, Any]:
    answer = json.loads(run(*arguments, "--json"))
    assert isinstance(answer, dict)
    return answer


def error(*arguments: object) -> str:
    result = CliRunner().invoke(app, [str(a) for a in arguments], catch_exceptions=False)
    assert result.exit_code == 2
    assert result.stdout == ""
    lines = result.stderr.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("error: ")
    return lines[0]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "l.db"
    run("init", path, "--epsilon", 3, "--delta", "1e-5", "--dataset", "census")
    return path


def test_init_describes_what_it_made(tmp_path: Path) -> None:
    made = run_json(
        "init", tmp_path / "a.db", "--epsilon", 2, "--delta", 0, "--adjacency", "replace-one",
        "--unit", "user",
    )  # fmt: skip
    assert made["cap"] == {"epsilon": 2.0, "delta": 0.0}
    assert made["count"] == 0
    assert made["remaining"] == 2.0
    assert made["guarantee"]["adjacency"] == "replace-one"
    assert made["guarantee"]["unit"] == "user"
    assert made["head"] == Ledger.open(tmp_path / "a.db").head


@pytest.mark.slow
def test_spend_show_verify_export(path: Path, tmp_path: Path) -> None:
    first = run_json("spend", path, "--what", "mean [age]", "--gaussian-mu", 0.3)
    assert first["spent"]["epsilon"] == pytest.approx(Gaussian(mu=0.3).epsilon(1e-5))
    assert first["guarantee"]["epsilon"] == 3.0
    assert first["spent"]["epsilon"] < first["odometer"]["epsilon"] < 3.0
    assert first["entry"]["sequence"] == 1
    run("spend", path, "--what", "count", "--epsilon", 0.1)
    run("spend", path, "--what", "rough", "--epsilon", 0.1, "--delta", "1e-8", "--who", "ada")
    sampled = ("--sample-rate", 0.01, "--noise-multiplier", 4, "--steps", 100)
    text = run("spend", path, "--what", "training", *sampled, "--token", "run:0-99")
    assert text == run("spend", path, "--what", "training", *sampled, "--token", "run:0-99")

    shown = run("show", path)
    for expected in ("mean [age]", "SampledGaussian", "ada", "epsilon", " of 3 ", "data census",
                     "proved, if 4 assumed premises hold", "promised: at most epsilon 3"):  # fmt: skip
        assert expected in shown
    assert "2 earlier lines not shown" in run("show", path, "--last", 2)
    listed = run_json("show", path)
    assert [e["what"] for e in listed["entries"]] == ["mean [age]", "count", "rough", "training"]
    assert listed["remaining"] == pytest.approx(3.0 - listed["spent"]["epsilon"])

    assert "intact, 4 entries, 3 since" in run("verify", path, "--head", first["head"])
    assert run_json("verify", path)["ok"] is True
    exported = json.loads(run("export", path))
    assert exported["head"] == listed["head"]
    written = run_json("export", path, "--out", tmp_path / "x.json")
    assert written == {"file": str(tmp_path / "x.json"), "count": 4, "head": exported["head"]}
    assert json.loads((tmp_path / "x.json").read_text()) == exported


@pytest.mark.slow
def test_a_run_is_one_line_that_can_be_unfolded(path: Path) -> None:
    run("spend", path, "--what", "mean age", "--gaussian-mu", 0.1, "--who", "ada")
    for k in range(3):
        run(
            "spend", path, "--what", f"training, block {k}", "--run", "r7", "--who", "bob",
            "--sample-rate", 0.01, "--noise-multiplier", 4, "--steps", 10,
        )  # fmt: skip
    ledger = Ledger.open(path)
    assert [e.run for e in ledger.entries()] == [None, "r7", "r7", "r7"]
    folded = run("show", path)
    for expected in ("2-4", "training", "charges", "r7", "steps=30", "mean age", "ada", "bob"):
        assert expected in folded
    assert "block 1" not in folded
    unfolded = run("show", path, "--run", "r7")
    for k in range(3):
        assert f"block {k}" in unfolded
    assert "mean age" not in unfolded
    assert [e["sequence"] for e in run_json("show", path, "--run", "r7")["entries"]] == [2, 3, 4]
    assert "run must be a run of this ledger, got 'r8'; r7" in error("show", path, "--run", "r8")


def test_units_and_seeds_are_said(tmp_path: Path) -> None:
    path = tmp_path / "u.db"
    run("init", path, "--epsilon", 2, "--delta", "1e-5", "--unit", "user")
    assert "per user with per record" in error("spend", path, "--what", "x", "--epsilon", 0.1)
    spent = run_json("spend", path, "--what", "x", "--epsilon", 0.1, "--unit", "user", "--seeded")
    assert spent["entry"]["scope"]["unit"] == "user"
    assert spent["guarantee"]["unit"] == "user"
    assert any("seed" in p["text"] for p in spent["guarantee"]["premises"])


@pytest.mark.slow
def test_a_backup_comes_back_with_the_noted_head(path: Path, tmp_path: Path) -> None:
    run("spend", path, "--what", "x", "--epsilon", 0.1)
    made = run_json("backup", path, tmp_path / "copy.db")
    assert ", a backup" in run("show", tmp_path / "copy.db")
    assert "is a backup" in error("spend", tmp_path / "copy.db", "--what", "x", "--epsilon", 0.1)
    path.unlink()
    back = run_json("restore", tmp_path / "copy.db", path, "--head", made["head"])
    assert (back["count"], back["head"]) == (1, made["head"])
    run("spend", path, "--what", "x", "--epsilon", 0.1)


def test_a_new_ledger_can_be_shown(path: Path) -> None:
    assert "epsilon 0 of 3 (0%)" in run("show", path)


def test_over_the_cap_is_an_error_and_writes_nothing(path: Path) -> None:
    assert "over the cap of 3; nothing was spent" in error(
        "spend", path, "--what", "too much", "--epsilon", 30
    )
    assert run_json("verify", path)["count"] == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--epsilon", "0"], "epsilon must be a finite number above 0"),
        (["--epsilon", "nan"], "epsilon must be a finite number above 0"),
        (["--epsilon", "1", "--delta", "1"], r"delta must be a number in (0, 1)"),
        (["--epsilon", "1", "--delta", "0"], r"delta must be a number in (0, 1)"),
        (["--gaussian-mu", "-1"], "gaussian-mu must be a finite number above 0"),
        (["--sample-rate", "0.1"], "noise-multiplier must be given"),
        (["--steps", "5"], "sample-rate must be given"),
        (
            ["--sample-rate", "2", "--noise-multiplier", "1", "--steps", "1"],
            "sample-rate must be a number in [0, 1]",
        ),
        (
            ["--sample-rate", "0.1", "--noise-multiplier", "-1", "--steps", "1"],
            "noise-multiplier must be a finite number above 0",
        ),
        (
            ["--sample-rate", "0.1", "--noise-multiplier", "1", "--steps", "0"],
            "steps must be a whole number of at least 1",
        ),
        ([], "the cost must be given in one way"),
        (["--epsilon", "1", "--gaussian-mu", "1"], "the cost must be given in one way"),
        (["--gaussian-mu", "1", "--delta", "1e-5"], "the cost must be given in one way"),
        (["--gaussian-mu", "0.1", "--dataset", "survey"], "data set census, not of survey"),
    ],
)
def test_bad_costs_are_one_line(path: Path, arguments: list[str], message: str) -> None:
    assert message in error("spend", path, "--what", "x", *arguments)


def test_bad_files_are_one_line(path: Path, tmp_path: Path) -> None:
    text = tmp_path / "notes.txt"
    text.write_text("not a ledger")
    assert "is already there" in error("init", path, "--epsilon", 1, "--delta", "1e-5")
    for verb in ("show", "verify", "export"):
        assert "no such file" in error(verb, tmp_path / "none.db")
        assert "is not an SQLite database" in error(verb, text)
        assert "is a directory" in error(verb, tmp_path)
    assert "noted head" in error("verify", path, "--head", "abc")
    assert "cannot write" in error("export", path, "--out", tmp_path / "no" / "x.json")
    assert "cap_epsilon" in error("init", tmp_path / "b.db", "--epsilon", 0, "--delta", "1e-5")
    assert "cap_delta" in error("init", tmp_path / "b.db", "--epsilon", 1, "--delta", 1)
    assert not (tmp_path / "b.db").exists()


def test_the_module_is_light() -> None:
    heavy = "import sys, privet.cli.ledger; print({'torch', 'numpy', 'scipy'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", heavy], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_lines_say_run_purpose_and_person(tmp_path: Path) -> None:
    """A training is one line, which --run unfolds; entries without a purpose hash as before."""
    path = tmp_path / "budget.ledger"
    ledger = Ledger.create(path, cap_epsilon=5.0, cap_delta=1e-5)
    plain = ledger.charge(Gaussian(mu=0.1), what="a mean", who="ada")
    assert b"purpose" not in plain.body()
    ledger.purpose = "triage"
    for k in range(3):
        ledger.charge(Gaussian(mu=0.1), what=f"steps {k}", run="r1", who="ada", token=f"r1:{k}")
    assert [e.purpose for e in Ledger.open(path).entries()] == [None, *["triage"] * 3]
    Ledger.open(path).verify()
    shown = run("show", path)
    for word in ("charges", "2-4", "r1", "triage", "ada", "--run NAME` unfolds it"):
        assert " ".join(word.split()) in " ".join(shown.split()), shown
    assert run("show", path, "--run", "r1").count("triage") == 3
