"""Every table and figure of every paper is made by its command, and has its place on a page.

Each experiment lists them as `shows`. What the papers print stands here once more, read off their
captions, so that none can be left out of the list. The commands run on few made-up records;
CIFAR-100 and IDC on files of the layout that they are downloaded in.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from privet.cli.main import main
from privet.data import Dataset
from privet_papers import experiment_named
from privet_papers.experiment import Shown
from privet_papers.pate.dpsgd_baseline import PrivateRecipe

PAGES = Path(__file__).parents[2] / "docs" / "papers"
PRINTED = {
    "adaptive-laplace": [
        "Fig. 1", "Fig. 2", "Fig. 3", "Fig. 4a", "Fig. 4b", "Fig. 4c", "Fig. 5a", "Fig. 5b",
        "Fig. 5c", "t-tests, section IV", "Lemma 7",
    ],
    "autoencoder": [
        "Figure 1", "Lemma 4", *(f"Figure {n}, {how}" for n in (2, 3) for how in ("daily", "weekly")),
    ],
    "pate": ["Figure 1", "Figure 2", "Results"],  # its numbers stand in the running text
    "residual": [
        *(f"Table {n}" for n in ("I", "II", "III", "IV", "V")),
        *(f"Fig. {n}" for n in range(1, 13)), "IV-D, skip connections",
        *(f"IV-F, {what}" for what in ("Theorem 1", "DPSGD", "lower bounds of epsilon")),
    ],
    "tight-privacy-cost": ["Figure 1", "claims about sigma", "efficiency"],
}  # fmt: skip
"""Captions of the papers, and what they print in their running text and we compare with."""
TINY: dict[str, dict[str, Any]] = {
    "adaptive-laplace": {
        "records": 160, "epochs": 1, "released_epochs": 1, "pretraining_epochs": 1,
        "psgd_steps": 2, "batch_size": 80,
        "maps": (2, 2), "wide": (2, 3), "kernel": (3, 3), "hidden": 4,
        "epsilons": (2.0, 8.0), "larger": (1e6,), "curves": (2.0,),
        "audit_trials": 400, "seeds": 1, "methods": ("AdLM", "ILM", "pSGD"),
    },
    "autoencoder": {
        "data": ("health", "weekly"), "models": ("dPAH", "sound predictor", "TdA", "FM", "SctRBM", "dA"),
        "epsilons": (1.0,), "rates": (0.5, 1.0), "seeds": 1, "users": 30, "days": 84, "weeks": 12, "steps": 8,
        "hidden": 8, "published_steps": 4,
    },
    "pate": {"data": "spheres", "seeds": 1, "teachers": 2, "shard": 2, "public": 3, "test": 2,
             "few": (), "sweep": (2.0,), "channels": (4, 8), "steps": 2, "patch": 8, "folds": 2,
             "reducer_steps": 2, "plain_epochs": 1, "dimension": 2, "widths": (4,),
             "dpsgd_as_printed": PrivateRecipe(steps=2, sample_rate=0.5, learning_rate=1e-2,
                                               bound=4.0, variance=6.0),
             **{name: PrivateRecipe(steps=2, sample_rate=0.5, learning_rate=1e-2)
                for name in ("dpsgd", "dpsgd_from_public", "dpsgd_by_shard",
                             "dpsgd_as_teachers")}},
    "residual": {
        "records": 160, "test_records": 40, "epochs": 1, "batch_size": 32, "gammas": (),
        "multiplicative": (0.5,), "members": (1, 2), "seeds": 1,
    },
    "tight-privacy-cost": {
        "sample_rates": (0.1,), "noise_multipliers": (2.0,), "steps": (10,), "canaries": 0,
        "claim_multipliers": (2.0,),
    },
}  # fmt: skip
"""Settings in which a command takes seconds."""


def _made_up(name: str, folder: Path | None = None) -> Dataset:
    """Pictures of the shape that the data set has; one class is brighter than the other."""
    rng = np.random.default_rng(0)
    shape = (8, 8) if name in ("mnist", "breastmnist") else (8, 8, 3)
    y = np.arange(200) % 2
    x = rng.integers(0, 200, size=(200, *shape)) + 40 * y.reshape(-1, *(1 for _ in shape))
    return Dataset(
        name=name, about="made up", classes=("dark", "bright"), low=0.0, high=255.0,
        x_train=x[:160], y_train=y[:160], x_test=x[160:], y_test=y[160:],
    )  # fmt: skip


def _cifar100(folder: Path) -> None:
    """cifar-100-python, as it is downloaded."""
    (folder / "cifar-100-python").mkdir()
    for name, count in (("train", 160), ("test", 40)):
        rows = np.random.default_rng(0).integers(0, 256, (count, 3072), dtype=np.uint8)
        archive = {b"data": rows, b"fine_labels": [11 * (k % 10) for k in range(count)]}
        (folder / "cifar-100-python" / name).write_bytes(pickle.dumps(archive, protocol=2))


def _idc(folder: Path) -> None:
    """Patches by patient and class, some cut off at the edge of a slide."""
    rng = np.random.default_rng(0)
    for k in range(200):
        place = folder / "idc" / f"{8863 + k // 25}" / str(k % 2)
        place.mkdir(parents=True, exist_ok=True)
        pixels = rng.integers(0, 200, size=(50, 50 if k % 9 else 31, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(place / f"{k}.png")


FILES = {"cifar100": _cifar100, "idc": _idc}


def runs() -> Iterator[tuple[str, str]]:
    """Each paper with each kind of data that its tables and figures need."""
    for paper in PRINTED:
        kind = experiment_named(paper)
        first = next(iter(kind.quick))
        needed = dict.fromkeys(s.data or first for s in kind.shows)
        yield from ((paper, data) for data in needed)


@pytest.mark.slow
@pytest.mark.parametrize(("paper", "data"), list(runs()))
def test_the_command_makes_what_the_paper_prints(
    paper: str,
    data: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    one_thread: None,
) -> None:
    kind = experiment_named(paper)
    tiny = {data: replace(kind.quick[data], **TINY[paper])}
    chosen = [] if paper == "autoencoder" else ["--data", data]  # its --data picks panels
    more = {"other": tiny[data]} if chosen else {}  # two, so that --data exists
    monkeypatch.setattr(kind, "quick", tiny | more)
    if data in FILES:
        FILES[data](tmp_path)
        chosen += ["--folder", str(tmp_path)]
    elif paper != "tight-privacy-cost":
        monkeypatch.setattr("privet.data.load", _made_up)
    with pytest.raises(SystemExit) as leaving:
        main(["reproduce", paper, *chosen, "--jobs", "1", "--out", str(tmp_path), "--json"])
    assert leaving.value.code == 0
    results = json.loads(capsys.readouterr().out)
    assert all(Path(p).stat().st_size > 1000 for p in results["pictures"])
    missing = [s.of for s in kind.shows if s.data in ("", data) and not s.made(results)]
    assert not missing


@pytest.mark.parametrize("paper", PRINTED)
def test_every_table_and_figure_is_listed_and_has_its_page(paper: str) -> None:
    kind = experiment_named(paper)
    listed = [s.of for s in kind.shows]
    assert set(PRINTED[paper]) == set(listed)
    assert all(s.picture or s.rows for s in kind.shows)
    assert all(s.data in ("", *kind.quick) for s in kind.shows)
    page = (PAGES / f"{paper.replace('-', '_')}.md").read_text(encoding="utf-8")
    assert not [name for name in listed if f"| {name} |" not in page]


def test_what_a_run_lacks_is_noticed() -> None:
    shown = Shown(of="Table I", picture="curve", rows="rows")
    whole = {"pictures": ["out/curve.png"], "rows": [1]}
    assert shown.made(whole)
    assert not shown.made(whole | {"pictures": []}) and not shown.made(whole | {"rows": []})
