"""scikit-learn estimators: fit a private model with a budget, and nothing to tune."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import nn

from privet import _check, premises
from privet.errors import InvalidArgument
from privet.guarantee import Guarantee
from privet.ledger import Entry, Ledger
from privet.methods.base import PublicFacts, assuming, class_numbers, source_of
from privet.methods.dpsgd.automatic import Wishes
from privet.methods.dpsgd.method import PrivateLinear, PrivateNetwork
from privet.nets.features import Features, unit_rows
from privet.noise import Source

Array = NDArray[Any]
Bounds = None | float | tuple[Any, Any]


@dataclass(kw_only=True, eq=False, repr=False)
class _Estimator(BaseEstimator):  # type: ignore[misc]
    """What classifier and regressor share: settings, public preparation of rows, plan, release."""

    epsilon: float = 1.0
    delta: float = 1e-5
    bounds: Bounds = None
    features: Features | None = None
    module: nn.Module | None = None
    n_public: int | None = None
    ledger: Ledger | None = None
    steps: int | None = None
    sample_rate: float | None = None
    clipping_bound: float | None = None
    learning_rate: float | None = None
    momentum: float | None = None
    centre: float | None = None
    random_state: int | Source | None = None

    def _rows(self, X: Array) -> Array:
        """Rows as the model sees them: a public map of each row by itself."""
        features: Features | None = self.features
        if features is not None:
            return features.transform(X)
        flat = np.asarray(X, dtype=np.float32)
        if self.module is not None:
            return flat if self.bounds is None else _within(flat, self.bounds, ball=False)
        flat = flat.reshape(len(flat), -1)
        return unit_rows(flat) if self.bounds is None else _within(flat, self.bounds)

    def _learn(self, rows: Array, targets: Array, outputs: int, *, classification: bool) -> None:
        facts = PublicFacts(
            records=_check.count("n_public", len(rows) if self.n_public is None else self.n_public),
            features=int(np.prod(rows.shape[1:])),
            outputs=outputs,
            epsilon=_check.positive("epsilon", self.epsilon),
            delta=_check.open_unit("delta", self.delta),
        )
        wishes = Wishes(
            steps=self.steps,
            sample_rate=self.sample_rate,
            clipping_bound=self.clipping_bound,
            learning_rate=self.learning_rate,
            momentum=self.momentum,
            centre=self.centre,
        )
        method: PrivateLinear | PrivateNetwork
        if self.module is None:
            method = PrivateLinear(classification=classification, wishes=wishes)
        else:
            method = PrivateNetwork(
                network=copy.deepcopy(self.module), classification=classification, wishes=wishes
            )
        self.plan_ = method.plan(facts)
        release = method.fit(
            rows, targets, self.plan_, ledger=self.ledger, rng=source_of(self.random_state)
        )
        self.model_ = release.model.eval()
        self.guarantee_: Guarantee = release.guarantee
        self.claim_: Guarantee | None = release.claim
        self.ledger_entry_: Entry | None = release.entry

    @torch.no_grad()
    def _outputs(self, X: Array) -> Array:
        check_is_fitted(self)
        X = validate_data(
            self, X, reset=False, dtype="numeric", ensure_all_finite=False, allow_nd=True
        )
        model, kind = self.model_, torch.float32
        if self.module is None:  # cheap, so in float64: the same answer whoever else is in X
            model, kind = copy.deepcopy(model).double(), torch.float64
        parts = [model(torch.from_numpy(self._rows(part)).to(kind)) for part in _pieces(X)]
        out: Array = torch.cat(parts).double().numpy()
        return out

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True  # a bad row counts as zero: failing would tell about it
        tags.non_deterministic = False
        return tags


@dataclass(kw_only=True, eq=False, repr=False)
class DPSGDClassifier(ClassifierMixin, _Estimator):  # type: ignore[misc]
    """A classifier trained by DP-SGD, with settings that need no tuning.

    Rows are prepared by a *public* map: `features.transform` if given; else, with `bounds`, clipped
    and scaled by them; else scaled to unit length each by itself. The default model is a linear
    softmax on these rows after a private mean; `module` may be any torch module with one logit a
    class.

    - `epsilon`, `delta`: the budget, all of which is spent; add-remove, per record.
    - `classes`: the public list of labels. None: taken from y, which the guarantee then marks as
      assumed public.
    - `bounds`: a number (rows are clipped to that L2 norm) or a pair (low, high), each a number or
      one for every feature. Never computed from the data.
    - `n_public`: the nominal number of records; None: the true one, then assumed public.
    - `ledger`: charged before anything is released; if it cannot afford the budget, nothing is.
    - `steps`, `sample_rate`, `clipping_bound`, `learning_rate` (on the mean gradient over the
      bound), `momentum`, `centre` (share of the budget for the mean): by rule unless told.
    - `random_state`: None draws secret noise; a number gives the same noise every time, for
      experiments.

    **Guarantee**: `guarantee_`. What the paper's closed form states is in `claim_`.

    **Assumes** that the settings were not tuned on these records: tuning is not charged.

    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(2000, 5)); y = X[:, 0] > 0
    >>> clf = DPSGDClassifier(epsilon=1.0, classes=[False, True], random_state=0).fit(X, y)
    >>> clf.guarantee_.epsilon <= 1.0, clf.score(X, y) > 0.9
    (True, True)
    """

    classes: Sequence[Any] | None = None

    def fit(self, X: Array, y: Array) -> Self:
        """Train on the records, spending the whole budget."""
        X, y = validate_data(self, X, y, dtype="numeric", ensure_all_finite=False, allow_nd=True)
        check_classification_targets(y)
        self.classes_, numbers = class_numbers(y, self.classes)
        if (numbers < 0).any():
            raise InvalidArgument("y", "a label outside `classes`", "one of the declared classes")
        self._learn(self._rows(X), numbers, len(self.classes_), classification=True)
        if self.classes is None:
            self.guarantee_ = assuming(self.guarantee_, premises.READ_CLASSES)
        return self

    def decision_function(self, X: Array) -> Array:
        """Logits; for two classes, that of the second minus that of the first."""
        z = self._outputs(X)
        return z[:, 1] - z[:, 0] if z.shape[1] == 2 else z

    def predict_proba(self, X: Array) -> Array:
        """Probabilities of the classes."""
        z = self._outputs(X)
        p: Array = np.exp(z - z.max(axis=1, keepdims=True))
        p /= p.sum(axis=1, keepdims=True)
        return p

    def predict(self, X: Array) -> Array:
        """The most probable class of each row."""
        best = self._outputs(X).argmax(axis=1)
        labels: Array = self.classes_[best]
        return labels

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.poor_score = True  # thirty records under epsilon 1 teach nothing
        return tags


@dataclass(kw_only=True, eq=False, repr=False)
class DPSGDRegressor(RegressorMixin, _Estimator):  # type: ignore[misc]
    """A regressor trained by DP-SGD: squared error, clipped gradients.

    As `DPSGDClassifier`, with `target_bounds` = (low, high): targets are clipped to that range, and
    so are predictions. It is never computed from the data; the default is (-1, 1): declare yours.

    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(4000, 5)); y = np.tanh(X[:, 0])
    >>> reg = DPSGDRegressor(epsilon=1.0, bounds=4.0, random_state=0).fit(X, y)
    >>> reg.guarantee_.epsilon <= 1.0, reg.score(X, y) > 0.5
    (True, True)
    """

    target_bounds: tuple[float, float] = (-1.0, 1.0)

    def fit(self, X: Array, y: Array) -> Self:
        """Train on the records, spending the whole budget."""
        X, y = validate_data(
            self, X, y, dtype="numeric", ensure_all_finite=False, allow_nd=True, y_numeric=True
        )
        low, high = self._range()
        scaled = 2.0 * (np.clip(y.astype(np.float64), low, high) - low) / (high - low) - 1.0
        self._learn(self._rows(X), np.nan_to_num(scaled), 1, classification=False)
        return self

    def predict(self, X: Array) -> Array:
        """Predictions, within `target_bounds`."""
        low, high = self._range()
        out: Array = low + (np.clip(self._outputs(X)[:, 0], -1.0, 1.0) + 1.0) / 2.0 * (high - low)
        return out

    def _range(self) -> tuple[float, float]:
        low, high = (float(v) for v in self.target_bounds)
        if not (np.isfinite(low) and np.isfinite(high) and low < high):
            raise InvalidArgument(
                "target_bounds", self.target_bounds, "two finite numbers, low first"
            )
        return low, high

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True
        return tags


def _within(rows: Array, bounds: float | tuple[Any, Any], *, ball: bool = True) -> Array:
    """Rows in the unit ball (or the cube [-1, 1]), by public bounds; a bad row becomes zero.

    >>> _within(np.array([[3.0, 4.0]], dtype=np.float32), 10.0).round(2).tolist()
    [[0.30000001192092896, 0.4000000059604645]]
    >>> _within(np.array([[0.0, 99.0]], dtype=np.float32), (0.0, 10.0)).round(2).tolist()
    [[-0.7099999785423279, 0.7099999785423279]]
    """
    shape, flat = rows.shape, rows.reshape(len(rows), -1)
    good = np.isfinite(flat).all(axis=1, keepdims=True)
    flat = np.where(good, flat, 0.0).astype(np.float64)
    if isinstance(bounds, tuple | list):
        low, high = (np.broadcast_to(np.asarray(b, dtype=np.float64), shape[1:]) for b in bounds)
        if not (np.isfinite(low) & np.isfinite(high) & (low < high)).all():
            raise InvalidArgument("bounds", bounds, "finite, each low below its high")
        low, high = low.reshape(-1), high.reshape(-1)
        out = 2.0 * (np.clip(flat, low, high) - low) / (high - low) - 1.0
        if ball:
            out /= np.sqrt(out.shape[1])
    else:
        norms = np.linalg.norm(flat, axis=1, keepdims=True)
        out = flat / np.maximum(norms, _check.positive("bounds", bounds))
    return np.where(good, out * (1.0 - 1e-6), 0.0).astype(np.float32).reshape(shape)


def _pieces(X: Array) -> list[Array]:
    return [X[i : i + 8192] for i in range(0, len(X), 8192)]
