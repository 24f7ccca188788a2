"""One estimator for every method, with the habits of scikit-learn.

Settings are fields of a dataclass, so that each is named once and scikit-learn still finds every
one of them in the signature of `__init__`. The estimators with a method's name are short
subclasses: `with_settings` gives them the method's settings as fields of their own.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Self, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import (
    check_array,
    check_is_fitted,
    column_or_1d,
    validate_data,
)

from privet.data.domain import Bounds, Domain
from privet.data.records import Records, class_list, class_numbers, silence_diagnostics
from privet.data.table_columns import (
    TableColumns,
    check_columns_are_numbers,
    declared_for,
    is_missing,
    table_of,
)
from privet.errors import InvalidArgument
from privet.estimators.declared_scaler import by_column
from privet.estimators.pipeline_checks import preparation
from privet.estimators.search_history import SearchHistory, settings_text
from privet.features import Features
from privet.guarantee import Adjacency, Guarantee
from privet.ledger import Entry, Ledger
from privet.methods.contract import Method, Model
from privet.methods.feasibility import LittleSignal
from privet.methods.train_method import TrainingResult, make_plan, train
from privet.noise import Source
from privet.noise.source import source_of
from privet.report.metrics import to_target_units
from privet.runs.class_weights import class_offsets, class_shares, decision_weights
from privet.runs.training_task import public_features
from privet.settings import add_settings
from privet.threads import threads

Array = NDArray[Any]


@dataclass(eq=False, repr=False)
class PrivateEstimator(BaseEstimator):  # type: ignore[misc]
    """A method and a budget; after `fit` a model and what is promised, claimed and charged for it.

    - `method`: how to train, such as `privet.dpsgd.LinearDPSGD()`.
    - `epsilon`, `delta`: the budget, all of which is spent.
    - `bounds`: what is publicly known of the columns: a pair (low, high), each a number or one a
      column; a dict of pairs, two numbers or two dates, by the names of a frame's columns; or a
      number that bounds the length of a row. Never read from the data.
    - `categories`: the columns of a frame that hold words, {"sex": ["f", "m"]}, with every value
      that may occur, declared. A record with another one counts for nothing.
    - `ignore`: the columns of a frame that are not used.
    - `features`: a public extractor of `privet.features` in front of the method, or its name:
      "scenes", "scattering", "strokes" or "plain"; "auto", the default where something is
      predicted, is what `privet train` takes: filters of drawn scenes (with scattering for grey)
      for pictures, X of shape (n, height, width) or with colours, of 16 pixels or more.
    - `fill`: what a missing number (NaN) counts as, declared: a number, one a column, a dict by the
      names of columns, or "middle" of the bounds (and no category). Without it such a record counts
      for nothing.
    - `transforms`: of columns by their names, declared: "log", "log1p", "sqrt" or "asinh" of a
      skewed column with bounds, or the levels of a column of words in an order, the lowest first.
    - `n_public`: the declared number of records, for add-remove; None counts them, for zero-out.
    - `ledger`: a ledger or the path of one, charged before anything is released.
    - `random_state`: None draws secret noise; a number the same noise every time: `guarantee_` then
      says EXPERIMENT, NOT A RELEASE.
    - `allow_vacuous`: fit also with a delta of 1/n or more, which is no promise; marked likewise.
    """

    method: Method[Any] | None = None
    _: KW_ONLY
    epsilon: float = 1.0
    delta: float = 1e-5
    bounds: Bounds | dict[str, tuple[Any, Any]] = None
    categories: dict[str, Sequence[Any]] | None = None
    ignore: Sequence[str] = ()
    features: Features | str | None = None
    fill: Any = None
    transforms: dict[str, Any] | None = None
    n_public: int | None = None
    ledger: Ledger | str | Path | None = None
    random_state: int | Source | None = None
    allow_vacuous: bool = False

    def _method(self) -> Method[Any]:
        if not isinstance(self.method, Method):
            raise InvalidArgument(
                "method", self.method, "a method", "such as privet.dpsgd.LinearDPSGD()"
            )
        return self.method

    @property
    def _by_name(self) -> bool:
        """Whether columns are declared by their names."""
        declared = self.categories is not None or self.transforms is not None
        return isinstance(self.bounds, Mapping) or declared

    @property
    def search_history(self) -> SearchHistory:
        """What this estimator shares with its clones, of which a search keeps the best."""
        found: SearchHistory = self.__dict__.setdefault("_search_history", SearchHistory())
        return found

    def __sklearn_clone__(self) -> Self:
        """Clone as scikit-learn does; the clone shares the history."""
        self.search_history.note_clone()
        made: Self = super().__sklearn_clone__()
        made.__dict__["_search_history"] = self.search_history
        return made

    def _declared_domain(self, shape: tuple[int, ...]) -> Domain:
        """What is declared about a record of this shape."""
        bounds: Any = self.bounds
        fill, columns = self.fill, self.table_columns_
        if self._by_name:
            assert columns is not None
            bounds, fill = self._ranges, columns.fill_row()
        elif isinstance(fill, Mapping):
            fill = by_column("fill", dict(fill), None if columns is None else columns.numbers)
        features = self.features
        if isinstance(features, str):
            features = public_features(shape, self._method().input_features, features)
        return Domain(shape=shape, bounds=bounds, features=features, fill=fill)

    def _validate(self, X: Any, y: Any, **how: Any) -> tuple[Array, Array]:
        """Records and labels as arrays; tables and labels in a column are taken too."""
        y = np.asarray(y)
        if y.ndim == 2 and y.shape[1] == 1:
            y = column_or_1d(y, warn=True)
        words = y.ndim and y.dtype == object  # a single None is scikit-learn's to refuse
        if words and any(is_missing(c) for c in y.flat if not isinstance(c, str)):
            raise InvalidArgument(
                "y", "None, NaN or NA among them", "labels of all records",
                "leave records without one out: known = pandas.notna(y), X[known], y[known]",
            )  # fmt: skip
        found: tuple[Array, Array] = self._validate_records(X, y=y, **how)
        return found

    def _validate_records(self, X: Any, **how: Any) -> Any:
        """Records as an array, checked as scikit-learn does; of a table, the names are kept."""
        table = table_of(X)
        self.table_columns_: TableColumns | None = None
        is_frame = not isinstance(X, Mapping | list | tuple)
        if self._by_name:
            if table is None:
                raise InvalidArgument(
                    "bounds", self.bounds, "a pair or a number for X without column names"
                )
            found = declared_for(
                table, bounds=self.bounds, categories=self.categories, fill=self.fill,
                ignore=self.ignore, transforms=self.transforms,
            )  # fmt: skip
            self.table_columns_, self._ranges = found.columns, (found.low, found.high)
        elif table is not None:
            used = [name for name in table if name not in self.ignore]
            if is_frame and len(used) == len(table):
                check_columns_are_numbers(table)
            self.table_columns_ = TableColumns(numbers=tuple(used))
        encoded = table is not None and (self._by_name or not is_frame or bool(self.ignore))
        if encoded:
            assert table is not None and self.table_columns_ is not None
            X = self.table_columns_.encode(table)[0]
        checked = validate_data(
            self, X, dtype="numeric", ensure_all_finite=False, allow_nd=True, **how
        )
        if encoded and is_frame and self.table_columns_ is not None:
            self.feature_names_in_ = np.array(self.table_columns_.names, dtype=object)
        return checked

    def _records(self, X: Any) -> Array:
        """Records to ask the model about; a table's columns are found by their names."""
        table, columns = table_of(X), self.table_columns_
        is_frame = not isinstance(X, Mapping | list | tuple)
        in_order = is_frame and hasattr(self, "feature_names_in_")  # then as scikit-learn does
        found_by_name = self._by_name or bool(self.ignore) or not in_order
        if table is not None and columns is not None and found_by_name:
            return columns.rows(table)
        how = {"dtype": "numeric", "ensure_all_finite": False, "allow_nd": True}
        if columns is not None and len(columns.features) != len(columns.names):
            return np.asarray(check_array(X, **how))  # one-hot coded before
        return np.asarray(validate_data(self, X, reset=False, **how))

    def _learn(self, make_records: Callable[..., Any], domain: Domain) -> Self:
        """Plan, then train on `make_records(domain=domain)`, whose features may take minutes."""
        ledger = self.ledger
        if isinstance(ledger, str | Path):
            ledger = Ledger.open(ledger)
        method = self._method().for_domain(domain)
        records = make_records(domain=domain.with_zero_features())
        plan = make_plan(
            method,
            records.facts(epsilon=self.epsilon, delta=self.delta),
            allow_vacuous=self.allow_vacuous,
            extra_premises=preparation(self),
        )
        if outlook := plan.expectation():
            warnings.warn(outlook, LittleSignal, stacklevel=3)
        if domain.features is not None:
            with silence_diagnostics():
                records = make_records(domain=domain)
        with threads(None, numbers=plan.facts.records * max(1, plan.facts.features)):
            found = train(method, records, plan, rng=source_of(self.random_state), ledger=ledger)
        return self._keep(found, domain)

    def _keep(self, result: TrainingResult, domain: Domain) -> Self:
        self.domain_ = domain
        self.released_metrics_: dict[str, Any] | None = None
        self.model_: Model = result.model
        self.claim_: Guarantee | None = result.claim
        self.plan_: Any = result.plan
        self.ledger_entry_: Entry | None = result.entries[-1]
        self._result, self._fitted_settings = result, settings_text(self)
        return self

    @property
    def guarantee_(self) -> Guarantee:
        """What is promised; not what it seemed, where clones were fitted later and compared."""
        check_is_fitted(self)
        return self.search_history.restate(self._result.guarantee, self._fitted_settings)

    @property
    def trained_(self) -> TrainingResult:
        """The training and its guarantee, as `guarantee_` has it."""
        guarantee, result = self.guarantee_, self._result
        if guarantee == result.guarantee:
            return result
        inputs = dict(result.metadata["plan_inputs"])  # `verify` makes the statement again of them
        (stated,) = (p for p in guarantee.premises if p not in result.guarantee.premises)
        facts = inputs["facts"]
        inputs["facts"] = {**facts, "premises": [*facts["premises"], stated.to_dict()]}
        metadata = {**result.metadata, "plan_inputs": inputs}
        return replace(result, guarantee=guarantee, metadata=metadata)

    def _outputs(self, X: Array) -> NDArray[np.float64]:
        check_is_fitted(self)
        X = self._records(X)
        parts = [X[i : i + 8192] for i in range(0, len(X), 8192)]
        return np.concatenate([self.model_.outputs(self.domain_.rows(part)) for part in parts])

    def release_metrics(
        self,
        X: Any,
        y: Any,
        *,
        epsilon: float = 0.1,
        ledger: Ledger | str | Path | None = None,
    ) -> dict[str, Any]:
        """How good the model is on test records, with noise that is paid for, to be published.

        Pure `epsilon` for each person in X, who should not be in the training; charged to `ledger`
        or to one of their own. `save` puts it into the card; `random_state` decides the noise.
        """
        from privet.runs.released_metrics import MetricsRelease, answers_alone, check_unit

        check_is_fitted(self)
        account = Ledger.open(ledger) if isinstance(ledger, str | Path) else ledger
        check_unit(account, None)
        names = tuple(map(str, getattr(self, "classes_", ())))
        bounds = None if names else self._range()
        replaces = account is not None and account.adjacency is Adjacency.REPLACE_ONE
        paid = MetricsRelease(outputs=max(1, len(names)), epsilon=epsilon, replace_one=replaces)
        alone = answers_alone(self.model_, self.domain_.rows(self._records(X)))
        weights = self.decision_weights_ if names else None
        if (offsets := class_offsets(weights, names)) is not None:
            alone = alone + offsets
        found = class_numbers(np.asarray(y), self.classes_) if names else np.asarray(y)
        self.released_metrics_ = paid.release(
            alone, found, classes=names, target_bounds=bounds,
            ledger=paid.own_ledger() if account is None else account,
            rng=source_of(self.random_state).child("test metrics"),
        )  # fmt: skip
        return self.released_metrics_

    def save(self, folder: str | Path, **given: str) -> Path:
        """Write the model and what is promised for it to a folder; `privet.load` reads it.

        `given`: what only you can say for the record: purpose, curator, region, justification.
        """
        from privet.runs import Provenance, save

        check_is_fitted(self)
        return save(self, Path(folder), given=Provenance(**given))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True  # a bad record counts for nothing: failing would tell
        tags.non_deterministic = False
        return tags


@dataclass(eq=False, repr=False)
class PrivateClassifier(ClassifierMixin, PrivateEstimator):  # type: ignore[misc]
    """A classifier trained by any method under a budget.

    Settings as for `PrivateEstimator`, and three more:

    - `classes`: the public list of labels. None takes it from y, which the guarantee then marks as
      assumed public. A record with another label counts for nothing.
    - `class_weight`: what missing a class costs, {class: weight}, declared; it moves the released
      logits and costs nothing.
    - `class_prior`: the public share of each class, {class: share}, declared: classes are then
      served alike, however frequent they are, and `predict_proba` is as if they were equally so.

    **Guarantee** `guarantee_`; what a paper claims for the same settings is in `claim_`.
    """

    _: KW_ONLY
    features: Features | str | None = "auto"
    classes: Any = None
    class_weight: Any = None
    class_prior: Any = None

    def fit(self, X: Array, y: Array, groups: Array | None = None) -> Self:
        """Train on the records, spending the whole budget; `groups` names each record's user."""
        X, y = self._validate(X, y, y_numeric=False)
        check_classification_targets(y)
        self.classes_ = class_list(y if self.classes is None else self.classes)
        class_offsets(self.class_weight, self.classes_)
        records = partial(
            Records.with_classes,
            X,
            y,
            classes=self.classes_,
            declared=self.classes is not None,
            groups=groups,
            n_public=self.n_public,
            prior=class_shares(self.class_prior, self.classes_),
        )
        return self._learn(records, self._declared_domain(X.shape[1:]))

    @property
    def decision_weights_(self) -> dict[str, float] | None:
        """By what the model's probabilities are multiplied, for `predict_proba` too."""
        shares = class_shares(self.class_prior, self.classes_)
        served = self.plan_.serves_classes_alike
        return decision_weights(self.class_weight, shares, self.classes_, served=served)

    def _outputs(self, X: Array) -> NDArray[np.float64]:
        found = super()._outputs(X)
        offsets = class_offsets(self.decision_weights_, self.classes_)
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
    """A regressor trained by any method under a budget.

    Settings as for `PrivateEstimator`, and one more:

    - `target_bounds`: the declared range of y, outside of which it is clipped.
    """

    _: KW_ONLY
    features: Features | str | None = "auto"
    target_bounds: tuple[float, float] | None = None

    def fit(self, X: Array, y: Array, groups: Array | None = None) -> Self:
        """Train on the records, spending the whole budget."""
        X, y = self._validate(X, y, y_numeric=True)
        method = self._method()
        if not method.regression:
            raise InvalidArgument("method", method.name, "one that can predict numbers")
        records = partial(
            Records.with_numbers,
            X,
            y,
            target_bounds=self._range(),
            groups=groups,
            n_public=self.n_public,
        )
        return self._learn(records, self._declared_domain(X.shape[1:]))

    def predict(self, X: Array) -> Array:
        """Numbers within `target_bounds`."""
        return to_target_units(self._outputs(X), self._range())

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


Estimator = TypeVar("Estimator", bound=PrivateEstimator)


def with_settings(kind: type[Method[Any]]) -> Callable[[type[Estimator]], type[Estimator]]:
    """Gives an estimator the settings of a method as keyword arguments of its own."""

    def add(cls: type[Estimator]) -> type[Estimator]:
        add_settings(cls, kind)
        cls.__annotations__["method"] = "None"
        cls.method = dataclasses.field(default=None, init=False)

        def _method(self: Any) -> Method[Any]:
            return kind(**{f.name: getattr(self, f.name) for f in dataclasses.fields(kind)})  # type: ignore[arg-type]

        if "_method" not in cls.__dict__:
            cls._method = _method  # type: ignore[method-assign]
        return dataclass(kw_only=True, eq=False, repr=False)(cls)

    return add
