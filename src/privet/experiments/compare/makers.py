"""Estimators from a bench, a seed and a ledger; all settings come from public facts.

Quick settings: what a picture costs a network is bounded by `PASSES`, so that 60,000 of them are
compared within half an hour on two cores.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from privet.estimators import (
    AdaptiveLaplaceClassifier,
    DPSGDClassifier,
    PATEClassifier,
    PrivateAutoencoderClassifier,
    PrivateClassifier,
    ResidualPerturbationClassifier,
)
from privet.experiments.compare.baselines import Network, OneAgainstRest
from privet.experiments.compare.bench import Bench, View
from privet.ledger import Ledger
from privet.methods.adaptive_laplace import RelevanceShapedTraining
from privet.methods.base import PublicFacts
from privet.methods.dpsgd import Wishes
from privet.methods.dpsgd.automatic import network_plan
from privet.methods.dpsgd.method import NetworkDPSGD
from privet.methods.pate import VotingPATE
from privet.methods.residual.training import Training
from privet.nets.networks import SmallCNN
from privet.nets.residual import DenseResidual, Perturbation, Pictures, Strategy
from privet.papers.adaptive_laplace import PublishedAdLM, PublishedILM
from privet.papers.autoencoder import PublishedDPA
from privet.papers.autoencoder.compared import (
    FilterPriority,
    FunctionalMechanism,
    PerturbedHistogram,
)
from privet.papers.residual import PublishedResidual

if TYPE_CHECKING:
    from privet.methods.autoencoder.behaviour import BehaviourModel

PASSES = 60_000
"""So many pictures a residual network is shown in training, the same one counted again."""
EPOCHS = 20
"""The most often that a residual network is shown the same record."""
NO_NOISE = 1e6
"""An epsilon at which noise no longer matters."""


def _common(bench: Bench, seed: int, ledger: Ledger | None) -> dict[str, Any]:
    """What every method is told: classes, ranges, the budget, and where to charge it."""
    return {
        "classes": bench.classes,
        "bounds": (0.0, 1.0),
        "epsilon": bench.epsilon,
        "delta": bench.delta,
        "random_state": seed,
        "ledger": ledger,
    }


def _counted(bench: Bench, seed: int, ledger: Ledger | None) -> dict[str, Any]:
    """The same, and the public number of records."""
    return _common(bench, seed, ledger) | {"n_public": bench.records}


def _published(bench: Bench, seed: int, ledger: Ledger | None) -> dict[str, Any]:
    """What every published algorithm is told; its epsilon is its own matter."""
    return {"classes": bench.classes, "ledger": ledger, "random_state": seed}


def limit(bench: Bench, seed: int, ledger: Ledger | None) -> Any:
    """Logistic regression."""
    from sklearn.linear_model import LogisticRegression

    return LogisticRegression(C=10.0, max_iter=300, random_state=seed)


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
            net = Pictures(shape=bench.shape, classes=classes, perturbation=law)
    return Network(net, training=Training(epochs=_epochs(bench), learning_rate=0.02, seed=seed))


def _epochs(bench: Bench) -> int:
    return EPOCHS if bench.shape is None else max(1, min(EPOCHS, PASSES // bench.records))


def _members(bench: Bench) -> int:
    return 5 if bench.shape is None else 2


def _small_network(bench: Bench, seed: int) -> nn.Module:
    """For training with noise on gradients."""
    features, classes = bench.dataset.n_features, bench.dataset.n_classes
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        if bench.shape is None:
            return nn.Sequential(nn.Linear(features, 64), nn.Tanh(), nn.Linear(64, classes))
        return SmallCNN(shape=bench.shape, classes=classes)


def dpsgd(bench: Bench, seed: int, ledger: Ledger | None) -> Any:
    """DP-SGD of a linear model on public features."""
    return DPSGDClassifier(**_counted(bench, seed, ledger) | {"bounds": bench.feature_bounds})


def dpsgd_network(bench: Bench, seed: int, ledger: Ledger | None) -> Any:
    """DP-SGD of a small network on columns."""
    return DPSGDClassifier(**_counted(bench, seed, ledger), module=_small_network(bench, seed))


def dpsgd_run(bench: Bench) -> dict[str, float]:
    """The steps of `dpsgd_network`, from public facts."""
    facts = PublicFacts(
        records=bench.records,
        features=bench.dataset.n_features,
        outputs=bench.dataset.n_classes,
        epsilon=bench.epsilon,
        delta=bench.delta,
    )
    schedule = network_plan(facts, Wishes()).schedule
    return {
        "sample_rate": float(schedule.rates[0]),
        "noise_multiplier": float(schedule.noise_multipliers[0]),
        "steps": schedule.steps,
    }


def adaptive(bench: Bench, seed: int, ledger: Ledger | None) -> Any:
    """Moments released once, their noise shaped by relevance."""
    told = _counted(bench, seed, ledger) | {"bounds": bench.feature_bounds}
    return AdaptiveLaplaceClassifier(**told)


def identical(bench: Bench, seed: int, ledger: Ledger | None) -> Any:
    """The same with the same noise for all."""
    return adaptive(bench, seed, ledger).set_params(exponent=0.0)


def adaptive_network(bench: Bench, seed: int, ledger: Ledger | None) -> Any:
    """The small network, trained with noise shaped by relevance that was paid for."""
    trainer = NetworkDPSGD(network=_small_network(bench, seed))
    method = RelevanceShapedTraining(trainer=trainer)
    return PrivateClassifier(method, **_counted(bench, seed, ledger))


def adaptive_published(bench: Bench, seed: int, ledger: Ledger | None) -> Any:
    """Algorithm 1 (AdLM)."""
    return PublishedAdLM(epsilon=bench.epsilon, **_published(bench, seed, ledger))


def identical_published(bench: Bench, seed: int, ledger: Ledger | None) -> Any:
    """ILM."""
    return PublishedILM(epsilon=bench.epsilon, **_published(bench, seed, ledger))


def pate(bench: Bench, seed: int, ledger: Ledger | None) -> Any:
    """Noisy means of teachers' probabilities."""
    told = _common(bench, seed, ledger) | {"bounds": bench.feature_box}
    return PATEClassifier(**told, public_inputs=bench.public(View.FEATURES))


def pate_by_votes(bench: Bench, seed: int, ledger: Ledger | None) -> Any:
    """GNMax."""
    told = _common(bench, seed, ledger) | {"bounds": bench.feature_box}
    return PrivateClassifier(VotingPATE(public_inputs=bench.public(View.FEATURES)), **told)


def residual(bench: Bench, seed: int, ledger: Ledger | None) -> Any:
    """Noisy inputs, drawn once; labels by randomised response."""
    return ResidualPerturbationClassifier(**_counted(bench, seed, ledger), **_shown(bench))


def residual_ensemble(bench: Bench, seed: int, ledger: Ledger | None) -> Any:
    """En_k on the same noisy inputs, which costs no more."""
    return residual(bench, seed, ledger).set_params(members=_members(bench))


def residual_published(bench: Bench, seed: int, ledger: Ledger | None) -> Any:
    """Strategy I: noise in inputs and blocks, new at every epoch."""
    told = _published(bench, seed, ledger) | _shown(bench)
    return PublishedResidual(delta=bench.delta, **told)


def residual_ensemble_published(bench: Bench, seed: int, ledger: Ledger | None) -> Any:
    """En_k, each member with noise of its own."""
    return replace(residual_published(bench, seed, ledger), members=_members(bench))


def _shown(bench: Bench) -> dict[str, Any]:
    return {"shape": bench.shape, "epochs": _epochs(bench)}


def autoencoder(bench: Bench, seed: int, ledger: Ledger | None) -> Any:
    """Moments of every layer, released once."""
    told = _counted(bench, seed, ledger) | {"bounds": bench.feature_bounds}
    return PrivateAutoencoderClassifier(**told)


def autoencoder_without_noise(bench: Bench, seed: int, ledger: Ledger | None) -> Any:
    """The same truncated losses at an epsilon where noise does not matter."""
    return autoencoder(bench, seed, None).set_params(epsilon=NO_NOISE)


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
