"""A scikit-learn estimator of the adaptive Laplace mechanism, sound unless told otherwise."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import validate_data

from privet import _check, chosen, premises
from privet.errors import InvalidArgument
from privet.guarantee import Adjacency, Unit
from privet.methods.adaptive_laplace.local import LocalRecords
from privet.methods.adaptive_laplace.moments import OneShotMoments
from privet.methods.adaptive_laplace.network_rule import (
    NetworkRule,
    as_rule,
    rows_for_network,
)
from privet.methods.adaptive_laplace.rows import Bounds, public_rows
from privet.methods.adaptive_laplace.shaped_training import EXPONENT as TRAINING_EXPONENT
from privet.methods.adaptive_laplace.shaped_training import SHARE as TRAINING_SHARE
from privet.methods.adaptive_laplace.shaped_training import RelevanceShapedTraining, Trainer
from privet.methods.adaptive_laplace.solve import LinearRule, Objective, Solver
from privet.methods.base import PublicFacts, Release, class_numbers, source_of
from privet.methods.legacy_estimators import LogitClassifier
from privet.nets.features import Features, unit_rows

if TYPE_CHECKING:
    from privet.papers.adaptive_laplace.networks import PublishedNet

Array = NDArray[Any]
READINGS = ("sound", "published", "released")

EXPONENT = chosen.MOMENTS_EXPONENT
"""How strongly relevance shapes the noise when `adaptive`."""


@dataclass(kw_only=True, eq=False, repr=False)
class AdaptiveLaplaceClassifier(LogitClassifier):
    """A linear classifier on public features from noise that is added once, whatever the epochs.

    - `epsilon`, `delta`: the budget, all of which is spent; delta = 0 gives pure epsilon.
    - `reading`: "sound"; or "published" (Algorithm 1) or "released" (the authors' code), whose
      epsilon is a claim: see `claim_`, and `guarantee_` for what is proved, often nothing. They
      train `network`, need `bounds` as a pair, and take `adaptive` and `epochs` from below.
    - `kind`: "moments" (central; `privet.methods.adaptive_laplace.moments`); "local" (every record
      is perturbed before collection, replace-one, pure epsilon; needs n in the millions); or
      "network" (a deep network: `trainer`, such as `privet.dpsgd.PrivateNetwork(network=net)`,
      trains a copy of it with noise shaped by relevance, see `RelevanceShapedTraining`). The last
      needs `bounds` as a pair and hands records to the network in the shape they have in X.
    - `features`: a public extractor of `privet.nets.features`; or `bounds`: (low, high) for every
      column, or a number that bounds the length of rows. One of them is needed, and neither is ever
      read from the data.
    - `classes`: the public list of labels. None: taken from y, which the guarantee then marks as
      assumed public. Labels that are not in the list count as unknown.
    - `adaptive`: shape the noise by private relevance; False is identical noise (see the docs page
      for what it gains: something on tables, nothing on features that are ordered already).
    - `components`: use this many leading columns only (extractors such as `StrokeBasis` order
      them); under pure epsilon 60 to 100 are best.
    - `objective`: "discriminant", "squared error" or "cross-entropy" (order two, the paper's);
      `ridge` and `epochs` (None: closed form) cost nothing: they work on what was
      released.
    - `share`: the part of the budget for class means; None: by rule.
    - `adjacency`: "add-remove" or "replace-one". `user_share`: with groups given to `fit`, how many
      records' worth of influence a user has; the guarantee is then per user.
    - `n_public`: the nominal number of records; None: the true one, then assumed public.
    - `ledger`: charged once, before anything is drawn.
    - `random_state`: None draws secret noise; a number the same noise every time (experiments).

    **Guarantee**: `guarantee_`. The sound reading makes no other claim: `claim_` is None there.

    **Assumes** that settings were not tuned on these records: tuning is not charged.

    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(3000, 4)); y = np.where(X[:, 0] > 0, "yes", "no")
    >>> clf = AdaptiveLaplaceClassifier(bounds=4.0, classes=["no", "yes"], random_state=0).fit(X, y)
    >>> clf.guarantee_.epsilon <= 1.0, clf.score(X, y) > 0.9
    (True, True)
    >>> AdaptiveLaplaceClassifier().fit(X, y)
    Traceback (most recent call last):
    ...
    privet.errors.InvalidArgument: bounds must be given when there are no features, got None; ...
    """

    reading: str = "sound"
    kind: str = "moments"
    network: PublishedNet | None = None
    trainer: Trainer | None = None
    features: Features | None = None
    bounds: Bounds = None
    classes: Any = None
    adaptive: bool = True
    components: int | None = None
    objective: str = "discriminant"
    ridge: float = chosen.MOMENTS_RIDGE
    epochs: int | None = None
    share: float | None = None
    adjacency: str = "add-remove"
    user_share: float = 1.0

    def fit(self, X: Array, y: Array, groups: Array | None = None) -> Self:
        """Release the moments of these records and solve; the whole budget is spent.

        `groups` names the user of each record; the guarantee is then per user.
        """
        self._check_settings()
        X, y = validate_data(
            self, X, y, dtype="numeric", ensure_all_finite=False, allow_nd=True, y_numeric=False
        )
        check_classification_targets(y)
        self.classes_, labels = class_numbers(y, self.classes)
        rows = self._rows(X)
        facts = PublicFacts(
            records=_check.count("n_public", len(rows) if self.n_public is None else self.n_public),
            features=int(np.prod(rows.shape[1:])),
            outputs=len(self.classes_),
            epsilon=_check.positive("epsilon", self.epsilon),
            delta=_check.delta_or_zero("delta", self.delta),
        )
        release = self._release(rows, labels, facts, groups)
        read = () if self.classes is not None else (premises.READ_CLASSES,)
        return self._keep(release, *read)

    def _release(
        self, rows: Array, labels: Array, facts: PublicFacts, groups: Array | None
    ) -> Release[LinearRule] | Release[NetworkRule]:
        if self.reading == "sound" and self.kind == "moments":
            return self._moments(rows, labels, facts, groups)
        if groups is not None:
            raise InvalidArgument("groups", groups, "None but for the sound moments")
        if self.reading != "sound":
            return self._published(rows, labels, facts)
        if self.kind == "local":
            return self._local(rows, labels, facts)
        return self._network(rows, labels, facts)

    def _moments(
        self, rows: Array, labels: Array, facts: PublicFacts, groups: Array | None
    ) -> Release[LinearRule]:
        method = OneShotMoments(
            exponent=EXPONENT if self.adaptive else 0.0,
            share=self.share,
            adjacency=Adjacency(self.adjacency),
            unit=Unit.RECORD if groups is None else Unit.USER,
            user_share=self.user_share,
            solver=self._solver(),
        )
        self.plan_: Any = method.plan(facts)
        return method.fit(
            rows,
            labels,
            self.plan_,
            ledger=self.ledger,
            rng=source_of(self.random_state),
            groups=None if groups is None else np.asarray(groups),
        )

    def _local(self, rows: Array, labels: Array, facts: PublicFacts) -> Release[LinearRule]:
        method = LocalRecords(solver=self._solver())
        self.plan_ = method.plan(facts)
        rng = source_of(self.random_state)
        return method.fit(rows, labels, self.plan_, ledger=self.ledger, rng=rng)

    def _network(self, rows: Array, labels: Array, facts: PublicFacts) -> Release[NetworkRule]:
        if self.adjacency != Adjacency.ADD_REMOVE.value:
            raise InvalidArgument("adjacency", self.adjacency, "add-remove for kind='network'")
        if self.trainer is None:
            raise InvalidArgument(
                "trainer",
                None,
                "given for kind='network'",
                "trainer=privet.dpsgd.PrivateNetwork(network=your_module), for one",
            )
        method = RelevanceShapedTraining(
            trainer=copy.deepcopy(self.trainer),
            exponent=TRAINING_EXPONENT if self.adaptive else None,
            share=TRAINING_SHARE if self.share is None else self.share,
        )
        self.plan_ = method.plan(facts)
        rng = source_of(self.random_state)
        found = method.fit(rows, labels, self.plan_, ledger=self.ledger, rng=rng)
        return as_rule(found)

    def _published(self, rows: Array, labels: Array, facts: PublicFacts) -> Release[NetworkRule]:
        from privet.papers.adaptive_laplace.estimators import (
            PublishedAdLM,
            PublishedILM,
            ReleasedAdLM,
        )

        identical = PublishedAdLM if self.adaptive else PublishedILM
        made: Any = (ReleasedAdLM if self.reading == "released" else identical)(
            epsilon=facts.epsilon,
            epochs=10 if self.epochs is None else self.epochs,
            network=self.network,
            classes=range(facts.outputs),
            ledger=self.ledger,
            random_state=source_of(self.random_state),
        )
        made.fit(rows, labels)
        self.plan_ = made.plan_
        return Release(
            model=NetworkRule(network=made.model_.eval()),
            guarantee=made.guarantee_,
            claim=made.claim_,
            entries=() if made.entry_ is None else (made.entry_,),
        )

    def _solver(self) -> Solver:
        return Solver(
            objective=Objective(self.objective),
            ridge=_check.non_negative("ridge", self.ridge),
            epochs=None if self.epochs is None else _check.count("epochs", self.epochs),
        )

    def _logits(self, X: Array) -> Array:
        rows = self._rows(self._more(X))
        model: LinearRule | NetworkRule = self.model_
        return model.logits(rows)

    def _rows(self, X: Array) -> Array:
        if self.reading != "sound":
            return rows_for_network(X, self.bounds)
        if self.kind == "network":
            return rows_for_network(X, self.bounds).reshape(np.shape(X))
        rows = public_rows(X, features=self.features, bounds=self.bounds)
        if self.components is None or self.components >= rows.shape[1]:
            return rows
        return unit_rows(rows[:, : _check.count("components", self.components)])

    def _check_settings(self) -> None:
        for name, value, allowed in (
            ("reading", self.reading, READINGS),
            ("kind", self.kind, ("moments", "local", "network")),
            ("objective", self.objective, tuple(o.value for o in Objective)),
            ("adjacency", self.adjacency, tuple(a.value for a in Adjacency)),
        ):
            if value not in allowed:
                raise InvalidArgument(name, value, f"one of {', '.join(allowed)}")
