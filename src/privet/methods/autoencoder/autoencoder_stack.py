"""A stack of auto-encoders: every layer's moments released once, budgets composed.

A stack of k layers and an output layer makes k + 1 releases, one pass over the data each. Each is
behind encoders that are public or were paid for by the releases before it, so that adaptive
composition gives the total: mu^2 adds up for Gaussian noise, epsilon for pure noise.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar, final

from privet import _check, chosen
from privet import loss as losses
from privet.bounds import Bounded, Moments
from privet.data.records import PublicFacts, Records
from privet.errors import InvalidArgument
from privet.guarantee import Adjacency, Unit
from privet.mechanisms import (
    Coefficients,
    DiscreteGaussian,
    Gaussian,
    Mechanism,
    Noise,
    mechanism_for,
)
from privet.mechanisms.base import ratio_up
from privet.methods.autoencoder.layers import Activation, Frozen, Learner
from privet.methods.autoencoder.records import StreamedRecords, blocks_of
from privet.methods.autoencoder.stack import OutputLayer, StackModel, output_rows
from privet.methods.contract import Front, Method, Spending, Worst, setting, worst_unit
from privet.methods.moments import MomentRelease, MomentsPlan
from privet.noise import grid
from privet.noise.grid import smallest_scale

LAYERS_SHARE = chosen.STACK_LAYERS_SHARE
"""The part of the budget for all layers together when an output layer follows."""
_MARGIN = 1.0 - 2.0**-40


@final
@dataclass(frozen=True, kw_only=True)
class StackPlan(MomentsPlan):
    """All releases, their noise and their price, from public facts alone."""

    facts: PublicFacts
    learners: tuple[Learner, ...]
    frozen: tuple[Frozen, ...]
    output: OutputLayer | None
    looseness: float | None
    """Of the map into the unit ball where there is a way back; None is `Rows.unit`."""
    releases: tuple[MomentRelease, ...] = ()

    def summary(self) -> dict[str, Any]:
        return {
            "units": [learner.units for learner in self.learners],
            "releases": len(self.releases),
            "noise": [r.scale for r in self.releases],
        }


@final
@dataclass(frozen=True, kw_only=True)
class AutoencoderStack(Method[StackPlan]):
    """A stack of private auto-encoders, with an output layer where there are classes.

    delta = 0 asks for pure epsilon. `layers` () leaves the rows to the output layer. Without
    classes it is set for the way back, else for the signal.

    **Guarantee**: `StackPlan.loss`, for records or, with groups, for users; one charge covers all
    releases.

    >>> import numpy as np
    >>> from privet.estimators import PrivateClassifier
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(size=(3000, 4)); y = np.where(X[:, 0] > X[:, 1], "yes", "no")
    >>> clf = PrivateClassifier(AutoencoderStack(layers=(4,)), epsilon=4.0, bounds=(0, 1),
    ...                         classes=["no", "yes"], random_state=0).fit(X, y)
    >>> clf.guarantee_.epsilon <= 4.0, clf.score(X, y) > 0.9
    (True, True)

    deep-private-auto-encoder, Algorithm 1, with encoders frozen before each release.
    """

    name: ClassVar[str] = "autoencoder"
    system: ClassVar[str] = "deep private auto-encoder"
    front: ClassVar[Front] = Front.FEW
    grouped: ClassVar[bool] = True

    layers: tuple[int, ...] = setting(
        (200,), help="Units of each layer, lowest first; cut to the inputs that a layer has."
    )
    activation: Activation = setting(Activation.RADIAL, help="Range of the units: radial, sigmoid.")
    noise: Noise | None = setting(None, help="Kind of noise; Gaussian, or k-norm at delta 0.")
    shares: tuple[float, ...] | None = setting(
        None, help="Part of the budget of each layer, and of the output last; by rule."
    )
    adjacency: Adjacency = setting(
        Adjacency.ADD_REMOVE, help="Neighbours: add-remove or replace-one."
    )
    user_share: float = setting(1.0, help="Records' worth of influence that a user has.")
    ridge: float = setting(
        chosen.STACK_OUTPUT_RIDGE, help="Of the output layer, in units of the noise."
    )

    def __post_init__(self) -> None:
        given = self.layers if isinstance(self.layers, tuple | list) else (self.layers,)
        adjacency = _check.member("adjacency", self.adjacency, Adjacency)
        if adjacency is Adjacency.ZERO_OUT:
            raise InvalidArgument(
                "adjacency", adjacency.value, "add-remove or replace-one",
                "add-remove becomes zero-out where records are counted",
            )  # fmt: skip
        noise = None if self.noise is None else _check.member("noise", self.noise, Noise)
        for name, value in (
            ("layers", tuple(_check.count("layers", units) for units in given)),
            ("activation", _check.member("activation", self.activation, Activation)),
            ("noise", noise),
            ("adjacency", adjacency),
            ("user_share", _check.positive("user_share", self.user_share)),
            ("ridge", _check.non_negative("ridge", self.ridge)),
        ):
            object.__setattr__(self, name, value)

    def plan(self, facts: PublicFacts) -> StackPlan:
        """Sizes, noise and price of every release."""
        if facts.outputs == 1:
            raise InvalidArgument("outputs", 1, "classes, or nothing to predict")
        output = OutputLayer(classes=facts.outputs, ridge=self.ridge) if facts.outputs else None
        influence = 1.0 if facts.unit is Unit.RECORD else self.user_share
        learners, frozen, inputs = [], [], facts.features
        for units in self.layers:
            learners.append(self._learner(min(units, inputs), output is not None))
            frozen.append(Frozen.for_inputs(inputs, units=learners[-1].units))
            inputs = learners[-1].units
        moments = [f.moments(influence) for f in frozen]
        if output is not None:
            moments.append(output.moments(inputs, influence))
        if not moments:
            raise InvalidArgument("layers", (), "at least one layer when there is no output layer")
        return StackPlan(
            facts=facts,
            learners=tuple(learners),
            frozen=tuple(frozen),
            output=output,
            releases=tuple(self._releases(facts, moments, self._shares(len(moments), output))),
            looseness=0.5 if output is None else None,
        )

    def _learner(self, units: int, signal: bool) -> Learner:
        """For the signal, or for the way back: no gains, and away from the border of the ball."""
        learner = Learner(units=units, activation=self.activation)
        return learner if signal else replace(learner, looseness=1.0, whitening=0.0)

    def _shares(self, releases: int, output: OutputLayer | None) -> tuple[float, ...]:
        if self.shares is not None:
            if len(self.shares) != releases:
                raise InvalidArgument("shares", self.shares, f"{releases} numbers, one a release")
            total = sum(_check.positive("shares", s) for s in self.shares)
            return tuple(float(s) / total for s in self.shares)
        k = len(self.layers)
        if output is None or k == 0:
            return (1.0 / releases,) * releases
        return (*[LAYERS_SHARE / k] * k, 1.0 - LAYERS_SHARE)

    def _releases(
        self, facts: PublicFacts, moments: list[Moments], shares: tuple[float, ...]
    ) -> Iterator[MomentRelease]:
        """Each with its share of the budget: of mu^2, or of a pure epsilon."""
        noise = self.noise or (Noise.GAUSSIAN if facts.delta > 0.0 else Noise.K_NORM)
        if noise in (Noise.GAUSSIAN, Noise.DISCRETE_GAUSSIAN):
            _check.open_unit("delta", facts.delta)
        for m, share in zip(moments, shares, strict=True):
            shape, terms = m.sum().bounded(), self.adjacency
            made: Mechanism
            if noise is Noise.GAUSSIAN:
                mu = math.sqrt(share) * (facts.mu * _MARGIN)
                made = Gaussian.for_mu(shape, mu=mu, adjacency=terms)
            elif noise is Noise.DISCRETE_GAUSSIAN:
                mu = math.sqrt(2.0 * _zcdp(facts.epsilon, facts.delta)) * _MARGIN
                made = self._discrete(shape, math.sqrt(share) * mu)
            else:
                budget = facts.epsilon * _MARGIN * share
                made = mechanism_for(shape, noise=noise, epsilon=budget, adjacency=terms)
            yield MomentRelease(moments=m, mechanism=made, adjacency=terms)

    def _discrete(self, shape: Bounded, mu: float) -> DiscreteGaussian:
        """The least discrete noise with sensitivity over scale at most mu."""

        def of_scale(scale: float) -> DiscreteGaussian:
            step = max(shape.spacing, grid.power_of_two_below(scale * 2.0**-20))
            return DiscreteGaussian(scale=scale, step=step)

        def needed(scale: float) -> float:
            return ratio_up(of_scale(scale).sensitivity(shape, adjacency=self.adjacency), mu)

        start = ratio_up(shape.sensitivity(self.adjacency).l2, mu)
        return of_scale(smallest_scale(needed, start))

    def fit(
        self, records: Records | StreamedRecords, plan: StackPlan, spending: Spending
    ) -> StackModel:
        """One pass and one release for each layer and for the output."""
        spending.charge(what="auto-encoder moments")
        model = StackModel(layers=(), looseness=plan.looseness)
        for k, (learner, frozen) in enumerate(zip(plan.learners, plan.frozen, strict=True)):
            found = self._released(records, plan, k, model, frozen, spending)
            model = replace(model, layers=(*model.layers, learner.learn(frozen, found)))
        if plan.output is None:
            return model
        found = self._released(records, plan, len(model.layers), model, None, spending)
        return replace(model, weights=plan.output.solve(found))

    def _released(
        self,
        records: Records | StreamedRecords,
        plan: StackPlan,
        which: int,
        below: StackModel,
        frozen: Frozen | None,
        spending: Spending,
    ) -> Coefficients:
        """One pass over the records and one release; `frozen` None stands for the output layer."""
        release, done = plan.releases[which], 0
        total = release.moments.sum()
        name = "output layer" if frozen is None else f"layer {which + 1}"
        for block in blocks_of(records, self.user_share):
            codes = below.encode(block.rows)
            rows = output_rows(codes) if frozen is None else frozen.encode(codes)
            rows[block.rows.null] = 0.0  # counts for nothing, the constant included
            if frozen is None:
                total.add(rows, block.targets, block.users)
            else:
                total.add(rows, None if frozen.projection is None else codes, block.users)
            done += len(codes)
            if not plan.facts.declared:  # a declared number hides how many there are
                spending.progress(name, done, plan.facts.records)
        if plan.facts.declared:
            spending.progress(name, plan.facts.records, plan.facts.records)
        return release.release(total, spending.rng.child("release", which))

    def neighbours(self, plan: StackPlan) -> Worst:
        """A unit as heavy as it can be; where one is replaced, by its opposite."""
        return worst_unit(plan.facts, replaced=plan.adjacency is Adjacency.REPLACE_ONE)


def _zcdp(epsilon: float, delta: float) -> float:
    """The largest rho whose zCDP is (epsilon, delta)-private, by bisection from below."""
    low, high = 0.0, 1.0
    while losses.ZCDP(rho=high).epsilon(delta) <= epsilon:
        low, high = high, 2.0 * high
    for _ in range(60):
        middle = (low + high) / 2.0
        if losses.ZCDP(rho=middle).epsilon(delta) <= epsilon:
            low = middle
        else:
            high = middle
    return low
