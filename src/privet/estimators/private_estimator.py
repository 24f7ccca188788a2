"""One estimator for every method, with the habits of scikit-learn.

Settings are fields of a dataclass, so that each is named once and scikit-learn still finds every
one of them in the signature of `__init__`. The estimators with a method's name are short
subclasses: `with_settings` gives them the method's settings as fields of their own.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any, Self, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse
from scipy.special import softmax
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data

from privet.data.records import Records, class_list, told_before
from privet.data.rows import Bounds, Domain
from privet.errors import InvalidArgument
from privet.estimators.pipeline import by_column, preparation
from privet.guarantee import Guarantee
from privet.ledger import Entry, Ledger
from privet.methods.contract import Method, Model
from privet.methods.promise import Trained, planned, train
from privet.nets.features import Features
from privet.noise import Source
from privet.noise.source import source_of
from privet.report.measures import from_unit
from privet.runs.weights import class_offsets
from privet.threads import threads

Array = NDArray[Any]


@dataclass(eq=False, repr=False)
class PrivateEstimator(BaseEstimator):  # type: ignore[misc]
    """A method and a budget; after `fit` a model and what is promised, claimed and charged for it.

    - `method`: how to train, such as `privet.dpsgd.LinearDPSGD()`.
    - `epsilon`, `delta`: the budget, all of which is spent.
    - `bounds`: what is publicly known of the columns: a pair (low, high), each a number or one a
      column; a dict of pairs by the names of a frame's columns; or a number that bounds the length
      of a row. Never read from the data.
    - `features`: a public extractor of `privet.nets.features` in front of the method.
    - `fill`: what a missing number (NaN) counts as, declared: a number, one a column, a dict by the
      names of columns, or "middle" of the bounds. Without it such a record counts for nothing.
    - `n_public`: the declared number of records, for add-remove; None counts them, for zero-out.
    - `ledger`: a ledger or the path of one, charged before anything is released.
    - `random_state`: None draws secret noise; a number the same noise every time: `guarantee_` then
      says EXPERIMENT, NOT A RELEASE.
    - `anyway`: fit also with a delta of 1/n or more, which is no promise; marked likewise.
    """

    method: Method[Any] | None = None
    _: KW_ONLY
    epsilon: float = 1.0
    delta: float = 1e-5
    bounds: Bounds | dict[str, tuple[float, float]] = None
    features: Features | None = None
    fill: Any = None
    n_public: int | None = None
    ledger: Ledger | str | Path | None = None
    random_state: int | Source | None = None
    anyway: bool = False

    def _method(self) -> Method[Any]:
        if not isinstance(self.method, Method):
            raise InvalidArgument(
                "method", self.method, "a method", "such as privet.dpsgd.LinearDPSGD()"
            )
        return self.method

    def _declared(self, shape: tuple[int, ...]) -> Domain:
        """What is declared about a record of this shape."""
        bounds, fill = self.bounds, self.fill
        names = getattr(self, "feature_names_in_", getattr(self, "columns_", None))
        if isinstance(bounds, dict):
            low, high = zip(*by_column("bounds", bounds, names), strict=True)
            bounds = (list(low), list(high))
        if isinstance(fill, dict):
            fill = by_column("fill", fill, names)
        return Domain(shape=shape, bounds=bounds, features=self.features, fill=fill)

    def _checked(self, X: Any, y: Any, **how: Any) -> tuple[Array, Array]:
        """Records and labels as arrays; a dict of columns and labels in a column are taken too."""
        self.columns_ = list(X) if _is_dict(X) else None
        y = np.asarray(y)
        if y.ndim == 2 and y.shape[1] == 1:
            y = column_or_1d(y, warn=True)
        found: tuple[Array, Array] = validate_data(
            self, self._stacked(X), y, dtype="numeric", ensure_all_finite=False, allow_nd=True,
            **how,
        )  # fmt: skip
        return found

    def _stacked(self, X: Any) -> Any:
        """A dict of columns as an array, in the order of those that were fitted."""
        if not _is_dict(X):
            return X
        names = getattr(self, "columns_", None) or list(getattr(self, "feature_names_in_", X))
        missing = [name for name in names if name not in X]
        if missing:
            raise InvalidArgument("X", list(X), f"columns as fitted, also {missing[0]!r}")
        return np.column_stack([np.asarray(X[name]) for name in names])

    def _learn(self, made: Callable[..., Any], domain: Domain) -> Self:
        """Plan, then train on what `made(domain=domain)` gives: features may take minutes."""
        ledger = self.ledger
        if isinstance(ledger, str | Path):
            ledger = Ledger.open(ledger)
        method = self._method().for_domain(domain)
        records = made(domain=domain.unmade())
        plan = planned(
            method, records.facts(epsilon=self.epsilon, delta=self.delta), anyway=self.anyway,
            stated=preparation(self),
        )  # fmt: skip
        if domain.features is not None:
            with told_before():
                records = made(domain=domain)
        with threads(None, numbers=plan.facts.records * max(1, plan.facts.features)):
            found = train(method, records, plan, rng=source_of(self.random_state), ledger=ledger)
        return self._keep(found, domain)

    def _keep(self, found: Trained, domain: Domain) -> Self:
        self.domain_ = domain
        self.model_: Model = found.model
        self.guarantee_: Guarantee = found.guarantee
        self.claim_: Guarantee | None = found.claim
        self.plan_: Any = found.plan
        self.ledger_entry_: Entry | None = found.entries[-1]
        self.trained_: Trained = found
        return self

    def _outputs(self, X: Array) -> NDArray[np.float64]:
        check_is_fitted(self)
        X = np.asarray(
            validate_data(
                self,
                self._stacked(X),
                reset=False,
                dtype="numeric",
                ensure_all_finite=False,
                allow_nd=True,
            )
        )
        parts = [X[i : i + 8192] for i in range(0, len(X), 8192)]
        return np.concatenate([self.model_.outputs(self.domain_.rows(part)) for part in parts])

    def save(self, folder: str | Path, **given: str) -> Path:
        """Write the model and what is promised for it to a folder; `privet.load` reads it.

        `given`: what only you can say for the record: purpose, curator, region, justification.
        """
        from privet.runs import Given, save

        check_is_fitted(self)
        return save(self, Path(folder), given=Given(**given))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True  # a bad record counts for nothing: failing would tell
        tags.non_deterministic = False
        return tags


@dataclass(eq=False, repr=False)
class PrivateClassifier(ClassifierMixin, PrivateEstimator):  # type: ignore[misc]
    """A classifier trained by any method under a budget.

    Settings as for `PrivateEstimator`, and `classes`: the public list of labels. None takes it from
    y, which the guarantee then marks as assumed public. A record with another label counts for
    nothing. `class_weight`: what missing a class costs, {class: weight}, declared; it moves the
    released logits and costs nothing.

    **Guarantee** `guarantee_`; what a paper claims for the same settings is in `claim_`.
    """

    _: KW_ONLY
    classes: Any = None
    class_weight: Any = None

    def fit(self, X: Array, y: Array, groups: Array | None = None) -> Self:
        """Train on the records, spending the whole budget; `groups` names each record's user."""
        X, y = self._checked(X, y, y_numeric=False)
        check_classification_targets(y)
        self.classes_ = class_list(y if self.classes is None else self.classes)
        class_offsets(self.class_weight, self.classes_)
        records = partial(
            Records.classified,
            X,
            y,
            classes=self.classes_,
            declared=self.classes is not None,
            groups=groups,
            n_public=self.n_public,
        )
        return self._learn(records, self._declared(X.shape[1:]))

    def _outputs(self, X: Array) -> NDArray[np.float64]:
        found = super()._outputs(X)
        offsets = class_offsets(self.class_weight, self.classes_)
        return found if offsets is None else found + offsets

    def decision_function(self, X: Array) -> Array:
        """Logits: one column a class, or one number (for the second class) when there are two."""
        z = self._outputs(X)
        return np.asarray(z[:, 1] - z[:, 0]) if z.shape[1] == 2 else z

    def predict_proba(self, X: Array) -> Array:
        """Probabilities of the classes: softmax of the logits."""
        return np.asarray(softmax(self._outputs(X), axis=1))

    def predict(self, X: Array) -> Array:
        """The most probable class of each row."""
        best = self._outputs(X).argmax(axis=1)
        return np.asarray(self.classes_[best])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.poor_score = True  # thirty records under a small epsilon teach nothing
        return tags


@dataclass(eq=False, repr=False)
class PrivateRegressor(RegressorMixin, PrivateEstimator):  # type: ignore[misc]
    """A regressor; `target_bounds` declares the range of y, outside of which it is clipped."""

    _: KW_ONLY
    target_bounds: tuple[float, float] | None = None

    def fit(self, X: Array, y: Array, groups: Array | None = None) -> Self:
        """Train on the records, spending the whole budget."""
        X, y = self._checked(X, y, y_numeric=True)
        method = self._method()
        if not method.regression:
            raise InvalidArgument("method", method.name, "one that can predict numbers")
        records = partial(
            Records.measured,
            X,
            y,
            target_bounds=self._range(),
            groups=groups,
            n_public=self.n_public,
        )
        return self._learn(records, self._declared(X.shape[1:]))

    def predict(self, X: Array) -> Array:
        """Numbers within `target_bounds`."""
        return from_unit(self._outputs(X), self._range())

    def _range(self) -> tuple[float, float]:
        expected = "two finite numbers, low first"
        try:
            low, high = (float(v) for v in self.target_bounds or ())
        except (TypeError, ValueError):
            raise InvalidArgument("target_bounds", self.target_bounds, expected) from None
        if not (np.isfinite(low) and np.isfinite(high) and low < high):
            raise InvalidArgument("target_bounds", self.target_bounds, expected)
        return low, high

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True
        return tags


def _is_dict(X: Any) -> bool:
    """Whether these are columns by name; one kind of sparse matrix is a dict too, and is not."""
    return isinstance(X, Mapping) and not issparse(X)


Estimator = TypeVar("Estimator", bound=PrivateEstimator)


def with_settings(kind: type[Method[Any]]) -> Callable[[type[Estimator]], type[Estimator]]:
    """Gives an estimator the settings of a method as keyword arguments of its own."""

    def add(cls: type[Estimator]) -> type[Estimator]:
        own = inspect.get_annotations(cls)
        for f in dataclasses.fields(kind):  # type: ignore[arg-type]
            own[f.name] = f.type
            if f.default_factory is not dataclasses.MISSING:
                setattr(cls, f.name, dataclasses.field(default_factory=f.default_factory))
            else:
                default = None if f.default is dataclasses.MISSING else f.default
                # scikit-learn wants words
                setattr(cls, f.name, default.value if isinstance(default, Enum) else default)
        own["method"] = "None"
        cls.method = dataclasses.field(default=None, init=False)
        cls.__annotations__ = own

        def _method(self: Any) -> Method[Any]:
            return kind(**{f.name: getattr(self, f.name) for f in dataclasses.fields(kind)})  # type: ignore[arg-type]

        if "_method" not in cls.__dict__:
            cls._method = _method  # type: ignore[method-assign]
        return dataclass(kw_only=True, eq=False, repr=False)(cls)

    return add
