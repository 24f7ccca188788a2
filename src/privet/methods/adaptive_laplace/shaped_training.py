"""Deep networks trained with noise that falls on irrelevant inputs first, under a proof.

A network that is fed D (x - m) in place of x - m has, in its first layer, the gradient of feature j
multiplied by D_j. Clipping and noise treat all coordinates alike, so in the features' own
coordinates the noise is sigma C / D_j: less relevant features carry more of it. That is the idea of
Algorithm 1, lines 8-14, put into training instead of into the records. D and m come from a release
that is paid for first; what is left of the budget trains the network, by any private trainer.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from privet import _check, calibrate
from privet import loss as losses
from privet.errors import BudgetExceeded, InvalidArgument
from privet.guarantee import Guarantee, Unit
from privet.ledger import Entry, Ledger, Scope
from privet.methods.adaptive_laplace.moments import MomentPlan, OneShotMoments
from privet.methods.adaptive_laplace.rows import public_rows
from privet.methods.adaptive_laplace.solve import ClassMeans, shape_of
from privet.methods.base import Method, PublicFacts, Release, check_per_record
from privet.noise import Source

Array = NDArray[Any]

SHARE = 0.05
"""The part of the budget (of mu^2) that relevance gets."""
EXPONENT = 0.25
"""How strongly relevance shapes the noise, unless told."""


class Priced(Protocol):
    """A plan that knows what it costs."""

    @property
    def loss(self) -> losses.PrivacyLoss:
        """The cost of all that is planned."""


Trainer = Method[nn.Module, Any]
"""A private way to train a network whose plans are `Priced`, such as `PrivateNetwork`."""


@final
@dataclass(frozen=True, kw_only=True)
class ShapedPlan:
    """The release of relevance and the training after it, from public facts alone."""

    facts: PublicFacts
    relevance: MomentPlan | None
    """None: identical noise, and all of the budget for training."""
    training: Priced
    radius: float
    """Rows are shortened to this length where relevance is taken."""

    @property
    def loss(self) -> losses.PrivacyLoss:
        """The cost of both."""
        if self.relevance is None:
            return self.training.loss
        return losses.compose([self.relevance.loss, self.training.loss])


@final
class ShapedNetwork(nn.Module):
    """network(2 D (x - m)): a trained network behind the scaling that shaped its noise.

    >>> net = ShapedNetwork(nn.Identity(), centre=torch.zeros(2), shape=torch.tensor([2.0, 0.5]))
    >>> net(torch.ones(1, 2)).tolist()
    [[4.0, 1.0]]
    """

    centre: Tensor
    shape: Tensor

    def __init__(self, network: nn.Module, *, centre: Tensor, shape: Tensor) -> None:
        super().__init__()
        self.network = network
        self.register_buffer("centre", centre)
        self.register_buffer("shape", shape)

    def shaped(self, x: Tensor) -> Tensor:
        """What the network is fed for these rows."""
        return 2.0 * self.shape * (x - self.centre)

    def forward(self, x: Tensor) -> Tensor:
        """The network's outputs for rows in [0, 1]."""
        out: Tensor = self.network(self.shaped(x))
        return out


@final
@dataclass(frozen=True, kw_only=True)
class RelevanceShapedTraining(Method[ShapedNetwork, ShapedPlan]):
    """A network trained by `trainer` on rows that private relevance has scaled.

    1. Class sums and squares of the rows are released (`OneShotMoments`, its first release only),
       for `share` of the budget as a Gaussian one. From them follow the centre m, the variance e_j
       and the relevance R_j of every feature, and the shape D_j, proportional to
       (R_j / mean R)^(exponent/2) and scaled so that sum e_j D_j^2 = sum e_j: energy moves from
       features that matter less to those that matter more, and its total stays.
    2. `trainer` trains on 2 D (x - m) with the budget that is left, found by exact composition.

    Rows are shortened to length `radius` sqrt(d) where the first release is taken: pictures and
    one-hot columns are shorter than 1/2 of sqrt(d), and a smaller radius is less noise; full
    columns want 1.

    `exponent` 0 removes the mean and shapes nothing; None skips the release: identical noise, the
    network is fed 2 x (most pixels and one-hot columns are 0, so that is nearer to having no mean
    than 2 x - 1 is, and does better) and training has the whole budget.

    **Guarantee**: (epsilon, delta), add-remove, per record: adaptive composition of the Gaussian
    release of step 1 and of the trainer's own. Step 2 sees the records through a map that depends
    on what was released only, and bounds each record's influence itself. Both are charged before
    anything is drawn for them; if the ledger cannot afford the two, nothing is.

    **Assumes** rows in [0, 1] by public bounds, class numbers 0 to K - 1 (other records are left
    out), that `facts.records` is public, and all that the trainer's guarantee lists. A trainer
    resumed from checkpoints of its own pays for relevance again.

    >>> from privet.dpsgd import PrivateNetwork, Wishes
    >>> from privet.noise import seeded
    >>> rng = np.random.default_rng(0)
    >>> x = rng.random((2000, 6)).astype(np.float32); y = (x[:, 2] > 0.5).astype(np.int64)
    >>> net = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 2))
    >>> trainer = PrivateNetwork(network=net, wishes=Wishes(steps=20))
    >>> method = RelevanceShapedTraining(trainer=trainer, exponent=1.0)
    >>> facts = PublicFacts(records=2000, features=6, outputs=2, epsilon=2.0, delta=1e-5)
    >>> release = method.fit(x, y, method.plan(facts), ledger=None, rng=seeded(0))
    >>> release.guarantee.epsilon <= 2.0, int(release.model.shape.argmax())
    (True, 2)

    Adaptive Laplace Mechanism, Algorithm 1, lines 1-14, with a proof: READINGS B, sound reading 2.
    """

    trainer: Trainer
    exponent: float | None = EXPONENT
    share: float = SHARE
    radius: float = 0.5
    moments: OneShotMoments = field(default_factory=OneShotMoments)

    def plan(self, facts: PublicFacts) -> ShapedPlan:
        """Noise of the first release, and the trainer's plan for what it leaves of the budget."""
        epsilon = _check.positive("epsilon", facts.epsilon)
        delta = _check.open_unit("delta", facts.delta)
        radius = _check.positive("radius", self.radius) * math.sqrt(facts.features)
        if self.exponent is None:
            return ShapedPlan(
                facts=facts, relevance=None, training=self.trainer.plan(facts), radius=radius
            )
        _check.non_negative("exponent", self.exponent)
        if self.moments.unit is not Unit.RECORD:
            raise InvalidArgument("moments", self.moments.unit, "moments whose unit is the record")
        share, mu = _check.open_unit("share", self.share), losses.gaussian_mu(epsilon, delta)
        relevance = self.moments.first_plan(facts, mu=math.sqrt(share) * mu)

        def both(left: float) -> losses.PrivacyLoss:
            return losses.compose([relevance.loss, self._training(facts, left).loss])

        least, most = 1e-2 * epsilon, epsilon
        guess = losses.gaussian_epsilon(math.sqrt(1.0 - share) * mu, delta)
        left = calibrate.search(
            both,
            epsilon=epsilon,
            delta=delta,
            start=max(guess, least),
            limits=(least, most),
            more_is_private=False,
        ).value
        training = self._training(facts, left)
        return ShapedPlan(facts=facts, relevance=relevance, training=training, radius=radius)

    def _training(self, facts: PublicFacts, epsilon: float) -> Priced:
        plan: Priced = self.trainer.plan(replace(facts, epsilon=epsilon))
        return plan

    def fit(
        self, x: Array, y: Array, plan: ShapedPlan, *, ledger: Ledger | None, rng: Source
    ) -> Release[ShapedNetwork]:
        """Release relevance, then train on rows x in [0, 1], of any shape, with class numbers y."""
        facts = plan.facts
        if int(np.prod(x.shape[1:])) != facts.features:
            raise InvalidArgument("x", x.shape, f"records of {facts.features} features")
        if ledger is None:
            ledger = Ledger.in_memory(cap_epsilon=facts.epsilon, cap_delta=facts.delta)
        check_per_record(ledger)
        if not ledger.affords(plan.loss):
            raise BudgetExceeded(
                cap_epsilon=ledger.cap_epsilon,
                would_be=ledger.epsilon_after(plan.loss),
                delta=ledger.cap_delta,
                what="relevance-shaped training",
            )
        labels = np.asarray(y)
        known = (labels >= 0) & (labels < facts.outputs)
        rows, labels = np.asarray(x, dtype=np.float32)[known], labels[known].astype(np.int64)
        centre, shape, paid = self._shape(rows, labels, plan, ledger, rng)
        outer = ShapedNetwork(nn.Identity(), centre=centre, shape=shape)
        with torch.no_grad():
            fed = outer.shaped(torch.from_numpy(rows)).numpy()
        found = self.trainer.fit(fed, labels, plan.training, ledger=ledger, rng=rng.child("train"))
        outer.network = found.model
        entries = (*paid, *found.entries)
        return Release(
            model=outer,
            guarantee=_together(entries, found.guarantee, plan),
            claim=None,
            entries=entries,
            steps=found.steps,
        )

    def _shape(
        self, rows: Array, labels: Array, plan: ShapedPlan, ledger: Ledger, rng: Source
    ) -> tuple[Tensor, Tensor, tuple[Entry, ...]]:
        """The centre m and the shape D, in the shape of a record, and what was paid for them."""
        size = rows.shape[1:]
        if plan.relevance is None or self.exponent is None:
            return torch.zeros(size), torch.ones(size), ()
        scope = Scope(secret=rng.secret)
        entry = ledger.charge(plan.relevance.loss, what="private relevance", scope=scope)
        held = public_rows(rows, features=None, bounds=plan.radius)
        means = self.moments.class_means(held, labels, plan.relevance, None, rng.child("relevance"))
        centre = torch.from_numpy((plan.radius * means.centre).clip(0.0, 1.0))
        shape = torch.from_numpy(energy_shape(means, self.exponent))
        return centre.float().reshape(size), shape.float().reshape(size), (entry,)


def energy_shape(means: ClassMeans, exponent: float) -> NDArray[np.float64]:
    """D_j ~ (R_j / mean R)^(exponent/2) with sum e_j D_j^2 = sum e_j, e_j the feature's variance.

    >>> two = ClassMeans(means=np.array([[1.0, -1.0], [0.0, 0.0]]), sizes=np.array([9.0, 9.0]),
    ...                  within=np.array([1.0, 2.0]), noise=0.0)
    >>> energy_shape(two, 0.0).tolist(), energy_shape(two, 1.0).round(3).tolist()
    ([1.0, 1.0], [1.397, 0.221])
    """
    gaps = (means.means - means.centre[:, None]) ** 2
    energy = means.within + np.maximum(gaps @ means.shares - means.noise, 0.0)
    shape = shape_of(means.relevance, exponent)
    return np.asarray(shape * math.sqrt(float(energy.sum() / (energy * shape**2).sum())))


def _together(entries: tuple[Entry, ...], trained: Guarantee, plan: ShapedPlan) -> Guarantee:
    """What all charges compose to, with the trainer's premises and the first release's."""
    if plan.relevance is None:
        return trained
    total = losses.compose([entry.loss for entry in entries])
    stated = total.guarantee(
        plan.facts.delta,
        theorem=f"{plan.relevance.theorem}; then {trained.theorem}",
    )
    bound = plan.relevance.first.sum().bounded().premise
    law = plan.relevance.first_mechanism.law
    first = (replace(p, about=f"{p.about} of the relevance") for p in (bound, law))
    return replace(stated, premises=(*first, *trained.premises))
