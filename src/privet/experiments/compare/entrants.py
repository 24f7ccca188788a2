"""The methods that are compared, and the main baselines of their papers: one line each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, final

from privet.audit import Finding
from privet.experiments.compare import makers
from privet.experiments.compare.bench import Bench, View
from privet.experiments.compare.relevance import Relevance, of_network, of_rule
from privet.guarantee import Adjacency, Protects, Unit
from privet.ledger import Ledger
from privet.noise import seeded
from privet.papers.adaptive_laplace.audit import audit_record
from privet.papers.autoencoder.audit import audit_output_layer

Make = Callable[[Bench, int, Ledger | None], Any]
"""A bench, a seed and a ledger to an estimator with fit, predict and predict_proba."""

Audit = Callable[[Any, Bench, int], Finding]
"""An estimator before `fit`, the bench and a seed to what an attack on it found."""


class System:
    """The five systems, and what else takes part."""

    LIMIT = "not private"
    DPSGD = "DP-SGD"
    ADAPTIVE = "adaptive Laplace"
    PATE = "PATE"
    RESIDUAL = "residual perturbation"
    AUTOENCODER = "deep private auto-encoder"
    REGRESSION = "private regression"


@final
@dataclass(frozen=True, kw_only=True)
class Entrant:
    """A method as it enters a comparison."""

    name: str
    system: str
    """Which of the five systems it belongs to, or what it is there for."""
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
    relevance: Relevance | None = None
    """How its released model weighs inputs; None: not shown."""


def _audit_adaptive(model: Any, bench: Bench, seed: int) -> Finding:
    """The likelihood ratio of one released record against the whole claim."""
    model.fit(*bench.train(View.COLUMNS))
    plan, rng = model.plan_, seeded(seed).child("audit")
    finding = audit_record(
        epsilon=plan.epsilons[1], features=plan.facts.features, h0=plan.h0, trials=20_000, rng=rng,
    )  # fmt: skip
    return replace(finding, claimed=model.claim_.epsilon, proved=model.guarantee_.epsilon)


def _audit_autoencoder(model: Any, bench: Bench, seed: int) -> Finding:
    """The output layer's coefficients on the two neighbours that its min-max layer tells apart."""
    rng = seeded(seed).child("audit")
    return audit_output_layer(epsilon=bench.epsilon, trials=20_000, rng=rng)


LIMIT = Entrant(
    name="not private",
    system=System.LIMIT,
    make=makers.limit,
    sees=View.FEATURES,
    promises=False,
    charged=False,
)

_unproved = partial(Entrant, promises=False, charged=False)
_dpsgd = partial(Entrant, system=System.DPSGD)
_adaptive = partial(Entrant, system=System.ADAPTIVE)
_pate = partial(
    Entrant,
    system=System.PATE,
    sees=View.FEATURES,
    adjacency=Adjacency.REPLACE_ONE,
    unit=Unit.SHARD,
)
_residual = partial(Entrant, system=System.RESIDUAL)
_noisy = partial(_residual, adjacency=Adjacency.REPLACE_ONE, protects=Protects.FEATURES)
_autoencoder = partial(Entrant, system=System.AUTOENCODER)
_regression = partial(Entrant, system=System.REGRESSION, sees=View.FEW)

ENTRANTS: tuple[Entrant, ...] = (
    LIMIT,
    _unproved(name="plain network", make=makers.network, system=System.LIMIT),
    _dpsgd(name="dpsgd", make=makers.dpsgd, sees=View.FEATURES),
    _dpsgd(name="dpsgd network", make=makers.dpsgd_network),
    _adaptive(name="adaptive-laplace", make=makers.adaptive, sees=View.FEATURES, relevance=of_rule),
    _adaptive(name="identical noise", make=makers.identical, sees=View.FEATURES),
    _adaptive(name="adaptive-laplace network", make=makers.adaptive_network, relevance=of_network),
    _adaptive(
        name="adaptive-laplace as published",
        make=makers.adaptive_published,
        charged=False,
        audit=_audit_adaptive,
    ),
    _adaptive(
        name="identical noise as published",
        make=makers.identical_published,
        adjacency=Adjacency.REPLACE_ONE,
        audit=_audit_adaptive,
    ),
    _pate(name="pate", make=makers.pate),
    _pate(name="pate by votes", make=makers.pate_by_votes),
    _residual(name="residual", make=makers.residual),
    _residual(name="residual ensemble", make=makers.residual_ensemble),
    _noisy(name="residual as published", make=makers.residual_published),
    _noisy(name="residual ensemble as published", make=makers.residual_ensemble_published),
    _unproved(name="residual II as published", make=makers.strategy_two, system=System.RESIDUAL),
    _autoencoder(name="autoencoder", make=makers.autoencoder, sees=View.FEATURES),
    _autoencoder(
        name="autoencoder as published",
        make=makers.autoencoder_published,
        charged=False,
        audit=_audit_autoencoder,
    ),
    _unproved(
        name="autoencoder without noise",
        make=makers.autoencoder_without_noise,
        system=System.AUTOENCODER,
        sees=View.FEATURES,
    ),
    _regression(name="functional mechanism", make=makers.functional),
    _regression(name="functional mechanism as published", make=makers.functional_published),
    _regression(name="histogram (DPME)", make=makers.histogram),
    _regression(name="filter-priority (FP)", make=makers.filter_priority),
)
