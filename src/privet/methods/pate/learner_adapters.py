"""Learners: scikit-learn estimators, torch modules and functions, trained in one way."""

from __future__ import annotations

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from privet import _check
from privet.errors import InvalidArgument

Array = NDArray[Any]
Predictor = Callable[[Any], Array]
"""Inputs to answers of shape (inputs, *target_shape), probabilities or numbers in [0, 1]."""


class Learner(ABC):
    """How a teacher or a student is trained.

    **Guarantee** none: what a teacher learns never leaves its shard, except through clipped codes
    and noise; a student sees noisy answers only, so anything done with them is post-processing.
    """

    @abstractmethod
    def train(self, inputs: Any, targets: Any, *, seed: int) -> Predictor:
        """Learn from (inputs, targets); the same seed gives the same predictor."""


@final
@dataclass(frozen=True, kw_only=True)
class FunctionLearner(Learner):
    """A function `train(inputs, targets, seed)` that returns a predictor.

    >>> def mean(x, y, seed):
    ...     return lambda new: np.tile(y.mean(axis=0), (len(new), 1))
    >>> predict = FunctionLearner(function=mean).train([0, 1], np.array([[0.0], [1.0]]), seed=0)
    >>> predict([5, 6, 7]).tolist()
    [[0.5], [0.5], [0.5]]
    """

    function: Callable[[Any, Any, int], Predictor]

    def train(self, inputs: Any, targets: Any, *, seed: int) -> Predictor:
        return self.function(inputs, targets, seed)


@final
@dataclass(frozen=True, kw_only=True)
class EstimatorLearner(Learner):
    """A scikit-learn classifier or regressor, cloned for every shard.

    A classifier answers with the probabilities of `classes` class numbers; a class that a shard
    does not contain has probability 0. Taught with soft targets (rows of probabilities), each row
    is used once for every class, with its probability as weight. A regressor answers with numbers
    of the shape of its targets.

    >>> from sklearn.tree import DecisionTreeClassifier
    >>> learner = EstimatorLearner(estimator=DecisionTreeClassifier(), classes=3)
    >>> predict = learner.train(np.array([[0.0], [1.0]]), np.array([0, 2]), seed=0)
    >>> predict(np.array([[0.9]])).tolist()
    [[0.0, 0.0, 1.0]]
    """

    estimator: Any
    classes: int | None = None
    """None for a regressor."""

    def train(self, inputs: Any, targets: Any, *, seed: int) -> Predictor:
        from sklearn.base import clone

        model = clone(self.estimator)
        if "random_state" in model.get_params():
            model.set_params(random_state=seed)
        x = _flat(inputs)
        y = np.asarray(targets)
        if self.classes is None:
            return _Regression.fit(model, x, y)
        return Classification.fit(model, x, y, self.classes)


@final
@dataclass(frozen=True, kw_only=True)
class _Regression:
    model: Any
    shape: tuple[int, ...]

    @classmethod
    def fit(cls, model: Any, x: Array, y: Array) -> _Regression:
        flat = y.reshape(len(y), -1)
        return cls(
            model=model.fit(x, flat[:, 0] if flat.shape[1] == 1 else flat), shape=y.shape[1:]
        )

    def __call__(self, inputs: Any) -> Array:
        x = _flat(inputs)
        return np.asarray(self.model.predict(x)).reshape(len(x), *self.shape)


@final
@dataclass(frozen=True, kw_only=True)
class Classification:
    """A trained classifier; classes that it never saw have probability 0."""

    model: Any
    classes: int

    @classmethod
    def fit(cls, model: Any, x: Array, y: Array, classes: int) -> Classification:
        if y.ndim == 1:
            present = np.unique(y).astype(np.int64)
            if len(present) < 2:  # estimators refuse a single class, or no record at all
                labels = present if len(present) else np.arange(classes)
                return cls(model=Constant(classes_=labels), classes=classes)
            return cls(model=model.fit(x, y), classes=classes)
        if y.shape[1:] != (classes,):
            raise InvalidArgument("targets", y.shape, f"class numbers or rows of {classes}")
        weight = np.maximum(y, 0.0).reshape(-1)
        label = np.tile(np.arange(classes), len(y))
        positive = weight > 0.0
        if len(present := np.unique(label[positive])) < 2:
            return cls(model=Constant(classes_=present), classes=classes)
        rows = np.repeat(x, classes, axis=0)[positive]
        return cls(
            model=model.fit(rows, label[positive], sample_weight=weight[positive]), classes=classes
        )

    def __call__(self, inputs: Any) -> Array:
        x = _flat(inputs)
        out = np.zeros((len(x), self.classes))
        out[:, self.model.classes_.astype(np.int64)] = self.model.predict_proba(x)
        return out


@final
@dataclass(frozen=True, kw_only=True)
class Constant:
    """The classifier of a shard with a single class, or of an empty one: all classes alike."""

    classes_: Array

    def predict_proba(self, x: Array) -> Array:
        return np.full((len(x), len(self.classes_)), 1.0 / len(self.classes_))


@final
@dataclass(frozen=True, kw_only=True)
class ModuleLearner(Learner):
    """A torch module that gives logits (records, classes, ...), copied for every shard.

    All copies start from the module's own weights, which are public.
    Taught by cross-entropy with class numbers (records, ...) or soft targets of the shape of the
    logits, Adam, a fixed number of epochs; answers with probabilities. For anything else write a
    `FunctionLearner`.
    """

    module: Any = field(repr=False)
    epochs: int = 20
    batch_size: int = 32
    learning_rate: float = 1e-3
    watcher: Callable[[int, int], None] | None = field(default=None, repr=False)
    """Called after every epoch with how many are done, and of how many."""

    def __post_init__(self) -> None:
        _check.count("epochs", self.epochs)
        _check.count("batch_size", self.batch_size)
        _check.positive("learning_rate", self.learning_rate)

    def train(self, inputs: Any, targets: Any, *, seed: int) -> Predictor:
        import torch

        generator = torch.Generator().manual_seed(seed)
        model = copy.deepcopy(self.module)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            x = torch.as_tensor(np.asarray(inputs), dtype=torch.float32)
            y = torch.as_tensor(np.asarray(targets))
            y = y.float() if y.is_floating_point() else y.long()
            optimiser = torch.optim.Adam(model.parameters(), lr=self.learning_rate)
            model.train()
            for epoch in range(self.epochs):
                order = torch.randperm(len(x), generator=generator)
                for part in order.split(self.batch_size):
                    optimiser.zero_grad()
                    loss = torch.nn.functional.cross_entropy(model(x[part]), y[part])
                    loss.backward()
                    optimiser.step()
                if self.watcher is not None:
                    self.watcher(epoch + 1, self.epochs)
        return ModulePredictor(module=model.eval(), batch_size=self.batch_size)


@final
@dataclass(frozen=True, kw_only=True)
class ModulePredictor:
    """Softmax of a trained module's logits, batch by batch."""

    module: Any = field(repr=False)
    batch_size: int = 32

    def __call__(self, inputs: Any) -> Array:
        import torch

        x = torch.as_tensor(np.asarray(inputs), dtype=torch.float32)
        with torch.no_grad():
            parts = [self.module(part).softmax(dim=1) for part in x.split(self.batch_size)]
        return np.asarray(torch.cat(parts).numpy())


def _flat(inputs: Any) -> Array:
    """Inputs as rows, one each; also when there is no input."""
    x = np.asarray(inputs)
    return x.reshape(len(x), math.prod(x.shape[1:]))


def as_learner(what: Any, *, classes: int | None = None) -> Learner:
    """Wrap an estimator, a torch module or a function as a learner; a learner stays as it is.

    `classes`: how many classes a scikit-learn classifier tells apart.
    """
    if isinstance(what, Learner):
        return what
    from sklearn.base import BaseEstimator, is_classifier

    if isinstance(what, BaseEstimator):
        if is_classifier(what) and classes is None:
            raise InvalidArgument(
                "teachers", what, "EstimatorLearner(estimator=..., classes=...) for a classifier"
            )
        return EstimatorLearner(estimator=what, classes=classes if is_classifier(what) else None)
    import torch

    if isinstance(what, torch.nn.Module):
        return ModuleLearner(module=what)
    if callable(what):
        return FunctionLearner(function=what)
    raise InvalidArgument(
        "learner", what, "a Learner, a scikit-learn estimator, a torch module or a function"
    )
