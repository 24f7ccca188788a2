"""What a training and the loading of its run go through: no fact twice, no trainer to load."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from privet.methods.catalogue import _MODELS, _OWN
from tests.contract.test_every_method import CLASSIFIERS, fit, rows


def trace(*words: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, str(Path(__file__).parent / "trace_calls.py"), *words],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.slow
def test_loading_knows_no_trainer(tmp_path: Path) -> None:
    """All runs load and answer bit for bit where no method was ever imported."""
    x, y = rows()
    np.save(tmp_path / "rows.npy", x)
    answers = []
    for name in CLASSIFIERS:
        clf = fit(name, x, y)
        clf.save(tmp_path / name)
        answers.append(clf.predict_proba(x).tobytes().hex())
    seen = trace("load", *(str(tmp_path / name) for name in CLASSIFIERS))
    assert seen["answers"] == answers
    trainers = {place.split(":")[0] for place in _OWN.values()}
    models = {place.split(":")[0] for place in _MODELS.values()}
    assert not trainers & models
    assert not trainers & set(seen["modules"])
    assert not [f for f in seen["files"] if f.startswith(("noise/", "ledger/", "mechanisms/"))]


@pytest.mark.slow
def test_a_training_computes_each_fact_once(tmp_path: Path) -> None:
    out = tmp_path / "run"
    seen = trace(
        "train", "dpsgd", "--data", "digits", "--epsilon", "1", "--delta", "1e-5",
        "--out", str(out),
    )  # fmt: skip
    assert seen["functions"]["accounting/gaussian.py:gaussian_mu"] == 1
    premises = json.loads((out / "guarantee.json").read_text())["guarantee"]["premises"]
    about = [p["about"] for p in premises]
    assert about.count("number of records") == 1 and len(set(about)) == len(about)
