"""scikit-learn estimators of the deep private auto-encoder, sound unless told otherwise."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import TransformerMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from privet import _check, chosen, premises
from privet.errors import InvalidArgument
from privet.guarantee import Premise
from privet.methods.autoencoder.base import (
    Estimator,
    Labelled,
    checked_rows,
    layer_sizes,
    no_groups,
)
from privet.methods.autoencoder.records import Held, Records, Scaling, Stream
from privet.methods.autoencoder.stack import OutputLayer
from privet.methods.base import PublicFacts, Release, class_list, class_numbers, source_of
from privet.methods.legacy_estimators import LogitClassifier

Array = NDArray[Any]


@dataclass(kw_only=True, eq=False, repr=False)
class PrivateAutoencoder(TransformerMixin, Estimator):  # type: ignore[misc]
    """A stack of private auto-encoders: codes that were learned from moments released once.

    - `epsilon`, `delta`: the budget, all of which is spent; delta = 0 gives pure epsilon.
    - `bounds`: (low, high) for every column, or a number that bounds the length of rows; or
      `features`, a public extractor of `privet.nets.features`. Never read from the data.
    - `layers`: units of each layer, the lowest first; no more than the layer has inputs.
    - `activation`: "radial" or "sigmoid", the fixed range of the units.
    - `noise`: None for Gaussian (K-norm when delta = 0), or a name of `privet.mechanisms.Noise`.
    - `shares`: the part of the budget of each layer; None: equal parts.
    - `adjacency`: "add-remove" or "replace-one". `user_share`: with groups given to `fit`, how many
      records' worth of influence a user has; the guarantee is then per user.
    - `n_public`: the nominal number of records; None: the true one, then assumed public.
    - `random_state`: None draws secret noise; a number the same noise every time (experiments).

    `fit` takes an array, a memory map or a `Stream`; k layers read it k times, block by block.

    **Guarantee**: `guarantee_`. No claim is made beside it: `claim_` is None.

    **Assumes** that settings were not tuned on these records.

    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(size=(4000, 2)) @ rng.uniform(size=(2, 6)) / 2
    >>> encoder = PrivateAutoencoder(epsilon=4.0, bounds=(0, 1), layers=(2,), random_state=0).fit(X)
    >>> encoder.transform(X).shape, encoder.guarantee_.epsilon <= 4.0
    ((4000, 2), True)
    >>> bool(np.abs(encoder.inverse_transform(encoder.transform(X)) - X).mean() < 0.05)
    True
    """

    def fit(self, X: Array | Stream, y: object = None, groups: Array | None = None) -> Self:
        """Release every layer's moments; `groups` names the user of each record."""
        records: Records
        if isinstance(X, Stream):
            no_groups(groups)
            records, columns, n = X, X.columns, None
            self.n_features_in_ = columns
        else:
            X = checked_rows(self, X)
            records = Held(rows=X, weights=self._weights(groups, len(X)))
            columns, n = X.shape[1], len(X)
        method = self._sound(columns, None, groups)
        self.plan_ = method.plan(self._facts(columns, n, 0))
        found = method.fit(
            records, self.plan_, ledger=self.ledger, rng=source_of(self.random_state)
        )
        return self._keep(found)

    def transform(self, X: Array) -> NDArray[np.float32]:
        """The codes of the last layer; each has length below 1."""
        X = self._more(X)
        codes: NDArray[np.float32] = self.model_.encode(X)
        return codes

    def inverse_transform(self, Z: Array) -> NDArray[np.float64]:
        """Records from codes, within the bounds; behind public features, those features."""
        check_is_fitted(self)
        codes = np.asarray(Z, dtype=np.float64)
        units = self.model_.layers[-1].units
        if codes.ndim != 2 or codes.shape[1] != units:
            raise InvalidArgument("Z", codes.shape, f"codes with {units} columns")
        rows: NDArray[np.float64] = self.model_.decode(codes)
        return rows

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float32"]
        return tags


@dataclass(kw_only=True, eq=False, repr=False)
class PrivateAutoencoderClassifier(LogitClassifier, Estimator):
    """A classifier on a stack of private auto-encoders, its output layer private too.

    Settings as for `PrivateAutoencoder`, and

    - `classes`: the public list of labels. None: taken from y, which the guarantee then marks as
      assumed public. Labels that are not in the list count as unknown.
    - `reading`: "sound"; or "published" (the paper's Algorithm 1), whose epsilon is a claim: see
      `claim_`; `guarantee_` then says that nothing is proved. It needs `bounds` as a pair, and
      takes `epochs`.
    - `shares`: the part of the budget of each layer and of the output layer, last; None: by rule,
      a quarter for the layers together.
    - `ridge`: of the output layer, in units of the noise's largest eigenvalue.

    **Guarantee**: `guarantee_`.

    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(size=(3000, 4)); y = np.where(X[:, 0] > X[:, 1], "yes", "no")
    >>> clf = PrivateAutoencoderClassifier(
    ...     epsilon=4.0, bounds=(0, 1), classes=["no", "yes"], layers=(4,), random_state=0)
    >>> clf = clf.fit(X, y)
    >>> clf.guarantee_.epsilon <= 4.0, clf.score(X, y) > 0.9
    (True, True)
    """

    classes: Any = None
    reading: str = "sound"
    ridge: float = chosen.STACK_OUTPUT_RIDGE
    epochs: int = 50

    def fit(self, X: Array | Stream, y: Array | None = None, groups: Array | None = None) -> Self:
        """Release the moments of every layer and of the output; `groups` names each record's user.

        A `Stream` yields (rows, labels) and needs `classes` and `n_public`; y is then None.
        """
        if self.reading not in ("sound", "published"):
            raise InvalidArgument("reading", self.reading, "sound or published")
        records: Records
        read: tuple[Premise, ...] = ()
        if isinstance(X, Stream):
            if self.classes is None or y is not None:
                raise InvalidArgument("X", "a stream", "used with classes= and without y")
            no_groups(groups)
            self.classes_ = class_list(self.classes)
            records, columns, n = Labelled(X, self.classes_), X.columns, None
            self.n_features_in_ = columns
        else:
            rows, y = validate_data(
                self, X, y, dtype="numeric", ensure_all_finite=False, allow_nd=True, y_numeric=False
            )
            rows = rows.reshape(len(rows), -1)
            check_classification_targets(y)
            if self.classes is None:
                read = (premises.READ_CLASSES,)
            self.classes_, labels = class_numbers(y, self.classes)
            weights = self._weights(groups, len(rows))
            records = Held(rows=rows, labels=labels, weights=weights)
            columns, n = rows.shape[1], len(rows)
        facts = self._facts(columns, n, len(self.classes_))
        if self.reading == "published":
            return self._keep(self._published(records, facts, groups), *read)
        output = OutputLayer(
            classes=len(self.classes_), ridge=_check.non_negative("ridge", self.ridge)
        )
        method = self._sound(columns, output, groups)
        self.plan_: Any = method.plan(facts)
        found = method.fit(
            records, self.plan_, ledger=self.ledger, rng=source_of(self.random_state)
        )
        return self._keep(found, *read)

    def _published(
        self, records: Records, facts: PublicFacts, groups: Array | None
    ) -> Release[Any]:
        if groups is not None or not isinstance(records, Held):
            raise InvalidArgument("reading", "published", "used with arrays and without groups")
        from privet.papers.autoencoder.published import PublishedDPA

        scaling = Scaling(columns=facts.features, bounds=self.bounds)
        if not isinstance(scaling.bounds, tuple):
            raise InvalidArgument("bounds", self.bounds, "a pair (low, high) for reading=published")
        made = PublishedDPA(
            epsilon=facts.epsilon,
            layers=layer_sizes(self.layers),
            epochs=self.epochs,
            bounds=scaling.bounds,
            classes=range(facts.outputs),
            ledger=self.ledger,
            random_state=source_of(self.random_state),
        ).fit(records.rows, np.asarray(records.labels))
        self.plan_ = made.plan_
        low, high = scaling.bounds
        return Release(
            model=replace(made.model_, low=low, high=high),
            guarantee=made.guarantee_,
            claim=made.claim_,
            entries=(),
        )

    def _logits(self, X: Array) -> NDArray[np.float64]:
        X = self._more(X)
        return np.asarray(self.model_.logits(X))
