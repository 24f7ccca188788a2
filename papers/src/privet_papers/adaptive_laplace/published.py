"""The Adaptive Laplace Mechanism as published: Algorithm 1, its claim, and what can be proved.

Each record and its coefficients get noise once. What is proved is local, eps_x + eps_y, for ILM and
for relevance from a public model. What the authors released is another system: `released`.

For users who want the paper's idea under a guarantee there is `privet.methods.moments`;
this is the system that is compared and attacked.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, ClassVar, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from privet import premises
from privet.accounting import Pure
from privet.errors import InvalidArgument
from privet.guarantee import Adjacency, Guarantee, Standing
from privet.ledger import Entry, Ledger, Scope
from privet.networks.relevance import Origin, PublicModel, average_relevance, budget_ratios
from privet.noise import Source, grid
from privet_papers.adaptive_laplace import noise as noise
from privet_papers.adaptive_laplace.networks import (
    EpochWatcher,
    PublishedNet,
    bound_outputs,
    pretrain,
    rebuild,
    taylor_loss,
    watch_nothing,
)
from privet_papers.argument_checks import check_counts, check_positive
from privet_papers.published_classifier import (
    Array,
    PublishedClassifier,
    PublishedFacts,
    PublishedRelease,
)

_AT_ONCE = 100
"""Records whose gradients are taken together: as many as stay in a processor's cache."""


class NeuronCount(Enum):
    """How |h0| is read for a convolution; for a dense layer both are its units."""

    FEATURE_MAPS = "feature maps"
    NEURONS = "neurons"


@final
@dataclass(frozen=True, kw_only=True)
class AdaptiveLaplacePlan:
    """All numbers of Algorithm 1, from public facts."""

    facts: PublishedFacts
    epsilons: tuple[float, float, float]
    """eps_1 for relevance (0 for ILM), eps_2 for features, eps_3 for labels."""
    h0: int
    batch_size: int
    first_layer_sensitivity: float
    loss_sensitivity: float
    local_features: float
    local_labels: float
    claim: Guarantee

    @property
    def relevance_scale(self) -> float:
        """Delta_R / eps_1 = 2 d / (|D| eps_1) (lines 4-6)."""
        return 2.0 * self.facts.features / (self.facts.records * self.epsilons[0])

    @property
    def feature_scale(self) -> float:
        """Delta_h0 / (|L| eps_2): of a feature with an equal share, and of the bias (line 14)."""
        return self.first_layer_sensitivity / (self.batch_size * self.epsilons[1])

    @property
    def label_scale(self) -> float:
        """Delta_F / (|L| eps_3): of each label coefficient (lines 18-19)."""
        return self.loss_sensitivity / (self.batch_size * self.epsilons[2])


@final
@dataclass(frozen=True, kw_only=True)
class AdaptiveLaplaceMechanism:
    """Algorithm 1 (AdLM), or with `adaptive=False` the identical mechanism (ILM, beta_j = 1).

    `network` is trained in place. `relevance_model` is what relevance is computed on, with its
    `origin`; None is the paper's way: a copy of the network, trained without noise on the records.
    `known_relevance` is what `average_relevance` said earlier, for a run at another budget.
    `optimizer` is the paper's with `torch.optim.SGD`; Adam, the default, learns in fewer epochs.
    With `rebuilding_epochs` a dense first layer learns first to rebuild the noisy records, as an
    auto-encoder. `shares` split the budget (the paper does not say how). `output_bound` holds
    |z_l| to a range in which the Taylor error is known; None, the paper's way, leaves it free.

    **Guarantee** `PublishedRelease.claim` is the paper's, eps_1 + eps_2 + eps_3, as a claim.
    `PublishedRelease.guarantee` is what we can prove: for ILM, and for relevance from a public
    model, the local eps_1 + eps_x + eps_y; infinite for a model that saw the records.

    **Assumes** rows in [0, 1] (others are held there) and labels 0 to M - 1.

    >>> network = PublishedNet((1, 28, 28), classes=10)
    >>> method = AdaptiveLaplaceMechanism(network=network, adaptive=False)
    >>> facts = PublishedFacts(records=60_000, features=784, outputs=10, epsilon=1.0)
    >>> plan = method.plan(facts)
    >>> plan.claim.epsilon, plan.local_features, round(plan.local_labels, 3)
    (1.0, 14.0625, 0.993)

    Adaptive Laplace Mechanism, Algorithm 1; ILM: appendix C.
    """

    network: PublishedNet
    adaptive: bool = True
    count: NeuronCount | int = NeuronCount.FEATURE_MAPS
    relevance_model: nn.Module | None = None
    origin: Origin | None = None
    known_relevance: NDArray[np.float64] | None = field(default=None, compare=False, repr=False)
    shares: tuple[float, ...] = (1.0, 1.0, 1.0)
    batch_size: int = 1800
    epochs: int = 10
    learning_rate: float = 5e-3
    optimizer: Callable[..., torch.optim.Optimizer] = torch.optim.Adam
    pretraining_epochs: int = 2
    rebuilding_epochs: int = 0
    output_bound: float | None = None
    loss: noise.PolynomialLoss = noise.CROSS_ENTROPY
    watcher: EpochWatcher = field(default=watch_nothing, compare=False)

    def __post_init__(self) -> None:
        if len(self.shares) != 3 or any(not 0.0 < s < math.inf for s in self.shares):
            raise InvalidArgument("shares", self.shares, "three numbers above 0")
        if (self.relevance_model is None) != (self.origin is None):
            raise InvalidArgument(
                "origin", self.origin, "given with relevance_model, and only with it"
            )

    @property
    def h0(self) -> int:
        """|h0| under the reading chosen."""
        if isinstance(self.count, NeuronCount):
            maps = self.count is NeuronCount.FEATURE_MAPS
            return self.network.feature_maps if maps else self.network.first_layer_neurons
        check_counts(count=self.count)
        return self.count

    def plan(self, facts: PublishedFacts) -> AdaptiveLaplacePlan:
        """All numbers of the algorithm, and its claim."""
        check_positive(epsilon=facts.epsilon)
        total = facts.epsilon
        shares = self.shares if self.adaptive else (0.0, *self.shares[1:])
        e1, e2, e3 = (total * s / sum(shares) for s in shares)
        first = noise.first_layer_sensitivity(self.h0, facts.features)
        second = self.loss.sensitivity(facts.outputs, self.network.hidden)
        return AdaptiveLaplacePlan(
            facts=facts,
            epsilons=(e1, e2, e3),
            h0=self.h0,
            batch_size=self.batch_size,
            first_layer_sensitivity=first,
            loss_sensitivity=second,
            local_features=noise.local_feature_epsilon(
                epsilon=e2, batch_size=self.batch_size, neurons=self.h0
            ),
            local_labels=noise.local_label_epsilon(
                epsilon=e3,
                batch_size=self.batch_size,
                sensitivity=second,
                change=self.loss.label_change,
            ),
            claim=claim(total, adaptive=self.adaptive),
        )

    def guarantee(self, plan: AdaptiveLaplacePlan) -> Guarantee:
        """What is proved of the release that `plan` describes."""
        missing = self._missing_proof()
        if missing is not None:
            return Guarantee(
                epsilon=math.inf,
                delta=0.0,
                adjacency=Adjacency.REPLACE_ONE,
                standing=Standing.NONE,
                theorem=f"none: {missing}",
            )
        relevance = plan.epsilons[0]
        rests_on = [
            premises.bound("features are held in [0, 1]"),
            premises.held_by_code("draws", "each record has draws of its own"),
            premises.LAPLACE_LAW,
            premises.SECRET_KEY,
        ]
        if self.adaptive and self.origin is not None:
            rests_on.append(self.origin.premise())
        return Guarantee(
            epsilon=relevance + plan.local_features + plan.local_labels,
            delta=0.0,
            adjacency=Adjacency.REPLACE_ONE,
            theorem="local Laplace mechanism on features and label coefficients of each record",
            premises=tuple(rests_on),
        )

    def _missing_proof(self) -> str | None:
        """Why nothing is proved, or None."""
        if self.adaptive and not isinstance(self.origin, PublicModel):
            return "relevance comes from a network that saw the records, so Lemma 1 does not hold"
        return None

    def fit(
        self, x: Array, y: Array, plan: AdaptiveLaplacePlan, *, ledger: Ledger | None, rng: Source
    ) -> PublishedRelease[PublishedNet]:
        """Algorithm 1 on rows x in [0, 1] and class numbers y."""
        rows = np.require(x, np.float32, "W").reshape(len(x), -1)
        if rows.shape[1] != plan.facts.features:
            raise InvalidArgument("x", rows.shape, f"rows of {plan.facts.features} features")
        labels = np.require(y, np.int64, "W")
        proved = self.guarantee(plan)
        entry = self._charge(proved, ledger, rng)
        ratios = self._ratios(rows, labels, plan, rng)  # lines 1-7, 10-11
        scales = noise.feature_scales(
            ratios,
            epsilon=plan.epsilons[1],
            sensitivity=plan.first_layer_sensitivity,
            batch_size=plan.batch_size,
        )
        self.network.first.constant.fill_(
            1.0 + float(rng.child("bias").laplace(1, plan.feature_scale)[0])  # line 14
        )
        batches = self._batches(rows, labels, scales, plan.label_scale, rng)
        rebuilt = (x for k in range(self.rebuilding_epochs) for x, _ in batches(k))
        rebuild(self.network, rebuilt, self.learning_rate)
        self._train(batches)
        return PublishedRelease(model=self.network, guarantee=proved, claim=plan.claim, entry=entry)

    def _charge(self, proved: Guarantee, ledger: Ledger | None, rng: Source) -> Entry | None:
        if ledger is None:
            return None
        if not math.isfinite(proved.epsilon):
            raise InvalidArgument(
                "ledger", ledger, "None here", f"nothing finite can be charged: {proved.theorem}"
            )
        loss = Pure(epsilon_each=proved.epsilon, adjacency=Adjacency.REPLACE_ONE)
        what = "Adaptive Laplace Mechanism as published (local)"
        return ledger.charge(loss, what=what, scope=Scope(secret=rng.secret))

    def _ratios(
        self, rows: Array, labels: Array, plan: AdaptiveLaplacePlan, rng: Source
    ) -> NDArray[np.float64]:
        """beta_j from relevance with Lap(2 d / (|D| eps_1)) on each feature (lines 1-11)."""
        if not self.adaptive:
            return np.ones(rows.shape[1])
        exact = self.known_relevance
        if exact is None:
            exact = self.average_relevance(rows, labels, rng)
        drawn = rng.child("relevance").laplace(exact.size, plan.relevance_scale)
        step = grid.spacing(plan.relevance_scale)
        return budget_ratios(grid.add(exact.reshape(-1), grid.to_units(drawn, step), step=step))

    def average_relevance(
        self, rows: Array, labels: NDArray[np.int64], rng: Source
    ) -> NDArray[np.float64]:
        """Average relevance of every feature, without noise (lines 1-3); no epsilon enters."""
        model = self.relevance_model
        if model is None:
            model = pretrain(self.network, rows, labels, self.pretraining_epochs, rng)
        shaped = torch.from_numpy(rows.reshape(-1, *self.network.shape))
        return average_relevance(model, shaped, torch.from_numpy(labels))

    def _batches(
        self, rows: Array, labels: Array, scales: Array, label_scale: float, rng: Source
    ) -> Callable[[int], Iterator[tuple[Tensor, Tensor]]]:
        """Noisy records and coefficients of an epoch."""
        size = min(self.batch_size, len(rows))
        exact = self.loss.coefficients(labels, self.network.classes)

        def orders(epoch: int) -> Iterator[Array]:
            order = rng.child("order", epoch).permutation(len(rows))
            return (order[i : i + size] for i in range(0, len(rows) - size + 1, size))

        x_bar = noise.perturb_records(rows, scales, rng.child("features"))
        phi = noise.perturb_coefficients(exact, label_scale, rng.child("labels"))

        def once(epoch: int) -> Iterator[tuple[Tensor, Tensor]]:
            for chosen in orders(epoch):
                yield torch.from_numpy(x_bar[chosen]), torch.from_numpy(phi[chosen])

        return once

    def _train(self, batches: Callable[[int], Iterator[tuple[Tensor, Tensor]]]) -> None:
        """Lines 20-30: gradient steps on the perturbed loss; nothing reads the records any more."""
        optimizer = self.optimizer(self.network.parameters(), lr=self.learning_rate)
        for epoch in range(self.epochs):
            self.network.train()
            for x_bar, phi in batches(epoch):
                optimizer.zero_grad()
                rows = len(x_bar) if self.network.mixes_records else _AT_ONCE
                for some, their in zip(x_bar.split(rows), phi.split(rows), strict=True):
                    (taylor_loss(self.network(some), their).sum() / len(x_bar)).backward()
                optimizer.step()
                if self.output_bound is not None:
                    bound_outputs(self.network.output, self.output_bound)
            self.network.eval()
            self.watcher(epoch + 1, self.network)


def claim(epsilon: float, *, adaptive: bool) -> Guarantee:
    """What Theorem 1 (appendix C for ILM) states, with the premises it rests on."""
    doubtful = [
        (
            "noise law",
            "a sum of |L| draws of Lap(b/|L|) is a draw of Lap(b) (eqs. 20-21): it is not",
        ),
        ("sum", "the network sees the sum over a batch only (eq. 15): it sees every record"),
    ]
    if adaptive:
        doubtful.append(
            ("model", "the network relevance is computed on does not depend on the record")
        )
    return Guarantee(
        epsilon=epsilon,
        delta=0.0,
        adjacency=Adjacency.REPLACE_ONE,
        standing=Standing.CLAIMED,
        theorem="Adaptive Laplace Mechanism, Theorem 1" if adaptive else "the same, appendix C",
        premises=tuple(premises.doubtful_premise(about, text) for about, text in doubtful),
    )


@dataclass(kw_only=True, eq=False)
class AlgorithmOneClassifier(PublishedClassifier):
    """Algorithm 1 on a copy of `network`; None is a small dense one, its weights by the seed."""

    epsilon: float = 1.0
    epochs: int = 10
    network: PublishedNet | None = None

    adaptive: ClassVar[bool] = True

    def _release(
        self, rows: Array, labels: NDArray[np.int64], rng: Source
    ) -> PublishedRelease[Any]:
        facts = self._facts(rows, self.epsilon)
        method = AdaptiveLaplaceMechanism(
            network=self._network(facts, rng),
            adaptive=self.adaptive,
            epochs=self.epochs,
        )
        self.plan_ = method.plan(facts)
        return method.fit(rows, labels, self.plan_, ledger=self.ledger, rng=rng)

    def _network(self, facts: PublishedFacts, rng: Source) -> PublishedNet:
        if self.network is not None:
            return copy.deepcopy(self.network)
        with torch.random.fork_rng():
            torch.manual_seed(int(rng.child("weights").integers(2**31, 1)[0]))
            return PublishedNet((facts.features,), classes=facts.outputs, maps=())

    @torch.no_grad()
    def _logits(self, rows: Array) -> NDArray[np.float64]:
        network = self.model_.eval()
        parts = [network(part) for part in torch.from_numpy(rows).split(512)]
        return np.asarray(torch.cat(parts).double().numpy())


@final
@dataclass(kw_only=True, eq=False)
class PublishedAdLM(AlgorithmOneClassifier):
    """The Adaptive Laplace Mechanism: relevance decides which features get less noise.

    **Guarantee** none: the network that relevance is computed on saw the records. `claim_` is the
    paper's epsilon.

    >>> X = np.random.default_rng(0).uniform(size=(60, 4)); y = np.arange(60) % 2
    >>> made = PublishedAdLM(epsilon=2.0, epochs=1, random_state=0).fit(X, y)
    >>> made.claim_.epsilon, made.guarantee_.epsilon
    (2.0, inf)
    """


@final
@dataclass(kw_only=True, eq=False)
class PublishedILM(AlgorithmOneClassifier):
    """Identical noise for all features (appendix C).

    **Guarantee** local, replace-one: eps_x + eps_y of one record's noise, far above the claim.
    """

    adaptive: ClassVar[bool] = False
