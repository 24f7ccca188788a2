"""What the papers compare their methods with, as rows of a comparison: baselines are objects.

Published algorithms, the regressions, variants of our methods, and networks without privacy. All
settings come from public facts.

Quick settings: what a picture costs a network is bounded by `PASSES`, so that 60,000 of them are
compared within half an hour on two cores.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from privet.audit import Finding
from privet.audit.released import Run, audit_releases
from privet.compare import LIMIT, Bench, Entrant, View, method_entrant
from privet.compare.bench import FEW
from privet.compare.entrants import Make
from privet.guarantee import Adjacency, Protects
from privet.ledger import Ledger
from privet.methods.adaptive_laplace import OneShotMoments
from privet.methods.autoencoder import AutoencoderStack
from privet.methods.replay import TRIALS
from privet.methods.residual import NoisyInputs
from privet.methods.residual.training import Training
from privet.nets.residual import DenseResidual, Perturbation, Pictures, Strategy
from privet.noise import seeded
from privet.papers.adaptive_laplace import PublishedAdLM, PublishedILM
from privet.papers.adaptive_laplace.audit import audit_record
from privet.papers.autoencoder import PublishedDPA
from privet.papers.autoencoder.audit import audit_output_layer
from privet.papers.autoencoder.compared import (
    FilterPriority,
    FunctionalMechanism,
    PerturbedHistogram,
)
from privet.papers.baselines import Network, OneAgainstRest
from privet.papers.residual import PublishedResidual

if TYPE_CHECKING:
    from privet.methods.autoencoder.behaviour import BehaviourModel

PASSES = 60_000
"""So many pictures a residual network is shown in training, the same one counted again."""
EPOCHS = 20
"""The most often that a residual network is shown the same record."""
LOUD = 1e3
"""A budget, or a factor, at which every release is told apart."""
NO_NOISE = 1e6
"""An epsilon at which noise no longer matters."""


def _published(bench: Bench, seed: int, ledger: Ledger | None) -> dict[str, Any]:
    """What every published algorithm is told; its epsilon is its own matter."""
    return {"classes": bench.classes, "ledger": ledger, "random_state": seed}


def network(bench: Bench, seed: int, ledger: Ledger | None) -> Any:
    """A residual network, trained as usual."""
    return _trained_as_usual(bench, seed, Perturbation())


def strategy_two(bench: Bench, seed: int, ledger: Ledger | None) -> Any:
    """The same with multiplicative noise in its blocks.

    Theorem 2 speaks of one answer of a network whose mappings are bounded: nothing bounds them
    here, as nothing does in the paper, so it states no epsilon.
    """
    told = _published(bench, seed, None) | _shown(bench)
    return PublishedResidual(strategy=Strategy.MULTIPLICATIVE, **told)


def _trained_as_usual(bench: Bench, seed: int, law: Perturbation) -> Network:
    features, classes = bench.dataset.n_features, bench.dataset.n_classes
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        net: nn.Module
        if bench.shape is None:
            net = DenseResidual(features=features, classes=classes, perturbation=law)
        else:
            net = Pictures(shape=bench.shape, classes=classes, depth=8, perturbation=law)
    return Network(net, training=Training(epochs=_epochs(bench), learning_rate=0.02, seed=seed))


def _epochs(bench: Bench) -> int:
    return EPOCHS if bench.shape is None else max(1, min(EPOCHS, PASSES // bench.records))


def _members(bench: Bench) -> int:
    return 5 if bench.shape is None else 2


def adaptive_published(bench: Bench, seed: int, ledger: Ledger | None) -> Any:
    """Algorithm 1 (AdLM)."""
    return PublishedAdLM(epsilon=bench.epsilon, **_published(bench, seed, ledger))


def identical_published(bench: Bench, seed: int, ledger: Ledger | None) -> Any:
    """ILM."""
    return PublishedILM(epsilon=bench.epsilon, **_published(bench, seed, ledger))


def residual_published(bench: Bench, seed: int, ledger: Ledger | None) -> Any:
    """Strategy I: noise in inputs and blocks, new at every epoch."""
    told = _published(bench, seed, ledger) | _shown(bench)
    return PublishedResidual(delta=bench.delta, **told)


def residual_ensemble_published(bench: Bench, seed: int, ledger: Ledger | None) -> Any:
    """En_k, each member with noise of its own."""
    return replace(residual_published(bench, seed, ledger), members=_members(bench))


def _shown(bench: Bench) -> dict[str, Any]:
    return {"shape": bench.shape, "epochs": _epochs(bench)}


def autoencoder_published(bench: Bench, seed: int, ledger: Ledger | None) -> Any:
    """Algorithm 1, which draws noise for every column and pair of units."""
    units = 200 if bench.dataset.n_features <= 1000 else 50
    told = _published(bench, seed, ledger)
    return PublishedDPA(epsilon=bench.epsilon, layers=(units,), **told)


def functional(bench: Bench, seed: int, ledger: Ledger | None) -> Any:
    """The functional mechanism with the sensitivity that its coefficients have."""
    return _regression(bench, seed, ledger, partial(FunctionalMechanism, tight=True))


def functional_published(bench: Bench, seed: int, ledger: Ledger | None) -> Any:
    """The functional mechanism with the paper's sensitivity."""
    return _regression(bench, seed, ledger, FunctionalMechanism)


def histogram(bench: Bench, seed: int, ledger: Ledger | None) -> Any:
    """DPME."""
    return _regression(bench, seed, ledger, PerturbedHistogram)


def filter_priority(bench: Bench, seed: int, ledger: Ledger | None) -> Any:
    """FP."""
    return _regression(bench, seed, ledger, FilterPriority)


def _regression(
    bench: Bench, seed: int, ledger: Ledger | None, kind: Callable[..., BehaviourModel]
) -> OneAgainstRest:
    """A private regression of each class against the rest, on few columns."""
    return OneAgainstRest(
        kind,
        records=bench.records,
        classes=bench.dataset.n_classes,
        epsilon=bench.epsilon,
        ledger=ledger,
        seed=seed,
    )


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


def _pair_of_rows(bench: Bench) -> tuple[Any, Any]:
    """A row in the corner of few columns, and none: eight records or seven."""
    columns = min(FEW, bench.dataset.n_features)
    x, y = np.zeros((8, columns), dtype=np.float32), np.zeros(8, dtype=np.int64)
    x[0] = 1.0
    return (x, y), (x[1:], y[1:])


def _opposite_rows(bench: Bench) -> tuple[Any, Any]:
    """A record in one corner of the cube, or in the opposite one."""
    shape = bench.shape or (bench.dataset.n_features,)
    x, y = np.full((4, *shape), 0.5, dtype=np.float32), np.zeros(4, dtype=np.int64)
    x[0] = 1.0
    other = x.copy()
    other[0] = 0.0
    return (x, y), (other, y)


def _without_budget(make: Make) -> Make:
    return lambda bench, seed, ledger: make(replace(bench, epsilon=LOUD), seed, ledger)


def _still(make: Make) -> Make:
    def made(bench: Bench, seed: int, ledger: Ledger | None) -> Any:
        model = make(bench, seed, ledger)
        return replace(model, input_noise=0.5 * model.gamma / LOUD)

    return made


def audit_fits(
    make: Make, pair: Callable[[Bench], tuple[Any, Any]], without_noise: Make, *, trials: int
) -> Callable[[Any, Bench, int], Finding]:
    """An audit of all that `fit` releases, on a pair of data sets."""

    def audit(model: Any, bench: Bench, seed: int) -> Finding:
        present, absent = pair(bench)

        def runs(of: Make) -> Run:
            return lambda inside, rng: of(bench, int(rng.integers(2**20, 1)[0]), None).fit(
                *(present if inside else absent)
            )

        stated = make(bench, seed, None).fit(*present)
        claim, proof = stated.claim_, stated.guarantee_
        return audit_releases(
            runs(make),
            without_noise=runs(without_noise),
            what="all that it releases",
            claimed=None if claim is None else claim.epsilon,
            proved=proof.epsilon,
            delta=proof.delta,
            adjacency=proof.adjacency,
            trials=trials,
            rng=seeded(seed).child("audit"),
        )

    return audit


def _noisy(name: str, make: Make, *, calibrated_by: Entrant | None = None) -> Entrant:
    return Entrant(
        name=name,
        make=make,
        system=NoisyInputs.system,
        adjacency=Adjacency.REPLACE_ONE,
        protects=Protects.FEATURES,
        audit=audit_fits(make, _opposite_rows, _still(make), trials=TRIALS),
        calibrated_by=calibrated_by,
    )


def _compared_regression(name: str, make: Make) -> Entrant:
    return Entrant(
        name=name,
        make=make,
        system="private regression",
        sees=View.FEW,
        audit=audit_fits(make, _pair_of_rows, _without_budget(make), trials=30),
    )


_unproved = partial(Entrant, promises=False, charged=False)
_ONE_MEMBER = _noisy(name="residual as published", make=residual_published)
ENTRANTS: tuple[Entrant, ...] = (
    _unproved(name="plain network", make=network, system="not private"),
    method_entrant(OneShotMoments, name="identical noise", exponent=0.0),
    Entrant(
        name="adaptive-laplace as published",
        system=OneShotMoments.system,
        make=adaptive_published,
        charged=False,
        audit=_audit_adaptive,
    ),
    Entrant(
        name="identical noise as published",
        system=OneShotMoments.system,
        make=identical_published,
        adjacency=Adjacency.REPLACE_ONE,
        audit=_audit_adaptive,
    ),
    method_entrant(
        NoisyInputs,
        name="residual ensemble",
        members=2,
        calibrated_by=method_entrant(NoisyInputs),
    ),
    _ONE_MEMBER,
    _noisy(
        name="residual ensemble as published",
        make=residual_ensemble_published,
        calibrated_by=_ONE_MEMBER,
    ),
    _unproved(name="residual II as published", make=strategy_two, system=NoisyInputs.system),
    Entrant(
        name="autoencoder as published",
        system=AutoencoderStack.system,
        make=autoencoder_published,
        charged=False,
        calibrated_by=LIMIT,
        audit=_audit_autoencoder,
    ),
    method_entrant(AutoencoderStack, name="autoencoder without noise", epsilon=NO_NOISE),
    _compared_regression(name="functional mechanism", make=functional),
    _compared_regression(name="functional mechanism as published", make=functional_published),
    _compared_regression(name="histogram (DPME)", make=histogram),
    _compared_regression(name="filter-priority (FP)", make=filter_priority),
)
