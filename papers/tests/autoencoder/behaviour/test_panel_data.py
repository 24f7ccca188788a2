"""Panels: what is refused, what a status is, and that nothing is read from the future."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from privet.errors import InvalidArgument, MissingFile
from privet_papers.autoencoder.behaviour.health_network import ATTRIBUTES, health_network
from privet_papers.autoencoder.behaviour.panel_data import Panel, load_panel, rolling_folds
from privet_papers.autoencoder.datasets import copenhagen, fitbit_daily, fitbit_hourly, s50


def small(**changes: object) -> Panel:
    made = Panel(
        name="small", about="", attributes=("steps", "mood"), target="steps", low=0.0, high=10.0,
        users=("a", "b", "c"), edges=[(0, 1), (1, 0), (2, 2)],
        values=np.arange(3 * 4 * 2, dtype=float).reshape(3, 4, 2) % 7,
    )  # fmt: skip
    return replace(made, **changes)


def test_friendships_are_pairs_once_without_loops() -> None:
    assert small().edges.tolist() == [[0, 1]]


def test_statuses_need_two_observed_days_and_a_change() -> None:
    values = np.array([[[1.0], [2.0], [2.0], [1.0], [np.nan], [5.0]]])
    panel = Panel(
        name="one", about="", attributes=("steps",), target="steps", low=0.0, high=9.0,
        users=("a",), edges=np.zeros((0, 2)), values=values,
    )  # fmt: skip
    assert panel.statuses().tolist() == [[-1, 1, -1, 0, -1, -1]]


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"values": np.zeros((3, 4))}, "values"),
        ({"values": np.zeros((2, 4, 2))}, "values"),
        ({"values": np.zeros((3, 0, 2))}, "values"),
        ({"target": "sleep"}, "target"),
        ({"events": ("rain",)}, "events"),
        ({"edges": [(0, 9)]}, "edges"),
        ({"low": 10.0}, "bounds"),
        ({"high": np.inf}, "bounds"),
        ({"season": -1}, "season"),
    ],
)
def test_what_is_refused(changes: dict[str, object], word: str) -> None:
    with pytest.raises(InvalidArgument, match=word):
        small(**changes)


def test_neighbours_and_samples() -> None:
    panel = small()
    assert not panel.without(1).observed()[1].any()
    assert panel.without(1).edges.tolist() == panel.edges.tolist()
    assert panel.sample([1, 2]).users == ("b", "c")
    assert panel.sample([1, 2]).edges.size == 0
    assert panel.sample([1, 0]).edges.tolist() == [[0, 1]]
    with pytest.raises(InvalidArgument, match="day"):
        panel.before(5)


def test_rolling_folds_go_forward() -> None:
    panel = health_network(users=10, days=40, seed=0).panel
    folds = rolling_folds(panel, horizon=4, folds=5, window=10)
    assert folds[-1].test.stop == 40
    for fold in folds:
        assert len(fold.train) == 10 and fold.train.stop == fold.test.start
    with pytest.raises(InvalidArgument, match="folds"):
        rolling_folds(panel, horizon=10, folds=4)


def test_generated_network_has_the_sizes_of_the_paper() -> None:
    made = health_network(seed=3)
    panel = made.panel
    assert panel.values.shape == (254, 300, 30) and len(panel.edges) == 1383
    assert len(set(ATTRIBUTES)) == 30
    joined = panel.values[:, :, 0]
    assert 0.8 * 11_458 < np.nansum(joined) < 1.1 * 11_458  # a tenth of the days is not recorded
    assert 0.8 * 2_766 < np.nansum(panel.values[:, :, 6:26]) < 1.1 * 2_766
    known = panel.statuses()
    assert 0.45 < (known == 1).sum() / (known >= 0).sum() < 0.55


def test_generated_network_is_what_it_says() -> None:
    made = health_network(users=120, days=200, seed=1, persistence=0.2, contagion=0.6)
    again = health_network(users=120, days=200, seed=1, persistence=0.2, contagion=0.6)
    assert np.array_equal(made.panel.values, again.panel.values, equal_nan=True)
    graph = np.zeros((120, 120), dtype=bool)
    graph[made.panel.edges[:, 0], made.panel.edges[:, 1]] = True
    assert (made.influence[~(graph | graph.T)] == 0.0).all()
    # the state tomorrow on today's own state and on the stated influence: coefficients rho and 1
    today, tomorrow = made.states[:, :-1], made.states[:, 1:]
    social = made.influence.T @ today
    x = np.column_stack([today.ravel(), social.ravel(), np.ones(today.size)])
    own, influence, _ = np.linalg.lstsq(x, tomorrow.ravel(), rcond=None)[0]
    assert abs(own - 0.2) < 0.05 and abs(influence - 1.0) < 0.25
    with pytest.raises(InvalidArgument, match="contagion"):
        health_network(persistence=0.5, contagion=0.5)


def test_table_and_edges_from_files(tmp_path: Path) -> None:
    table, edges = tmp_path / "table.csv", tmp_path / "edges.csv"
    table.write_text("user,day,steps\nann,3,10\nann,4,12\nbob,4,\nbob,5,7\n")
    edges.write_text("a,b\nann,bob\nann,nobody\n")
    panel = load_panel(table, edges, bounds={"steps": (0, 20)}, target="steps")
    assert panel.users == ("ann", "bob", "nobody") and panel.edges.tolist() == [[0, 1], [0, 2]]
    assert panel.observed()[:2].tolist() == [[True, True, False], [False, False, True]]
    assert not panel.observed()[2].any()
    with pytest.raises(InvalidArgument, match="no column 'pulse'"):
        load_panel(table, bounds={"pulse": (0, 1)}, target="pulse")
    table.write_text("user,day,steps\nann,monday,10\n")
    with pytest.raises(InvalidArgument, match="monday"):
        load_panel(table, bounds={"steps": (0, 20)}, target="steps")
    table.write_text("user,day,steps\n")
    with pytest.raises(InvalidArgument, match="no rows"):
        load_panel(table, bounds={"steps": (0, 20)}, target="steps")
    with pytest.raises(MissingFile):
        load_panel(tmp_path / "none.csv", bounds={}, target="steps")


@pytest.mark.parametrize(
    ("lines", "pairs"),
    [
        ("ann,bob\nbob,cem\n", [[0, 1], [1, 2]]),  # no header: the first edge is one
        ("from,to\nann,bob\n", [[0, 1]]),
        ("user,friend\nann,bob\nann,dora\n", [[0, 1], [0, 3]]),
        ("dora,eve\neve,ann\n", [[0, 4], [3, 4]]),  # strangers to the table, one of them again
        ("", []),
    ],
)
def test_edges_with_a_header_or_without(tmp_path: Path, lines: str, pairs: list[list[int]]) -> None:
    table, edges = tmp_path / "table.csv", tmp_path / "edges.csv"
    table.write_text("user,day,steps\nann,3,10\nbob,4,12\ncem,4,1\n")
    edges.write_text(lines)
    assert (
        load_panel(table, edges, bounds={"steps": (0, 20)}, target="steps").edges.tolist() == pairs
    )


def test_dates_and_words(tmp_path: Path) -> None:
    table = tmp_path / "table.csv"
    table.write_text(
        "user,when,steps,mood,note\n"
        "ann,2026-02-27,10,good,a\nann,2026-03-01 08:00,12,bad,b\nann,2026-03-02,9,odd,c\n"
    )
    panel = load_panel(
        table, bounds={"steps": (0, 20)}, categories={"mood": ["good", "bad"]}, target="steps",
        day="when", season=7,
    )  # fmt: skip
    assert panel.attributes == ("steps", "mood=good", "mood=bad") and panel.days == 4
    assert panel.values[0, 0].tolist() == [10.0, 1.0, 0.0]
    assert panel.observed().tolist() == [[True, False, True, False]]  # "odd" was not declared
    assert panel.first % 7 == 5  # a Friday: days are counted from a Sunday


def test_copenhagen_counts_by_day(tmp_path: Path) -> None:
    folder = tmp_path / "copenhagen-networks"
    folder.mkdir()
    (folder / "calls.csv").write_text("timestamp,caller,callee,duration\n10,0,1,60\n90000,1,0,-1\n")
    (folder / "sms.csv").write_text("timestamp,sender,recipient\n20,0,1\n2419200,5,0\n")
    (folder / "fb_friends.csv").write_text("user_a,user_b\n0,1\n1,7\n")
    panel = copenhagen(tmp_path)
    assert panel.users == ("0", "1", "5") and panel.edges.tolist() == [[0, 1]]
    counts = np.expm1(panel.values).round(6)
    assert counts[0, 0].tolist() == [2, 1, 0, 1, 1, 0]
    assert counts[1, :2].tolist() == [[0, 0, 1, 0, 0, 1], [1, 1, 0, 0, 0, 0]]
    assert counts[2, 27].tolist() == [1, 0, 0, 0, 1, 0]  # the last second belongs to the last day


def test_fitbit_months_are_joined(tmp_path: Path) -> None:
    names = (
        "TotalSteps,TotalDistance,VeryActiveMinutes,FairlyActiveMinutes,LightlyActiveMinutes,"
        "SedentaryMinutes,Calories"
    )
    for month, day, steps in (
        ("3.12.16-4.11.16", "4/11/2016", 5),
        ("4.12.16-5.12.16", "4/12/2016", 9),
    ):
        folder = tmp_path / "fitbit-mturk" / month
        folder.mkdir(parents=True)
        (folder / "dailyActivity_merged.csv").write_text(
            f"Id,ActivityDate,{names}\n1,{day},{steps},1,2,3,4,5,6\n"
        )
        when = "4/11/2016 11:00:00 PM" if month[0] == "3" else "2016-04-12 00:00:00"
        (folder / "hourlySteps_merged.csv").write_text(f"Id,ActivityHour,StepTotal\n1,{when},7\n")
    assert fitbit_daily(tmp_path).values[0, :, 0].tolist() == [5.0, 9.0]
    assert fitbit_hourly(tmp_path).values.shape == (1, 2, 1)


def test_missing_files_are_named(tmp_path: Path) -> None:
    for load in (copenhagen, fitbit_daily, fitbit_hourly, s50):
        with pytest.raises(MissingFile, match="PRIVET_DATA"):
            load(tmp_path)


@pytest.mark.slow
def test_real_files() -> None:
    try:
        loaded = [copenhagen(), fitbit_daily(), fitbit_hourly(), s50()]
    except MissingFile:
        pytest.skip("PRIVET_DATA does not hold the behaviour data")
    assert [p.values.shape for p in loaded] == [
        (608, 28, 6), (35, 62, 7), (35, 1480, 1), (50, 3, 2)
    ]  # fmt: skip
    assert len(loaded[3].edges) == 136
