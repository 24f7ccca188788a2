"""Test results that are paid for: what one record moves, what is charged, and what is published."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import privet
from privet.cli.main import main
from privet.errors import BudgetExceeded, InvalidArgument
from privet.guarantee import Adjacency, Unit
from privet.ledger import Ledger
from privet.runs.released_metrics import MetricsRelease, _sums, check_unit


@pytest.mark.parametrize("outputs", [1, 3])
@pytest.mark.parametrize("replace", [False, True])
def test_no_record_moves_more_than_was_paid_for(outputs: int, replace: bool) -> None:
    rng, worst = np.random.default_rng(0), 0.0
    paid = MetricsRelease(outputs=outputs, epsilon=0.5, replace_one=replace)
    assert paid.loss.epsilon(0.0) == pytest.approx(0.5) and paid.loss.epsilon(0.0) <= 0.5
    logits = rng.normal(size=(40, outputs)) if outputs > 1 else 3.0 * rng.normal(size=40)
    y = rng.integers(outputs, size=40) if outputs > 1 else rng.uniform(-9, 9, size=40)
    logits[:2] = np.nan if outputs == 1 else 9.0
    if outputs == 1:  # the worst there is: wrong by the whole range
        logits[2:6], y[2:6] = [1, -1, 1, -1], [-9, 9, 9, -9]

    def cells(rows: list[int]) -> np.ndarray:
        part = logits[rows], y[rows]
        return (_sums(*part, (-9.0, 9.0)) if outputs == 1 else paid._cells(*part)).value

    for i in range(20):
        others = [*range(6, 40)]
        first = cells([*others, i])
        second = cells([*others, (7 * i + 3) % 20]) if replace else cells(others)
        worst = max(worst, float(np.abs(first - second).sum()))
    assert worst <= 0.5 * paid.mechanism.scale  # that is epsilon for every pair
    if not replace:
        assert worst >= 0.5 * paid.mechanism.scale * (0.999 if outputs > 1 else 0.79)


@pytest.mark.slow
def test_the_measures_are_near_and_the_ledger_knows(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    y = (rng.random(8_000) < 0.2).astype(int)
    x = np.clip(rng.normal(size=(8_000, 3)) + 1.5 * y[:, None], -4, 4)
    names = np.array(["no", "yes"])[y]
    clf = privet.AdaptiveLaplaceClassifier(classes=["no", "yes"], bounds=(-4, 4), random_state=0)
    clf.fit(x[:4000], names[:4000])
    account = Ledger.create(tmp_path / "t.ledger", cap_epsilon=0.1, cap_delta=0.0,
                            adjacency=Adjacency.ZERO_OUT)  # fmt: skip
    found = clf.release_metrics(x[4000:], names[4000:], ledger=tmp_path / "t.ledger")
    exact = clf.score(x[4000:], names[4000:])
    off = found["noise_deviation"]["test_accuracy"]
    assert 0.0 < abs(found["test_accuracy"] - exact) < 6 * off < 0.05
    assert found["guarantee"]["epsilon"] == pytest.approx(0.1)
    assert found["guarantee"]["delta"] == 0.0
    with pytest.raises(BudgetExceeded):  # a second look is not free
        clf.release_metrics(x[4000:], names[4000:], ledger=account)
    clf.save(tmp_path / "run")
    assert "How good it is" in (tmp_path / "run/README.md").read_text()
    record = json.loads((tmp_path / "run/guarantee.json").read_text())
    assert record["measured"]["test"]["test_accuracy"] == found["test_accuracy"]


def test_people_with_several_records_are_refused() -> None:
    people = Ledger.in_memory(cap_epsilon=1.0, cap_delta=1e-5, unit=Unit.USER)
    for ledger, user in ((people, None), (None, "patient")):
        with pytest.raises(InvalidArgument, match="per user"):
            check_unit(ledger, user)


def run(words: list[str]) -> object:
    with pytest.raises(SystemExit) as end:
        main(words)
    return end.value.code


@pytest.mark.slow
def test_the_command_charges_before_and_keeps_exact_results_private(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["train", "dpsgd", "--data", "breast_cancer", "--seed", "0", "--epsilon", "1"]
    assert run([*words, "--out", "own", "--release-metrics", "--metrics-epsilon", ".5"]) == 0
    assert "to publish, in the card" in capsys.readouterr().out
    record = json.loads(Path("own/guarantee.json").read_text())
    exact = json.loads(Path("own/private/metrics.json").read_text())
    released = record["measured"]["test"]
    assert released["test_accuracy"] != exact["test_accuracy"]
    assert Ledger.open("own/test.ledger").spent() == pytest.approx(0.5)
    assert run(["verify", "own"]) == 0
    # one ledger for all: refused before the training where it cannot pay for both
    Ledger.create("all.ledger", cap_epsilon=1.2, cap_delta=1e-5, adjacency=Adjacency.ZERO_OUT)
    both = [*words, "--ledger", "all.ledger", "--release-metrics"]
    assert run([*both, "--metrics-epsilon", ".5", "--out", "no"]) != 0
    assert len(Ledger.open("all.ledger")) == 0 and not Path("no").exists()
    assert run([*both, "--out", "yes"]) == 0
    assert Ledger.open("all.ledger").entries()[-1].what == "test metrics"
