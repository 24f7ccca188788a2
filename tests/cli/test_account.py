"""`privet account` from the outside: numbers, files, one-line errors, and what it must not import."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from privet.accounting import SampledGaussian
from privet.cli.main import main

SETTING = ("--sample-rate", "0.01", "--noise-multiplier", "1", "--steps", "10000")


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    with pytest.raises(SystemExit) as leaving:
        main([str(a) for a in arguments])
    captured = capsys.readouterr()
    assert leaving.value.code == 0, captured.err
    return captured.out


def run_json(capsys: pytest.CaptureFixture[str], *arguments: object) -> dict[str, Any]:
    answer = json.loads(run(capsys, *arguments, "--json"))
    assert isinstance(answer, dict)
    return answer


def error(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    with pytest.raises(SystemExit) as leaving:
        main([str(a) for a in arguments])
    captured = capsys.readouterr()
    assert leaving.value.code == 2
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert captured.err.startswith("error: ")
    return captured.err


def test_json_keys(capsys: pytest.CaptureFixture[str]) -> None:
    found = run_json(capsys, "account", *SETTING, "--delta", "1e-5")
    epsilons = {name: a["epsilon"] for name, a in found["accountants"].items()}
    assert epsilons["exact"] == pytest.approx(6.188, rel=2e-3)
    assert epsilons["closed_form"] == pytest.approx(4.917, abs=1e-3)
    assert epsilons["exact"] < epsilons["rdp"] < epsilons["moments"]
    assert found["accountants"]["closed_form"]["valid_bound"] is False
    assert found["accountants"]["closed_form"]["standing"] == "claimed"
    assert found["accountants"]["exact"]["standing"] == "proved"


def test_text(capsys: pytest.CaptureFixture[str]) -> None:
    text = run(capsys, "account", *SETTING)
    for expected in ("exact", "6.18", "closed form", "claimed", "26% more", "moments"):
        assert expected in text


def test_schedule_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "plan.csv"
    file.write_text(
        "steps, noise_multiplier,sample_rate\n100,1.0,0.01\n\n200,2.0,0.02\r\n",
        encoding="utf-8-sig",
    )
    found = run_json(capsys, "account", "--schedule", file, "--delta", "1e-6")
    loss = SampledGaussian(sample_rate=[0.01, 0.02], noise_multiplier=[1, 2], steps=[100, 200])
    assert found["accountants"]["exact"]["epsilon"] == loss.epsilon(1e-6)
    assert found["steps"] == 300


def test_a_schedule_of_equal_lines_is_the_plain_setting(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "plan.csv"
    file.write_text("sample_rate,noise_multiplier,steps\n" + "0.01,1,2500\n" * 4)
    one = run_json(capsys, "account", *SETTING)["accountants"]
    many = run_json(capsys, "account", "--schedule", file)["accountants"]
    assert {k: v["epsilon"] for k, v in one.items()} == pytest.approx(
        {k: v["epsilon"] for k, v in many.items()}
    )


def test_a_schedule_with_the_papers_sigma(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """sigma_t on the mean over q_t N and C_t: z_t = sigma_t q_t N / C_t; a line is one step."""
    file = tmp_path / "plan.csv"
    lines = "0.01,0.2,0.5,0.05\n" * 300 + "0.02,0.1,1.0,0.01\n" * 20
    file.write_text("sample_rate,sigma,clipping_bound,learning_rate\n" + lines)
    plain = tmp_path / "plain.csv"
    plain.write_text("sample_rate,noise_multiplier,steps\n0.01,4,300\n0.02,2,20\n")
    one = run_json(capsys, "account", "--schedule", file, "--records", "1000")
    two = run_json(capsys, "account", "--schedule", plain)
    assert one["steps"] == two["steps"] == 320
    assert one["accountants"]["exact"]["epsilon"] == pytest.approx(
        two["accountants"]["exact"]["epsilon"], rel=1e-9
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "the first line must be the names of the columns"),
        ("a,b\n1,2\n", "sample_rate is missing"),
        ("sample_rate,steps\n0.1,1\n", "noise_multiplier is missing"),
        ("sample_rate,sigma\n0.1,1\n", "clipping_bound is missing"),
        ("sample_rate,sigma,noise_multiplier\n0.1,1,1\n", "say the same"),
        (
            "sample_rate,sigma,clipping_bound\n0.1,1,1\n",
            "--records must be the number of records N",
        ),
        ("sample_rate,noise_multiplier,steps\n", "at least one line of steps"),
        ("sample_rate,noise_multiplier,steps\n0.1,1,5\n0.1,1\n", "line 3 must be 3 values"),
        ("sample_rate,noise_multiplier,steps\n1.5,1,5\n", "line 2: sample_rate must be"),
        ("sample_rate,noise_multiplier,steps\n0.1,nan,5\n", "line 2: noise_multiplier must be"),
        ("sample_rate,noise_multiplier,steps\n0.1,-1,5\n", "line 2: noise_multiplier must be"),
        ("sample_rate,noise_multiplier,steps\n0.1,1,0.5\n", "line 2: steps must be a whole"),
        ("sample_rate,noise_multiplier,steps\n0.1,one,5\n", "line 2: noise_multiplier must be"),
    ],
)
def test_bad_schedules(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, text: str, expected: str
) -> None:
    file = tmp_path / "plan.csv"
    file.write_text(text)
    assert expected in error(capsys, "account", "--schedule", file)


def test_unreadable_schedules(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert "no such file" in error(capsys, "account", "--schedule", tmp_path / "missing.csv")
    assert "readable CSV" in error(capsys, "account", "--schedule", tmp_path)
    (tmp_path / "bytes.csv").write_bytes(b"\xff\xfe\x00sample_rate")
    assert "readable CSV" in error(capsys, "account", "--schedule", tmp_path / "bytes.csv")


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (("--delta", "0"), "delta must be a number in (0, 1)"),
        (("--delta", "1"), "delta must be"),
        (("--delta", "nan"), "delta must be"),
        (("--delta", "much"), "--delta"),
        (("--sample-rate", "1.01"), "sample-rate must be a number in [0, 1]"),
        (("--sample-rate", "-0.1"), "sample-rate must be"),
        (("--noise-multiplier", "nan"), "noise-multiplier must be"),
        (("--noise-multiplier", "-4"), "noise-multiplier must be"),
        (("--noise-multiplier", "0"), "noise-multiplier must be"),
        (("--steps", "0"), "steps must be a whole number"),
        (("--steps", "1.5"), "--steps"),
        (("--adjacency", "near"), "--adjacency"),
        (("--plot", "picture.gif"), "a file ending in .png"),
        (("--plot", "no/such/folder/x.png"), "no such file: no/such/folder"),
        (("--schedule", "x.csv"), "given in one way"),
        (("--nonsense",), "No such option"),
    ],
)
def test_bad_options(
    capsys: pytest.CaptureFixture[str], change: tuple[str, ...], expected: str
) -> None:
    assert expected in error(capsys, "account", *SETTING, *change)


def test_missing_options(capsys: pytest.CaptureFixture[str]) -> None:
    assert "--steps" in error(capsys, "account", "--sample-rate", 0.1, "--noise-multiplier", 1)
    assert "No such command" in error(capsys, "acount")


def test_the_table_by_one_command(capsys: pytest.CaptureFixture[str]) -> None:
    rows = run_json(capsys, "account", "--table")["rows"]
    exact = [r["accountants"]["exact"]["epsilon"] for r in rows]
    assert exact == pytest.approx([0.947, 2.163, 3.186, 6.188, 13.36, 5.227], rel=2e-3)
    valid = [r["accountants"]["closed_form"]["valid_bound"] for r in rows]
    assert valid == [True, True, False, False, False, False]
    text = run(capsys, "account", "--table")
    assert "5.79x too small" in text
    assert "valid, 20% loose" in text


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["png", "svg"])
def test_plot(capsys: pytest.CaptureFixture[str], tmp_path: Path, kind: str) -> None:
    pytest.importorskip("matplotlib")
    out = tmp_path / f"run.{kind}"
    assert str(out) in run(capsys, "account", *SETTING, "--plot", out)
    assert out.read_bytes()[:4] in (b"\x89PNG", b"<?xm")


@pytest.mark.slow
def test_map(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    found = run_json(capsys, "account", "--map", tmp_path / "map.json", "--steps", 1000)
    assert json.loads((tmp_path / "map.json").read_text())["valid"] == found["valid"]
    assert 0.2 < found["share_valid"] < 0.9
    run(capsys, "account", "--map", tmp_path / "map.png", "--steps", 1000)
    assert (tmp_path / "map.png").stat().st_size > 10_000


@pytest.mark.slow
def test_it_needs_neither_torch_nor_pictures() -> None:
    program = (
        "import sys\n"
        "from privet.cli.main import main\n"
        "try:\n"
        f"    main(['account', {', '.join(map(repr, SETTING))}, '--json'])\n"
        "except SystemExit:\n"
        "    heavy = {'torch', 'sklearn', 'matplotlib', 'dp_accounting', 'opacus', 'joblib'}\n"
        "    heavy |= {'numpy.f2py.crackfortran', 'pydantic', 'scipy.signal', 'scipy.optimize'}\n"
        "    print(sorted(heavy & set(sys.modules)), file=sys.stderr)\n"
        "    import numpy\n"
        "    assert callable(numpy.f2py.get_include)  # put off, not taken away\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=120
    )
    assert done.stderr.strip() == "[]"
    assert "accountants" in json.loads(done.stdout)


@pytest.mark.slow
def test_version_and_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "--version").startswith("privet ")
    for command in ((), ("account",), ("calibrate",), ("ledger",), ("demo",)):
        assert "Usage" in run(capsys, *command, "--help")
