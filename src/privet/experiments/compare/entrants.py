"""The methods that are compared: one line each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, final

from privet.audit import Finding
from privet.experiments.adaptive_laplace.audit import audit_record
from privet.experiments.autoencoder.audit import audit_output_layer
from privet.experiments.compare.bench import Bench
from privet.guarantee import Adjacency, Unit
from privet.ledger import Ledger
from privet.methods.adaptive_laplace import AdaptiveLaplaceClassifier
from privet.methods.autoencoder import PrivateAutoencoderClassifier
from privet.methods.dpsgd.estimator import DPSGDClassifier
from privet.methods.pate import PATEClassifier
from privet.methods.residual import ResidualPerturbationClassifier
from privet.noise import seeded

Make = Callable[[Bench, int, Ledger | None], Any]
"""A bench, a seed and a ledger to an estimator with fit, predict and predict_proba."""

Audit = Callable[[Any, Bench, int], Finding]
"""A fitted estimator, the bench and a seed to what an attack on it found."""


@final
@dataclass(frozen=True, kw_only=True)
class Entrant:
    """A method as it enters a comparison."""

    name: str
    system: str
    """Which of the five systems it belongs to, or what it is there for."""
    make: Make
    private: bool = True
    adjacency: Adjacency = Adjacency.ADD_REMOVE
    """Of its promise, and so of the canaries that test it."""
    unit: Unit = Unit.RECORD
    audit: Audit | None = None
    """An audit of its own; None: mislabelled canaries in one training run."""


def _limit(bench: Bench, seed: int, ledger: Ledger | None) -> Any:
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import FunctionTransformer

    front = bench.front
    features = FunctionTransformer(None if front is None else front.transform)
    return make_pipeline(features, LogisticRegression(C=10.0, max_iter=300, random_state=seed))


def _public(bench: Bench) -> dict[str, Any]:
    """What every method is told: the classes and the range of every column."""
    return {"classes": bench.classes, "bounds": (0.0, 1.0)}


def _common(bench: Bench, seed: int, ledger: Ledger | None) -> dict[str, Any]:
    budget = {"epsilon": bench.epsilon, "delta": bench.delta}
    return _public(bench) | budget | {"random_state": seed, "ledger": ledger}


def _dpsgd(bench: Bench, seed: int, ledger: Ledger | None) -> Any:
    n = len(bench.dataset.y_train)
    return DPSGDClassifier(**_common(bench, seed, ledger), features=bench.front, n_public=n)


def _adaptive(bench: Bench, seed: int, ledger: Ledger | None) -> Any:
    n = len(bench.dataset.y_train)
    common = _common(bench, seed, ledger)
    return AdaptiveLaplaceClassifier(**common, features=bench.front, n_public=n)


def _adaptive_published(bench: Bench, seed: int, ledger: Ledger | None) -> Any:
    return AdaptiveLaplaceClassifier(**_common(bench, seed, None), reading="published")


def _audit_adaptive(model: Any, bench: Bench, seed: int) -> Finding:
    """The likelihood ratio of one released record against the whole claim."""
    plan, rng = model.plan_, seeded(seed).child("audit")
    finding = audit_record(
        epsilon=plan.epsilons[1], features=plan.facts.features, h0=plan.h0, trials=20_000, rng=rng,
    )  # fmt: skip
    return replace(finding, claimed=model.claim_.epsilon, proved=model.guarantee_.epsilon)


def _pate(bench: Bench, seed: int, ledger: Ledger | None) -> Any:
    return PATEClassifier(**_common(bench, seed, ledger), public_inputs=bench.public())


def _residual(bench: Bench, seed: int, ledger: Ledger | None) -> Any:
    n = len(bench.dataset.y_train)
    common = _common(bench, seed, ledger)
    return ResidualPerturbationClassifier(**common, shape=bench.shape, n_public=n)


def _residual_published(bench: Bench, seed: int, ledger: Ledger | None) -> Any:
    common = _common(bench, seed, None)
    return ResidualPerturbationClassifier(**common, reading="published", shape=bench.shape)


def _autoencoder(bench: Bench, seed: int, ledger: Ledger | None) -> Any:
    n = len(bench.dataset.y_train)
    return PrivateAutoencoderClassifier(**_common(bench, seed, ledger), n_public=n)


def _autoencoder_published(bench: Bench, seed: int, ledger: Ledger | None) -> Any:
    return PrivateAutoencoderClassifier(**_common(bench, seed, None), reading="published")


def _audit_autoencoder(model: Any, bench: Bench, seed: int) -> Finding:
    """The output layer's coefficients on the two neighbours that its min-max layer tells apart."""
    rng = seeded(seed).child("audit")
    return audit_output_layer(epsilon=bench.epsilon, trials=20_000, rng=rng)


LIMIT = Entrant(name="not private", system="the limit", make=_limit, private=False)
ENTRANTS = (
    LIMIT,
    Entrant(name="dpsgd", system="DP-SGD", make=_dpsgd),
    Entrant(name="adaptive-laplace", system="adaptive Laplace", make=_adaptive),
    Entrant(
        name="adaptive-laplace as published",
        system="adaptive Laplace",
        make=_adaptive_published,
        audit=_audit_adaptive,
    ),
    Entrant(
        name="pate",
        system="PATE",
        make=_pate,
        adjacency=Adjacency.REPLACE_ONE,
        unit=Unit.SHARD,
    ),
    Entrant(name="residual", system="residual perturbation", make=_residual),
    Entrant(
        name="residual as published",
        system="residual perturbation",
        make=_residual_published,
        adjacency=Adjacency.REPLACE_ONE,
    ),
    Entrant(name="autoencoder", system="deep private auto-encoder", make=_autoencoder),
    Entrant(
        name="autoencoder as published",
        system="deep private auto-encoder",
        make=_autoencoder_published,
        audit=_audit_autoencoder,
    ),
)
