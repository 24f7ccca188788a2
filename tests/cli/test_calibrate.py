"""`privet calibrate` from the outside."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from privet.cli.main import main
from privet.loss import SampledGaussian

TARGET = ("calibrate", "--epsilon", "1", "--delta", "1e-5")


def run(capsys: pytest.CaptureFixture[str], *arguments: object, code: int = 0) -> tuple[str, str]:
    with pytest.raises(SystemExit) as leaving:
        main([str(a) for a in arguments])
    captured = capsys.readouterr()
    assert leaving.value.code == code, captured
    return captured.out, captured.err


def run_json(capsys: pytest.CaptureFixture[str], *arguments: object) -> dict[str, Any]:
    answer = json.loads(run(capsys, *arguments, "--json")[0])
    assert isinstance(answer, dict)
    return answer


def test_noise(capsys: pytest.CaptureFixture[str]) -> None:
    found = run_json(capsys, *TARGET, "--sample-rate", 0.01, "--steps", 1000)
    loss = SampledGaussian(sample_rate=0.01, noise_multiplier=found["noise_multiplier"], steps=1000)
    assert loss.epsilon(1e-5) == found["epsilon"] == found["guarantee"]["epsilon"]
    assert 0.998 <= found["epsilon"] <= 1.0
    assert found["guarantee"]["standing"] == "proved"


def test_steps_and_rate(capsys: pytest.CaptureFixture[str]) -> None:
    found = run_json(capsys, *TARGET, "--sample-rate", 0.01, "--noise-multiplier", 1.5)
    assert isinstance(found["steps"], int)
    assert found["epsilon"] <= 1.0
    found = run_json(capsys, *TARGET, "--steps", 100, "--noise-multiplier", 1.5)
    assert 0 < found["sample_rate"] < 1
    assert found["epsilon"] <= 1.0
    text, _ = run(capsys, *TARGET, "--steps", 100, "--noise-multiplier", 1.5)
    assert text.startswith("sample rate 0.0")


def test_schedule(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "plan.csv"
    file.write_text("sample_rate,noise_multiplier,steps\n0.01,1,500\n0.02,1.5,500\n")
    found = run_json(capsys, *TARGET, "--schedule", file)
    assert found["factor"] > 1.0
    assert 0.998 <= found["epsilon"] <= 1.0


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("calibrate", "--epsilon", "0", "--sample-rate", "0.1", "--steps", "5"), "epsilon must"),
        (("calibrate", "--epsilon", "nan", "--sample-rate", "0.1", "--steps", "5"), "epsilon must"),
        ((*TARGET[:3], "--delta", "1", "--sample-rate", "0.1", "--steps", "5"), "delta must be"),
        ((*TARGET, "--sample-rate", "0", "--steps", "5"), "sample_rate must be"),
        ((*TARGET, "--sample-rate", "0.1", "--steps", "-5"), "steps must be"),
        ((*TARGET, "--sample-rate", "0.1", "--noise-multiplier", "-1"), "noise_multiplier must"),
        ((*TARGET, "--sample-rate", "0.1"), "two of --sample-rate"),
        (TARGET, "two of --sample-rate"),
        (
            (*TARGET, "--sample-rate", "0.9", "--noise-multiplier", "0.5"),
            "one step with sample rate 0.9 and noise multiplier 0.5 already costs",
        ),
        ((*TARGET, "--schedule", "missing.csv"), "no such file: missing.csv"),
        (("calibrate", "--sample-rate", "0.1", "--steps", "5"), "--epsilon"),
    ],
)
def test_bad_input(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], expected: str
) -> None:
    out, err = run(capsys, *arguments, code=2)
    assert out == ""
    assert err.count("\n") == 1
    assert err.startswith("error: ")
    assert expected in err
