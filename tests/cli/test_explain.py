"""`privet explain`, `privet account --trade-off`, and the picture of a schedule."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest

from privet._formatting import chance
from privet.accounting.schedule_file import load_phases
from privet.cli.main import main
from privet.guarantee import Unit
from privet.report.explanation import LITTLE, TWICE, explain, posterior

SCHEDULE = "sample_rate,noise_multiplier,steps\n0.02,1.5,1000\n0.04,1.0,500\n0.01,2.0,170\n"


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    with pytest.raises(SystemExit) as left:
        main(list(arguments))
    assert not left.value.code, capsys.readouterr().err
    return capsys.readouterr().out


def test_two_budgets(capsys: pytest.CaptureFixture[str]) -> None:
    out = run(capsys, "explain", "--epsilon", "1", "8", "--delta", "1e-5")
    small, large = out.split("epsilon 8")
    assert "from 50% to 73%, and from 1% to 2.7%" in small and "WARNING" not in small
    assert "0.27% of them when 1 in 1,000" in small and "1 in 100,000" in small
    assert "WARNING: An epsilon of 8 promises next to nothing" in large


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    said = json.loads(run(capsys, "explain", "--epsilon", "1,4", "--json"))
    one, four = said["explanations"]
    assert one["beliefs"][0]["posterior_at_most"] == pytest.approx(math.e / (1 + math.e))
    assert one["attacker"][0]["true_positive_rate_at_most"] == pytest.approx(0.01 * math.e + 1e-5)
    assert one["advantage"] == pytest.approx((math.e - 1 + 2e-5) / (math.e + 1))
    assert one["warning"] is None and "says little" in four["warning"]


@pytest.mark.parametrize("wrong", [["explain"], ["explain", "a", "b"], ["explain", "--epsilon", "x"],
                                   ["explain", "--epsilon", "1", "--delta", "2"]])  # fmt: skip
def test_mistakes_are_one_line(wrong: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(wrong)
    assert left.value.code == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_posterior_is_bayes() -> None:
    assert posterior(0.2, 1.0) == pytest.approx(0.2 * math.e / (0.2 * math.e + 0.8))
    assert posterior(0.0, 5.0) == 0.0 and posterior(1.0, 5.0) == 1.0
    assert posterior(0.3, 0.0) == pytest.approx(0.3) and posterior(1e-9, math.inf) == 1.0


@pytest.mark.parametrize(("mu", "delta"), [(0.5, 1e-5), (2.0, 1e-3), (0.1, 1e-6)])
def test_delta_is_not_the_chance_of_a_larger_belief(mu: float, delta: float) -> None:
    """A Gaussian release passes e^epsilon more often than delta, and twice that with 2 delta."""
    from scipy.stats import norm

    from privet.accounting import Gaussian

    loss = Gaussian(mu=mu)
    epsilon = loss.epsilon(delta)
    passes = norm.sf((epsilon - 0.5 * mu**2) / mu)  # the loss is N(mu^2 / 2, mu^2)
    twice = norm.sf((epsilon + math.log(TWICE) - 0.5 * mu**2) / mu)
    assert passes > 2.0 * delta > 2.0 * twice
    said = explain(loss.trade_off(), epsilon=epsilon, delta=delta).sentences[0]
    assert "does not hold" not in said
    assert f"a chance of at most {chance(2.0 * delta)}." in said


@pytest.mark.parametrize(("asked", "words"), [(4.0, "says little"), (8.0, "next to nothing")])
def test_a_run_is_warned_of_as_the_budget_that_it_was_given(asked: float, words: str) -> None:
    """It spends a little less than it was given, and is shown as that number."""
    from privet.accounting.trade_off import trade_off_of_statement

    spent = asked * (1.0 - 1e-9)
    said = explain(trade_off_of_statement(spent, 1e-5), epsilon=spent, delta=1e-5)
    assert said.warning is not None and words in said.warning


def test_every_unit_and_size_has_sentences() -> None:
    from privet.accounting.trade_off import trade_off_of_statement

    for unit in Unit:
        for epsilon in (0.01, LITTLE, 50.0, math.inf):
            curve = trade_off_of_statement(epsilon, 1e-6)
            said = explain(curve, epsilon=epsilon, delta=1e-6, unit=unit)
            assert (said.warning is None) == (epsilon < LITTLE)
            assert all(
                s.endswith(".") and "nan" not in s and "inf" not in s for s in said.sentences
            )
            json.dumps(said.to_dict(), allow_nan=False)


@pytest.mark.slow
def test_account_tells_the_trade_off(capsys: pytest.CaptureFixture[str]) -> None:
    setting = ["account", "--sample-rate", "0.1", "--noise-multiplier", "1", "--steps", "20"]
    found = json.loads(run(capsys, *setting, "--trade-off", "--json"))["trade_off"]
    for point in found["points"]:
        assert point["fpr"] < point["tpr_low"] <= point["tpr"] <= 1.004 * point["tpr_low"]
    assert 0 < found["advantage_low"] <= found["advantage"] < 1 and found["mu_low"] <= found["mu"]
    assert "found, at most" in run(capsys, *setting, "--trade-off")
    assert "trade_off" not in json.loads(run(capsys, *setting, "--json"))


@pytest.mark.slow
def test_the_picture_of_a_schedule_agrees_at_every_phase_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is drawn at the end of a phase is what `privet account` says of the phases so far."""
    plots = pytest.importorskip("privet.report.plots", reason="pip install 'privet[plot]'")
    file = tmp_path / "plan.csv"
    file.write_text(SCHEDULE)
    figure = plots.accountants(load_phases(file).loss(), 1e-5, points=6)
    exact = next(line for line in figure.axes[0].lines if line.get_color() == plots.EXACT)
    drawn = dict(zip(*exact.get_data(), strict=True))
    for phases, end in ((1, 1000), (2, 1500), (3, 1670)):
        file.write_text("\n".join(SCHEDULE.splitlines()[: phases + 1]))
        said = json.loads(run(capsys, "account", "--schedule", str(file), "--json"))
        assert drawn[end] == said["accountants"]["exact"]["epsilon"]


@pytest.mark.slow
def test_it_is_light_and_draws(tmp_path: Path) -> None:
    program = (
        "import sys\n"
        "from privet.cli.main import main\n"
        "try:\n    main(['explain', '--epsilon', '1', '--json'])\n"
        "except SystemExit:\n"
        "    print(sorted({'torch', 'sklearn', 'matplotlib'} & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=120
    )
    assert done.stderr.strip() == "[]"
    pytest.importorskip("matplotlib", reason="pip install 'privet[plot]'")
    with pytest.raises(SystemExit):
        main(["explain", "--epsilon", "1", "8", "--out", str(tmp_path / "e.svg")])
    assert "come to believe" in (tmp_path / "e.svg").read_text()


@pytest.mark.slow
def test_a_run_by_its_own_curve(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The record holds the loss: attacks are bounded more closely than by its epsilon and delta."""
    data = ("--data", "digits", "--epsilon", "2", "--seed", "1", "--json")
    run(capsys, "train", "dpsgd", *data, "--out", str(tmp_path / "run"))
    said = json.loads(run(capsys, "explain", str(tmp_path / "run"), "--json"))
    alone = json.loads(run(capsys, "explain", "--epsilon", "2", "--json"))
    assert "whole curve" in said["basis"] and "alone" in alone["basis"]
    assert said["mark"] is not None and alone["mark"] is None  # a seed makes it an experiment
    for closer, loose in zip(said["explanations"][0]["attacker"],
                             alone["explanations"][0]["attacker"], strict=True):  # fmt: skip
        assert closer["true_positive_rate_at_most"] < 0.7 * loose["true_positive_rate_at_most"]
    assert "EXPERIMENT" in run(capsys, "explain", str(tmp_path / "run"))
