"""The paper's systems as classifiers: AdLM, ILM, and AdLM as its authors released it."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np
import torch
from numpy.typing import NDArray

from privet.noise import Source
from privet.papers.adaptive_laplace.networks import PublishedNet
from privet.papers.adaptive_laplace.published import Published, Reading
from privet.papers.classifier import Array, Facts, PublishedClassifier, Release


@dataclass(kw_only=True, eq=False)
class _Published(PublishedClassifier):
    """Algorithm 1 on a copy of `network`; None is a small dense one, its weights by the seed."""

    epsilon: float = 1.0
    epochs: int = 10
    network: PublishedNet | None = None

    adaptive: ClassVar[bool] = True
    reading: ClassVar[Reading] = Reading.PAPER

    def _release(
        self, rows: Array, labels: NDArray[np.int64], rng: Source
    ) -> Release[PublishedNet]:
        facts = Facts(
            records=len(rows),
            features=rows.shape[1],
            outputs=len(self.classes_),
            epsilon=self.epsilon,
        )
        method = Published(
            network=self._network(facts, rng),
            adaptive=self.adaptive,
            reading=self.reading,
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
    """AdLM as the authors' code had it, as we read it: one draw of noise for a whole batch.

    **Guarantee** none: differences of two records of a batch carry no noise.
    """

    reading: ClassVar[Reading] = Reading.RELEASED
