"""Students: a small one for any shape of inputs and targets, and those of classes as models."""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Self, final

import numpy as np
from numpy.typing import NDArray

from privet.data.records import PublicFacts
from privet.data.rows import Domain, Rows
from privet.errors import InvalidArgument
from privet.guarantee import Guarantee, Premise, Unit
from privet.ledger import Entry
from privet.loss import PrivacyLoss
from privet.methods.contract import Model, Plan
from privet.methods.models import LinearModel, NetworkModel
from privet.methods.pate.files import Labels
from privet.methods.pate.learners import (
    Classification,
    Constant,
    Learner,
    ModuleLearner,
    ModulePredictor,
    Predictor,
)
from privet.methods.promise import Trained
from privet.nets.students import FlatStudent, GridStudent, on_one_grid

Array = NDArray[Any]

NEVER = -700.0
"""The logit of a class that no label named: e^-700 is next to nothing, and still a number."""


def student_learner(
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

    Taught with soft targets by cross-entropy over the classes, the first axis of a target. `hidden`
    None: a U-Net where it can be, a linear student, or eight channels.

    >>> volumes = student_learner(input_shape=(8, 8, 8), target_shape=(3, 8, 8, 8), hidden=8)
    >>> sum(w.numel() for w in volumes.module.parameters())  # a flat one would have 787,968
    4347
    """
    from privet.methods.pate.volumes import VolumeLearner

    if hidden is None and VolumeLearner.suits(input_shape, target_shape):
        return VolumeLearner(classes=target_shape[0], epochs=epochs, watcher=watcher)
    told: dict[str, Any] = {"shape": input_shape, "targets": target_shape, "seed": seed}
    if hidden is not None:
        told["hidden"] = hidden
    kind: Any = GridStudent if on_one_grid(input_shape, target_shape) else FlatStudent
    return ModuleLearner(
        module=kind(**told), epochs=60 if epochs is None else epochs, learning_rate=learning_rate,
        watcher=watcher,
    )  # fmt: skip


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


def student_with_shares(learner: Learner, inputs: Array, labels: Array) -> Model:
    """A student whose answers have the shares that the released labels have on average.

    Teachers of few records answer close to the shares of the classes, so that means of their
    probabilities name the frequent class almost everywhere, however well they rank. Offsets b_k are
    added to a linear student's logits until it names class k for a share pi_k of the public inputs,
    pi the mean of the labels, up to the standard error of that share. Students of half the labels
    say first whether there is anything in them: where what they say of the other half goes with its
    labels by chance at most, b is 0. All of it is public or was released.
    """
    model = student_model(learner, inputs, labels)
    wanted = np.maximum(labels.mean(axis=0), 0.0)
    if not isinstance(model, LinearModel) or not _knows(learner, inputs, labels):
        return model
    known = (model.intercept > NEVER / 2.0) & (wanted > 0.0)
    if known.sum() < 2:
        return model
    wanted = np.where(known, wanted, 0.0) / wanted[known].sum()
    z = inputs.reshape(len(inputs), -1) @ model.weights + model.intercept
    offsets = np.zeros(len(wanted))
    spread = max(float((z[:, known].max(axis=1) - z[:, known].mean(axis=1)).mean()), 1e-9)
    chance = np.sqrt(wanted * (1.0 - wanted) / len(z))
    for k in range(200):
        share = np.bincount((z + offsets).argmax(axis=1), minlength=len(wanted)) / len(z)
        off = np.sign(wanted - share) * np.maximum(np.abs(wanted - share) - chance, 0.0)
        offsets[known] += spread / (1.0 + 0.1 * k) * off[known]
    return replace(model, intercept=model.intercept + offsets - offsets[known].mean())


def _knows(learner: Learner, inputs: Array, labels: Array) -> bool:
    """Whether students of one half foretell labels of the other, by two standard errors."""
    half = np.arange(len(inputs)) % 2 == 0
    if len(inputs) < 8:
        return False
    found = []
    for mine in (half, ~half):
        said = np.asarray(learner.train(inputs[mine], labels[mine], seed=0)(inputs[~mine]))
        a, b = said - said.mean(axis=0), labels[~mine] - labels[~mine].mean(axis=0)
        size = math.sqrt(float(np.square(a).sum()) * float(np.square(b).sum()))
        found.append(float((a * b).sum()) / size if size > 0.0 else 0.0)
    return sum(found) / 2.0 * math.sqrt(len(inputs)) > 2.0


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
@dataclass(frozen=True, kw_only=True)
class AnsweredPlan(Plan):
    """What sites were asked and paid, read back from the labels that came of it."""

    facts: PublicFacts
    charged: PrivacyLoss
    stated: Guarantee

    @property
    def loss(self) -> PrivacyLoss:
        return self.charged

    @property
    def theorem(self) -> str:
        return self.stated.theorem

    @property
    def premises(self) -> tuple[Premise, ...]:
        return self.stated.premises

    @property
    def unit(self) -> Unit:
        return Unit.SHARD


def taught_by_sites(labels: Labels, model: Model, domain: Domain) -> Trained:
    """A student of labels that were paid for elsewhere: nothing more is charged for it."""
    paid = labels.paid
    if not paid:
        raise InvalidArgument(
            "labels", "of an earlier version", "labels that say what was paid for them",
            "make them again with `privet pate aggregate`",
        )  # fmt: skip
    entry = Entry.from_body(str(paid["entry"]).encode())
    facts = PublicFacts(
        records=len(paid["sites"]), features=domain.columns, outputs=labels.labels.shape[1],
        epsilon=labels.guarantee.epsilon, delta=labels.guarantee.delta, shape=domain.shape,
        unit=Unit.RECORD,
    )  # fmt: skip
    return Trained(
        model=model,
        guarantee=labels.guarantee,
        claim=labels.claim,
        plan=AnsweredPlan(facts=facts, charged=entry.loss, stated=labels.guarantee),
        entries=(entry,),
        run=entry.run or f"student-{secrets.token_hex(8)}",
        account=dict(paid["account"]),
        loss=entry.loss,
    )


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
