"""A scikit-learn estimator of residual perturbation, sound unless told otherwise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import validate_data
from torch import nn

from privet import _check, premises
from privet.errors import InvalidArgument
from privet.methods.base import PublicFacts, Release, class_numbers, column_bounds, source_of
from privet.methods.legacy_estimators import PrivateClassifier
from privet.methods.residual.noisy_inputs import Build, InputPlan, Labels, NoisyInputs
from privet.methods.residual.training import Training, Watcher
from privet.nets.residual import DenseResidual, Perturbation, Pictures

Array = NDArray[Any]
READINGS = ("sound", "published")


@dataclass(kw_only=True, eq=False, repr=False)
class ResidualPerturbationClassifier(PrivateClassifier):
    """An ensemble of residual networks trained on noisy inputs, with or without noisy blocks.

    Columns are scaled to [-1, 1] by `bounds`, rows clipped to the radius R, and normal noise pi is
    added to them. The sound reading chooses pi for the budget, draws it once, and lets labels
    answer by randomised response; the published one takes gamma and pi = gamma / 2 as given and
    draws at every epoch and in every test, and its epsilon is a claim.

    - `epsilon`, `delta`: the budget; the published reading does not use epsilon.
    - `members`: k of En_k. `noise_draws`: so many draws of noise are averaged in a prediction.
    - `gamma`: noise of the blocks (regularises, proves nothing); None: 0, or .5 as published.
    - `input_noise`: pi of the published reading; None: gamma / 2.
    - `bounds`: (low, high) of every column, public, never read from the data.
    - `shape`: of pictures, (height, width) or (height, width, colours), for a convolutional ResNet
      of `depth`; None: rows of a table, for a dense residual network.
    - `radius`: R; None: the whole box, so that nothing is clipped.
    - `labels`: "randomised", or "public" (the guarantee then covers features only).
    - `classes`, `n_public`: public list of labels and number of records; None: taken from the data
      and marked as assumed public.
    - `epochs`, `batch_size`, `learning_rate`: cost nothing (sound); epochs cost as published.
    - `ledger`: charged once, before anything is drawn. `random_state`: None draws secret noise.

    **Guarantee** `guarantee_`, and what the paper states in `claim_`. This is local noise: on
    pictures at small epsilon the sound reading learns nothing (see the docs page).

    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(size=(2000, 2)); y = X[:, 0] > X[:, 1]
    >>> clf = ResidualPerturbationClassifier(
    ...     epsilon=8.0, bounds=(0.0, 1.0), classes=[False, True], epochs=5, random_state=0
    ... ).fit(X, y)
    >>> clf.guarantee_.epsilon <= 8.0, clf.score(X, y) > 0.8
    (True, True)
    """

    epsilon: float = 8.0
    reading: str = "sound"
    members: int = 1
    gamma: float | None = None
    input_noise: float | None = None
    bounds: tuple[Any, Any] | None = None
    shape: tuple[int, ...] | None = None
    depth: int = 8
    radius: float | None = None
    labels: str = "randomised"
    classes: Sequence[Any] | None = None
    noise_draws: int = 1
    epochs: int = 20
    batch_size: int = 64
    learning_rate: float = 0.02
    watcher: Watcher | None = None

    def fit(self, X: Array, y: Array) -> Self:
        """Draw the noisy inputs, charge for them, and train on them."""
        self._check_settings()
        X, y = validate_data(self, X, y, dtype="numeric", ensure_all_finite=False, allow_nd=True)
        check_classification_targets(y)
        self.classes_, numbers = class_numbers(y, self.classes)
        numbers = np.maximum(numbers, 0)  # a label outside the public list counts as the first
        rows = self._rows(X)
        facts = PublicFacts(
            records=_check.count("n_public", len(rows) if self.n_public is None else self.n_public),
            features=rows.shape[1],
            outputs=len(self.classes_),
            epsilon=_check.positive("epsilon", self.epsilon),
            delta=_check.open_unit("delta", self.delta),
        )
        self._random = source_of(self.random_state)
        if self.reading == "published":
            return self._published(rows, numbers, facts)
        method = self._method(facts)
        self.plan_ = method.plan(facts)
        release = method.fit(rows, numbers, self.plan_, ledger=self.ledger, rng=self._random)
        assumed = () if self.classes is not None else (premises.READ_CLASSES,)
        return self._keep(release, *assumed)

    def predict_proba(self, X: Array) -> Array:
        """Probabilities of the classes, averaged over members and draws of noise.

        With a `random_state` the same noise is drawn at every call.
        """
        rows = torch.from_numpy(self._rows(self._more(X)).astype(np.float32))
        fixed = not self._random.secret
        with torch.no_grad(), torch.random.fork_rng():
            torch.manual_seed(0) if fixed else torch.seed()
            parts = [self.model_(part).double() for part in rows.split(500)]
        return np.asarray(torch.cat(parts).softmax(1).numpy())

    def predict(self, X: Array) -> Array:
        """The most probable class of each row."""
        best = self.predict_proba(X).argmax(axis=1)
        return np.asarray(self.classes_[best])

    def _published(self, rows: Array, numbers: Array, facts: PublicFacts) -> Self:
        from privet.papers.residual.published import PublishedResidual

        made = PublishedResidual(
            gamma=0.5 if self.gamma is None else self.gamma,
            input_noise=self.input_noise,
            delta=facts.delta,
            members=self.members,
            radius=self.radius,
            shape=self.shape,
            depth=self.depth,
            epochs=self.epochs,
            batch_size=self.batch_size,
            learning_rate=self.learning_rate,
            noise_draws=self.noise_draws,
            bounds=(-1.0, 1.0),
            classes=range(facts.outputs),
            ledger=self.ledger,
            random_state=self._random,
        ).fit(rows, numbers)
        budget = made.budget(facts.features)
        self.plan_ = InputPlan(facts=facts, budget=budget, answers=None, redrawn=True)
        entries = () if made.entry_ is None else (made.entry_,)
        return self._keep(
            Release(
                model=made.model_, guarantee=made.guarantee_, claim=made.claim_, entries=entries
            )
        )

    def _method(self, facts: PublicFacts) -> NoisyInputs:
        training = Training(
            epochs=self.epochs, batch_size=self.batch_size, learning_rate=self.learning_rate
        )
        radius = facts.features**0.5 if self.radius is None else self.radius
        gamma = 0.0 if self.gamma is None else self.gamma
        build = _builder(self.shape, self.depth, Perturbation(gamma=gamma))
        return NoisyInputs(
            radius=radius,
            build=build,
            labels=Labels(self.labels),
            members=self.members,
            training=training,
            noise_draws=self.noise_draws,
            watcher=self.watcher,
        )

    def _rows(self, X: Array) -> Array:
        """Columns scaled to [-1, 1] by the public bounds; a record that is not finite is 0."""
        flat = np.asarray(X, dtype=np.float64).reshape(len(X), -1)
        if self.bounds is None:
            raise InvalidArgument(
                "bounds", None, "a pair (low, high)", "what is publicly known of each column"
            )
        low, high = column_bounds(self.bounds, flat.shape[1])
        good = np.isfinite(flat).all(axis=1, keepdims=True)
        middle = (low + high) / 2.0
        inside = np.clip(np.where(good, flat, middle), low, high)
        return np.asarray((inside - middle) / ((high - low) / 2.0))

    def _check_settings(self) -> None:
        for name, value, allowed in (
            ("reading", self.reading, READINGS),
            ("labels", self.labels, tuple(kind.value for kind in Labels)),
        ):
            if value not in allowed:
                raise InvalidArgument(name, value, f"one of {', '.join(allowed)}")
        _check.count("members", self.members)
        _check.count("noise_draws", self.noise_draws)


def _builder(shape: tuple[int, ...] | None, depth: int, law: Perturbation) -> Build:
    """How a member is made: a ResNet on pictures, a dense one on rows."""

    def build(facts: PublicFacts, seed: int) -> nn.Module:
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            if shape is None:
                return DenseResidual(
                    features=facts.features, classes=facts.outputs, perturbation=law
                )
            return Pictures(shape, classes=facts.outputs, depth=depth, law=law)

    return build
