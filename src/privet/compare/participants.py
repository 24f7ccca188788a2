"""What takes part in a comparison: every method of the catalogue, and whatever is passed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Self, final

import numpy as np
from numpy.typing import NDArray

from privet.audit import Finding
from privet.compare.comparison_data import ComparisonData, View
from privet.compare.relevance_maps import Relevance, relevance_of
from privet.estimators import PrivateClassifier
from privet.guarantee import Adjacency, Protects, Unit
from privet.ledger import Ledger
from privet.methods.catalogue import method_names, method_type
from privet.methods.contract import InputFeatures, Method
from privet.methods.neighbour_replay import audit_method, small_facts
from privet.noise import seeded

Make = Callable[[ComparisonData, int, Ledger | None], Any]
"""Data, a seed and a ledger to an estimator with fit, predict and predict_proba."""

Audit = Callable[[Any, ComparisonData, int], Finding]
"""An estimator before `fit`, the data and a seed to what an attack on it found."""


@final
@dataclass(frozen=True, kw_only=True)
class Participant:
    """A method, or a baseline, as it enters a comparison."""

    name: str
    system: str
    """What it belongs to, or what it is there for."""
    make: Make
    view: View = View.COLUMNS
    """How it sees the records."""
    promises: bool = True
    """Whether something is proved or claimed of it, so that there is something to audit."""
    charged: bool = True
    """Whether a finite cost is proved, which a ledger can be charged with."""
    adjacency: Adjacency = Adjacency.ADD_REMOVE
    """Of its promise, and so of the canaries that test it."""
    unit: Unit = Unit.RECORD
    protects: Protects = Protects.RECORD
    audit: Audit | None = None
    """An audit of its own; None: mislabelled canaries in one training run."""
    calibrated_by: Participant | None = None
    """Whose reference models serve its membership attacks; None: models of its own recipe."""
    relevance: Relevance | None = None
    """How its released model weighs inputs; None: not shown."""


def method_participant(
    kind: type[Method[Any]],
    *,
    name: str | None = None,
    epsilon: float | None = None,
    calibrated_by: Participant | None = None,
    **settings: Any,
) -> Participant:
    """A method of the contract: its settings by its own rules, and `settings` on top.

    `epsilon` overrides that of the comparison, for a row without noise: nothing is promised then.
    """
    view = View.RECORDS if kind.input_features is InputFeatures.NONE else View.FEATURES

    def make(data: ComparisonData, seed: int, ledger: Ledger | None) -> PrivateClassifier:
        settings_here = kind.quick_settings(data.facts) | settings
        if kind.public_inputs_field is not None:
            settings_here[kind.public_inputs_field] = data.public(view)
        return PrivateClassifier(
            kind(**settings_here),
            epsilon=data.epsilon if epsilon is None else epsilon,
            delta=data.delta,
            classes=data.classes,
            bounds=data.bounds(view),
            n_public=data.records,
            random_state=seed,
            ledger=None if epsilon is not None else ledger,
        )

    def audit(model: PrivateClassifier, data: ComparisonData, seed: int) -> Finding:
        facts = small_facts(small, epsilon=data.epsilon, delta=data.delta)
        return audit_method(small, facts, rng=seeded(seed).child("audit"))

    least: Any = kind.for_audit()
    small: Method[Any] = replace(least, **settings)
    plan = small.plan(small_facts(small))
    return Participant(
        name=name or kind.name,
        system=kind.system,
        make=make,
        view=view,
        promises=epsilon is None,
        charged=epsilon is None,
        adjacency=plan.stated_adjacency,
        unit=plan.unit,
        protects=plan.protects,
        audit=audit,
        calibrated_by=calibrated_by,
        relevance=relevance_of if kind.shows_relevance else None,
    )


def catalogue_participants() -> tuple[Participant, ...]:
    """Every method of the catalogue that takes part."""
    return _participants(tuple(method_type(name) for name in method_names()))


@cache
def _participants(kinds: tuple[type[Method[Any]], ...]) -> tuple[Participant, ...]:
    """The participants of the catalogue, made once: planning each takes a while."""
    return tuple(method_participant(kind) for kind in kinds if kind.in_comparison)


@final
class _LogisticRegression:
    """The non-private limit; a class without a training record in a split has chance 0 there."""

    def __init__(self, classes: int, seed: int) -> None:
        self.classes, self.seed = classes, seed

    def fit(self, x: NDArray[Any], y: NDArray[Any]) -> Self:
        """Train on all of them."""
        from sklearn.linear_model import LogisticRegression

        self.model = LogisticRegression(C=10.0, max_iter=300, random_state=self.seed).fit(x, y)
        return self

    def predict(self, x: NDArray[Any]) -> NDArray[Any]:
        """The most probable class."""
        return np.asarray(self.model.predict(x))

    def predict_proba(self, x: NDArray[Any]) -> NDArray[Any]:
        """A column for each declared class."""
        chances = np.zeros((len(x), self.classes))
        chances[:, self.model.classes_] = self.model.predict_proba(x)
        return chances


def _limit(data: ComparisonData, seed: int, ledger: Ledger | None) -> Any:
    return _LogisticRegression(data.dataset.n_classes, seed)


LIMIT = Participant(
    name="not private",
    system="not private",
    make=_limit,
    view=View.FEATURES,
    promises=False,
    charged=False,
)
