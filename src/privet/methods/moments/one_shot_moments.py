"""One-shot moments: the adaptive Laplace mechanism's promises under a proof that holds.

Two sums over records are released, whatever happens afterwards, of rows of length at most 1:

1. class sums of the rows, class sizes, and sums of squares of each feature;
2. the second moment of the *directions* in which records lie off their class mean,
   u = D (h - M_y) / ||D (h - M_y)||, M and the shape D being functions of the first release.

From them come the coefficients of every loss of order two, h h^T included, because sum h h^T is the
second moment around the class means plus that of the class means. The detour pays: the part of a
row that its class explains no longer takes up sensitivity, and directions use all of the unit
ball. Any solver, any number of epochs, is post-processing.

**Noise shaped by relevance**: noise of one scale sigma on u u^T is noise of scale sigma / (D_i D_j)
on the coefficient (i, j) of the features themselves; D_j grows with the relevance of feature j, so
that noise falls on irrelevant features first. In the language of per-coordinate scales, sum_ij
(s_ij / sigma_ij)^2 = ||u||^4 / sigma^2 <= mu^2, for every record.

**Declared bounds are wider than the data.** Columns that were brought into a box by them fill a
part of it, and seen from a corner or from the middle all rows look alike. So where rows are of a
box, a small part of the budget first releases their mean, and they are taken as directions from
there. Rows of public features lie around zero as they are.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar, final

import numpy as np
from numpy.typing import NDArray

from privet import _check, tuned_defaults
from privet.accounting.calibration import BUDGET_MARGIN
from privet.data.domain import RowKind
from privet.data.records import PublicFacts, Records
from privet.errors import InvalidArgument
from privet.features import unit_rows
from privet.guarantee import Adjacency, Unit
from privet.methods.contract import InputFeatures, Method, ReleaseContext, setting
from privet.methods.moment_release_plan import (
    MomentRelease,
    MomentReleasePlan,
    check_adjacency,
)
from privet.methods.moments.class_means import BLOCK, class_moments, release_class_means
from privet.methods.moments.classifier_from_moments import (
    ClassMeans,
    Objective,
    Solver,
    noise_shape,
)
from privet.methods.neighbouring_pairs import NeighbouringPair, worst_unit_pair
from privet.methods.released_models import LinearModel, leading
from privet.noise import Source
from privet.rowwise_arithmetic import Product, row_blocks
from privet.sensitivity import Moments, UserWeights

Array = NDArray[Any]

SHARE = tuned_defaults.MOMENTS_SHARE
"""The part of the budget (of mu^2, or of a pure epsilon) that the first release gets."""
CENTRE = tuned_defaults.MOMENTS_CENTRE
"""The part of it for the mean of the rows, where that is released."""
PROJECTED_SHARE = tuned_defaults.MOMENTS_PROJECTED_SHARE
"""The same when the second moment is taken in the span of the class means."""


@final
@dataclass(frozen=True, kw_only=True)
class OneShotPlan(MomentReleasePlan):
    """Both releases, their noise and their price, from public facts alone."""

    facts: PublicFacts
    centre: MomentRelease | None
    """None: rows are taken as they are."""
    first: MomentRelease
    second: MomentRelease | None
    """None: all of the budget goes to the class means."""
    projected: bool
    """Whether the second moment is taken in the span of the class means only."""

    @property
    def releases(self) -> list[MomentRelease]:
        return [r for r in (self.centre, self.first, self.second) if r is not None]

    def summary(self) -> dict[str, Any]:
        return {
            "releases": len(self.releases),
            "noise": [r.scale for r in self.releases],
            "projected": self.projected,
        }


@final
@dataclass(frozen=True, kw_only=True)
class OneShotMoments(Method[OneShotPlan]):
    """A linear classifier from two releases of moments, and one of the mean where rows need it.

    delta = 0 asks for pure epsilon. Settings after `user_share` cannot change privacy.

    **Guarantee**: `OneShotPlan.loss`, for records or, with groups, for users; one charge covers all
    releases.

    >>> from privet.estimators import PrivateClassifier
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(3000, 4)); y = np.where(X[:, 0] > 0, "yes", "no")
    >>> clf = PrivateClassifier(OneShotMoments(), bounds=4.0, classes=["no", "yes"], random_state=0)
    >>> clf = clf.fit(X, y)
    >>> clf.guarantee_.epsilon <= 1.0, clf.score(X, y) > 0.9
    (True, True)
    """

    name: ClassVar[str] = "adaptive-laplace"
    system: ClassVar[str] = "adaptive Laplace"
    shows_relevance: ClassVar[bool] = True
    input_features: ClassVar[InputFeatures] = InputFeatures.FEW
    protects_users: ClassVar[bool] = True

    exponent: float = setting(
        tuned_defaults.MOMENTS_EXPONENT,
        help="How strongly relevance shapes the noise; 0 is identical noise.",
    )
    share: float | None = setting(None, help="Part of the budget for class means; by rule.")
    components: int | None = setting(None, help="Use this many leading features only.")
    adjacency: Adjacency = setting(
        Adjacency.ADD_REMOVE, help="Neighbours: add-remove or replace-one."
    )
    user_share: float = setting(1.0, help="Records' worth of influence that a user has.")
    objective: Objective = setting(
        Objective.DISCRIMINANT,
        help="What is solved for: discriminant, squared error or cross-entropy.",
    )
    ridge: float = setting(
        tuned_defaults.MOMENTS_RIDGE, help="Of the solution, in units of the noise."
    )
    epochs: int | None = setting(None, help="Steps of descent; none for the closed form.")

    def __post_init__(self) -> None:
        object.__setattr__(self, "adjacency", check_adjacency(self.adjacency))
        object.__setattr__(self, "objective", _check.member("objective", self.objective, Objective))
        _check.non_negative("exponent", self.exponent)
        _check.non_negative("ridge", self.ridge)
        _check.positive("user_share", self.user_share)
        if self.share is not None and _check.unit("share", self.share) == 0.0:
            raise InvalidArgument("share", 0.0, "above 0: everything needs the class means")
        for name in ("components", "epochs"):
            if getattr(self, name) is not None:
                _check.count(name, getattr(self, name))

    @property
    def solver(self) -> Solver:
        """How released moments become weights."""
        return Solver(objective=self.objective, ridge=self.ridge, epochs=self.epochs)

    def plan(self, facts: PublicFacts) -> OneShotPlan:
        """Noise for both releases; delta = 0 asks for pure epsilon (K-norm noise).

        The second moment of d features under pure epsilon has noise that grows like d^(3/2) in its
        eigenvalues; when that passes n/d, the average eigenvalue of the signal, it is taken in the
        K - 1 directions that tell the class means apart, and the means get most of the budget.
        """
        _check.count("outputs", facts.outputs, minimum=2)
        d = min(facts.features, self.components or facts.features)
        influence = 1.0 if facts.unit is Unit.RECORD else self.user_share
        share = SHARE if self.share is None else self.share
        projected = facts.delta == 0.0 and not _worthwhile(facts, d, min(share, SHARE))
        if projected and self.share is None:
            share = PROJECTED_SHARE
        size = min(facts.outputs - 1, d) if projected else d
        second = None if share == 1.0 else Moments(features=size, share=influence)
        first = class_moments(d, facts.outputs, share=influence)
        centre, left = None, 1.0
        if facts.kind is RowKind.BOX:
            mean = class_moments(d, 1, share=influence)
            centre, left = self._release_for(mean, facts, CENTRE), 1.0 - CENTRE
        return OneShotPlan(
            facts=facts,
            centre=centre,
            first=self._release_for(first, facts, left * share),
            second=None
            if second is None
            else self._release_for(second, facts, left * (1.0 - share)),
            projected=projected,
        )

    def _release_for(self, moments: Moments, facts: PublicFacts, share: float) -> MomentRelease:
        """The release for this share of the budget: of mu^2, or of a pure epsilon."""
        if facts.delta == 0.0:
            return MomentRelease.for_cost(
                moments, self.adjacency, epsilon=share * facts.epsilon * BUDGET_MARGIN
            )
        mu = math.sqrt(share) * (facts.mu * BUDGET_MARGIN)
        return MomentRelease.for_cost(moments, self.adjacency, mu=mu)

    def fit(self, records: Records, plan: OneShotPlan, context: ReleaseContext) -> LinearModel:
        """A pass over the records for each release; the rest is arithmetic."""
        context.charge(what="one-shot moments")
        x, centre = leading(records.rows.ball(), self.components), None
        y, null = records.targets, records.null | (records.targets < 0)
        users, rng = records.user_weights(self.user_share), context.rng
        if plan.centre is not None:
            all_one = release_class_means(
                x, np.zeros_like(y), plan.centre, null=null, users=users, rng=rng.child("centre")
            )
            centre = all_one.centre.astype(np.float32)
            x = unit_rows(x - centre)
        first = release_class_means(
            x, y, plan.first, null=null, users=users, rng=rng.child("first")
        )
        releases = len(plan.releases)
        context.progress("releases", releases - (plan.second is not None), releases)
        if plan.second is None:
            found = self.solver.means_only(first)
        else:
            found = self._solve_both(x, y, null, users, plan, first, rng.child("second"))
        context.progress("releases", releases, releases)
        return replace(found, components=self.components, centre=centre)

    def _solve_both(
        self,
        x: Array,
        y: Array,
        null: NDArray[np.bool_],
        users: UserWeights | None,
        plan: OneShotPlan,
        first: ClassMeans,
        rng: Source,
    ) -> LinearModel:
        """The second release, and the rule from both."""
        release = plan.second
        assert release is not None
        shape = noise_shape(first.relevance, self.exponent)
        basis = first.span(release.moments.features) if plan.projected else None
        projected = None if basis is None else Product(basis)
        total, means = release.moments.sum(), first.means.T.astype(np.float32)
        for part in row_blocks(len(x), 1, numbers=BLOCK):
            residual = x[part] - means[y[part]]
            residual[null[part]] = 0.0  # has no class, and counts for nothing
            if projected is None:
                rows = unit_rows(residual * shape.astype(np.float32))
            else:  # residuals keep their length in the span of the class means
                rows = projected(residual).astype(np.float32)
            total.add(rows, None, None if users is None else users[part])
        found = release.release(total, rng)
        noise = found.gram_noise
        if basis is None:
            return self.solver.solve(first, found.gram, gram_noise=noise, shape=shape)
        return self.solver.solve_projected(first, found.gram, gram_noise=noise, basis=basis)

    def neighbours(self, plan: OneShotPlan) -> NeighbouringPair:
        """A unit as heavy as it can be; where one is replaced, by its opposite."""
        return worst_unit_pair(plan.facts, replaced=plan.adjacency is Adjacency.REPLACE_ONE)


def _worthwhile(facts: PublicFacts, d: int, share: float) -> bool:
    """Whether the pure noise on a second moment leaves anything of it: from public facts."""
    noise = 2.0 * math.sqrt(d * d * (d + 1) / 2.0) / (facts.epsilon * (1.0 - share))
    return noise < facts.records / d
