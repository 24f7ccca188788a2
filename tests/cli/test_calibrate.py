"""`privet calibrate` from the outside."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from scipy.special import ndtri

from privet.accounting import SampledGaussian
from privet.cli.main import main

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


@pytest.mark.slow
def test_noise_for_an_attack(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """What is found keeps the best attack below the target, and not far below."""
    found = run_json(capsys, "calibrate", "--advantage", 0.05, "--sample-rate", 0.1, "--steps", 50)
    loss = SampledGaussian(sample_rate=0.1, noise_multiplier=found["noise_multiplier"], steps=50)
    low, high = loss.trade_off().advantage()
    assert found["advantage"] <= 0.05 and low <= 0.05 < 1.005 * high
    assert loss.epsilon(1e-5) == found["epsilon"]

    found = run_json(
        capsys, "calibrate", "--tpr", 0.1, "--fpr", 0.01, "--sample-rate", 1, "--steps", 10
    )
    # unsampled steps are one Gaussian release: mu = sqrt(10) / z
    mu = float(ndtri(0.1) - ndtri(0.01))
    assert found["tpr"] <= 0.1
    assert (
        math.sqrt(10) / mu <= found["noise_multiplier"] * (1 + 1e-12) <= 1.001 * math.sqrt(10) / mu
    )

    file = tmp_path / "plan.csv"
    file.write_text("sample_rate,noise_multiplier,steps\n1,1,5\n1,2,20\n")
    text, _ = run(capsys, "calibrate", "--tpr", 0.1, "--fpr", 0.01, "--schedule", file)
    assert text.startswith("factor 3.0") and "tpr at most 0.0999" in text


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--advantage", "0.1", "--epsilon", "1"], "one of --epsilon, --advantage"),
        (["--tpr", "0.1"], "--tpr with --fpr"),
        (["--fpr", "0.1"], "--tpr with --fpr"),
        ([], "one of --epsilon, --advantage"),
        (["--advantage", "1.5", "--sample-rate", "1", "--steps", "1"], "advantage must be"),
        (
            ["--tpr", "0.1", "--fpr", "0.2", "--sample-rate", "1", "--steps", "1"],
            "more than the fpr",
        ),
        (["--advantage", "0.1", "--noise-multiplier", "1"], "left out: it is what is found"),
        (["--advantage", "0.1", "--sample-rate", "0.1"], "no --steps"),
    ],
)
def test_targets_are_given_in_one_way(
    arguments: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    _, err = run(capsys, "calibrate", *arguments, code=2)
    assert expected in err and err.count("\n") == 1


def test_the_closed_forms_noise_is_a_claim(capsys: pytest.CaptureFixture[str]) -> None:
    """Zhao's sigma(epsilon): 4 at the paper's numbers, and too little where it is no bound."""
    rest = ("--closed-form", "--sample-rate", 0.01, "--steps", 10_000)
    found = run_json(capsys, "calibrate", "--epsilon", 1.1355, *rest)
    assert found["noise_multiplier"] == pytest.approx(4.0, abs=1e-3)
    assert found["standing"] == "claimed" and found["epsilon"] < found["claimed_epsilon"]
    wrong = run_json(capsys, "calibrate", "--epsilon", 4.917, *rest)
    assert wrong["noise_multiplier"] == pytest.approx(1.0, abs=1e-3)
    assert wrong["epsilon"] > 6.0 > wrong["claimed_epsilon"] == 4.917
    assert wrong["guarantee"]["epsilon"] == wrong["epsilon"]
    assert "claimed by the closed form" in run(capsys, "calibrate", "--epsilon", 1, *rest)[0]
    _, error = run(capsys, *TARGET, "--closed-form", "--steps", 10, code=2)
    assert error.count("\n") == 1 and "--sample-rate and --steps" in error
