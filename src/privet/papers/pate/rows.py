"""The rows of the comparison: how each is made on one split."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from torch import nn

from privet.guarantee import Guarantee
from privet.kept import number_to_json
from privet.methods.pate import NoisyAnswers, Reducer
from privet.papers.pate.trial import Trial

Row = dict[str, Any]
Earlier = Callable[[str], Row]
"""The row of another method at the same budget, made first if it is missing."""
MEAN_TEACHER, ENSEMBLE = "mean teacher", "ensemble without noise"
AUTOENCODED, PCA = "autoencoded PATE", "PCA-PATE"
ALGORITHM_2, PCA_LOGITS = "Algorithm 2 as printed", "PCA-PATE of logits"
ABOUT_PUBLIC = "autoencoded PATE about a public network"
MEAN_MAP, GUESS = "mean public map, no teacher", "public network's labels, no teacher"
CONTROL, WITH_PUBLIC = "public labels only", "autoencoded PATE, then public labels"
DPSGD, DPSGD_FROM_PUBLIC, DPSGD_BY_SHARD, DPSGD_AS_PRINTED = (
    "DP-SGD", "DP-SGD from public labels", "DP-SGD by shard", "DP-SGD, 4 a layer, variance 6",
)  # fmt: skip
EVERYTHING = "non-private on everything"
GUESS_NAME = "public network's labels"
ABOUT_WITH, GUESS_WITH = f"{ABOUT_PUBLIC}, then public labels", f"{GUESS}, then public labels"
GOES_ON_FROM = {WITH_PUBLIC: AUTOENCODED, ABOUT_WITH: ABOUT_PUBLIC, GUESS_WITH: GUESS}
"""Rows whose network is another row's, trained further."""
MIXED = (0.1, 0.3, 0.5)
"""Weights of the ensemble in mixtures with the public network."""


def made_row(trial: Trial, method: str, epsilon: float, earlier: Earlier) -> Row:
    """The row of a method at a budget."""
    began, used = time.perf_counter(), time.process_time()
    run, _ = (METHODS | FEW)[method]
    row = {
        "method": method,
        "epsilon": number_to_json(epsilon),
        "seed": trial.seed,
        **run(trial, epsilon, earlier),
        "seconds": round(time.perf_counter() - began, 1),
        "processor_seconds": round(time.process_time() - used, 1),
    }
    return row | {"mean_dice": float(np.mean(row["dice"]))}


def _mean_teacher(trial: Trial, epsilon: float, earlier: Earlier) -> Row:
    scores = [trial.score(trial.teacher(k)) for k in range(trial.settings.teachers)]
    return {"dice": np.mean(scores, axis=0).tolist(), "teachers": scores, "guarantee": None}


def _ensemble(trial: Trial, epsilon: float, earlier: Earlier) -> Row:
    """Also its labels for public volumes, by themselves and mixed into the public network's.

    The mixtures are what teachers could add if answers were neither compressed nor noisy.
    """
    k = trial.settings.teachers
    total = sum(trial.probabilities(trial.teacher(i), trial.test.images) for i in range(k))
    said = np.asarray(np.mean(trial.answers, axis=0, dtype=np.float32))
    known = trial.public_guess
    return {
        "dice": trial.dice(np.asarray(total)),
        "label_dice": trial.label_dice(said),
        "label_dice_mixed": {
            f"{w:g}": trial.label_dice(w * said + (1.0 - w) * known) for w in MIXED
        },
        "guarantee": None,
    }


def _pca(trial: Trial, epsilon: float, earlier: Earlier) -> Row:
    return _student(trial, PCA, epsilon, trial.pca(epsilon))


def _pca_of_logits(trial: Trial, epsilon: float, earlier: Earlier) -> Row:
    return _student(trial, PCA_LOGITS, epsilon, trial.pca_of_logits(epsilon))


def _algorithm_2(trial: Trial, epsilon: float, earlier: Earlier) -> Row:
    """The paper's autoencoder of whole maps under the paper's noise; its epsilon is a claim."""
    reducer = trial.plain_autoencoder(epsilon)
    found = trial.noisy_as_printed(ALGORITHM_2, reducer, epsilon)
    labels = reducer.decode(found.codes, noise=found.noise)
    return _taught(trial, ALGORITHM_2, epsilon, reducer, labels, found) | {"claimed": epsilon}


def _autoencoded(trial: Trial, epsilon: float, earlier: Earlier) -> Row:
    return _student(trial, AUTOENCODED, epsilon, trial.autoencoder(epsilon, trial.mean_map))


def _about_public(trial: Trial, epsilon: float, earlier: Earlier) -> Row:
    return _student(trial, ABOUT_PUBLIC, epsilon, trial.about_public(epsilon))


def _student(trial: Trial, method: str, epsilon: float, reducer: Reducer) -> Row:
    labels, release = trial.noisy(method, reducer, epsilon)
    return _taught(trial, method, epsilon, reducer, labels, release)


def _taught(
    trial: Trial, method: str, epsilon: float, reducer: Reducer, labels: Any,
    release: NoisyAnswers | None,
) -> Row:  # fmt: skip
    """A student of these labels; None where they came without noise."""
    network = trial.student(f"{method} {epsilon:g}", labels)
    return {
        "dice": trial.score(network),
        "label_dice": trial.label_dice(labels),
        "label_dice_silent": trial.label_dice(trial.silent(reducer, epsilon)),
        "numbers": reducer.dimension,
        "radius": reducer.radius,
        "noise": 0.0 if release is None else release.noise,
        "guarantee": None if release is None else release.guarantee.to_dict(),
    }


def _with_public(trial: Trial, epsilon: float, earlier: Earlier) -> Row:
    return _trained_on(trial, f"{AUTOENCODED} {epsilon:g}", earlier(GOES_ON_FROM[WITH_PUBLIC]))


def _about_with_public(trial: Trial, epsilon: float, earlier: Earlier) -> Row:
    return _trained_on(trial, f"{ABOUT_PUBLIC} {epsilon:g}", earlier(GOES_ON_FROM[ABOUT_WITH]))


def _guess_with_public(trial: Trial, epsilon: float, earlier: Earlier) -> Row:
    return _trained_on(trial, GUESS_NAME, earlier(GOES_ON_FROM[GUESS_WITH]))


def _trained_on(trial: Trial, name: str, row: Row) -> Row:
    """A student that another row has trained, which goes on with the public labels."""
    network = trial.with_public_labels(name, trial.kept(name, trial.fresh))
    return {"dice": trial.score(network), "guarantee": row["guarantee"]}


def _mean_map(trial: Trial, epsilon: float, earlier: Earlier) -> Row:
    """Every public volume gets the mean public label map."""
    shape = (len(trial.asked), *trial.truth.shape[1:])
    return _untaught(trial, "mean map", np.broadcast_to(trial.mean_map, shape))


def _guess(trial: Trial, epsilon: float, earlier: Earlier) -> Row:
    """Every public volume gets what a network trained on other public volumes says."""
    return _untaught(trial, GUESS_NAME, trial.public_guess)


def _untaught(trial: Trial, name: str, labels: Any) -> Row:
    network = trial.student(name, labels)
    return {
        "dice": trial.score(network), "label_dice": trial.label_dice(labels), "guarantee": None
    }  # fmt: skip


def _dpsgd(trial: Trial, epsilon: float, earlier: Earlier) -> Row:
    return _descended(trial, *trial.dpsgd(epsilon))


def _dpsgd_as_printed(trial: Trial, epsilon: float, earlier: Earlier) -> Row:
    made, once = trial.dpsgd_as_printed(epsilon)
    return _descended(trial, *made) | {"claimed": once}


def _dpsgd_from_public(trial: Trial, epsilon: float, earlier: Earlier) -> Row:
    return _descended(trial, *trial.dpsgd_from_public(epsilon))


def _dpsgd_by_shard(trial: Trial, epsilon: float, earlier: Earlier) -> Row:
    return _descended(trial, *trial.dpsgd_by_shard(epsilon))


def _descended(trial: Trial, network: nn.Module, guarantee: Guarantee) -> Row:
    return {"dice": trial.score(network), "guarantee": guarantee.to_dict()}


def _control(trial: Trial, epsilon: float, earlier: Earlier) -> Row:
    return {"dice": trial.score(trial.control()), "guarantee": None}


def _everything(trial: Trial, epsilon: float, earlier: Earlier) -> Row:
    return {"dice": trial.score(trial.everything()), "guarantee": None}


METHODS: dict[str, tuple[Callable[[Trial, float, Earlier], Row], bool]] = {
    MEAN_TEACHER: (_mean_teacher, False),
    ENSEMBLE: (_ensemble, False),
    AUTOENCODED: (_autoencoded, True),
    ALGORITHM_2: (_algorithm_2, True),
    PCA: (_pca, True),
    PCA_LOGITS: (_pca_of_logits, True),
    MEAN_MAP: (_mean_map, False),
    ABOUT_PUBLIC: (_about_public, True),
    GUESS: (_guess, False),
    CONTROL: (_control, False),
    WITH_PUBLIC: (_with_public, True),
    EVERYTHING: (_everything, False),
    DPSGD: (_dpsgd, True),
    DPSGD_FROM_PUBLIC: (_dpsgd_from_public, True),
    DPSGD_BY_SHARD: (_dpsgd_by_shard, True),
    DPSGD_AS_PRINTED: (_dpsgd_as_printed, False),
}
"""How each row is made, and whether it has a budget."""
FEW: dict[str, tuple[Callable[[Trial, float, Earlier], Row], bool]] = {
    name: METHODS[name] for name in (CONTROL, AUTOENCODED, WITH_PUBLIC, ABOUT_PUBLIC, GUESS, DPSGD)
} | {ABOUT_WITH: (_about_with_public, True), GUESS_WITH: (_guess_with_public, False)}
"""Rows where few public volumes have labels: with teachers, and the same without them."""
SWEPT = (AUTOENCODED, ABOUT_PUBLIC, DPSGD)
"""Rows that are made at other budgets too; those of PATE also without noise."""
