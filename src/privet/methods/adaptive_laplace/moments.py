"""One-shot moments: the adaptive Laplace mechanism's promises under a proof that holds.

Two sums over records are released, whatever happens afterwards:

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
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from privet import _check, chosen, premises
from privet import loss as losses
from privet._exact import Product
from privet.bounds import Moments, UserWeights, user_weights
from privet.errors import InvalidArgument
from privet.guarantee import Adjacency, Unit
from privet.ledger import Entry, Ledger, Scope
from privet.mechanisms import Gaussian, KNorm, release_moments
from privet.mechanisms.base import ratio_up, smallest_scale
from privet.methods.adaptive_laplace.solve import ClassMeans, LinearRule, Solver, shape_of
from privet.methods.base import Method, PublicFacts, Release, check_terms
from privet.nets.features import unit_rows
from privet.noise import Source

Array = NDArray[Any]

CONSTANT = chosen.MOMENTS_CONSTANT
"""The constant feature that carries class sizes."""
SQUARES = chosen.MOMENTS_SQUARES
"""The weight of the squares beside the class sums."""
SHARE = chosen.MOMENTS_SHARE
"""The part of the budget (of mu^2, or of a pure epsilon) that the first release gets."""
PROJECTED_SHARE = chosen.MOMENTS_PROJECTED_SHARE
"""The same when the second moment is taken in the span of the class means."""
_BLOCK = 1024


@final
@dataclass(frozen=True, kw_only=True)
class MomentPlan:
    """Both releases, their noise and their price, from public facts alone."""

    facts: PublicFacts
    first: Moments
    second: Moments | None
    """None: all of the budget goes to the class means."""
    projected: bool
    """Whether the second moment is taken in the span of the class means only."""
    first_mechanism: Gaussian | KNorm
    second_mechanism: Gaussian | KNorm | None
    adjacency: Adjacency
    unit: Unit

    @property
    def loss(self) -> losses.PrivacyLoss:
        """The cost of both releases."""
        return losses.compose(
            [
                mechanism.loss(
                    _l2(moments, self.adjacency),
                    adjacency=self.adjacency,
                    dimension=moments.dimension,
                )
                for moments, mechanism in self._releases()
            ],
            adjacency=self.adjacency,
        )

    @property
    def theorem(self) -> str:
        """What the guarantee rests on."""
        kind = self.first_mechanism.theorem
        return f"{kind}, composed over {len(list(self._releases()))} releases of moments"

    def _releases(self) -> Iterator[tuple[Moments, Gaussian | KNorm]]:
        yield self.first, self.first_mechanism
        if self.second is not None and self.second_mechanism is not None:
            yield self.second, self.second_mechanism


@final
@dataclass(frozen=True, kw_only=True)
class OneShotMoments(Method[LinearRule, MomentPlan]):
    """A linear classifier on public features from two releases of moments.

    `exponent` 0 is identical noise; `share` is the first release's part of the budget, None for
    the rule. `user_share`: how many records' worth of influence a user has, when `fit` is given
    groups. The solver cannot change privacy.

    **Guarantee**: `MomentPlan.loss`, for records or, with groups, for users. Raises
    `BudgetExceeded` with nothing drawn when the ledger refuses; one entry covers both releases.

    **Assumes** `facts.records` is public, and the classes.

    >>> from privet.noise import seeded
    >>> rng = np.random.default_rng(0)
    >>> x = unit_rows(rng.normal(size=(4000, 5)))
    >>> y = (x[:, 0] > 0).astype(int)
    >>> method = OneShotMoments()
    >>> facts = PublicFacts(records=4000, features=5, outputs=2, epsilon=1.0, delta=1e-5)
    >>> release = method.fit(x, y, method.plan(facts), ledger=None, rng=seeded(0))
    >>> release.guarantee.epsilon <= 1.0
    True
    >>> bool((release.model.logits(x).argmax(axis=1) == y).mean() > 0.9)
    True
    """

    exponent: float = 0.0
    share: float | None = None
    adjacency: Adjacency = Adjacency.ADD_REMOVE
    unit: Unit = Unit.RECORD
    user_share: float = 1.0
    solver: Solver = field(default_factory=Solver)

    def plan(self, facts: PublicFacts) -> MomentPlan:
        """Noise for both releases; delta = 0 asks for pure epsilon (K-norm noise).

        The second moment of d features under pure epsilon has noise that grows like d^(3/2) in its
        eigenvalues; when that passes n/d, the average eigenvalue of the signal, it is taken in the
        K - 1 directions that tell the class means apart, and the means get most of the budget.
        """
        _check.count("outputs", facts.outputs, minimum=2)
        first = self._first(facts)
        share = SHARE if self.share is None else _check.unit("share", self.share)
        if share == 0.0:
            raise InvalidArgument("share", share, "above 0: everything needs the class means")
        projected = facts.delta == 0.0 and not _worthwhile(facts, min(share, SHARE))
        if projected and self.share is None:
            share = PROJECTED_SHARE
        size = min(facts.outputs - 1, facts.features) if projected else facts.features
        second = None if share == 1.0 else Moments(features=size, share=self._influence)
        one, two = self._mechanisms(facts, share, first, second)
        return MomentPlan(
            facts=facts,
            first=first,
            second=second,
            projected=projected,
            first_mechanism=one,
            second_mechanism=two,
            adjacency=self.adjacency,
            unit=self.unit,
        )

    def first_plan(self, facts: PublicFacts, *, mu: float) -> MomentPlan:
        """The first release alone, at the cost of a Gaussian one with this mu."""
        first = self._first(facts)
        return MomentPlan(
            facts=facts,
            first=first,
            second=None,
            projected=False,
            first_mechanism=self._gaussian(first, _check.positive("mu", mu)),
            second_mechanism=None,
            adjacency=self.adjacency,
            unit=self.unit,
        )

    @property
    def _influence(self) -> float:
        return 1.0 if self.unit is Unit.RECORD else self.user_share

    def _first(self, facts: PublicFacts) -> Moments:
        return Moments(
            features=facts.features + 1,
            outputs=facts.outputs,
            second=SQUARES,
            pairs=False,
            share=self._influence,
        )

    def _mechanisms(
        self, facts: PublicFacts, share: float, first: Moments, second: Moments | None
    ) -> tuple[Gaussian | KNorm, Gaussian | KNorm | None]:
        epsilon = _check.positive("epsilon", facts.epsilon)
        if facts.delta == 0.0:
            budget = epsilon * (1.0 - 2.0**-40)
            one = self._k_norm(first, share * budget)
            return one, None if second is None else self._k_norm(second, (1.0 - share) * budget)
        mu = losses.gaussian_mu(epsilon, facts.delta) * (1.0 - 2.0**-40)
        left = self._gaussian(first, math.sqrt(share) * mu)
        return left, None if second is None else self._gaussian(second, math.sqrt(1.0 - share) * mu)

    def _gaussian(self, moments: Moments, mu: float) -> Gaussian:
        of, dimension = _l2(moments, self.adjacency), moments.dimension

        def needed(scale: float) -> float:
            return ratio_up(Gaussian(scale=scale).sensitivity(of, dimension=dimension), mu)

        return Gaussian(scale=smallest_scale(needed, ratio_up(of, mu)))

    def _k_norm(self, moments: Moments, epsilon: float) -> KNorm:
        of = _l2(moments, self.adjacency)
        return KNorm.for_budget(of, epsilon=epsilon, dimension=moments.dimension)

    def fit(
        self,
        x: Array,
        y: Array,
        plan: MomentPlan,
        *,
        ledger: Ledger | None,
        rng: Source,
        groups: Array | None = None,
    ) -> Release[LinearRule]:
        """Two passes over rows x of the unit ball with class numbers y; the rest is arithmetic."""
        if (groups is None) != (plan.unit is Unit.RECORD):
            raise InvalidArgument("groups", groups, f"given exactly when the unit is {Unit.USER}")
        weights = None if groups is None else user_weights(groups, share=self.user_share)
        entries: tuple[Entry, ...] = ()
        if ledger is not None:
            check_terms(ledger, plan.adjacency, plan.unit)
            scope = Scope(unit=plan.unit, secret=rng.secret)
            entries = (ledger.charge(plan.loss, what="one-shot moments", scope=scope),)
        first = self.class_means(x, y, plan, weights, rng.child("first"))
        model = self._rule(x, y, plan, weights, first, rng.child("second"))
        stated = plan.loss.guarantee(plan.facts.delta, theorem=plan.theorem, unit=plan.unit)
        bound = plan.first.sum().bounded().premise
        law = plan.first_mechanism.law
        guarantee = replace(stated, premises=(bound, law, premises.SECRET_KEY))
        return Release(model=model, guarantee=guarantee, claim=None, entries=entries)

    def class_means(
        self, x: Array, y: Array, plan: MomentPlan, weights: UserWeights | None, rng: Source
    ) -> ClassMeans:
        """The first release and what follows from it; whoever calls this has charged for it."""
        total, length = plan.first.sum(), math.hypot(1.0, CONSTANT)
        for part in _parts(len(x)):
            h = x[part].astype(np.float64)
            rows = np.hstack([h, np.full((len(h), 1), CONSTANT)]) / length
            total.add(rows, y[part], None if weights is None else weights[part])
        found = release_moments(total, plan.first_mechanism, rng=rng, adjacency=plan.adjacency)
        noise = found.cross_noise * length
        sizes = shrunk_sizes(found.cross[-1] * length / CONSTANT, noise / CONSTANT)
        means = found.cross[:-1] * length / sizes
        pi = sizes / sizes.sum()
        added = float((pi * (noise / sizes) ** 2).sum())
        squares = np.diag(found.gram)[:-1] * length**2 / sizes.sum()
        within = squares - np.maximum(means**2 @ pi - added, 0.0)
        # noise in the squares leaves no variance smaller than itself to be believed
        floor = found.gram_noise * length**2 / float(sizes.sum())
        floor = max(floor, 0.02 * float(np.maximum(within, 0.0).mean()), 1e-9)
        within = np.maximum(within, floor)
        return ClassMeans(means=means, sizes=sizes, within=within, noise=added)

    def _rule(
        self,
        x: Array,
        y: Array,
        plan: MomentPlan,
        weights: UserWeights | None,
        first: ClassMeans,
        rng: Source,
    ) -> LinearRule:
        if plan.second is None or plan.second_mechanism is None:
            return self.solver.means_only(first)
        shape = shape_of(first.relevance, self.exponent)
        basis = first.span(plan.second.features) if plan.projected else None
        projected = None if basis is None else Product(basis)
        total = plan.second.sum()
        for part, residual in _residuals(x, y, first):
            if projected is None:
                rows = unit_rows(residual * shape.astype(np.float32))
            else:  # residuals keep their length in the span of the class means
                rows = projected(residual).astype(np.float32)
            total.add(rows, None, None if weights is None else weights[part])
        found = release_moments(total, plan.second_mechanism, rng=rng, adjacency=plan.adjacency)
        noise = found.gram_noise
        if basis is None:
            return self.solver.solve(first, found.gram, gram_noise=noise, shape=shape)
        return self.solver.solve_projected(first, found.gram, gram_noise=noise, basis=basis)


def _residuals(x: Array, y: Array, first: ClassMeans) -> Iterator[tuple[slice, Array]]:
    """h - M_y, block by block; a label that is no class number belongs to the mean of all."""
    means = np.vstack([first.means.T, first.centre]).astype(np.float32)
    k = len(means) - 1
    known = np.where((y >= 0) & (y < k), y, k)
    for part in _parts(len(x)):
        yield part, x[part] - means[known[part]]


def shrunk_sizes(sizes: NDArray[np.float64], noise: float) -> NDArray[np.float64]:
    """Noisy class sizes, drawn towards equal ones by as much as noise explains their spread.

    The positive-part James-Stein estimate, no smaller than the noise: of sizes that are noise
    alone only their mean is left.

    >>> shrunk_sizes(np.array([101.0, 99.0]), 5.0).tolist()
    [100.0, 100.0]
    """
    mean = float(sizes.mean())
    gaps = sizes - mean
    spread = float((gaps**2).sum())
    keep = max(0.0, 1.0 - (len(sizes) - 1) * noise**2 / spread) if spread > 0.0 else 0.0
    return np.maximum(mean + keep * gaps, max(noise, 1.0))


def _l2(moments: Moments, adjacency: Adjacency) -> float:
    both = moments.add_remove if adjacency is Adjacency.ADD_REMOVE else moments.replace_one
    return both.l2


def _worthwhile(facts: PublicFacts, share: float) -> bool:
    """Whether the pure noise on a second moment leaves anything of it: from public facts."""
    d = facts.features
    noise = 2.0 * math.sqrt(d * d * (d + 1) / 2.0) / (facts.epsilon * (1.0 - share))
    return noise < facts.records / d


def _parts(n: int) -> Iterator[slice]:
    for start in range(0, n, _BLOCK):
        yield slice(start, start + _BLOCK)
