"""privet compare: one table of the right facts, resumable, with errors a newcomer understands."""

from __future__ import annotations

import csv
import dataclasses
import json
import math
import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from privet.cli.main import main
from privet.compare import LIMIT, Participant, catalogue_participants, compare, export, sweep
from privet.compare.comparison import SPLITS
from privet.compare.comparison_cells import ComparisonCell
from privet.compare.comparison_data import ComparisonData, View
from privet.compare.table_export import latex
from privet.data import Dataset, load
from privet.errors import InvalidArgument, LedgerError
from privet.estimators import PrivateClassifier
from privet.jobs import cached_json
from privet.ledger import Ledger
from privet.report.comparison_page import html, save_figure
from privet_papers import participants

PARTICIPANTS = (LIMIT, *catalogue_participants(), *participants.PARTICIPANTS)

ROW = {
    "method", "accuracy", "claimed_epsilon", "proved_epsilon", "audited_epsilon", "verdict",
    "attack_auc", "attack_tpr_at_1pct_fpr", "time_ratio", "accuracy_interval", "difference", "learned",
}  # fmt: skip


@pytest.mark.slow
def test_rows_and_resume(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = load("blobs").subset(400)
    settings = {"epsilon": 1.0, "delta": 1e-5, "methods": ["adaptive-laplace"], "splits": 2}
    told: list[tuple[int, int]] = []
    first = compare(
        data, tmp_path, **settings, jobs=1, backend="sequential",
        progress=lambda what, done, of: told.append((done, of)),
    )  # fmt: skip
    limit, ours = first["rows"]
    assert set(limit) >= ROW
    assert limit["proved_epsilon"] == "inf" and limit["verdict"] == "no promise"
    assert ours["proved_epsilon"] <= 1.0 and ours["accuracy"] > 0.6
    assert ours["verdict"] in ("consistent", "uninformative")
    assert told[0] == (0, 5) and told[-1] == (5, 5)
    assert [account["account"] for account in first["ledgers"]] == [
        "adaptive-laplace: train, seed 0",
        "adaptive-laplace: train, split 1, seed 0",
    ]  # the audit is on made-up neighbours
    assert first["reference"] == "adaptive-laplace" and ours["difference"] is None
    runs = [(run["method"], run["split"]) for run in first["runs"]]
    assert runs == [(m, k) for k in (0, 1) for m in ("not private", "adaptive-laplace")]
    mine = [run for run in first["runs"] if run["method"] == "adaptive-laplace"]
    assert ours["accuracy"] == pytest.approx(np.mean([run["accuracy"] for run in mine]))
    assert mine[0]["attack_auc"] == ours["attack_auc"] and mine[1]["attack_auc"] is None
    for account in first["ledgers"]:
        ledger = Ledger.open(tmp_path / "ledgers" / account["file"])
        assert ledger.head == account["head"] and 0.9 < ledger.spent() <= 1.0
        assert [e["interrupted"] for e in account["entries"]] == [False]

    def again(*cell: object) -> None:
        raise AssertionError("a finished cell was run again")

    monkeypatch.setattr("privet.compare.comparison_cells.ComparisonCell._compute", again)
    assert compare(data, tmp_path, **settings, jobs=1) == first
    (tmp_path / "ledgers" / first["ledgers"][0]["file"]).unlink()
    with pytest.raises(LedgerError, match="is gone, and its cell was finished"):
        compare(data, tmp_path, **settings, jobs=1)


@pytest.mark.slow
def test_an_attempt_that_died_is_charged_and_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed after the charge, before the cell was written: the account has both attempts."""
    data = load("blobs").subset(400)
    settings = {"epsilon": 1.0, "delta": 1e-5, "methods": ["adaptive-laplace"], "jobs": 1,
                "splits": 1}  # fmt: skip

    def dies(*args: object, **told: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("privet.audit.membership.attack", dies)
        with pytest.raises(KeyboardInterrupt):
            compare(data, tmp_path, **settings)
    (tmp_path / "ledgers").mkdir()
    limit_died = list((tmp_path / "ledgers").iterdir())
    assert limit_died == []  # the first cell is the limit's, which spends nothing

    attack = ComparisonCell._attack

    def dies_late(self: ComparisonCell, model: object) -> object:
        if isinstance(model, PrivateClassifier):
            raise KeyboardInterrupt
        return attack(self, model)

    with monkeypatch.context() as patched:
        patched.setattr(ComparisonCell, "_attack", dies_late)
        with pytest.raises(KeyboardInterrupt):
            compare(data, tmp_path, **settings)
    account = compare(data, tmp_path, **settings)["ledgers"][0]
    assert [e["interrupted"] for e in account["entries"]] == [True, False]
    assert account["spent"] > 1.2


def test_a_ledger_killed_at_birth_is_made_again(tmp_path: Path) -> None:
    shared = ComparisonData(dataset=load("blobs"), epsilon=1.0, delta=1e-5)
    cell = ComparisonCell(
        task="train", participant=PARTICIPANTS[2], seed=0, data=shared, out=tmp_path
    )
    cell.ledger_path.parent.mkdir()
    cell.ledger_path.touch()
    ledger = cell._open_ledger()
    assert cell.ledger_path.name.startswith("dpsgd-network-train-seed-0-")
    assert len(ledger) == 0 and ledger.dataset == shared.dataset.fingerprint


def test_every_system_is_there_with_its_baselines() -> None:
    systems = {e.system for e in PARTICIPANTS}
    assert systems == {
        "not private", "DP-SGD", "adaptive Laplace", "PATE", "residual perturbation",
        "deep private auto-encoder", "private regression",
    }  # fmt: skip
    names = [e.name for e in PARTICIPANTS]
    assert len(names) == len(set(names)) >= 20
    assert {"identical noise", "dpsgd-network", "pate-by-votes", "residual ensemble",
            "residual II as published", "functional mechanism", "histogram (DPME)",
            "autoencoder without noise"} <= set(names)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("participant", PARTICIPANTS, ids=lambda e: e.name)
def test_a_cell_run_again_is_the_same_release(participant: Participant, tmp_path: Path) -> None:
    """All noise and all weights come from the cell's seed; what is charged is what is proved."""
    shared = ComparisonData(dataset=load("blobs").subset(600), epsilon=1.0, delta=1e-5)
    terms = {
        "adjacency": participant.adjacency,
        "unit": participant.unit,
        "protects": participant.protects,
    }
    found = []
    for _ in range(2):
        ledger = Ledger.in_memory(cap_epsilon=math.inf, cap_delta=shared.delta, **terms)
        cell = ComparisonCell(
            task="train", participant=participant, seed=3, data=shared, out=tmp_path, references=0
        )
        row = cell._train_and_attack(ledger if participant.charged else None)
        found.append((row["right"], row["attack"]["auc"], ledger.spent()))
    assert found[0] == found[1]
    if participant.charged:
        stated = row["guarantee"]
        assert ledger.spent(stated["delta"]) == pytest.approx(stated["epsilon"], rel=1e-6)
    elif participant.promises:
        assert row["guarantee"]["epsilon"] == "inf"
    else:
        assert row["guarantee"] is None


def pictures(records: int = 40) -> Dataset:
    draw = np.random.default_rng(0)
    x, y = draw.uniform(size=(records, 16, 16)), np.arange(records) % 2
    return Dataset(
        name="pictures", about="noise", classes=("no", "yes"), low=0.0, high=1.0,
        x_train=x, y_train=y, x_test=x[:12], y_test=y[:12],
    )  # fmt: skip


@pytest.mark.slow
def test_views_are_public_maps_of_a_record_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PRIVET_CACHE", str(tmp_path))
    whole = ComparisonData(dataset=pictures(), epsilon=1.0, delta=1e-5)
    part = ComparisonData(dataset=pictures().subset(7), epsilon=1.0, delta=1e-5)
    for view in View:
        rows, few = whole.train(view)[0], part.train(view)[0]
        assert np.array_equal(rows[:7], few)
    assert np.linalg.norm(whole.train(View.FEATURES)[0], axis=1).max() <= 1.0
    assert np.abs(whole.train(View.FEW)[0]).max() <= 1.0
    assert len(whole.public(View.COLUMNS)) + len(whole.test(View.COLUMNS)[1]) == 12


@pytest.mark.slow
@pytest.mark.parametrize(("data", "name"), [
    ("blobs", "adaptive-laplace"), ("blobs", "adaptive-laplace-network"),
    ("pictures", "adaptive-laplace-network"),
])  # fmt: skip
def test_relevance_looks_at_public_records_only(data: str, name: str) -> None:
    """After training, other private records in the shared change nothing in the picture."""
    participant = next(e for e in PARTICIPANTS if e.name == name)
    assert participant.relevance is not None
    whole = pictures() if data == "pictures" else load("blobs").subset(300)
    shared = ComparisonData(dataset=whole, epsilon=1.0, delta=1e-5)
    model = participant.make(shared, 0, None).fit(*shared.train(participant.view))
    shown = participant.relevance(model, shared)
    other = replace_records(whole)
    assert shown == participant.relevance(
        model, ComparisonData(dataset=other, epsilon=1.0, delta=1e-5)
    )
    assert shown is not None
    assert np.shape(shown["maps"]) == (whole.n_classes, whole.n_features)
    assert sum(shown["records"]) == shared.cut and np.any(shown["maps"])


def replace_records(whole: Dataset) -> Dataset:
    return Dataset(
        name=whole.name, about="", classes=whole.classes, low=whole.low, high=whole.high,
        x_train=np.zeros_like(whole.x_train), y_train=np.zeros_like(whole.y_train),
        x_test=whole.x_test, y_test=whole.y_test,
    )  # fmt: skip


def test_half_a_cell_is_no_cell(tmp_path: Path) -> None:
    def dies() -> dict[str, object]:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cached_json(tmp_path, ["a"], dies)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--method", "dpsdg"), "did you mean dpsgd?"),
        (("--epsilon", "0"), "epsilon must be"),
        (("--delta", "2"), "delta must be"),
        (("--data", "digist"), "one of digits"),
        (("--data", "missing.csv"), "no such file"),
        (("--seeds", "0"), "seeds must be"),
        (("--splits", "0"), "splits must be"),
        (("--reference", "nobody"), "one that takes part"),
        (("--backend", "lokky"), "backend must be loky, threading, ray or dask"),
        (("--out", "/proc/nowhere"), "a folder that can be made"),
    ],
)
def test_newcomers_mistakes(
    options: tuple[str, ...], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as left:
        main(["compare", *options])
    assert left.value.code == 2
    said = capsys.readouterr().err
    assert said.startswith("error: ") and message in said and said.count("\n") == 1


def test_an_unknown_method_in_python(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="one of not private"):
        compare(load("blobs"), tmp_path, epsilon=1.0, delta=1e-5, methods=["pat"])


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["dask", "ray"])
def test_other_backends_find_the_same(backend: str, tmp_path: Path) -> None:
    data = load("blobs").subset(200)
    settings = {"epsilon": 1.0, "delta": 1e-5, "methods": ["pate-by-votes"], "jobs": 2,
                "splits": 2}  # fmt: skip
    here, there = (
        compare(data, tmp_path / name, **settings, backend=name)["rows"]
        for name in ("sequential", backend)
    )
    for one, other in zip(here, there, strict=True):
        for name in ROW - {"time_ratio"}:
            assert one[name] == other[name]


@pytest.mark.slow
def test_killed_twenty_times_it_goes_on(tmp_path: Path) -> None:
    """Seeded moments: finished cells stay as they were, and no ledger ever loses an entry.

    After every kill each ledger's history goes on from what was seen before, and each finished cell
    that spends has been charged at least once. At the end the accounts hold what the table says.
    """
    command = [
        sys.executable, "-m", "privet.cli.main", "compare", "--data", "blobs", "--records", "300",
        "--method", "adaptive-laplace", "--method", "autoencoder", "--method", "dpsgd-network",
        "--splits", "1", "--jobs", "1", "--backend", "sequential", "--out", str(tmp_path), "--json",
    ]  # fmt: skip
    rng, seen, heads = random.Random(0), {}, {}
    quiet = os.environ | {"OMP_NUM_THREADS": "1"}
    for _ in range(20):
        child = subprocess.Popen(command, stdout=subprocess.DEVNULL, env=quiet)
        time.sleep(rng.uniform(0.8, 3.4))
        child.send_signal(signal.SIGKILL)
        child.wait()
        for path in (tmp_path / "cells").glob("*.json"):
            text = path.read_text()
            json.loads(text)
            assert seen.setdefault(path.name, text) == text
        for path in (tmp_path / "ledgers").glob("*.ledger"):
            if path.stat().st_size == 0:  # killed while it was made
                assert path not in heads
                continue
            heads[path] = Ledger.open(path).verify(head=heads.get(path)).head
    done = subprocess.run(command, capture_output=True, check=True, text=True, env=quiet)
    told = json.loads(done.stdout)
    assert [r["method"] for r in told["rows"]][1:] == [
        "adaptive-laplace", "autoencoder", "dpsgd-network",
    ]  # fmt: skip
    for name, text in seen.items():
        assert (tmp_path / "cells" / name).read_text() == text
    for path, head in heads.items():
        Ledger.open(path).verify(head=head)
    assert len(told["ledgers"]) == 3  # trainings; audits are on made-up neighbours
    for account in told["ledgers"]:
        kept_runs = [e for e in account["entries"] if not e["interrupted"]]
        assert len(kept_runs) == 1 and 0.9 < kept_runs[0]["epsilon"] <= 1.0
        assert account["spent"] >= kept_runs[0]["epsilon"] * (1.0 - 1e-9)
    interrupted = sum(e["interrupted"] for a in told["ledgers"] for e in a["entries"])
    finished = len(list((tmp_path / "cells").glob("*.json")))
    assert finished == 7 and interrupted <= 20  # a kill costs at most the cell that it met


@pytest.mark.slow
def test_seeds_that_answer_the_same_questions_are_not_more_evidence(tmp_path: Path) -> None:
    """Logistic regression is the same with every seed: so is the interval of its accuracy."""
    settings = {"epsilon": 1.0, "delta": 1e-5, "methods": ["not private"], "jobs": 1,
                "splits": 1}  # fmt: skip
    data = load("blobs").subset(100)
    one, three = (
        compare(data, tmp_path, **settings, seeds=n, backend="sequential")["rows"][0]
        for n in (1, 3)
    )
    assert three["accuracy"] == one["accuracy"]
    assert three["accuracy_interval"] == pytest.approx(one["accuracy_interval"])


@pytest.mark.slow
def test_another_budget_keeps_the_old_one(tmp_path: Path) -> None:
    """Curves have every budget of the folder; features of pictures are gone at the end."""
    how = {"delta": 1e-5, "methods": ["adaptive-laplace"], "splits": 2, "jobs": 1}
    first = sweep(load("blobs").subset(300), tmp_path, epsilons=[2.0], **how)
    before = (tmp_path / "budgets" / "2-1e-05.json").read_text()
    both = sweep(load("blobs").subset(300), tmp_path, epsilons=[8.0], **how)
    assert (tmp_path / "budgets" / "2-1e-05.json").read_text() == before
    mine = [r for r in both["curves"] if r["method"] == "adaptive-laplace"]
    assert [r["epsilon"] for r in mine] == [2.0, 8.0] and all(r["splits"] == 2 for r in mine)
    assert mine[0] == next(r for r in first["curves"] if r["method"] == "adaptive-laplace")
    told = list(csv.DictReader(export(both["curves"], tmp_path / "c.csv").read_text().splitlines()))
    assert len(told) == 4
    page = html(both)
    for row in both["curves"]:  # the table for a paper and the page say the same
        (line,) = [t for t in told if t["method"] == row["method"]
                   and float(t["epsilon"]) == row["epsilon"]]  # fmt: skip
        low, high = (float(line[f"accuracy_{end}"]) for end in ("low", "high"))
        assert [low, high] == row["accuracy_interval"] and low < row["accuracy"] < high
        assert f"{100 * low:.1f} to {100 * high:.1f}" in page
        assert f"[{100 * low:.1f}, {100 * high:.1f}]" in latex(both["curves"])
    assert r"$\varepsilon = 8$" in export(both["curves"], tmp_path / "c.tex").read_text()
    with pytest.raises(InvalidArgument, match=r"ends in \.csv"):
        export(both["curves"], tmp_path / "c.xls")
    assert "At epsilon 2</h2>" in page and "At epsilon 8</h2>" in page
    assert "At epsilon 2</h2>" not in html(first)
    for name in ("accuracy.pdf", "accuracy.svg"):
        assert save_figure(both, tmp_path / name).stat().st_size > 2000


@pytest.mark.slow
def test_who_did_not_learn_is_told(tmp_path: Path) -> None:
    """A method at a tiny budget, on classes of which one is frequent; the others are compared."""
    rng = np.random.default_rng(0)
    y = (rng.uniform(size=900) < 0.3).astype(np.int64)
    x = np.clip(0.5 + 0.25 * (2 * y - 1)[:, None] + 0.1 * rng.normal(size=(900, 4)), 0.0, 1.0)
    data = Dataset(name="lopsided", about="", classes=("no", "yes"), low=0.0, high=1.0,
                   x_train=x[:600], y_train=y[:600], x_test=x[600:], y_test=y[600:])  # fmt: skip
    how = {"delta": 1e-5, "methods": ["adaptive-laplace"], "references": 0, "jobs": 1}
    small, large = (
        compare(data, tmp_path, epsilon=epsilon, **how)["rows"] for epsilon in (1e-3, 8.0)
    )
    assert [row["learned"] for row in (*small, *large)] == [True, False, True, True]
    assert small[0]["splits"] == SPLITS and 0.65 < small[0]["guessing"] < 0.75
    assert small[1]["to_limit"]["high"] < 0.0 < large[1]["to_limit"]["high"] + 0.05
    found = compare(data, tmp_path, epsilon=8.0, reference="not private", **how)
    assert found["rows"][1]["difference"] == large[1]["to_limit"]


@pytest.mark.slow
def test_a_class_that_a_split_lacks_is_no_mistake(tmp_path: Path) -> None:
    """Two records of a rare class among 120: some splits train without them."""
    rng = np.random.default_rng(0)
    y = rng.permutation(np.repeat([0, 1, 2], [60, 58, 2]))
    x = np.clip(0.5 + 0.2 * np.eye(3, 4)[y] + 0.1 * rng.normal(size=(120, 4)), 0.0, 1.0)
    data = Dataset(name="rare", about="", classes=("a", "b", "c"), low=0.0, high=1.0,
                   x_train=x[:80], y_train=y[:80], x_test=x[80:], y_test=y[80:])  # fmt: skip
    splits = [ComparisonData(dataset=data, epsilon=8.0, delta=1e-5, split=k) for k in range(8)]
    assert any((split.train(View.COLUMNS)[1] == 2).sum() == 0 for split in splits)
    found = compare(data, tmp_path, epsilon=8.0, delta=1e-5, methods=["adaptive-laplace"],
                    splits=8, references=0, jobs=1)  # fmt: skip
    assert all(0.5 < row["accuracy"] < 1.0 for row in found["rows"])


def test_people_with_several_records_are_not_split_anew(tmp_path: Path) -> None:
    data = dataclasses.replace(load("blobs").subset(60), groups=np.arange(60) // 2, user="who")
    with pytest.raises(InvalidArgument, match="1 where people have several records"):
        compare(data, tmp_path, epsilon=1.0, delta=1e-5, splits=3)


@pytest.mark.slow
def test_a_log_is_alive_within_seconds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of a redirected comparison: what it is at, how far, and the time that is left."""
    monkeypatch.setattr("privet.cli.console.FIRST_LINE", 0.01)
    monkeypatch.setattr(ComparisonCell, "run", lambda cell, tell: time.sleep(0.03))
    monkeypatch.setattr(ComparisonCell, "result", lambda cell: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        main(["compare", "--data", "blobs", "--records", "300", "--method", "adaptive-laplace",
              "--jobs", "1", "--out", str(tmp_path / "out")])  # fmt: skip
    lines = capsys.readouterr().err.splitlines()
    alive = re.compile(r"adaptive-laplace: .*\(\d+ of 11, about \d+ s left\)")
    assert any(alive.search(line) for line in lines), lines


@pytest.mark.slow
def test_features_are_kept_only_when_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRIVET_CACHE", str(tmp_path / "cache"))
    how = {"epsilon": 4.0, "delta": 1e-5, "methods": ["adaptive-laplace"], "jobs": 1}
    compare(pictures(), tmp_path / "a", **how)
    assert not (tmp_path / "a" / "features").exists() and not (tmp_path / "cache").exists()
    compare(pictures(), tmp_path / "b", cache=True, **how)
    assert list((tmp_path / "b" / "features").glob("*.npy"))
