"""What takes part in a comparison: every method of the catalogue, and whatever is passed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, final

from privet.audit import Finding
from privet.compare.bench import Bench, View
from privet.compare.relevance import Relevance, relevance_of
from privet.estimators import PrivateClassifier
from privet.guarantee import Adjacency, Protects, Unit
from privet.ledger import Ledger
from privet.methods.catalogue import method_names, method_type
from privet.methods.contract import Front, Method
from privet.methods.replay import audit_method, small_facts
from privet.noise import seeded

Make = Callable[[Bench, int, Ledger | None], Any]
"""A bench, a seed and a ledger to an estimator with fit, predict and predict_proba."""

Audit = Callable[[Any, Bench, int], Finding]
"""An estimator before `fit`, the bench and a seed to what an attack on it found."""


@final
@dataclass(frozen=True, kw_only=True)
class Entrant:
    """A method, or a baseline, as it enters a comparison."""

    name: str
    system: str
    """What it belongs to, or what it is there for."""
    make: Make
    sees: View = View.COLUMNS
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
    calibrated_by: Entrant | None = None
    """Whose reference models serve its membership attacks; None: models of its own recipe."""
    relevance: Relevance | None = None
    """How its released model weighs inputs; None: not shown."""


def method_entrant(
    kind: type[Method[Any]],
    *,
    name: str | None = None,
    epsilon: float | None = None,
    calibrated_by: Entrant | None = None,
    **settings: Any,
) -> Entrant:
    """A method of the contract: its settings by its own rules, and `settings` on top.

    `epsilon` overrides that of the comparison, for a row without noise: nothing is promised then.
    """
    sees = View.RECORDS if kind.front is Front.PLAIN else View.FEATURES

    def make(bench: Bench, seed: int, ledger: Ledger | None) -> PrivateClassifier:
        told = kind.quick(bench.facts) | settings
        if kind.questions is not None:
            told[kind.questions] = bench.public(sees)
        return PrivateClassifier(
            kind(**told),
            epsilon=bench.epsilon if epsilon is None else epsilon,
            delta=bench.delta,
            classes=bench.classes,
            bounds=bench.bounds(sees),
            n_public=bench.records,
            random_state=seed,
            ledger=None if epsilon is not None else ledger,
        )

    def audit(model: PrivateClassifier, bench: Bench, seed: int) -> Finding:
        facts = small_facts(small, epsilon=bench.epsilon, delta=bench.delta)
        return audit_method(small, facts, rng=seeded(seed).child("audit"))

    least: Any = kind.small()
    small: Method[Any] = replace(least, **settings)
    plan = small.plan(small_facts(small))
    return Entrant(
        name=name or kind.name,
        system=kind.system,
        make=make,
        sees=sees,
        promises=epsilon is None,
        charged=epsilon is None,
        adjacency=plan.relation,
        unit=plan.unit,
        protects=plan.protects,
        audit=audit,
        calibrated_by=calibrated_by,
        relevance=relevance_of if kind.shows_relevance else None,
    )


def own_entrants() -> tuple[Entrant, ...]:
    """Every method of the catalogue that takes part."""
    return _entrants(tuple(method_type(name) for name in method_names()))


@cache
def _entrants(kinds: tuple[type[Method[Any]], ...]) -> tuple[Entrant, ...]:
    """Each is planned to know what it promises, which takes a while."""
    return tuple(method_entrant(kind) for kind in kinds if kind.compared)


def _limit(bench: Bench, seed: int, ledger: Ledger | None) -> Any:
    """Logistic regression."""
    from sklearn.linear_model import LogisticRegression

    return LogisticRegression(C=10.0, max_iter=300, random_state=seed)


LIMIT = Entrant(
    name="not private",
    system="not private",
    make=_limit,
    sees=View.FEATURES,
    promises=False,
    charged=False,
)
