"""The rows of the comparison: how each is made on one split."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from torch import nn

from privet.guarantee import Guarantee, number_to_json
from privet.methods.pate import NoisyAnswers, Reducer
from privet_papers.pate.row_names import (
    ABOUT_PUBLIC,
    ABOUT_WITH,
    ALGORITHM_1,
    ALGORITHM_2,
    AUTOENCODED,
    CONTINUES,
    CONTROL,
    DPSGD,
    DPSGD_AS_PRINTED,
    DPSGD_AS_TEACHERS,
    DPSGD_BY_SHARD,
    DPSGD_FROM_PUBLIC,
    ENSEMBLE,
    EVERYTHING,
    GUESS,
    GUESS_NAME,
    GUESS_WITH,
    MEAN_MAP,
    MEAN_TEACHER,
    PCA,
    PCA_LOGITS,
    PER_VOXEL,
    WITH_PUBLIC,
)
from privet_papers.pate.training_runs import PrivateNetwork, VolumeRuns

Row = dict[str, Any]
Earlier = Callable[[str], Row]
"""The row of another method at the same budget, made first if it is missing."""
RowMaker = Callable[[VolumeRuns, float, Earlier], Row]
"""Makes a row from the runs of a split and a budget."""
MIXTURE_WEIGHTS = (0.1, 0.3, 0.5)
"""Weights of the ensemble in mixtures with the public network."""


def make_row(runs: VolumeRuns, method: str, epsilon: float, earlier: Earlier) -> Row:
    """Make the row of a method at a budget, with the time that it took."""
    began, used = time.perf_counter(), time.process_time()
    run, _ = (METHODS | FEW_LABELS_METHODS)[method]
    row = {
        "method": method,
        "epsilon": number_to_json(epsilon),
        "seed": runs.seed,
        **run(runs, epsilon, earlier),
        "seconds": round(time.perf_counter() - began, 1),
        "processor_seconds": round(time.process_time() - used, 1),
    }
    return row | {"mean_dice": float(np.mean(row["dice"]))}


def _mean_teacher(runs: VolumeRuns, epsilon: float, earlier: Earlier) -> Row:
    scores = [runs.score(runs.teacher(k)) for k in range(runs.settings.teachers)]
    return {"dice": np.mean(scores, axis=0).tolist(), "teachers": scores, "guarantee": None}


def _ensemble(runs: VolumeRuns, epsilon: float, earlier: Earlier) -> Row:
    """The mean of all teachers, and its labels mixed into the public network's.

    The mixtures are what teachers could add if answers were neither compressed nor noisy.
    """
    k = runs.settings.teachers
    total = sum(runs.probabilities(runs.teacher(i), runs.test.images) for i in range(k))
    said = np.asarray(np.mean(runs.answers, axis=0, dtype=np.float32))
    known = runs.public_guess
    return {
        "dice": runs.dice(np.asarray(total)),
        "label_dice": runs.label_dice(said),
        "label_dice_mixed": {
            f"{w:g}": runs.label_dice(w * said + (1.0 - w) * known) for w in MIXTURE_WEIGHTS
        },
        "guarantee": None,
    }


def _printed_row(method: str, reducer_at: Callable[[VolumeRuns, float], Reducer]) -> RowMaker:
    """The row of one of the paper's algorithms with the paper's noise; its epsilon is a claim."""

    def make(runs: VolumeRuns, epsilon: float, earlier: Earlier) -> Row:
        reducer = reducer_at(runs, epsilon)
        found = runs.release_as_printed(method, reducer, epsilon)
        labels = reducer.decode(found.codes, noise=found.noise)
        row = _train_student(runs, method, epsilon, reducer, labels, found)
        return row | {"claimed": epsilon}

    return make


def _student_row(method: str, reducer_at: Callable[[VolumeRuns, float], Reducer]) -> RowMaker:
    """The row of a student of noisy answers, which are codes of this reducer."""

    def make(runs: VolumeRuns, epsilon: float, earlier: Earlier) -> Row:
        reducer = reducer_at(runs, epsilon)
        labels, release = runs.release_labels(method, reducer, epsilon)
        return _train_student(runs, method, epsilon, reducer, labels, release)

    return make


def _train_student(
    runs: VolumeRuns, method: str, epsilon: float, reducer: Reducer, labels: Any,
    release: NoisyAnswers | None,
) -> Row:  # fmt: skip
    """A student of these labels; None where they came without noise."""
    network = runs.student(f"{method} {epsilon:g}", labels)
    return {
        "dice": runs.score(network),
        "label_dice": runs.label_dice(labels),
        "label_dice_silent": runs.label_dice(runs.labels_of_noise_alone(reducer, epsilon)),
        "numbers": reducer.dimension,
        "radius": reducer.radius,
        "noise": 0.0 if release is None else release.noise,
        "guarantee": None if release is None else release.guarantee.to_dict(),
    }


def _further_row(method: str) -> RowMaker:
    """The row of another row's student, which goes on to learn from the public labels."""
    first = CONTINUES[method]

    def make(runs: VolumeRuns, epsilon: float, earlier: Earlier) -> Row:
        row, name = earlier(first), GUESS_NAME if first == GUESS else f"{first} {epsilon:g}"
        network = runs.with_public_labels(name, runs.load_or_train(name, runs.new_network))
        return {"dice": runs.score(network), "guarantee": row["guarantee"]}

    return make


def _mean_map(runs: VolumeRuns, epsilon: float, earlier: Earlier) -> Row:
    """Every public volume gets the mean public label map."""
    shape = (len(runs.query_volumes), *runs.truth.shape[1:])
    return _train_without_teachers(runs, "mean map", np.broadcast_to(runs.mean_map, shape))


def _guess(runs: VolumeRuns, epsilon: float, earlier: Earlier) -> Row:
    """Every public volume gets what a network trained on other public volumes says."""
    return _train_without_teachers(runs, GUESS_NAME, runs.public_guess)


def _train_without_teachers(runs: VolumeRuns, name: str, labels: Any) -> Row:
    network = runs.student(name, labels)
    return {
        "dice": runs.score(network), "label_dice": runs.label_dice(labels), "guarantee": None
    }  # fmt: skip


def _dpsgd_as_printed(runs: VolumeRuns, epsilon: float, earlier: Earlier) -> Row:
    """The paper's recipe; its claim is the epsilon if all layers counted as one."""
    private, once = runs.dpsgd_as_printed(epsilon)
    return _score_private(runs, *private) | {"claimed": once}


def _dpsgd_row(train: Callable[[VolumeRuns, float], PrivateNetwork]) -> RowMaker:
    return lambda runs, epsilon, earlier: _score_private(runs, *train(runs, epsilon))


def _score_private(runs: VolumeRuns, network: nn.Module, guarantee: Guarantee) -> Row:
    return {"dice": runs.score(network), "guarantee": guarantee.to_dict()}


def _network_row(train: Callable[[VolumeRuns], nn.Module]) -> RowMaker:
    return lambda runs, epsilon, earlier: {"dice": runs.score(train(runs)), "guarantee": None}


METHODS: dict[str, tuple[RowMaker, bool]] = {
    MEAN_TEACHER: (_mean_teacher, False),
    ENSEMBLE: (_ensemble, False),
    AUTOENCODED: (_student_row(AUTOENCODED, VolumeRuns.about_mean_map), True),
    ALGORITHM_1: (_printed_row(ALGORITHM_1, VolumeRuns.printed_pca), True),
    ALGORITHM_2: (_printed_row(ALGORITHM_2, VolumeRuns.plain_autoencoder), True),
    PER_VOXEL: (_student_row(PER_VOXEL, VolumeRuns.per_voxel), True),
    PCA: (_student_row(PCA, VolumeRuns.pca), True),
    PCA_LOGITS: (_student_row(PCA_LOGITS, VolumeRuns.pca_of_logits), True),
    MEAN_MAP: (_mean_map, False),
    ABOUT_PUBLIC: (_student_row(ABOUT_PUBLIC, VolumeRuns.about_public), True),
    GUESS: (_guess, False),
    CONTROL: (_network_row(VolumeRuns.public_labels_network), False),
    WITH_PUBLIC: (_further_row(WITH_PUBLIC), True),
    EVERYTHING: (_network_row(VolumeRuns.nonprivate_network), False),
    DPSGD: (_dpsgd_row(VolumeRuns.dpsgd), True),
    DPSGD_AS_TEACHERS: (_dpsgd_row(VolumeRuns.dpsgd_as_teachers), True),
    DPSGD_FROM_PUBLIC: (_dpsgd_row(VolumeRuns.dpsgd_from_public), True),
    DPSGD_BY_SHARD: (_dpsgd_row(VolumeRuns.dpsgd_by_shard), True),
    DPSGD_AS_PRINTED: (_dpsgd_as_printed, False),
}
"""How each row is made, and whether it has a budget."""
FEW_LABELS_METHODS: dict[str, tuple[RowMaker, bool]] = {
    name: METHODS[name] for name in (CONTROL, AUTOENCODED, WITH_PUBLIC, ABOUT_PUBLIC, GUESS, DPSGD)
} | {ABOUT_WITH: (_further_row(ABOUT_WITH), True), GUESS_WITH: (_further_row(GUESS_WITH), False)}
"""Rows where few public volumes have labels: with teachers, and the same without them."""
SWEEP_METHODS = (AUTOENCODED, ABOUT_PUBLIC, DPSGD)
"""Rows that are made at other budgets too; those of PATE also without noise."""
