"""The rows of the comparison: how each is made on one split, kept as JSON."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from privet._files import write_whole
from privet.experiments.pate.trial import Trial
from privet.guarantee import Guarantee

Row = dict[str, Any]
MEAN_TEACHER, AUTOENCODED, DPSGD = "mean teacher", "autoencoded PATE", "DP-SGD"
DPSGD_FROM_PUBLIC = "DP-SGD from public labels"
CONTROL, WITH_PUBLIC = "public labels only", "autoencoded PATE, then public labels"


def kept_row(trial: Trial, method: str, epsilon: float) -> Row:
    """The row from its file, or made and written: whole or not at all."""
    by_dpsgd = method in (DPSGD, DPSGD_FROM_PUBLIC)
    name = trial.settings.dpsgd_name if by_dpsgd else "{} {:g}".format
    path = trial.place / f"{name(method, epsilon)}.json"
    if path.exists():
        found: Row = json.loads(path.read_text())
        return found
    began = time.perf_counter()
    run, _ = METHODS[method]
    row = {
        "method": method,
        "epsilon": number(epsilon),
        "seed": trial.seed,
        **run(trial, epsilon),
        "seconds": round(time.perf_counter() - began, 1),
    }
    row["mean_dice"] = float(np.mean(row["dice"]))
    write_whole(path, json.dumps(row, allow_nan=False))
    return row


def _mean_teacher(trial: Trial, epsilon: float) -> Row:
    scores = [trial.score(trial.teacher(k)) for k in range(trial.settings.teachers)]
    return {"dice": np.mean(scores, axis=0).tolist(), "teachers": scores, "guarantee": None}


def _ensemble(trial: Trial, epsilon: float) -> Row:
    k = trial.settings.teachers
    total = sum(trial.probabilities(trial.teacher(i), trial.test.images) for i in range(k))
    return {"dice": trial.dice(np.asarray(total)), "guarantee": None}


def _pca(trial: Trial, epsilon: float) -> Row:
    return _student(trial, "PCA-PATE", epsilon)


def _autoencoded(trial: Trial, epsilon: float) -> Row:
    return _student(trial, AUTOENCODED, epsilon)


def _student(trial: Trial, method: str, epsilon: float) -> Row:
    reducer = trial.pca(epsilon) if method == "PCA-PATE" else trial.autoencoder(epsilon)
    labels, release = trial.noisy(reducer, epsilon)
    network = trial.student(f"{method} {epsilon:g}", labels)
    return {
        "dice": trial.score(network),
        "label_dice": trial.label_dice(labels),
        "numbers": reducer.dimension,
        "radius": reducer.radius,
        "noise": 0.0 if release is None else release.noise,
        "guarantee": None if release is None else _stated(release.guarantee),
    }


def _with_public(trial: Trial, epsilon: float) -> Row:
    """The student of autoencoded PATE, trained on."""
    row = kept_row(trial, AUTOENCODED, epsilon)
    name = f"{AUTOENCODED} {epsilon:g}"
    student = trial.kept(name, trial.fresh)  # there: the row above has trained it
    network = trial.with_public_labels(name, student)
    return {"dice": trial.score(network), "guarantee": row["guarantee"]}


def _mean_map(trial: Trial, epsilon: float) -> Row:
    """No teacher at all: every public volume gets the mean public label map."""
    labels = np.broadcast_to(trial.truth.mean(axis=0), trial.truth.shape)
    network = trial.student("mean map", labels)
    return {
        "dice": trial.score(network), "label_dice": trial.label_dice(labels), "guarantee": None
    }  # fmt: skip


def _dpsgd(trial: Trial, epsilon: float) -> Row:
    return _private(trial, DPSGD, epsilon, from_public=False)


def _dpsgd_from_public(trial: Trial, epsilon: float) -> Row:
    return _private(trial, DPSGD_FROM_PUBLIC, epsilon, from_public=True)


def _private(trial: Trial, method: str, epsilon: float, *, from_public: bool) -> Row:
    name = trial.settings.dpsgd_name(method, epsilon)
    stated = trial.place / f"{name} guarantee.json"

    def train() -> Any:
        start = trial.control() if from_public else None
        network, guarantee = trial.dpsgd(epsilon, start)
        write_whole(stated, json.dumps(_stated(guarantee)))
        return network

    network = trial.kept(name, train)
    return {"dice": trial.score(network), "guarantee": json.loads(stated.read_text())}


def _control(trial: Trial, epsilon: float) -> Row:
    return {"dice": trial.score(trial.control()), "guarantee": None}


def _everything(trial: Trial, epsilon: float) -> Row:
    return {"dice": trial.score(trial.everything()), "guarantee": None}


METHODS: dict[str, tuple[Callable[[Trial, float], Row], bool]] = {
    MEAN_TEACHER: (_mean_teacher, False),
    "ensemble without noise": (_ensemble, False),
    AUTOENCODED: (_autoencoded, True),
    "PCA-PATE": (_pca, True),
    DPSGD: (_dpsgd, True),
    CONTROL: (_control, False),
    WITH_PUBLIC: (_with_public, True),
    DPSGD_FROM_PUBLIC: (_dpsgd_from_public, True),
    "mean public map, no teacher": (_mean_map, False),
    "non-private on everything": (_everything, False),
}
"""How each row is made, and whether it has a budget."""


def _stated(guarantee: Guarantee) -> Row:
    return {
        "epsilon": number(guarantee.epsilon),
        "delta": guarantee.delta,
        "adjacency": guarantee.adjacency.value,
        "unit": guarantee.unit.value,
        "standing": guarantee.standing.value,
    }


def number(x: float) -> float | str:
    """For JSON, which has no infinity."""
    return x if math.isfinite(x) else "inf"
