"""The rows that the papers add to `privet compare`: published algorithms and their baselines.

Published algorithms, private regressions, variants of our methods, and networks without privacy;
each takes rows as `ComparisonData` shows them and class numbers 0 to K - 1. All settings come from
public facts.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Self, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from privet import premises
from privet.audit import Finding
from privet.audit.all_releases_audit import Run, audit_releases
from privet.compare import LIMIT, ComparisonData, Participant, View, method_participant
from privet.compare.comparison_data import FEW
from privet.compare.participants import Make
from privet.guarantee import Adjacency, Guarantee, Protects
from privet.ledger import Ledger
from privet.mechanisms import LaplaceMechanism
from privet.methods.autoencoder import AutoencoderStack
from privet.methods.moments import OneShotMoments
from privet.methods.neighbour_replay import TRIALS
from privet.methods.noisy_inputs import NoisyInputs
from privet.methods.noisy_inputs.plain_training import PlainTraining, mean_probabilities
from privet.networks.residual import DenseResidual, PictureResNet, Strategy
from privet.noise import seeded
from privet_papers.adaptive_laplace import PublishedAdLM, PublishedILM
from privet_papers.adaptive_laplace.counter_example import audit_record
from privet_papers.autoencoder import PublishedDPA
from privet_papers.autoencoder.baselines import (
    FilterPriority,
    FunctionalMechanism,
    PerturbedHistogram,
)
from privet_papers.autoencoder.behaviour import BehaviourModel, Examples
from privet_papers.autoencoder.counter_example import audit_output_layer
from privet_papers.residual import PublishedResidual

Array = NDArray[Any]


class _BaselineClassifier(ABC):
    """The most probable class; what is proved and claimed of it, if anything."""

    guarantee_: Guarantee | None = None
    claim_: Guarantee | None = None

    @abstractmethod
    def predict_proba(self, x: Array) -> Array:
        """Probabilities of the classes, row by row."""

    def predict(self, x: Array) -> NDArray[np.int64]:
        """The most probable class of each row."""
        return np.asarray(self.predict_proba(x).argmax(axis=1))


@final
class PlainNetworkClassifier(_BaselineClassifier):
    """A network trained as usual, with whatever noise it has in it; nothing is promised.

    Columns in [0, 1] are fed as [-1, 1].
    """

    def __init__(self, make_plain_network: nn.Module, *, training: PlainTraining) -> None:
        self.make_plain_network, self.training = make_plain_network, training

    def fit(self, x: Array, y: NDArray[np.int64]) -> Self:
        """Train the network in place."""
        inputs = _to_inputs(x)
        self.training.run(self.make_plain_network, lambda _: inputs, torch.tensor(y))
        return self

    def predict_proba(self, x: Array) -> Array:
        """Of one draw of the noise, the same at every call."""
        return mean_probabilities(self.make_plain_network, _to_inputs(x), seed=0)


def _to_inputs(x: Array) -> torch.Tensor:
    return torch.from_numpy(2.0 * np.asarray(x, dtype=np.float32) - 1.0)


@final
class OneAgainstRest(_BaselineClassifier):
    """A private model of two statuses for each class, all of them within one budget.

    K models (one for two classes) with epsilon / K each; a class is as probable as its model says,
    in proportion. Rows are columns in [-1, 1], each the record of a user of its own.

    **Guarantee** `guarantee_`: the sum of all models' epsilons, pure, add-remove.
    """

    def __init__(
        self,
        make: Callable[..., BehaviourModel],
        *,
        records: int,
        classes: int,
        epsilon: float,
        ledger: Ledger | None,
        seed: int,
    ) -> None:
        self.make, self.records, self.classes, self.epsilon = make, records, classes, epsilon
        self.ledger, self.seed = ledger, seed

    def fit(self, x: Array, y: NDArray[np.int64]) -> Self:
        """Release one model after the other."""
        asked = range(self.classes) if self.classes > 2 else range(1, 2)
        self.models = [
            self.make(
                epsilon=self.epsilon / len(asked), unit="record", ledger=self.ledger,
                random_state=1000 * self.seed + k,
            ).fit(self._examples(x, (y == k).astype(np.int64)))
            for k in asked
        ]  # fmt: skip
        stated = self.models[0].guarantee_
        assert stated is not None
        total = sum(m.guarantee_.epsilon for m in self.models if m.guarantee_ is not None)
        self.guarantee_ = replace(
            stated,
            epsilon=total,
            theorem=f"{stated.theorem}; {len(asked)} of them, added up",
            premises=(
                premises.bound("columns are held in [-1, 1]"),
                LaplaceMechanism(scale=1.0).law,
                premises.SECRET_KEY,
                premises.declared_size(len(x)),
            ),
        )
        claims = [m.claim_ for m in self.models if m.claim_ is not None]
        if claims:
            self.claim_ = replace(claims[0], epsilon=sum(c.epsilon for c in claims))
        return self

    def predict_proba(self, x: Array) -> Array:
        """Each model's answer over the sum of all."""
        examples = self._examples(x, np.zeros(len(x), dtype=np.int64))
        each = np.column_stack([m.predict_proba(examples) for m in self.models])
        if each.shape[1] == 1:
            return np.hstack([1.0 - each, each])
        return np.asarray(each / np.maximum(each.sum(axis=1, keepdims=True), 1e-12))

    def _examples(self, x: Array, status: NDArray[np.int64]) -> Examples:
        """Rows of a table as users on one day without friends or past; `records` is public."""
        n, d = x.shape
        return Examples(
            now=np.asarray(x, dtype=np.float64),
            past=np.zeros((n, 0, d)),
            calendar=np.zeros((n, 0)),
            status=status,
            user=np.arange(n),
            day=np.ones(n, dtype=np.int64),
            activity=np.zeros((self.records, 1)),
            edges=np.zeros((0, 2), dtype=np.int64),
            target=0,
            events=tuple(range(1, d)),
            span=1,
        )


PASSES = 60_000
"""The most pictures that a residual network is shown in training, repetitions counted: it bounds
the time, so that 60,000 pictures are compared within half an hour on two cores."""
EPOCHS = 20
"""The most often that a residual network is shown the same record; Theorem 1's T b / N."""
NO_BUDGET_LIMIT = 1e3
"""A budget, or a factor of noise, at which every release is distinguished: for controls."""
NO_NOISE = 1e6
"""An epsilon at which noise no longer matters."""


def _published_settings(data: ComparisonData, seed: int, ledger: Ledger | None) -> dict[str, Any]:
    """What every published algorithm gets; how it is given an epsilon differs."""
    return {"classes": data.classes, "ledger": ledger, "random_state": seed}


def _picture_settings(data: ComparisonData) -> dict[str, Any]:
    return {"shape": data.shape, "epochs": _epochs(data)}


def _epochs(data: ComparisonData) -> int:
    return EPOCHS if data.shape is None else max(1, min(EPOCHS, PASSES // data.records))


def make_plain_network(data: ComparisonData, seed: int, ledger: Ledger | None) -> Any:
    """A residual network, trained as usual."""
    classes = data.dataset.n_classes
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        net: nn.Module
        if data.shape is None:
            net = DenseResidual(features=data.dataset.n_features, classes=classes)
        else:
            net = PictureResNet(shape=data.shape, classes=classes, depth=8)
    return PlainNetworkClassifier(
        net, training=PlainTraining(epochs=_epochs(data), learning_rate=0.02, seed=seed)
    )


def _published_maker(kind: Callable[..., Any]) -> Make:
    """Makes a published algorithm with the whole budget as its epsilon."""
    return lambda data, seed, ledger: kind(
        epsilon=data.epsilon, **_published_settings(data, seed, ledger)
    )


def make_residual_published(data: ComparisonData, seed: int, ledger: Ledger | None) -> Any:
    """Strategy I: noise in inputs and blocks, new at every epoch."""
    settings = _published_settings(data, seed, ledger) | _picture_settings(data)
    return PublishedResidual(delta=data.delta, **settings)


def make_residual_ensemble_published(data: ComparisonData, seed: int, ledger: Ledger | None) -> Any:
    """An ensemble (En_k), each member with noise of its own."""
    members = 5 if data.shape is None else 2  # En_5 is the paper's; two, where pictures take time
    return replace(make_residual_published(data, seed, ledger), members=members)


def make_strategy_two(data: ComparisonData, seed: int, ledger: Ledger | None) -> Any:
    """A residual network with multiplicative noise in its blocks.

    Theorem 2 speaks of one answer of a network whose mappings are bounded: nothing bounds them
    here, as nothing does in the paper, so it states no epsilon.
    """
    settings = _published_settings(data, seed, None) | _picture_settings(data)
    return PublishedResidual(strategy=Strategy.MULTIPLICATIVE, **settings)


def make_autoencoder_published(data: ComparisonData, seed: int, ledger: Ledger | None) -> Any:
    """The deep private auto-encoder; it draws noise for every column and pair of units."""
    units = 200 if data.dataset.n_features <= 1000 else 50  # the paper's 200, where memory allows
    return _published_maker(partial(PublishedDPA, layers=(units,)))(data, seed, ledger)


def _regression_maker(kind: Callable[..., BehaviourModel]) -> Make:
    """Makes a private regression of each class against the rest, on few columns."""
    return lambda data, seed, ledger: OneAgainstRest(
        kind,
        records=data.records,
        classes=data.dataset.n_classes,
        epsilon=data.epsilon,
        ledger=ledger,
        seed=seed,
    )


def _audit_adaptive(model: Any, data: ComparisonData, seed: int) -> Finding:
    """The likelihood ratio of one released record against the whole claim."""
    model.fit(*data.train(View.COLUMNS))
    plan, rng = model.plan_, seeded(seed).child("audit")
    finding = audit_record(
        epsilon=plan.epsilons[1], features=plan.facts.features, h0=plan.h0, trials=20_000, rng=rng,
    )  # fmt: skip
    return replace(finding, claimed=model.claim_.epsilon, proved=model.guarantee_.epsilon)


def _audit_autoencoder(model: Any, data: ComparisonData, seed: int) -> Finding:
    """The output layer's coefficients on the two neighbours that its min-max layer tells apart."""
    rng = seeded(seed).child("audit")
    return audit_output_layer(epsilon=data.epsilon, trials=20_000, rng=rng)


def _pair_of_rows(data: ComparisonData) -> tuple[Any, Any]:
    """A row in the corner of few columns, and none: eight records or seven."""
    columns = min(FEW, data.dataset.n_features)
    x, y = np.zeros((8, columns), dtype=np.float32), np.zeros(8, dtype=np.int64)
    x[0] = 1.0
    return (x, y), (x[1:], y[1:])


def _opposite_rows(data: ComparisonData) -> tuple[Any, Any]:
    """A record in one corner of the cube, or in the opposite one."""
    shape = data.shape or (data.dataset.n_features,)
    x, y = np.full((4, *shape), 0.5, dtype=np.float32), np.zeros(4, dtype=np.int64)
    x[0] = 1.0
    other = x.copy()
    other[0] = 0.0
    return (x, y), (other, y)


def _without_budget(make: Make) -> Make:
    return lambda data, seed, ledger: make(replace(data, epsilon=NO_BUDGET_LIMIT), seed, ledger)


def _without_input_noise(make: Make) -> Make:
    def make_still(data: ComparisonData, seed: int, ledger: Ledger | None) -> Any:
        model = make(data, seed, ledger)
        return replace(model, input_noise=0.5 * model.gamma / NO_BUDGET_LIMIT)

    return make_still


def audit_fits(
    make: Make,
    pair: Callable[[ComparisonData], tuple[Any, Any]],
    without_noise: Make,
    *,
    trials: int,
) -> Callable[[Any, ComparisonData, int], Finding]:
    """An audit of all that `fit` releases, on a pair of data sets."""

    def audit(model: Any, data: ComparisonData, seed: int) -> Finding:
        present, absent = pair(data)

        def runs(of: Make) -> Run:
            return lambda inside, rng: of(data, int(rng.integers(2**20, 1)[0]), None).fit(
                *(present if inside else absent)
            )

        stated = make(data, seed, None).fit(*present)
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


def _noisy_input_participant(
    name: str, make: Make, *, calibrated_by: Participant | None = None
) -> Participant:
    return Participant(
        name=name,
        make=make,
        system=NoisyInputs.system,
        adjacency=Adjacency.REPLACE_ONE,
        protects=Protects.FEATURES,
        audit=audit_fits(make, _opposite_rows, _without_input_noise(make), trials=TRIALS),
        calibrated_by=calibrated_by,
    )


def _regression_participant(name: str, kind: Callable[..., BehaviourModel]) -> Participant:
    make = _regression_maker(kind)
    return Participant(
        name=name,
        make=make,
        system="private regression",
        view=View.FEW,
        audit=audit_fits(make, _pair_of_rows, _without_budget(make), trials=30),
    )


_participant_without_promise = partial(Participant, promises=False, charged=False)
_ONE_MEMBER = _noisy_input_participant(name="residual as published", make=make_residual_published)
PARTICIPANTS: tuple[Participant, ...] = (
    _participant_without_promise(
        name="plain network", make=make_plain_network, system="not private"
    ),
    method_participant(OneShotMoments, name="identical noise", exponent=0.0),
    Participant(
        name="adaptive-laplace as published",
        system=OneShotMoments.system,
        make=_published_maker(PublishedAdLM),
        charged=False,
        audit=_audit_adaptive,
    ),
    Participant(
        name="identical noise as published",
        system=OneShotMoments.system,
        make=_published_maker(PublishedILM),
        adjacency=Adjacency.REPLACE_ONE,
        audit=_audit_adaptive,
    ),
    method_participant(
        NoisyInputs,
        name="residual ensemble",
        members=2,
        calibrated_by=method_participant(NoisyInputs),
    ),
    _ONE_MEMBER,
    _noisy_input_participant(
        name="residual ensemble as published",
        make=make_residual_ensemble_published,
        calibrated_by=_ONE_MEMBER,
    ),
    _participant_without_promise(
        name="residual II as published", make=make_strategy_two, system=NoisyInputs.system
    ),
    Participant(
        name="autoencoder as published",
        system=AutoencoderStack.system,
        make=make_autoencoder_published,
        charged=False,
        calibrated_by=LIMIT,
        audit=_audit_autoencoder,
    ),
    method_participant(AutoencoderStack, name="autoencoder without noise", epsilon=NO_NOISE),
    _regression_participant("functional mechanism", partial(FunctionalMechanism, tight=True)),
    _regression_participant("functional mechanism as published", FunctionalMechanism),
    _regression_participant("histogram (DPME)", PerturbedHistogram),
    _regression_participant("filter-priority (FP)", FilterPriority),
)
