"""Published algorithms with `fit` and `predict`: plain, small, and apart from the library's own."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any, Generic, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from privet import premises
from privet.errors import InvalidArgument
from privet.guarantee import Guarantee
from privet.ledger import Entry, Ledger
from privet.noise import Source, secure, seeded

Array = NDArray[Any]
Model = TypeVar("Model")


@dataclass(frozen=True, kw_only=True)
class PublishedFacts:
    """Sizes of the data and the claimed epsilon: all that a published plan depends on."""

    records: int
    features: int
    outputs: int
    epsilon: float


@dataclass(frozen=True, kw_only=True)
class PublishedRelease(Generic[Model]):
    """A model, what its paper claims for it, what is proved, and what was charged."""

    model: Model
    claim: Guarantee | None
    guarantee: Guarantee
    entry: Entry | None = None


@dataclass(kw_only=True, eq=False)
class PublishedClassifier(ABC):
    """A published algorithm as a classifier of rows, in the manner of scikit-learn.

    - `bounds`: (low, high) of the columns, numbers or one a column; never read from the data.
    - `classes`: the list of labels; None takes it from y. Other labels are refused.
    - `ledger`: charged with what is proved; None where nothing finite is.
    - `random_state`: None draws secret noise, a number the same noise every time.

    After `fit`: `classes_`, `claim_` (what the paper states), `guarantee_` (what is proved, which
    may be nothing), `model_`.
    """

    bounds: tuple[Any, Any] = (0.0, 1.0)
    classes: Any = None
    ledger: Ledger | None = None
    random_state: int | Source | None = None

    def fit(self, X: Array, y: Array) -> Self:
        """Run the algorithm on these records."""
        self.classes_ = np.unique(np.asarray(y if self.classes is None else self.classes))
        numbers = np.searchsorted(self.classes_, y).clip(0, len(self.classes_) - 1)
        wrong = self.classes_[numbers] != np.asarray(y)
        if wrong.any():
            label = np.asarray(y)[wrong][0]
            raise InvalidArgument("y", label, f"labels among {self.classes_.tolist()}")
        rng = self._source()
        release = self._release(self._rows(X), numbers.astype(np.int64), rng)
        self.model_, self.entry_ = release.model, release.entry
        self.claim_, self.guarantee_ = release.claim, _by(rng, release.guarantee)
        return self

    def _source(self) -> Source:
        if self.random_state is None:
            return secure()
        given = self.random_state
        return given if isinstance(given, Source) else seeded(given)

    @abstractmethod
    def _release(
        self, rows: Array, labels: NDArray[np.int64], rng: Source
    ) -> PublishedRelease[Any]:
        """The algorithm, on rows in [0, 1] and class numbers."""

    @abstractmethod
    def _logits(self, rows: Array) -> NDArray[np.float64]:
        """One row a record, one column a class."""

    def _facts(self, rows: Array, epsilon: float) -> PublishedFacts:
        return PublishedFacts(
            records=len(rows), features=rows.shape[1], outputs=len(self.classes_), epsilon=epsilon
        )

    def _rows(self, X: Array) -> Array:
        """Flat rows, columns scaled to [0, 1]; a record that is not finite is zero."""
        flat = np.asarray(X, dtype=np.float64).reshape(len(X), -1)
        try:
            low, high = (np.broadcast_to(np.asarray(b, float), flat.shape[1:]) for b in self.bounds)
        except (TypeError, ValueError):
            raise InvalidArgument("bounds", self.bounds, "a pair (low, high)") from None
        good = np.isfinite(flat).all(axis=1, keepdims=True)
        inside = (np.clip(np.where(good, flat, low), low, high) - low) / (high - low)
        return np.asarray(np.where(good, inside, 0.0), dtype=np.float32)

    def predict_proba(self, X: Array) -> NDArray[np.float64]:
        """Probabilities of the classes: softmax of the logits."""
        z = self._logits(self._rows(X))
        p = np.exp(z - z.max(axis=1, keepdims=True))
        return np.asarray(p / p.sum(axis=1, keepdims=True))

    def predict(self, X: Array) -> Array:
        """The most probable class of each row."""
        return np.asarray(self.classes_[self.predict_proba(X).argmax(axis=1)])

    def score(self, X: Array, y: Array) -> float:
        """The share of rows whose label is predicted."""
        return float((self.predict(X) == np.asarray(y)).mean())


def _by(rng: Source, guarantee: Guarantee) -> Guarantee:
    """The same guarantee with noise of `rng`, which states itself who knows its key."""
    key = {premises.SECRET_KEY: rng.premise}
    return replace(guarantee, premises=tuple(key.get(p, p) for p in guarantee.premises))
