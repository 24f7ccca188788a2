"""Local privacy: every record is perturbed once, before it is collected, for all epochs.

Nobody has to be trusted with a record; the price is noise on every one of them, so that budgets
which are comfortable centrally leave nothing here unless there are very many records: on MNIST at
epsilon 1 the accuracy is chance. Use it when there is no other way.

Symbols: d features, beta_j public budget ratios with sum d, eps_x and eps_y the two budgets.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, final

import numpy as np
from numpy.typing import NDArray

from privet import _check, premises, tuned_defaults
from privet import accounting as losses
from privet.accounting.calibration import BUDGET_MARGIN
from privet.data.domain import RowKind, Rows
from privet.data.records import PublicFacts, Records
from privet.errors import InvalidArgument, Unattainable
from privet.guarantee import Adjacency, Premise
from privet.mechanisms import LaplaceMechanism, RandomisedResponse
from privet.methods.contract import InputFeatures, Method, Plan, ReleaseContext, setting
from privet.methods.feasibility import Signal
from privet.methods.moments.classifier_from_moments import ClassMeans, Objective, Solver
from privet.methods.neighbouring_pairs import NeighbouringPair, lone_record_pair
from privet.methods.released_models import LinearModel, leading
from privet.noise import Source, grid
from privet.sensitivity import BoundedValue, Sensitivity, categories

Array = NDArray[Any]

_UNIT = 2.0**12  # rows are whole multiples of 1/_UNIT: finer than any noise that leaves a signal
_BLOCK = 4096  # rows in memory at once


@final
@dataclass(frozen=True, kw_only=True)
class LocalPlan(Plan):
    """Noise for features and labels, from public facts."""

    facts: PublicFacts
    features: LaplaceMechanism
    labels: RandomisedResponse
    ratios: tuple[float, ...]

    @cached_property
    def loss(self) -> losses.PrivacyLoss:
        """What each record pays, for both of its answers."""
        size = float(np.linalg.norm(self.ratios))
        x = self.features.loss(_sensitivity(size), adjacency=Adjacency.REPLACE_ONE)
        return losses.compose([x, self.labels.loss()], adjacency=Adjacency.REPLACE_ONE)

    @property
    def theorem(self) -> str:
        return f"{self.features.theorem}; {self.labels.theorem}"

    @property
    def premises(self) -> tuple[Premise, ...]:
        return premises.bound("rows are held in the unit ball"), self.features.law

    @property
    def signal(self) -> Signal:
        """The signal of records that each bring noise: it grows with the root of their number."""
        return replace(super().signal, growth=0.5)

    def summary(self) -> dict[str, Any]:
        return {"noise": self.features.scale, "truth": self.labels.truth}


@final
@dataclass(frozen=True, kw_only=True)
class LocalRecords(Method[LocalPlan]):
    """Laplace noise on each record's features, randomised response for its label, then moments.

    A row h of the unit ball becomes h_j + Lap(b_j), b_j = 2 ||beta||_2 / (beta_j eps_x): between
    two rows, sum_j |h_j - h'_j| / b_j <= eps_x, by Cauchy's inequality. The relevance that beta
    stands for must be public; None is beta = 1. Sums over noisy records are then freed from the
    known bias (2 b_j^2 on the diagonal of sum h h^T, the lies of randomised response) and solved.

    A null record answers like any other, zero with noise and a label by lot: that it is null is
    something about it.

    **Guarantee** eps_x + eps_y, delta = 0, for each record by itself, replace-one: the data set
    that anybody sees is already noisy, so the number of epochs does not matter. That a record is
    there at all is not hidden.

    Adaptive Laplace Mechanism, Algorithm 1, with scales for which a proof holds.
    """

    name: ClassVar[str] = "local-records"
    system: ClassVar[str] = "adaptive Laplace"
    in_comparison: ClassVar[bool] = False
    input_features: ClassVar[InputFeatures] = InputFeatures.FEW

    label_share: float = setting(0.3, help="Part of the budget for labels.")
    components: int | None = setting(None, help="Use this many leading features only.")
    ratios: tuple[float, ...] | None = setting(
        None, help="Public weights of the features; all alike without.", option=False
    )
    objective: Objective = setting(
        Objective.DISCRIMINANT,
        help="What is solved for: discriminant, squared error or cross-entropy.",
    )
    ridge: float = setting(
        tuned_defaults.MOMENTS_RIDGE, help="Of the solution, in units of the noise."
    )

    def __post_init__(self) -> None:
        _check.open_unit("label_share", self.label_share)
        _check.non_negative("ridge", self.ridge)
        if self.components is not None:
            _check.count("components", self.components)
        object.__setattr__(self, "objective", _check.member("objective", self.objective, Objective))

    def plan(self, facts: PublicFacts) -> LocalPlan:
        """Scales from public facts; delta is not used."""
        d = min(facts.features, self.components or facts.features)
        ratios = (1.0,) * d if self.ratios is None else tuple(map(float, self.ratios))
        if len(ratios) != d or any(not 0.0 < r < math.inf for r in ratios):
            raise InvalidArgument("ratios", self.ratios, f"{d} numbers above 0")
        scale = d / math.fsum(ratios)
        ratios = tuple(r * scale for r in ratios)
        epsilon = _check.positive("epsilon", facts.epsilon) * BUDGET_MARGIN
        size = _sensitivity(float(np.linalg.norm(ratios)))
        features = LaplaceMechanism.for_budget(
            size, epsilon=(1.0 - self.label_share) * epsilon, adjacency=Adjacency.REPLACE_ONE
        )
        if grid.spacing(features.scale) > 1.0 / _UNIT:  # the grid of the noise holds the rows
            raise Unattainable(
                f"noise of scale {features.scale:.3g} on {d} features: give more epsilon, or fewer"
            )
        return LocalPlan(
            facts=replace(facts, delta=0.0),
            features=features,
            labels=RandomisedResponse(classes=facts.outputs, epsilon=self.label_share * epsilon),
            ratios=ratios,
        )

    def fit(self, records: Records, plan: LocalPlan, context: ReleaseContext) -> LinearModel:
        """Perturb every record, then solve from the noisy ones."""
        context.charge(what="local records")
        rng, k = context.rng, plan.facts.outputs
        x = leading(records.rows.unit(), self.components)
        noisy = self.perturb(x, plan, rng.child("features"))
        lots = rng.child("lots").integers(k, len(x))  # drawn for all, used where there is no label
        y = np.where(records.targets >= 0, records.targets, lots)
        answers = plan.labels.release(categories(y, k), rng=rng.child("labels"))
        found = self._solve(noisy, answers, plan)
        return replace(found, components=self.components, view="unit")

    def perturb(self, x: Array, plan: LocalPlan, rng: Source) -> NDArray[np.float32]:
        """Each row with its own noise: what would leave the owner's hands."""
        beta = np.asarray(plan.ratios)
        out = np.empty(x.shape, dtype=np.float32)
        for start in range(0, len(x), _BLOCK):
            h = x[start : start + _BLOCK].astype(np.float64)
            h[~np.isfinite(h).all(axis=1)] = 0.0
            # 2^-40: more than the norm is rounded by
            h /= np.maximum(1.0, np.linalg.norm(h, axis=1, keepdims=True) * (1.0 + 2.0**-40))
            whole = np.trunc(h * beta * _UNIT) / _UNIT  # multiples of 2^-12: no rounding is lost
            size = _sensitivity(float(np.linalg.norm(beta)))
            rows = BoundedValue(
                value=whole,
                add_remove=Sensitivity(l1=math.inf, l2=math.inf),
                replace_one=Sensitivity(l1=size, l2=size),
                premise=premises.bound("rows are in the unit ball"),
                spacing=1.0 / _UNIT,
            )
            noisy = plan.features.release(
                rows, rng=rng.child(start), adjacency=Adjacency.REPLACE_ONE
            )
            out[start : start + _BLOCK] = noisy / beta
        return out

    def _solve(self, noisy: Array, answers: NDArray[np.int64], plan: LocalPlan) -> LinearModel:
        k, n, d = plan.facts.outputs, len(noisy), noisy.shape[1]
        targets = plan.labels.debias(np.eye(k))[answers]
        variance = 2.0 * (plan.features.scale / np.asarray(plan.ratios)) ** 2
        gram, sums = np.zeros((d, d)), np.zeros((d, k))
        for start in range(0, n, _BLOCK):
            h = noisy[start : start + _BLOCK].astype(np.float64)
            gram += h.T @ h
            sums += h.T @ targets[start : start + _BLOCK]
        gram -= n * np.diag(variance)
        # an unbiased count may be 0 or less: no class counts for less than a tenth of its share
        sizes = np.maximum(targets.sum(axis=0), max(1.0, 0.1 * n / k))
        means = sums / sizes
        lies = (plan.labels.truth - plan.labels.lie) ** -2
        added = float(k * variance.mean() * lies / max(n, 1))
        within = gram - (means * sizes) @ means.T
        spread = np.maximum(np.diag(within) / max(n, 1), 1e-6)  # above 0, of rows of length 1
        first = ClassMeans(
            means=means, sizes=sizes, within=spread, total=float(spread.sum()), noise=added
        )
        noise = 2.0 * float(variance.mean()) * math.sqrt(max(n, 1))
        solver = Solver(objective=self.objective, ridge=self.ridge)
        return solver.solve(first, within, gram_noise=noise, shape=np.ones(d))

    def neighbours(self, plan: LocalPlan) -> NeighbouringPair:
        """A row along beta against the opposite one of another class: Cauchy's equality."""
        alone = lone_record_pair(plan.facts).present
        values = np.zeros((len(alone), plan.facts.features), dtype=np.float32)
        beta = np.asarray(plan.ratios)
        # float32 stays in the ball
        values[0, : len(beta)] = beta / np.linalg.norm(beta) * (1.0 - 1e-6)

        def records(sign: float, label: int) -> Records:
            targets = alone.targets.copy()
            targets[0] = label
            rows = (sign * values).astype(np.float32).reshape(alone.rows.values.shape)
            return replace(
                alone, rows=Rows(values=rows, kind=RowKind.BALL, null=alone.null), targets=targets
            )

        return NeighbouringPair(present=records(1.0, 0), absent=records(-1.0, 1))


def _sensitivity(size: float) -> float:
    """How far two rows of the unit ball, weighted by beta, can be apart in L1: 2 ||beta||_2."""
    return 2.0 * size * (1.0 + 2.0**-40)  # the norm of beta is good to 2^13 roundings
