"""Students: a small one for any shape of inputs and targets, and those of classes as models."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from privet import _check
from privet.data.records import Rows
from privet.errors import InvalidArgument
from privet.methods.contract import Model
from privet.methods.models import LinearModel, NetworkModel
from privet.methods.pate.learners import (
    Classification,
    Constant,
    Learner,
    ModuleLearner,
    ModulePredictor,
    Predictor,
)

Array = NDArray[Any]

NEVER = -700.0
"""The logit of a class that no label named: e^-700 is next to nothing, and still a number."""


def flat_student(
    *,
    input_shape: tuple[int, ...],
    target_shape: tuple[int, ...],
    hidden: int = 0,
    seed: int = 0,
    epochs: int = 60,
    learning_rate: float = 1e-2,
) -> ModuleLearner:
    """A linear student (`hidden=0`) or one with a hidden layer; logits of the target's shape.

    Taught with soft targets by cross-entropy over the classes, the first axis of a target.

    >>> learner = flat_student(input_shape=(4,), target_shape=(3, 2, 2), hidden=5)
    >>> learner.module(torch.zeros(7, 4)).shape
    torch.Size([7, 3, 2, 2])
    """
    inputs, outputs = math.prod(input_shape), math.prod(target_shape)
    hidden = _check.count("hidden", hidden, minimum=0)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        body = [nn.Linear(inputs, hidden), nn.ReLU()] if hidden else []
        last = nn.Linear(hidden or inputs, outputs)
    module = nn.Sequential(nn.Flatten(), *body, last, nn.Unflatten(1, target_shape))
    return ModuleLearner(module=module, epochs=epochs, learning_rate=learning_rate)


def student_model(learner: Learner, inputs: Array, labels: Array) -> Model:
    """A student taught with labels for rows of the box, as a model that can be saved.

    Logistic regressions are kept as their coefficients, torch modules as they are; of any other
    student there is a model that answers, but cannot be saved.
    """
    predict = learner.train(inputs, labels, seed=0)
    if isinstance(predict, ModulePredictor):
        return NetworkModel(network=predict.module, view="box")
    if isinstance(predict, Classification) and (
        found := _linear(predict, math.prod(inputs.shape[1:]))
    ):
        return LinearModel(weights=found[0], intercept=found[1], view="box")
    return PredictorModel(predict=predict)


def _linear(student: Classification, features: int) -> tuple[Array, Array] | None:
    """Weights and intercept of a logistic regression, for all classes."""
    from sklearn.linear_model import LogisticRegression

    weights = np.zeros((features, student.classes))
    intercept = np.full(student.classes, NEVER)
    seen = np.asarray(student.model.classes_, dtype=np.int64)
    if isinstance(student.model, Constant):
        intercept[seen] = 0.0
        return weights, intercept
    softmax = isinstance(student.model, LogisticRegression) and student.model.solver != "liblinear"
    if not softmax:
        return None
    slopes = np.asarray(student.model.coef_, dtype=np.float64)
    start = np.asarray(student.model.intercept_, dtype=np.float64)
    if len(seen) == 2:  # one row, for the second of them
        slopes, start = np.vstack([0.0 * slopes, slopes]), np.array([0.0, *start])
    weights[:, seen], intercept[seen] = slopes.T, start
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
