"""The experiment of residual perturbation on a few made-up pictures: complete, resumable."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from privet.cli.main import main
from privet.data import Dataset
from privet.errors import InvalidArgument
from privet.papers.residual.attacks import reference_jobs, target_job
from privet.papers.residual.experiment import (
    PLAIN,
    QUICK,
    ResidualExperiment,
    ResidualSettings,
    kinds,
    networks,
)
from privet.papers.residual.networks import Bench
from privet.papers.residual.printed import PRINTED, budgets, lower_bounds

TINY = ResidualSettings(
    data="made up", records=160, test_records=40, epochs=3, batch_size=16, gamma=0.5,
    gammas=(), multiplicative=(0.5,), members=(1, 2), seeds=1,
)  # fmt: skip


def _pictures(name, folder):
    rng = np.random.default_rng(0)
    y = np.arange(200) % 2
    x = rng.integers(0, 200, size=(200, 8, 8)) + 40 * y[:, None, None]
    return Dataset(
        name=name, about="squares, one half a little brighter", classes=("dark", "bright"),
        low=0.0, high=255.0, x_train=x[:160], y_train=y[:160], x_test=x[160:], y_test=y[160:],
    )  # fmt: skip


@pytest.fixture(autouse=True)
def _made_up(monkeypatch):
    monkeypatch.setattr("privet.data.load", _pictures)


@pytest.mark.slow
def test_all_rows_and_pictures_are_made_and_nothing_is_trained_twice(tmp_path, monkeypatch):
    told = []
    results = ResidualExperiment(TINY, tmp_path).run(lambda *a: told.append(a))
    names = [r["name"] for r in results["rows"]]
    assert names[:3] == ["ResNet8", "En1 ResNet8, gamma 0.5", "ResNet8 (DPSGD)"]
    assert "no skips, gamma 0.5" in names and "Strategy II, En2, gamma 0.5" in names
    plain = results["rows"][0]
    assert plain["adapted_auc"] == plain["shadow_auc"]  # its own kind is what the paper takes
    for row in results["rows"]:
        assert 0.0 <= row["shadow_auc"] <= 1.0 and 0.0 <= row["test_accuracy"] <= 1.0
        assert ("lira_auc" in row) == ("adapted_auc" in row) == (row["name"] in names[:2])
        assert len(row["seeds"][0]["shadow"]["thresholds"]) == 4
    assert [b["of"] for b in results["lower_bounds"]] == names[:3]
    assert results["skips"] == [{
        "gamma": 0.5, "members": 1, "with": results["rows"][1]["test_accuracy"],
        "without": next(r for r in results["rows"] if not r["skip"])["test_accuracy"],
    }]  # fmt: skip
    assert {p.name for p in tmp_path.glob("*.png")} == {
        "strategy-1.png", "strategy-2.png", "roc-1.png", "roc-2.png", "ensembles.png",
        "pictures.png", "inversion.png",
    }  # fmt: skip
    assert told[-1][1] == told[-1][2] == len(list((tmp_path / "cells").glob("*.npz")))
    monkeypatch.setattr(Bench, "_trained", lambda *a: pytest.fail("trained again"))
    assert ResidualExperiment(TINY, tmp_path).run() == results
    assert json.loads((tmp_path / "results.json").read_text())["rows"] == results["rows"]


def test_targets_and_references_are_split_as_they_should(tmp_path):
    bench = ResidualExperiment(replace(TINY, seeds=3), tmp_path).bench
    shadow, target = bench.where["shadow"], bench.where["target"]
    assert not set(shadow) & set(target) and len(shadow) == len(target) == 80
    for seed in range(3):
        job = target_job(PLAIN, seed)
        mine = bench.inside["target"][job.half]
        refs = [bench.inside["target"][j.half] for j in reference_jobs(bench, PLAIN, seed)]
        assert mine.sum() == 40 and len(refs) == 4
        # each record, member or not, is in exactly half of the references: counting tells nothing
        assert (np.sum(refs, axis=0) == 2).all()
        assert not any((r == mine).all() or (r == ~mine).all() for r in refs)


def test_networks_depend_on_their_settings(tmp_path):
    one, other = (ResidualExperiment(s, tmp_path) for s in (TINY, replace(TINY, epochs=4)))
    more = ResidualExperiment(replace(TINY, gammas=(9.0,), seeds=2), tmp_path)
    assert one.settings.facts() != other.settings.facts()
    assert one.settings.facts() == more.settings.facts()
    jobs = networks(one.bench)
    assert len({str(one.bench._key(j)) for j in jobs}) == len(jobs)


def test_printed_rows_are_rows_of_the_run():
    """Each printed number stands beside a row that the quick run has (Table V has no gamma)."""
    for data, printed in PRINTED.items():
        made = {name for name, *_ in kinds(QUICK[data])}
        assert {n for n in printed if n not in made} <= {"Strategy II, En1", "Strategy II, En5"}


def test_lower_bounds_stand_beside_the_printed_ones():
    rows = [
        {"name": "ResNet8", "lower_bound": 2.0, "lira_auc": 0.6},
        {"name": "En1 ResNet8, gamma 4.5", "lower_bound": 0.5, "lira_auc": 0.5},
        {"name": "ResNet8 (DPSGD)", "lower_bound": 0.0},
        {"name": "En5 ResNet8, gamma 4.5", "lower_bound": 0.1},
    ]
    found = lower_bounds("cifar10", rows)
    assert [(b["found"], b["printed"]) for b in found] == [(2, None), (0.5, 0.1055), (0, 0.1558)]
    assert all(b["printed"] is None for b in lower_bounds("mnist", rows))


def test_training_together_leaves_single_networks_as_they_are(tmp_path):
    apart, joint = (replace(TINY, joint=j) for j in (False, True))
    assert apart.facts() == joint.facts()  # what is kept for one is kept for the other


def test_members_may_be_trained_together(tmp_path):
    apart, joint = (
        ResidualExperiment(replace(TINY, joint=j, epochs=1), tmp_path).bench for j in (False, True)
    )
    alone = {j.together for j in networks(apart)}
    assert alone == {1} and {j.together for j in networks(joint)} == {1, 2}
    assert max(j.member for j in networks(apart)) == 1 > max(j.member for j in networks(joint))
    job = replace(PLAIN, gamma=0.5)
    found = joint.ensemble(job, 2)
    assert found.part.shape == (80, 2) and np.allclose(found.part.sum(1), 1.0, atol=1e-5)


def test_no_printed_number_stands_beside_another_gamma():
    for data, rows in PRINTED.items():
        ours = {name for name, *_ in kinds(ResidualExperiment.paper[data])}
        table = {name for name in rows if not name.startswith("Strategy II")}
        assert table <= ours  # each is the row of the same name, gamma included


def test_the_report_shows_theorem_one_beside_what_is_printed():
    found = budgets("idc")
    assert found["theorem_1"] == pytest.approx(2.9e6, rel=0.01)
    assert found["theorem_1_as_printed"] == 1.1e3
    assert found["dpsgd"] == pytest.approx(6.02, abs=0.01) and found["dpsgd_as_printed"] == 15.79
    assert budgets("breastmnist") == found and budgets("mnist") is None


def test_settings():
    assert set(QUICK) == {"cifar10", "cifar100", "mnist", "breastmnist", "idc"}
    assert set(ResidualExperiment.paper) == set(QUICK)
    assert ResidualExperiment.paper["cifar10"].gamma == 4.5
    assert {name: s.gamma for name, s in QUICK.items()} == {
        "mnist": 2.5, "cifar10": 4.5, "cifar100": 3.25, "idc": 0.5, "breastmnist": 0.5
    }  # fmt: skip
    assert QUICK["cifar10"].halves == 6
    with pytest.raises(InvalidArgument, match="even"):
        replace(TINY, references=5)


@pytest.mark.slow
def test_the_command(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(QUICK, "breastmnist", replace(TINY, members=(1,), data="breastmnist"))
    out = str(tmp_path / "run")
    with pytest.raises(SystemExit) as leaving:
        main(["reproduce", "residual", "--data", "breastmnist", "--epochs", "1", "--out", out])
    assert leaving.value.code == 0
    printed = capsys.readouterr().out
    assert "2.9e+06; the paper prints 1.1e+03" in printed and "ResNet8 (DPSGD)" in printed


def test_an_unknown_data_set_is_told_in_one_line(tmp_path, capsys):
    out = str(tmp_path / "run")
    with pytest.raises(SystemExit) as leaving:
        main(["reproduce", "residual", "--data", "cifar11", "--out", out])
    assert leaving.value.code == 2
    assert capsys.readouterr().err.startswith("error: --data must be one of")
