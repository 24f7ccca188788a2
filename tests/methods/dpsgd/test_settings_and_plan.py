"""Noise fixed beforehand: epsilon is what the steps cost, and the steps are the table's."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from privet.accounting import SampledGaussian
from privet.cli.main import main
from privet.data.records import PublicFacts
from privet.errors import InvalidArgument
from privet.ledger import Ledger
from privet.methods.dpsgd import LinearDPSGD, NetworkDPSGD

TABLE = (
    "sample_rate,sigma,clipping_bound,learning_rate,steps\n0.1,0.02,2,0.5,3\n0.2,0.04,1,0.25,2\n"
)


def facts(epsilon: float, records: int = 1000) -> PublicFacts:
    return PublicFacts(records=records, features=4, outputs=2, epsilon=epsilon, delta=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [LinearDPSGD, NetworkDPSGD])
def test_numbers_fix_the_steps_and_their_price(kind: type[LinearDPSGD | NetworkDPSGD]) -> None:
    method = kind(noise_multiplier=1.5, sample_rate=0.02, steps=40, clipping_bound=0.7)
    exact = SampledGaussian(sample_rate=0.02, noise_multiplier=1.5, steps=40).epsilon(1e-5)
    fixed = method.fixed_epsilon(1000, 1e-5)
    assert fixed is not None and fixed == pytest.approx(exact, rel=1e-8)
    assert Ledger.in_memory(cap_epsilon=fixed, cap_delta=1e-5).affords(
        method.plan(facts(fixed)).loss
    )
    plan = method.plan(facts(exact * (1 + 1e-9)))
    assert plan.steps == 40 and set(plan.schedule.bounds) == {0.7} and plan.centre_mu == 0.0
    assert set(plan.schedule.noise_multipliers) == {1.5}
    same = kind(sigma=1.5 * 0.7 / 20, sample_rate=0.02, steps=40, clipping_bound=0.7)
    assert same.fixed_epsilon(1000, 1e-5) == pytest.approx(exact, rel=1e-6)
    assert kind().fixed_epsilon(1000, 1e-5) is None
    with pytest.raises(InvalidArgument, match="these steps cost"):
        method.plan(facts(exact / 2))


def test_a_table_is_algorithm_one(tmp_path: Path) -> None:
    file = tmp_path / "plan.csv"
    file.write_text(TABLE)
    method = LinearDPSGD(schedule=str(file))
    file.unlink()  # what was written in it is a setting now
    plan = method.plan(facts(1e3))
    assert plan.schedule.rates.tolist() == [0.1] * 3 + [0.2] * 2
    np.testing.assert_allclose(plan.schedule.noise_multipliers, [1.0] * 3 + [8.0] * 2)
    np.testing.assert_allclose(plan.absolute_learning_rates, [0.5] * 3 + [0.25] * 2)
    assert plan.momentum == 0.0
    assert LinearDPSGD(schedule=method.schedule) == method


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"noise_multiplier": 1.0}, "steps must be a number, given with noise_multiplier"),
        ({"noise_multiplier": 1.0, "sigma": 1.0}, "said in one way"),
        ({"sigma": 1.0, "steps": 3, "sample_rate": 0.1}, "clipping_bound must be a number"),
        ({"schedule": TABLE, "steps": 3}, "left to the schedule's columns"),
    ],
)
def test_what_cannot_be_is_told(settings: dict[str, object], said: str) -> None:
    with pytest.raises(InvalidArgument, match=said):
        LinearDPSGD(**settings).fixed_epsilon(1000, 1e-5)  # type: ignore[arg-type]


@pytest.mark.slow
def test_the_command_answers_with_epsilon(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(*words: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as leaving:
            main(["train", "dpsgd", "--data", "blobs", "--seed", "0", *words])
        return (int(leaving.value.code or 0), *capsys.readouterr())

    fixed = ("--noise-multiplier", "2", "--sample-rate", "0.05", "--steps", "60")
    code, out, _ = run(*fixed, "--clipping-bound", "0.5", "--out", str(tmp_path / "one"), "--json")
    answer = json.loads(out)
    exact = SampledGaussian(sample_rate=0.05, noise_multiplier=2.0, steps=60).epsilon(1e-5)
    assert code == 0 and answer["guarantee"]["epsilon"] == pytest.approx(exact, rel=1e-6)
    file = tmp_path / "plan.csv"
    file.write_text("sample_rate,sigma,clipping_bound,learning_rate,steps\n0.05,0.01,0.5,1,60\n")
    _, out, _ = run("--schedule", str(file), "--out", str(tmp_path / "two"), "--json")
    assert json.loads(out)["guarantee"]["epsilon"] == pytest.approx(exact, rel=1e-6)
    code, _, error = run("--out", str(tmp_path / "three"))
    assert code == 2 and error.startswith("error: --epsilon must be a budget")
    code, _, error = run(*fixed, "--epsilon", "0.1", "--out", str(tmp_path / "four"))
    assert code == 2 and "these steps cost" in error
