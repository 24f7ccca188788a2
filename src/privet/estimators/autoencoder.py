"""Stacks of private auto-encoders with the habits of scikit-learn: a transformer, a classifier."""

from __future__ import annotations

from functools import partial
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import TransformerMixin
from sklearn.utils.validation import check_is_fitted

from privet.data.records import class_list
from privet.data.unit_ball import unsquash
from privet.errors import InvalidArgument
from privet.estimators.private_estimator import PrivateClassifier, PrivateEstimator, with_settings
from privet.methods.autoencoder.autoencoder_stack import AutoencoderStack
from privet.methods.autoencoder.streamed_records import Stream, StreamedRecords
from privet.sensitivity.user_ids import user_ids

Array = NDArray[Any]


@with_settings(AutoencoderStack)
class PrivateAutoencoder(TransformerMixin, PrivateEstimator):  # type: ignore[misc]
    """A stack of private auto-encoders: codes that were learned from moments released once.

    See `PrivateEstimator` and `privet.methods.autoencoder.AutoencoderStack` for the settings. `fit`
    takes an array, a memory map or a `Stream`; k layers read it k times, block by block.

    **Guarantee**: `guarantee_`. No claim is made beside it: `claim_` is None.

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
        counted = None
        if isinstance(X, Stream):
            _no_groups(groups)
            stream, shape = X, (X.columns,)
            self.n_features_in_, self.table_columns_ = X.columns, None
        else:
            rows = np.asanyarray(self._validate_records(X))
            stream, counted = Stream.of(rows), len(rows)
            shape = (stream.columns,)
            if groups is not None and np.shape(groups) != (counted,):
                raise InvalidArgument("groups", np.shape(groups), f"the user of each of {counted}")
        records = partial(
            StreamedRecords,
            stream=stream,
            groups=None if groups is None else user_ids(groups),
            records=counted,
            n_public=self.n_public,
        )
        return self._learn(records, self._declared_domain(shape))

    def transform(self, X: Array) -> NDArray[np.float32]:
        """The codes of the last layer; each has length below 1."""
        return self._outputs(X).astype(np.float32)

    def inverse_transform(self, Z: Array) -> NDArray[np.float64]:
        """Records from codes, within the bounds; behind public features, those features."""
        check_is_fitted(self)
        model: Any = self.model_
        codes, units = np.asarray(Z, dtype=np.float64), model.layers[-1].units
        if codes.ndim != 2 or codes.shape[1] != units:
            raise InvalidArgument("Z", codes.shape, f"codes with {units} columns")
        rows, domain = model.decode(codes), self.domain_
        bounds: Any = domain.bounds
        if domain.features is not None:
            return np.asarray(rows)
        if not isinstance(bounds, tuple):
            return np.asarray(rows * float(bounds))
        low, high = bounds
        u = unsquash(rows, model.looseness * float(np.sqrt(domain.columns)))
        return np.asarray(low + np.clip(u, 0.0, 1.0) * (high - low))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float32"]
        return tags


@with_settings(AutoencoderStack)
class PrivateAutoencoderClassifier(PrivateClassifier):
    """A classifier on a stack of private auto-encoders, its output layer private too.

    See `PrivateClassifier` and `privet.methods.autoencoder.AutoencoderStack` for the settings. A
    `Stream` yields (rows, labels) and needs `classes` and `n_public`; y is then None.

    **Guarantee**: `guarantee_`. No claim is made beside it.
    """

    def fit(self, X: Array | Stream, y: Array | None = None, groups: Array | None = None) -> Self:
        """Release the moments of every layer and of the output."""
        if not isinstance(X, Stream):
            return super().fit(X, y, groups)  # type: ignore[arg-type]  # None is refused there
        if self.classes is None or y is not None:
            raise InvalidArgument("X", "a stream", "used with classes= and without y")
        _no_groups(groups)
        self.classes_, self.n_features_in_ = class_list(self.classes), X.columns
        self.table_columns_ = None
        records = partial(StreamedRecords, stream=X, classes=self.classes_, n_public=self.n_public)
        return self._learn(records, self._declared_domain((X.columns,)))


def _no_groups(groups: Array | None) -> None:
    if groups is not None:
        raise InvalidArgument(
            "groups", "given", "None with a stream",
            "a user's records must be counted first: give an array or a memory map",
        )  # fmt: skip
