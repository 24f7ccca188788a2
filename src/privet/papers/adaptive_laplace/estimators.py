"""The paper's systems as classifiers: AdLM, ILM, and AdLM as its authors released it."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any, ClassVar, final

import numpy as np
import torch
from numpy.typing import NDArray

from privet.errors import InvalidArgument
from privet.noise import Source
from privet.papers.adaptive_laplace.networks import PublishedNet
from privet.papers.adaptive_laplace.published import Published
from privet.papers.adaptive_laplace.released import Released, ReleasedNet
from privet.papers.classifier import Array, Facts, PublishedClassifier, Release


@dataclass(kw_only=True, eq=False)
class _Published(PublishedClassifier):
    """Algorithm 1 on a copy of `network`; None is a small dense one, its weights by the seed."""

    epsilon: float = 1.0
    epochs: int = 10
    network: PublishedNet | None = None

    adaptive: ClassVar[bool] = True

    def _release(self, rows: Array, labels: NDArray[np.int64], rng: Source) -> Release[Any]:
        facts = Facts(
            records=len(rows),
            features=rows.shape[1],
            outputs=len(self.classes_),
            epsilon=self.epsilon,
        )
        method = Published(
            network=self._network(facts, rng),
            adaptive=self.adaptive,
            epochs=self.epochs,
        )
        self.plan_ = method.plan(facts)
        return method.fit(rows, labels, self.plan_, ledger=self.ledger, rng=rng)

    def _network(self, facts: Facts, rng: Source) -> PublishedNet:
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
class PublishedAdLM(_Published):
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
class PublishedILM(_Published):
    """Identical noise for all features (appendix C).

    **Guarantee** local, replace-one: eps_x + eps_y of one record's noise, far above the claim.
    """

    adaptive: ClassVar[bool] = False


@final
@dataclass(kw_only=True, eq=False)
class ReleasedAdLM(_Published):
    """AdLM as its authors' script has it (`released`): one draw of noise for a whole batch.

    `network` is the one that relevance comes from. Predictions depend on the rows that are asked
    together: the hidden layer is normalised by their moments.

    **Guarantee** none: differences of two records of a batch carry no noise.
    """

    def _release(self, rows: Array, labels: NDArray[np.int64], rng: Source) -> Release[Any]:
        if self.ledger is not None:
            raise InvalidArgument("ledger", self.ledger, "None: nothing finite can be charged")
        facts = Facts(
            records=len(rows), features=rows.shape[1], outputs=len(self.classes_),
            epsilon=self.epsilon,
        )  # fmt: skip
        relevant = self._network(facts, rng)
        with torch.random.fork_rng():
            torch.manual_seed(int(rng.child("released weights").integers(2**31, 1)[0]))
            net = ReleasedNet(
                relevant.shape, classes=facts.outputs, hidden=relevant.hidden,
                maps=() if len(relevant.shape) == 1 else (32, 64),
            )  # fmt: skip
        method = Released(network=net, relevance_network=relevant, epochs=self.epochs)
        return method.fit(rows, labels, epsilon=self.epsilon, rng=rng)
