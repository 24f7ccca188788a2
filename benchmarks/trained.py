"""What the benchmarks of accuracy at a proven epsilon share: trainings by seed, their figures."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privet.data import Dataset
from privet.estimators import DPSGDClassifier

DELTA = 1e-5
Prepared = tuple[NDArray[np.float32], NDArray[np.float32], dict[str, Any]]
"""Rows to train on, rows to test on, settings of the classifier."""


def trained(
    data: Dataset, prepare: Callable[[int], Prepared], *, epsilon: float, seeds: int
) -> tuple[dict[str, Any], Any]:
    """Figures of one training a seed, accuracy in percent, and the last plan."""
    accuracies, seconds, guarantees = [], [], []
    for seed in range(seeds):
        x, x_test, settings = prepare(seed)
        begun = time.perf_counter()
        told = {"bounds": 1.0, **settings}  # features are rows of length 1
        clf = DPSGDClassifier(
            epsilon=epsilon, delta=DELTA, classes=range(10), random_state=seed, **told
        ).fit(x, data.y_train)
        seconds.append(time.perf_counter() - begun)
        accuracies.append(100.0 * clf.score(x_test, data.y_test))
        guarantees.append(clf.guarantee_.epsilon)
    figures = {
        "epsilon": epsilon,
        "proved_epsilon": max(guarantees),
        "claimed_epsilon": None if clf.claim_ is None else clf.claim_.epsilon,
        "delta": DELTA,
        "adjacency": clf.guarantee_.adjacency.value,
        "accuracies": [round(a, 2) for a in accuracies],
        "mean": round(float(np.mean(accuracies)), 3),
        "std": round(float(np.std(accuracies, ddof=1)), 3) if seeds > 1 else None,
        "steps": clf.plan_.schedule.steps,
        "seconds_training": round(float(np.mean(seconds)), 1),
    }
    return figures, clf.plan_


def arguments(description: str, *, epsilon: float) -> argparse.ArgumentParser:
    """The options that all of them take."""
    parser = argparse.ArgumentParser(description=description.split("\n")[0])
    parser.add_argument("--epsilon", type=float, nargs="+", default=[epsilon])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", action="store_true")
    return parser


def told(
    epsilons: list[float],
    run: Callable[[float], dict[str, Any]],
    line: Callable[[dict[str, Any]], str],
    *,
    as_json: bool,
) -> None:
    """One row an epsilon: a line as soon as it is there, or JSON of all of them."""
    rows = []
    for epsilon in epsilons:
        rows.append(run(epsilon))
        if not as_json:
            print(line(rows[-1]), flush=True)
    if as_json:
        print(json.dumps({"rows": rows}, indent=2))
