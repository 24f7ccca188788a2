"""The comparison: every cell once, kept on disk, and verdicts that can go either way."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from privet.cli.main import main
from privet_papers.autoencoder.behaviour import BehaviourPredictor
from privet_papers.autoencoder.experiment import (
    AutoencoderExperiment,
    AutoencoderSettings,
    architecture,
    tables,
)
from privet_papers.autoencoder.findings import SeedAccuracies, findings, student_interval
from privet_papers.autoencoder.published_behaviour import PublishedDPAH
from privet_papers.autoencoder.training_runs import (
    DPAH,
    MODELS,
    SOUND,
    BehaviourRuns,
    TrainingRun,
)

QUICK = AutoencoderSettings()
TINY = AutoencoderSettings(
    data=("health",), models=("dPAH", "sound predictor", "FM", "DPME", "SctRBM", "dA"), epsilons=(1.0, 8.0),
    rates=(0.5, 1.0), seeds=2, users=40, days=30, steps=20, hidden=8, published_steps=4,
)  # fmt: skip


def test_cells_are_unique_and_cover_both_figures() -> None:
    cells = list(QUICK.trainings())
    assert len(cells) == len(set(cells))
    assert {c.model for c in cells} == set(MODELS)
    assert {c.epsilon for c in cells if c.model == "dPAH"} == set(QUICK.epsilons)
    assert {(c.rate, c.sampled) for c in cells if c.model == "dA"} == {
        (1.0, "days"), *((q, s) for q in (0.1, 0.3, 0.6) for s in ("days", "users"))
    }  # fmt: skip
    assert all((c.epsilon is None) == (c.model in ("dA", "TdA", "CRBM", "SctRBM")) for c in cells)
    # cells that share examples stand together, so that examples are made once
    keys = [c.key for c in cells]
    assert len(set(keys)) == 1 + sum(a != b for a, b in itertools.pairwise(keys))


@pytest.mark.slow
def test_run_resumes_and_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report: list[tuple[int, int]] = []
    results = AutoencoderExperiment(TINY, tmp_path).run(
        lambda what, done, of: report.append((done, of))
    )
    assert report[-1][0] == report[-1][1] == len(results["rows"]) == len(list(TINY.trainings()))
    private = [r for r in results["rows"] if r["model"] == SOUND]
    assert all(r["proved"]["unit"] == r["unit"] for r in private)
    assert all(r["proved"]["epsilon"] <= r["epsilon"] for r in private)
    assert json.loads((tmp_path / "results.json").read_text())["rows"] == results["rows"]
    assert all(Path(p).stat().st_size > 10_000 for p in results["pictures"])
    assert "The paper's orderings" in (tmp_path / "tables.md").read_text()

    def no_more(self: BehaviourRuns, cell: TrainingRun) -> dict[str, Any]:
        raise AssertionError("ran again")

    monkeypatch.setattr(BehaviourRuns, "run", no_more)
    again = AutoencoderExperiment(TINY, tmp_path).run()
    assert again["rows"] == results["rows"]
    with pytest.raises(AssertionError, match="ran again"):
        AutoencoderExperiment(replace(TINY, seeds=3), tmp_path).run()


def test_test_days_are_the_same_at_every_rate() -> None:
    runs = BehaviourRuns(TINY)
    whole = TrainingRun(data="health", model="FM", seed=1, epsilon=1.0, unit="user")
    few = replace(whole, rate=0.5)
    fewer = replace(whole, rate=0.5, sampled="users")
    full_train, full_test = runs.examples(whole)
    some_train, some_test = runs.examples(few)
    user_train, user_test = runs.examples(fewer)
    assert len(full_test) == len(some_test) == len(user_test)
    assert (full_test.status == some_test.status).all()
    assert (full_test.status == user_test.status).all()
    assert len(some_train) < 0.7 * len(full_train) and user_train.users == 20


def made_up(gap: float) -> list[dict[str, Any]]:
    """Rows in which dPAH and ours are `gap` above everything else, give or take."""
    rows = []
    for cell in replace(TINY, seeds=3, published_seeds=3).trainings():
        noise = 0.001 * ((cell.seed * 7 + len(cell.model)) % 3)
        accuracy = 0.7 + noise + (gap if cell.model in (DPAH, SOUND) else 0.0)
        rows.append({**vars(cell), "accuracy": accuracy})
    return rows


def test_orderings_hold_or_not_as_the_numbers_say() -> None:
    settings = replace(TINY, seeds=3)
    for gap, expected in ((0.1, True), (-0.1, False), (0.0, False)):
        found = {f.claim: f.held for f in findings(made_up(gap), settings)}
        assert found["dPAH above FM at every epsilon (Fig. 3)"] is expected
        assert found["sound predictor above FM at every epsilon (Fig. 3)"] is expected
        assert all(f.held <= f.on_average for f in findings(made_up(gap), settings))
        assert found["dPAH above SctRBM at rates over 0.3 (Fig. 2)"] is expected
        assert found["dPAH robust against epsilon: loses at most 5 points (Fig. 3)"]
    of_paper = [f for f in findings(made_up(0.1), settings) if f.claim.startswith("dPAH")]
    assert of_paper and {f.unit for f in of_paper} == {"record"}  # it claims nothing for users
    claims = [f.claim for f in findings(made_up(0.1), settings)]
    assert not any("TdA shrinks" in c for c in claims) and any("shrinks" in c for c in claims)
    full = [r for r in made_up(0.1) if r["rate"] == 1.0]
    only = [f.claim for f in findings(full, replace(settings, rates=(1.0,)))]
    assert not any("shrinks" in c or "improves" in c for c in only)


def written(results: dict[str, Any], settings: AutoencoderSettings) -> str:
    return "".join(t.markdown() for t in tables(results, settings))


def test_each_model_has_its_own_name() -> None:
    """The curve called dPAH is the paper's model; TdA is the same object without noise."""
    runs = BehaviourRuns(replace(TINY, weeks=48, users=20))

    def made(model: str, epsilon: float | None = None) -> Any:
        unit = None if epsilon is None else "record"
        cell = TrainingRun(data="health", model=model, seed=1, epsilon=epsilon, unit=unit)
        return runs.model(cell)

    assert isinstance(made("dPAH", 1.0), PublishedDPAH)
    assert isinstance(made(SOUND, 1.0), BehaviourPredictor)
    without, little = made("TdA"), made("dPAH", 1e15)
    assert isinstance(without, PublishedDPAH) and without.epsilon == float("inf")
    rows, _ = runs.examples(
        TrainingRun(data="health", model="TdA", seed=1, epsilon=None, unit=None)
    )
    one, two = (model.fit(rows).predict_proba(rows) for model in (without, little))
    assert np.allclose(one, two, atol=1e-6)
    assert runs.panel("weekly", 1).days == 48  # as the paper's
    assert AutoencoderSettings().weeks == 48
    assert architecture(AutoencoderSettings())[0]["inputs"] == 121


def test_intervals_and_tables() -> None:
    mean, _, high = student_interval([0.5, 0.6, 0.7, 0.8])
    assert mean == pytest.approx(0.65) and high - mean == pytest.approx(0.2054, abs=1e-3)
    assert student_interval([0.5])[2] == float("inf")
    settings = replace(TINY, seeds=3)
    rows = made_up(0.1)
    text = written({"rows": rows, "findings": []}, settings)
    assert "Figure 3, health" in text and "80." in text
    two = written({"rows": rows, "findings": []}, replace(TINY, seeds=2))
    assert " to " in two and "±" not in two  # two seeds have a range and no interval
    dull = [r | {"always": 0.72} for r in rows]
    assert "3 of 3 did not learn" in written({"rows": dull, "findings": []}, settings)
    assert "did not learn" not in text
    one = written({"rows": rows, "findings": []}, replace(TINY, seeds=1))
    report = [f.details for f in findings(rows, replace(TINY, seeds=1))]
    assert report and not any("inf" in text for text in report)
    assert "inf" not in one and "80." in one  # one seed has no interval
    assert SeedAccuracies(rows, settings).accuracies("health", "dA", "user", epsilon=8.0)


@pytest.mark.slow
def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [
        "reproduce", "autoencoder", "--out", str(tmp_path / "out"), "--data", "health", "--model",
        SOUND, "--model", "DPME", "--epsilon", "1", "--rate", "0.5", "--seeds", "2", "--users",
        "30", "--days", "24",
    ]  # fmt: skip
    with pytest.raises(SystemExit) as leaving:
        main([*arguments, "--json"])
    assert leaving.value.code == 0
    assert json.loads(capsys.readouterr().out)["findings"]
    with pytest.raises(SystemExit) as leaving:
        main(arguments)
    assert leaving.value.code == 0 and SOUND in capsys.readouterr().out
    for wrong in (
        ["--data", "moon"],
        ["--model", "GPT"],
        ["--seeds", "0"],
        ["--users", "3"],
        ["--rate", "2"],
    ):
        with pytest.raises(SystemExit) as leaving:
            main(["reproduce", "autoencoder", "--out", str(tmp_path / "no"), *wrong])
        assert leaving.value.code == 2
        assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.slow
def test_own_tables(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`privet reproduce autoencoder --data table.csv`, declared as for `privet train behaviour`."""
    rng = np.random.default_rng(0)
    lines = ["user,day,steps,sleep"]
    lines += [
        f"u{u},{d},{rng.integers(9000)},{rng.integers(10)}" for u in range(12) for d in range(40)
    ]
    table, edges, bounds = (tmp_path / n for n in ("table.csv", "friends.csv", "bounds.json"))
    table.write_text("\n".join(lines))
    edges.write_text("a,b\n" + "\n".join(f"u{u},u{(u + 1) % 12}" for u in range(12)))
    bounds.write_text(json.dumps({"bounds": {"steps": [0, 10000], "sleep": [0, 12]}}))
    words = ["reproduce", "autoencoder", "--data", str(table), "--edges", str(edges), "--bounds",
             str(bounds), "--target", "steps", "--model", SOUND, "--model", "dPAH",
             "--model", "CRBM", "--epsilon", "8", "--rate", "1", "--seeds", "1", "--steps", "4",
             "--published-steps", "4", "--hidden", "4", "--out", str(tmp_path / "out")]  # fmt: skip
    with pytest.raises(SystemExit) as leaving:
        main([*words, "--json"])
    assert leaving.value.code == 0
    found = json.loads(capsys.readouterr().out)
    assert {r["data"] for r in found["rows"]} == {str(table)}
    assert all(Path(p).name.startswith("table-") for p in found["pictures"])
    with pytest.raises(SystemExit) as leaving:
        main(["reproduce", "autoencoder", "--data", "nowhere"])
    assert leaving.value.code == 2 and "csv" in capsys.readouterr().err
