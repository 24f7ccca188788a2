"""Loading a run takes the time of reading its files: nothing else is opened, nothing computed."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import privet
from privet.features import Scattering, pictures


@pytest.mark.slow
def test_loading_reads_the_files_of_the_run_and_computes_no_features(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As for MNIST: a linear head on scattering (measured: 3 ms of processor time after imports)."""
    x = np.random.default_rng(0).random((60, 16, 16))
    y = (x.mean(axis=(1, 2)) > 0.5).astype(int)
    clf = privet.DPSGDClassifier(
        epsilon=1.0,
        delta=1e-5,
        classes=[0, 1],
        bounds=(0, 1),
        features=pictures((16, 16)),
        steps=2,
        random_state=0,
    ).fit(x, y)
    clf.save(tmp_path / "run")
    privet.load(tmp_path / "run")  # whatever is imported late

    opened: list[Path] = []
    watching = True

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if watching and event == "open" and isinstance(arguments[0], str):
            opened.append(Path(arguments[0]))

    def computed(*_: Any) -> None:
        raise AssertionError("features were computed")

    with monkeypatch.context() as patch:
        patch.setattr(Scattering, "transform", computed)
        sys.addaudithook(hook)
        run = privet.load(tmp_path / "run")
        watching = False
    assert {p.parent for p in opened} == {tmp_path / "run", tmp_path / "run" / "private"}
    assert len(opened) == len(set(opened)), "a file was read twice"
    assert np.array_equal(run.predict_proba(x), clf.predict_proba(x))
