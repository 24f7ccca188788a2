"""PATE as a scikit-learn classifier: records are dealt to teachers, a student is what remains."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.linear_model import LogisticRegression
from sklearn.utils.validation import check_is_fitted, validate_data

from privet import _check
from privet.errors import InvalidArgument
from privet.guarantee import Guarantee
from privet.ledger import Entry, Ledger
from privet.methods.base import class_numbers, source_of
from privet.methods.pate.learners import as_learner
from privet.methods.pate.method import PATE
from privet.methods.pate.reducers import IdentityReducer
from privet.noise import Source

Array = NDArray[Any]


class PATEClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A student taught by noisy means of class probabilities of many teachers.

    - `public_inputs`: rows without labels that depend on no private record; the student learns
      from these alone.
    - `epsilon`, `delta`: the budget, all of it spent on answers to `public_inputs`.
    - `classes`: the public list of labels; `bounds`: (low, high) of every column, declared.
    - `n_teachers`: how many; record i goes to teacher i mod `n_teachers`, unless `fit` is told.
    - `teacher`, `student`: scikit-learn classifiers (logistic regression unless told).
    - `reading`: "sound", or "published" for the paper's noise and claim.
    - `backend`, `workers`: joblib's, for teachers.
    - `ledger`: replace-one, per teacher shard (`shard_ledger`); charged once before noise is drawn.
    - `random_state`: None draws secret noise; a number the same noise every time (experiments).

    **Guarantee** `guarantee_`: replace-one, per teacher shard. All records of one teacher may
    change, so one *replaced* record is covered too. One record more or less is not: it would move
    the others to other teachers, unless shards are given by name.

    **Assumes** that `public_inputs` are public and settings were not tuned on these records.

    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(size=(2000, 2)); y = (X[:, 0] > X[:, 1]).astype(int)
    >>> clf = PATEClassifier(public_inputs=rng.uniform(size=(40, 2)), classes=[0, 1],
    ...                      bounds=(0.0, 1.0), epsilon=4.0, random_state=0).fit(X, y)
    >>> clf.score(X, y) > 0.9, str(clf.guarantee_)
    (True, '(4, 1e-05)-DP per teacher shard, replace-one, proved')
    """

    guarantee_: Guarantee
    claim_: Guarantee | None
    ledger_entry_: Entry | None

    def __init__(
        self,
        *,
        public_inputs: Any = None,
        epsilon: float = 1.0,
        delta: float = 1e-5,
        classes: Any = None,
        bounds: tuple[Any, Any] = (0.0, 1.0),
        n_teachers: int = 50,
        teacher: Any = None,
        student: Any = None,
        reading: str = "sound",
        backend: str = "loky",
        workers: int = 1,
        ledger: Ledger | None = None,
        random_state: int | Source | None = None,
    ) -> None:
        self.public_inputs = public_inputs
        self.epsilon = epsilon
        self.delta = delta
        self.classes = classes
        self.bounds = bounds
        self.n_teachers = n_teachers
        self.teacher = teacher
        self.student = student
        self.reading = reading
        self.backend = backend
        self.workers = workers
        self.ledger = ledger
        self.random_state = random_state

    def fit(self, X: Array, y: Array, shards: Any = None) -> Self:
        """Train teachers and a student; `shards` names the teacher (such as a hospital) of each
        record."""
        if self.public_inputs is None:
            raise InvalidArgument(
                "public_inputs", None, "rows without labels", "the student learns from these alone"
            )
        if self.classes is None:
            raise InvalidArgument("classes", self.classes, "the public list of labels")
        X, y = validate_data(
            self, X, y, dtype="numeric", ensure_all_finite=False, allow_nd=True, y_numeric=False
        )
        classes, number = class_numbers(y, self.classes)
        rows, public = self._rows(X), self._rows(np.asarray(self.public_inputs))
        logistic = LogisticRegression(C=10.0)
        count = len(classes)
        pate = PATE(
            teachers=as_learner(self.teacher or logistic, classes=count),
            student=as_learner(self.student or logistic, classes=count),
            reducer=IdentityReducer(shape=(count,)),
            epsilon=_check.positive("epsilon", self.epsilon),
            delta=self.delta,
            ledger=self.ledger,
            reading=self.reading,
            backend=self.backend,
            workers=self.workers,
        )
        # a record with a label that is no class is left out of its shard
        members = [own & (number >= 0) for own in self._dealt(len(X), shards)]
        dealt = [(rows[own], number[own]) for own in members]
        release = pate.fit(dealt, public, rng=source_of(self.random_state))
        self.classes_ = classes
        self.guarantee_ = release.guarantee
        self.claim_ = release.claim
        self.ledger_entry_ = release.entry
        self.model_ = release.model
        return self

    def predict_proba(self, X: Array) -> Array:
        """Probabilities of the classes."""
        check_is_fitted(self)
        X = validate_data(
            self, X, reset=False, dtype="numeric", ensure_all_finite=False, allow_nd=True
        )
        return np.asarray(self.model_.predict(self._rows(X)))

    def predict(self, X: Array) -> Array:
        """The most probable class of each row."""
        best = self.predict_proba(X).argmax(axis=1)
        return np.asarray(self.classes_[best])

    def _rows(self, X: Array) -> Array:
        """Columns scaled to [0, 1] by their declared bounds; a row that is not finite is zero."""
        flat = np.asarray(X, dtype=np.float64).reshape(len(X), -1)
        low, high = (np.asarray(b, dtype=np.float64).ravel() for b in self.bounds)
        if not (np.isfinite(low).all() and np.isfinite(high).all() and (low < high).all()):
            raise InvalidArgument("bounds", self.bounds, "two finite numbers (or lists), low first")
        good = np.isfinite(flat).all(axis=1, keepdims=True)
        scaled = (np.clip(np.where(good, flat, low), low, high) - low) / (high - low)
        return np.asarray(np.where(good, scaled, 0.0))

    def _dealt(self, records: int, shards: Any) -> list[NDArray[np.bool_]]:
        count = _check.count("n_teachers", self.n_teachers)
        if shards is None:
            number = np.arange(records) % count
            return [number == k for k in range(count)]
        names = np.asarray(shards)
        if names.shape != (records,):
            raise InvalidArgument("shards", names.shape, f"one name for each of {records} records")
        if len(different := np.unique(names)) != count:
            raise InvalidArgument(
                "n_teachers", count, f"{len(different)}, the number of different shards"
            )
        return [names == name for name in different]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True  # a bad row counts as zero: failing would tell about it
        tags.classifier_tags.poor_score = True
        tags.non_deterministic = False
        return tags
