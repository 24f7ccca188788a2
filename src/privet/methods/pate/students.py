"""Students: a small one for any shape of inputs and targets, and those of classes as models."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Self, final

import numpy as np
from numpy.typing import NDArray

from privet.data.domain import Rows
from privet.errors import InvalidArgument
from privet.methods.contract import Model
from privet.methods.pate.learner_adapters import (
    Classification,
    Constant,
    Learner,
    ModuleLearner,
    ModulePredictor,
    Predictor,
)
from privet.methods.released_models import LinearModel, NetworkModel
from privet.networks.architectures import FlatStudent, GridStudent, on_one_grid

Array = NDArray[Any]

NEVER = -700.0
"""The logit of a class that no label named: e^-700 is next to nothing, and still a number (float64
ends at e^-745)."""


def default_student(
    *,
    input_shape: tuple[int, ...],
    target_shape: tuple[int, ...],
    hidden: int | None = None,
    seed: int = 0,
    epochs: int | None = None,
    learning_rate: float = 1e-2,
    watcher: Callable[[int, int], None] | None = None,
) -> Learner:
    """A small student for any shape: a U-Net for volumes, convolutions for maps, else a flat one.

    How the epochs and the rate were found was not recorded.

    Taught with soft targets by cross-entropy over the classes, the first axis of a target. `hidden`
    None: a U-Net where it can be, a linear student, or eight channels.

    >>> volumes = default_student(input_shape=(8, 8, 8), target_shape=(3, 8, 8, 8), hidden=8)
    >>> sum(w.numel() for w in volumes.module.parameters())  # a flat one would have 787,968
    4347
    """
    from privet.methods.pate.volume_pate import VolumeLearner

    if hidden is None and VolumeLearner.suits(input_shape, target_shape):
        return VolumeLearner(classes=target_shape[0], epochs=epochs, watcher=watcher)
    settings: dict[str, Any] = {"shape": input_shape, "targets": target_shape, "seed": seed}
    if hidden is not None:
        settings["hidden"] = hidden
    kind: Any = GridStudent if on_one_grid(input_shape, target_shape) else FlatStudent
    return ModuleLearner(
        module=kind(**settings), epochs=60 if epochs is None else epochs,
        learning_rate=learning_rate, watcher=watcher,
    )  # fmt: skip


def train_student(learner: Learner, inputs: Array, labels: Array) -> Model:
    """Train a student on labels for rows of the box, as a model that can be saved.

    Logistic regressions are kept as their coefficients, torch modules as they are; of any other
    student there is a model that answers, but cannot be saved.
    """
    predict = learner.train(inputs, labels, seed=0)
    if isinstance(predict, ModulePredictor):
        return NetworkModel(network=predict.module, view="box")
    if isinstance(predict, Classification) and (
        linear := _linear_coefficients(predict, math.prod(inputs.shape[1:]))
    ):
        return LinearModel(weights=linear[0], intercept=linear[1], view="box")
    return PredictorModel(predict=predict)


def train_student_matching_shares(learner: Learner, inputs: Array, labels: Array) -> Model:
    """Train a student that names each class as often as the released labels do on average.

    Teachers of few records answer close to the shares of the classes, so that means of their
    probabilities name the frequent class almost everywhere, however well they rank. Offsets b_k are
    added to a linear student's logits until it names class k for a share pi_k of the public inputs,
    pi the mean of the labels, up to the standard error of that share. Students of half the labels
    say first whether there is anything in them: where what they say of the other half goes with its
    labels by chance at most, b is 0. All of it is public or was released.
    """
    model = train_student(learner, inputs, labels)
    target = np.maximum(labels.mean(axis=0), 0.0)
    if not isinstance(model, LinearModel) or not _labels_are_learnable(learner, inputs, labels):
        return model
    known = (model.intercept > NEVER / 2.0) & (target > 0.0)
    if known.sum() < 2:
        return model
    target = np.where(known, target, 0.0) / target[known].sum()
    z = inputs.reshape(len(inputs), -1) @ model.weights + model.intercept
    offsets = np.zeros(len(target))
    spread = max(float((z[:, known].max(axis=1) - z[:, known].mean(axis=1)).mean()), 1e-9)
    chance = np.sqrt(target * (1.0 - target) / len(z))
    for k in range(200):  # steps 1 / (1 + k/10) sum to 30 spreads: as far as any offset can be
        share = np.bincount((z + offsets).argmax(axis=1), minlength=len(target)) / len(z)
        off = np.sign(target - share) * np.maximum(np.abs(target - share) - chance, 0.0)
        offsets[known] += spread / (1.0 + 0.1 * k) * off[known]
    return replace(model, intercept=model.intercept + offsets - offsets[known].mean())


def _labels_are_learnable(learner: Learner, inputs: Array, labels: Array) -> bool:
    """Whether students of one half foretell labels of the other, by two standard errors."""
    half = np.arange(len(inputs)) % 2 == 0
    if len(inputs) < 8:
        return False
    correlations = []
    for fold in (half, ~half):
        predicted = np.asarray(learner.train(inputs[fold], labels[fold], seed=0)(inputs[~fold]))
        a, b = predicted - predicted.mean(axis=0), labels[~fold] - labels[~fold].mean(axis=0)
        size = math.sqrt(float(np.square(a).sum()) * float(np.square(b).sum()))
        correlations.append(float((a * b).sum()) / size if size > 0.0 else 0.0)
    return sum(correlations) / 2.0 * math.sqrt(len(inputs)) > 2.0


def _linear_coefficients(student: Classification, features: int) -> tuple[Array, Array] | None:
    """Weights and intercept of a logistic regression, for all classes."""
    from sklearn.linear_model import LogisticRegression

    weights = np.zeros((features, student.classes))
    intercept = np.full(student.classes, NEVER)
    present = np.asarray(student.model.classes_, dtype=np.int64)
    if isinstance(student.model, Constant):
        intercept[present] = 0.0
        return weights, intercept
    softmax = isinstance(student.model, LogisticRegression) and student.model.solver != "liblinear"
    if not softmax:
        return None
    slopes = np.asarray(student.model.coef_, dtype=np.float64)
    start = np.asarray(student.model.intercept_, dtype=np.float64)
    if len(present) == 2:  # one row, for the second of them
        slopes, start = np.vstack([0.0 * slopes, slopes]), np.array([0.0, *start])
    weights[:, present], intercept[present] = slopes.T, start
    return weights, intercept


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class PredictorModel(Model):
    """A student of any other kind: it answers, and stays in this process."""

    predict: Predictor

    def outputs(self, rows: Rows) -> NDArray[np.float64]:
        p = np.asarray(self.predict(rows.box().astype(np.float64)), dtype=np.float64)
        return np.log(np.maximum(p, math.exp(NEVER)))

    def state(self) -> tuple[dict[str, Array], dict[str, Any]]:
        raise InvalidArgument(
            "student", type(self.predict).__name__, "a logistic regression or a torch module",
            "no other student can be saved",
        )  # fmt: skip

    @classmethod
    def from_state(cls, arrays: Mapping[str, Array], settings: Mapping[str, Any]) -> Self:
        raise InvalidArgument("student", cls.__name__, "one that can be saved")
