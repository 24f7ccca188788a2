"""Behaviour as a method of the contract: series, playback, own tables by command."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import privet
from privet.cli.main import app
from privet.data.domain import Rows
from privet.data.records import Records
from privet.mechanisms.release_transcript import record_releases
from privet.methods import contract_checks, neighbour_replay
from privet.methods.neighbouring_pairs import NeighbouringPair
from privet.methods.train_method import make_plan, train
from privet.noise import seeded
from privet_papers.autoencoder.behaviour import (
    Behaviour,
    BehaviourPredictor,
    Examples,
    PropagationInfluence,
)
from privet_papers.autoencoder.behaviour.examples import SeriesLayout
from privet_papers.autoencoder.behaviour.health_network import health_network
from privet_papers.autoencoder.behaviour.panel_data import Panel, load_panel

BOUNDS = {"distances": [0, 20], "speeds": [0, 12], "joining competitions": [0, 3]}


@pytest.fixture(scope="module")
def panel() -> Panel:
    made = health_network(users=60, days=40, seed=3).panel
    return replace(made, values=made.values.astype(np.float32).astype(float))


@pytest.mark.parametrize("method", [Behaviour(), Behaviour(hidden=(4, 3), influence_share=0.1)])
def test_series_teach_what_examples_teach(panel: Panel, method: Behaviour) -> None:
    """The same releases as of the predictor on examples: to the rounding of float32 rows."""
    found, records = method.on(panel)
    plan = make_plan(found, records.facts(epsilon=4.0, delta=1e-5))
    with record_releases() as made:
        train(found, records, plan, rng=seeded(0))
    own = BehaviourPredictor(
        epsilon=4.0, hidden=method.hidden, random_state=0,
        influence=PropagationInfluence(budget_share=0.1) if method.influence_share else None,
    )  # fmt: skip
    clipped = replace(panel, values=np.clip(panel.values, panel.low, panel.high))
    with record_releases() as other:
        own.fit(Examples.of(clipped, range(4, panel.days)))
    assert len(made.releases) == len(other.releases)
    one, two = made.releases[0], other.releases[0]  # later ones see layers behind the noise
    assert one.sensitivity == pytest.approx(two.sensitivity, rel=1e-3)
    assert np.abs(one.exact - two.exact).max() < 0.05


def test_what_friends_did_is_read_when_asked_and_never_in_training(panel: Panel) -> None:
    method, records = Behaviour().on(panel)
    plan = make_plan(method, records.facts(epsilon=50.0, delta=1e-5))
    model = train(method, records, plan, rng=seeded(0)).model
    values = records.rows.values.copy()
    values[..., -1] = 1.0  # as if all friends had been active
    lied = replace(records, rows=replace(records.rows, values=values))
    again = train(method, lied, plan, rng=seeded(0)).model
    assert neighbour_replay.same_model(model, again)
    assert not np.array_equal(model.outputs(records.rows), model.outputs(lied.rows))


def worst_of(panel: Panel, method: Behaviour, user: int) -> NeighbouringPair:
    _, records = method.on(panel)
    null = records.null.copy()
    null[user] = True
    absent: Records = replace(records, rows=records.rows.without(null))
    return NeighbouringPair(present=records, absent=absent)


@pytest.mark.slow
@pytest.mark.parametrize(
    "method", [Behaviour(lags=2), Behaviour(hidden=(3, 3), influence_share=0.2)]
)
def test_played_back_without_any_user(panel: Panel, method: Behaviour) -> None:
    few = panel.sample(np.arange(25))
    found, records = method.on(few)
    plan = make_plan(found, records.facts(epsilon=4.0, delta=1e-5))
    for user in range(0, 25, 3):
        assert neighbour_replay.replay(found, plan, worst_of(few, found, user)).problems() == []


@pytest.mark.slow
@pytest.mark.parametrize("declared", [True, False])
def test_conformance_with_layers_and_influence(declared: bool) -> None:
    method = replace(Behaviour.for_audit(), hidden=(2, 2), influence_share=0.1)
    facts = neighbour_replay.small_facts(method)
    facts = replace(facts, declared=declared, shape=(4, 8), features=32)
    assert contract_checks.problems(method, facts) == []


def test_nobody_recorded_anything() -> None:
    """A crash that told so: rows without any example could not be reshaped."""
    method = replace(Behaviour.for_audit(), hidden=(2, 2))
    plan = method.plan(neighbour_replay.small_facts(method, epsilon=100.0))
    absent = method.neighbours(plan).absent
    nothing = replace(absent, rows=absent.rows.without(np.ones(len(absent), dtype=bool)))
    assert np.isfinite(
        train(method, nothing, plan, rng=seeded(0)).model.outputs(nothing.rows)
    ).all()


def written(panel: Panel, folder: Path) -> list[str]:
    """The panel as somebody would have it: dates, a column of words, friends without a header."""
    first = date(2026, 1, 5)
    names = list(BOUNDS)
    with (folder / "table.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["person", "date", "mood", "note", *names])
        for u, t in np.argwhere(panel.observed()):
            cells = [panel.values[u, t, panel.attributes.index(n)] for n in names]
            mood = ("good", "bad")[(u + t) % 2]
            table.writerow([panel.users[u], first + timedelta(int(t)), mood, "so, so", *cells])
    friends = "\n".join(f"{panel.users[a]},{panel.users[b]}" for a, b in panel.edges)
    (folder / "friends.csv").write_text(friends + "\n")
    report = {"bounds": BOUNDS, "categories": {"mood": ["good", "bad"]}}
    (folder / "declared.json").write_text(json.dumps(report))
    return [
        "train", "behaviour", "--data", str(folder / "table.csv"), "--edges",
        str(folder / "friends.csv"), "--user", "person", "--day", "date", "--target", "distances",
        "--events", "joining competitions", "--bounds", str(folder / "declared.json"), "--epsilon",
        "4", "--seed", "0", "--json",
    ]  # fmt: skip


def command(*words: str) -> Any:
    return CliRunner().invoke(app, list(words))


@pytest.mark.slow
def test_own_tables_by_command(panel: Panel, tmp_path: Path) -> None:
    run = tmp_path / "run"
    done = command(*written(panel, tmp_path), "--out", str(run))
    assert done.exit_code == 0, done.output
    answer = json.loads(done.stdout)
    assert answer["guarantee"]["unit"] == "user" and answer["guarantee"]["epsilon"] <= 4.0
    assert "declaration.json" in {p.name for p in run.iterdir()}
    public = (p for p in run.iterdir() if p.is_file())
    assert not any(str(tmp_path).encode() in p.read_bytes() for p in public)  # no place of files

    said = command("predict", str(run), str(tmp_path / "table.csv"), "--json")
    rows = json.loads(said.stdout)
    assert len(rows) == 60 and set(rows[0]) == {"user", "predicted", "falls", "rises"}
    loaded = privet.load(run)
    read = load_panel(
        tmp_path / "table.csv", tmp_path / "friends.csv", target="distances",
        bounds={k: (a, b) for k, (a, b) in BOUNDS.items()}, user="person", day="date",
        categories={"mood": ["good", "bad"]}, events=["joining competitions"], season=7,
    )  # fmt: skip
    assert [r["user"] for r in rows] == list(read.users)
    series = SeriesLayout.of(read).series(read)[:, -loaded.domain.shape[0] :]
    rises = loaded.predict_proba(series)[:, 1]
    assert [r["rises"] for r in rows] == [round(float(p), 6) for p in rises]

    (tmp_path / "other.csv").write_text("user1,user2\n")
    changed = command(
        "predict", str(run), str(tmp_path / "table.csv"), "--json", "--reading",
        f"edges={tmp_path / 'other.csv'}",
    )  # fmt: skip
    assert json.loads(changed.stdout) != rows
    attacked = command("attack", str(run))
    assert attacked.exit_code == 2 and "privet audit" in attacked.output


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--target", ""], "--target"),
        (["--target", "pulse"], "target"),
        (["--test-days", "39"], "--test-days"),
        (["--edges", "nowhere.csv"], "nowhere.csv"),
        (["--user", "name"], "no column"),
        (["--hidden", "1,2,3"], "at most two layers"),
    ],
)
def test_what_is_refused_by_one_line(
    panel: Panel, tmp_path: Path, words: list[str], said: str
) -> None:
    done = command(
        *written(panel.sample(np.arange(8)), tmp_path), "--out", str(tmp_path / "run"), *words
    )
    assert (
        done.exit_code == 2 and said in done.output and len(done.output.strip().splitlines()) == 1
    )
    assert not (tmp_path / "run").exists()


def test_rows_are_a_function_of_series_alone() -> None:
    """Two layouts with the same columns read the same; null rows answer with a number."""
    layout = SeriesLayout(attributes=2, target=1, events=(0,), levels=(1, 3))
    assert SeriesLayout.from_dict(json.loads(json.dumps(layout.to_dict()))) == layout
    rows = Rows(
        values=np.zeros((2, 5, layout.columns), dtype=np.float32), kind=privet.data.domain.RowKind.BOX,
        null=np.array([True, True]),
    )  # fmt: skip
    assert np.isnan(layout.values(rows.box())).all()
