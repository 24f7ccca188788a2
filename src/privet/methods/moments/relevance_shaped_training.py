"""Deep networks trained with noise that falls on irrelevant inputs first, under a proof.

A network that is fed D (x - m) in place of x - m has, in its first layer, the gradient of feature j
multiplied by D_j. Clipping and noise treat all coordinates alike, so in the features' own
coordinates the noise is sigma C / D_j: less relevant features carry more of it. That is the idea of
Algorithm 1, lines 8-14, put into training instead of into the records. D and m come from a release
that is paid for first; what is left of the budget trains the network, by any private trainer.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Self, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from privet import _check, tuned_defaults
from privet import accounting as losses
from privet.accounting import calibration
from privet.data.domain import RowKind, Rows
from privet.data.records import PublicFacts, Records
from privet.data.unit_ball import shorten
from privet.errors import InvalidArgument
from privet.guarantee import Premise
from privet.methods.catalogue import method_type
from privet.methods.contract import Method, Plan, ReleaseContext, setting
from privet.methods.moment_release_plan import MomentRelease
from privet.methods.moments.class_means import class_moments, release_class_means
from privet.methods.moments.classifier_from_moments import ClassMeans, noise_shape
from privet.methods.neighbouring_pairs import NeighbouringPair
from privet.methods.released_models import NetworkModel
from privet.networks.architectures import ShapedNetwork

Array = NDArray[Any]


@final
@dataclass(frozen=True, kw_only=True)
class ShapedPlan(Plan):
    """The release of relevance and the training after it, from public facts alone."""

    facts: PublicFacts
    relevance: MomentRelease | None
    """None: identical noise, and all of the budget for training."""
    training: Plan
    radius: float
    """Rows are shortened to this length where relevance is taken."""

    @cached_property
    def loss(self) -> losses.PrivacyLoss:
        """The cost of the relevance and of the training together."""
        if self.relevance is None:
            return self.training.loss
        return losses.compose([self.relevance.loss, self.training.loss])

    @property
    def theorem(self) -> str:
        if self.relevance is None:
            return self.training.theorem
        return f"{self.relevance.mechanism.theorem}; then {self.training.theorem}"

    @property
    def premises(self) -> tuple[Premise, ...]:
        """Those of the training, and of the release before it."""
        if self.relevance is None:
            return self.training.premises
        first = (replace(p, about=f"{p.about} of the relevance") for p in self.relevance.premises)
        return (*first, *self.training.premises)

    @property
    def steps(self) -> int:
        return self.training.steps

    def summary(self) -> dict[str, Any]:
        noise = None if self.relevance is None else self.relevance.scale
        return {"relevance_noise": noise, **self.training.summary()}


@final
@dataclass(frozen=True, kw_only=True)
class RelevanceShapedTraining(Method[ShapedPlan]):
    """A network trained on rows that private relevance has scaled.

    1. Class sums and squares of the rows are released (the first release of `OneShotMoments`), for
       `share` of the budget as a Gaussian one. From them follow the centre m, the variance e_j and
       the relevance R_j of every feature, and the shape D_j, proportional to
       (R_j / mean R)^(exponent/2) and scaled so that sum e_j D_j^2 = sum e_j: energy moves from
       features that matter less to those that matter more, and its total stays.
    2. `trainer` trains on 2 D (x - m) with the budget that is left, found by exact composition:
       any method that bounds what each record does whatever its row, and releases a network; the
       default is the one that is called dpsgd-network.

    Rows are shortened to length `radius` sqrt(d) where the first release is taken: pictures and
    one-hot columns are shorter than 1/2 of sqrt(d), and a smaller radius is less noise; full
    columns want 1.

    `exponent` 0 removes the mean and shapes nothing; None skips the release: identical noise, the
    network is fed 2 x (most pixels and one-hot columns are 0, so that is nearer to having no mean
    than 2 x - 1 is, and does better) and training has the whole budget.

    **Guarantee**: adaptive composition of the Gaussian release of step 1 and of the trainer's own.
    Step 2 sees the records through a map that depends on what was released only, and bounds each
    record's influence itself.

    >>> from privet.estimators import PrivateClassifier
    >>> trainer = method_type("dpsgd-network")(steps=20)
    >>> rng = np.random.default_rng(0)
    >>> X = rng.random((2000, 6)); y = X[:, 2] > 0.5
    >>> method = RelevanceShapedTraining(trainer=trainer, exponent=1.0)
    >>> clf = PrivateClassifier(method, epsilon=2.0, bounds=(0, 1), classes=[False, True],
    ...                         random_state=0).fit(X, y)
    >>> clf.guarantee_.epsilon <= 2.0, int(clf.model_.network.shape.argmax())
    (True, 2)

    Adaptive Laplace Mechanism, Algorithm 1, lines 1-14, with a proof: READINGS B, sound reading 2.
    """

    name: ClassVar[str] = "adaptive-laplace-network"
    system: ClassVar[str] = "adaptive Laplace"
    shows_relevance: ClassVar[bool] = True

    trainer: Method[Any] | None = setting(
        None, help="The private method that trains the network.", option=False
    )
    exponent: float | None = setting(
        tuned_defaults.SHAPED_EXPONENT,
        help="How strongly relevance shapes the noise; none skips its release.",
    )
    share: float = setting(tuned_defaults.SHAPED_SHARE, help="Part of the budget for relevance.")
    radius: float = setting(
        tuned_defaults.SHAPED_RADIUS, help="Length of rows where relevance is taken, in sqrt(d)."
    )

    def __post_init__(self) -> None:
        if self.exponent is not None:
            _check.non_negative("exponent", self.exponent)
        _check.open_unit("share", self.share)
        _check.positive("radius", self.radius)

    @classmethod
    def for_audit(cls) -> Self:
        """With the default trainer's own small settings."""
        return cls(trainer=method_type("dpsgd-network").for_audit())

    @cached_property
    def _trainer(self) -> Method[Any]:
        return self.trainer or method_type("dpsgd-network")()

    def plan(self, facts: PublicFacts) -> ShapedPlan:
        """Noise of the first release, and the trainer's plan for what it leaves of the budget."""
        delta = _check.open_unit("delta", facts.delta)
        radius = self.radius * math.sqrt(facts.features)
        if self.exponent is None:
            training = self._trainer.plan(facts)
            return ShapedPlan(facts=facts, relevance=None, training=training, radius=radius)
        relevance = MomentRelease.for_cost(
            class_moments(facts.features, facts.outputs), mu=math.sqrt(self.share) * facts.mu
        )

        def both(left: float) -> losses.PrivacyLoss:
            return losses.compose([relevance.loss, self._training(facts, left).loss])

        least = 1e-2 * facts.epsilon  # with less left there is nothing to train with
        guess = losses.gaussian_epsilon(math.sqrt(1.0 - self.share) * facts.mu, delta)
        left = calibration.search(
            both,
            epsilon=facts.epsilon,
            delta=delta,
            start=max(guess, least),
            limits=(least, facts.epsilon),
            more_is_private=False,
        ).value
        training = self._training(facts, left)
        return ShapedPlan(facts=facts, relevance=relevance, training=training, radius=radius)

    def _training(self, facts: PublicFacts, epsilon: float) -> Plan:
        plan: Plan = self._trainer.plan(replace(facts, epsilon=epsilon))
        return plan

    def fit(self, records: Records, plan: ShapedPlan, context: ReleaseContext) -> NetworkModel:
        """Release relevance, then train."""
        rows = np.asarray(records.rows.box(), dtype=np.float32)
        centre, shape = self._shape(rows, records, plan, context)
        outer = ShapedNetwork(nn.Identity(), centre=centre, shape=shape)
        with torch.no_grad():
            fed = outer.scale(torch.from_numpy(np.ascontiguousarray(rows))).numpy()
        fed[records.null] = 0.0
        shaped = replace(records, rows=Rows(values=fed, kind=RowKind.FREE, null=records.null))
        inner = context.within(plan.training, part="train")
        found = self._trainer.fit(shaped, plan.training, inner)
        context.steps = inner.steps
        if not isinstance(found, NetworkModel):
            raise InvalidArgument("trainer", self._trainer.name, "one that trains a network")
        outer.network = found.network
        return NetworkModel(network=outer.eval(), view="box")

    def _shape(
        self, rows: Array, records: Records, plan: ShapedPlan, context: ReleaseContext
    ) -> tuple[Tensor, Tensor]:
        """The centre m and the shape D, in the shape of a record."""
        size = rows.shape[1:]
        if plan.relevance is None or self.exponent is None:
            return torch.zeros(size), torch.ones(size)
        context.charge(plan.relevance.loss, what="private relevance")
        means = release_class_means(
            shorten(rows.reshape(len(rows), plan.facts.features).astype(np.float64), plan.radius),
            records.targets,
            plan.relevance,
            null=records.null,
            users=None,
            rng=context.rng.child("relevance"),
        )
        centre = torch.from_numpy((plan.radius * means.centre).clip(0.0, 1.0))
        shape = torch.from_numpy(energy_shape(means, self.exponent))
        return centre.float().reshape(size), shape.float().reshape(size)

    def neighbours(self, plan: ShapedPlan) -> NeighbouringPair:
        """The trainer's: its steps are where a record can do most."""
        return self._trainer.neighbours(plan.training)


def energy_shape(means: ClassMeans, exponent: float) -> NDArray[np.float64]:
    """D_j ~ (R_j / mean R)^(exponent/2) with sum e_j D_j^2 = sum e_j, e_j the feature's variance.

    >>> two = ClassMeans(means=np.array([[1.0, -1.0], [0.0, 0.0]]), sizes=np.array([9.0, 9.0]),
    ...                  within=np.array([1.0, 2.0]), total=3.0, noise=0.0)
    >>> energy_shape(two, 0.0).tolist(), energy_shape(two, 1.0).round(3).tolist()
    ([1.0, 1.0], [1.397, 0.221])
    """
    gaps = (means.means - means.centre[:, None]) ** 2
    energy = means.within + np.maximum(gaps @ means.shares - means.noise, 0.0)
    shape = noise_shape(means.relevance, exponent)
    return np.asarray(shape * math.sqrt(float(energy.sum() / (energy * shape**2).sum())))
