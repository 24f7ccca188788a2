"""The experiment of residual perturbation on a few made-up pictures: complete, resumable."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from privet.cli.main import main
from privet.data import Dataset
from privet.errors import InvalidArgument
from privet_papers.residual.experiment import (
    PLAIN,
    QUICK,
    ResidualExperiment,
    ResidualSettings,
    class_counts,
    list_jobs,
    network_kinds,
)
from privet_papers.residual.findings import PAPER_RESULTS, compare_budgets, compare_lower_bounds
from privet_papers.residual.idc import CLASS_COUNTS, TEST, TRAINING
from privet_papers.residual.membership_attacks import reference_jobs, target_job
from privet_papers.residual.step_training import random_crops, rate_at
from privet_papers.residual.training_runs import ResidualRuns

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
    progress = []
    results = ResidualExperiment(TINY, tmp_path).run(lambda *a: progress.append(a))
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
    assert progress[-1][1] == progress[-1][2] == len(list((tmp_path / "cells").glob("*.npz")))
    monkeypatch.setattr(ResidualRuns, "_train", lambda *a: pytest.fail("trained again"))
    assert ResidualExperiment(TINY, tmp_path).run() == results
    assert json.loads((tmp_path / "results.json").read_text())["rows"] == results["rows"]


def test_targets_and_references_are_split_as_they_should(tmp_path):
    runs = ResidualExperiment(replace(TINY, seeds=3), tmp_path).runs
    shadow, target = runs.where["shadow"], runs.where["target"]
    assert not set(shadow) & set(target) and len(shadow) == len(target) == 80
    for seed in range(3):
        job = target_job(PLAIN, seed)
        mine = runs.inside["target"][job.half]
        refs = [runs.inside["target"][j.half] for j in reference_jobs(runs, PLAIN, seed)]
        assert mine.sum() == 40 and len(refs) == 4
        # each record, member or not, is in exactly half of the references: counting tells nothing
        assert (np.sum(refs, axis=0) == 2).all()
        assert not any((r == mine).all() or (r == ~mine).all() for r in refs)


def test_networks_depend_on_their_settings(tmp_path):
    one, other = (ResidualExperiment(s, tmp_path) for s in (TINY, replace(TINY, epochs=4)))
    more = ResidualExperiment(replace(TINY, gammas=(9.0,), seeds=2), tmp_path)
    assert one.settings.facts() != other.settings.facts()
    assert one.settings.facts() == more.settings.facts()
    jobs = list_jobs(one.runs)
    assert len({str(one.runs._key(j)) for j in jobs}) == len(jobs)


def test_printed_rows_are_rows_of_the_run():
    """Each printed number stands beside a row that the quick run has (Table V has no gamma)."""
    for data, printed in PAPER_RESULTS.items():
        made = {name for name, *_ in network_kinds(QUICK[data])}
        assert {n for n in printed if n not in made} <= {"Strategy II, En1", "Strategy II, En5"}


def test_lower_bounds_stand_beside_the_printed_ones():
    pooled = {"pooled_lower_bound": 1.0, "pooled_networks": 5}
    rows = [
        pooled | row for row in (
        {"name": "ResNet8", "lower_bound": 2.0, "lira_auc": 0.6},
        {"name": "En1 ResNet8, gamma 4.5", "lower_bound": 0.5, "lira_auc": 0.5},
        {"name": "ResNet8 (DPSGD)", "lower_bound": 0.0},
        {"name": "En5 ResNet8, gamma 4.5", "lower_bound": 0.1},
        )
    ]  # fmt: skip
    found = compare_lower_bounds("cifar10", rows)
    assert [(b["found"], b["printed"]) for b in found] == [(2, None), (0.5, 0.1055), (0, 0.1558)]
    assert all(b["printed"] is None for b in compare_lower_bounds("mnist", rows))


def test_training_together_leaves_single_networks_as_they_are(tmp_path):
    apart, joint = (replace(TINY, joint=j) for j in (False, True))
    assert apart.facts() == joint.facts()  # what is kept for one is kept for the other


def test_members_may_be_trained_together(tmp_path):
    apart, joint = (
        ResidualExperiment(replace(TINY, joint=j, epochs=1), tmp_path).runs for j in (False, True)
    )
    alone = {j.together for j in list_jobs(apart)}
    assert alone == {1} and {j.together for j in list_jobs(joint)} == {1, 2}
    assert max(j.member for j in list_jobs(apart)) == 1 > max(j.member for j in list_jobs(joint))
    job = replace(PLAIN, gamma=0.5)
    found = joint.ensemble(job, 2)
    assert found.part.shape == (80, 2) and np.allclose(found.part.sum(1), 1.0, atol=1e-5)


def test_no_printed_number_stands_beside_another_gamma():
    for data, rows in PAPER_RESULTS.items():
        ours = {name for name, *_ in network_kinds(ResidualExperiment.paper[data])}
        table = {name for name in rows if not name.startswith("Strategy II")}
        assert table <= ours  # each is the row of the same name, gamma included


def test_the_report_shows_theorem_one_beside_what_is_printed():
    found = compare_budgets("idc")
    assert found["theorem_1"] == pytest.approx(2.9e6, rel=0.01)
    assert found["theorem_1_as_printed"] == 1.1e3
    assert found["dpsgd"] == pytest.approx(6.02, abs=0.01) and found["dpsgd_as_printed"] == 15.79
    assert compare_budgets("breastmnist") == found and compare_budgets("mnist") is None


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


def test_the_papers_scale_trains_as_the_paper_says():
    """Tenths of the rate at a half and three quarters, crops and flips; quarters on IDC."""
    paper = ResidualExperiment.paper
    assert (paper["cifar10"].schedule, paper["cifar10"].augmentation) == (
        "tenths",
        "crops and flips",
    )
    assert (paper["idc"].schedule, paper["idc"].epochs) == ("quarters", 100)
    assert paper["mnist"].augmentation == "crops"  # a digit is not its mirror image
    assert [rate_at("quarters", e / 100) for e in (0, 19, 20, 40, 60, 80)] == [
        1.0, 1.0, 0.25, 0.25**2, 0.25**3, 0.25**4
    ]  # fmt: skip
    with pytest.raises(InvalidArgument, match="augmentation"):
        replace(TINY, augmentation="crops")


def test_training_follows_its_schedule(tmp_path, monkeypatch):
    rates = []
    step = torch.optim.SGD.step

    def noted(self, *a, **k):
        rates.append(self.param_groups[0]["lr"])
        assert not self.param_groups[0]["nesterov"]
        return step(self, *a, **k)

    monkeypatch.setattr(torch.optim.SGD, "step", noted)
    settings = replace(TINY, epochs=4, schedule="tenths", augmentation="crops and flips")
    ResidualExperiment(settings, tmp_path).runs._train(PLAIN)
    assert sorted({round(r, 6) for r in rates}, reverse=True) == [0.1, 0.01, 0.001]
    assert len(rates) == 4 * 3 or len(rates) == 4 * 2
    halfway = len(rates) // 2
    assert rates[halfway - 1] == pytest.approx(0.1) and rates[halfway] == pytest.approx(0.01)


def test_dpsgd_has_the_papers_rates(tmp_path, monkeypatch):
    """.1, a quarter after each fifth of the time; it was 1.0, falling linearly."""
    rates = []
    step = torch.optim.SGD.step
    monkeypatch.setattr(
        torch.optim.SGD,
        "step",
        lambda self, *a, **k: (rates.append(self.param_groups[0]["lr"]), step(self, *a, **k))[1],
    )
    runs = ResidualExperiment(replace(TINY, epochs=10), tmp_path).runs
    runs._train(replace(PLAIN, dpsgd=True))
    steps = int(runs.dpsgd.releases)
    expected = [0.1 * 0.25 ** min(4, k * 5 // steps) for k in range(steps)]
    assert rates == pytest.approx(expected)


def test_crops_move_pictures_and_keep_their_size():
    torch.manual_seed(0)
    x = torch.zeros(50, 1, 16, 16)
    x[:, :, 8, 8] = 1.0
    moved = random_crops(x)
    assert moved.shape == x.shape and (moved.sum((1, 2, 3)) == 1.0).all()
    places = {tuple(p) for p in moved.nonzero()[:, 2:].tolist()}
    assert len(places) > 10 and all(6 <= a <= 10 and 6 <= b <= 10 for a, b in places)


def test_records_by_class_stand_beside_the_papers(tmp_path):
    assert sum(CLASS_COUNTS["whole"]) == 277_524
    assert [sum(CLASS_COUNTS[k]) for k in ("training", "test")] == [TRAINING, TEST]
    counts = class_counts(ResidualExperiment(TINY, tmp_path).runs)
    assert counts[0] == {"part": "training", "ours": "80 + 80", "printed": None}
