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

from privet import _check, tuned_defaults
from privet import accounting as losses
from privet.accounting.calibration import BUDGET_MARGIN
from privet.data.records import PublicFacts, Records
from privet.errors import InvalidArgument
from privet.guarantee import Adjacency, Unit
from privet.mechanisms import (
    Coefficients,
    DiscreteGaussianMechanism,
    GaussianMechanism,
    Mechanism,
    Noise,
    mechanism_for,
)
from privet.mechanisms.mechanism import ratio_up
from privet.methods.autoencoder.private_layer import Activation, LayerLearner, PublicEncoder
from privet.methods.autoencoder.stack_model import OutputLayer, StackModel, output_rows
from privet.methods.autoencoder.streamed_records import StreamedRecords, iterate_blocks
from privet.methods.contract import InputFeatures, Method, ReleaseContext, setting
from privet.methods.moment_release_plan import (
    MomentRelease,
    MomentReleasePlan,
    check_adjacency,
)
from privet.methods.neighbouring_pairs import NeighbouringPair, worst_unit_pair
from privet.noise import grid
from privet.noise.grid import smallest_scale
from privet.sensitivity import BoundedValue, Moments

LAYERS_SHARE = tuned_defaults.STACK_LAYERS_SHARE
"""The part of the budget for all layers together when an output layer follows."""


@final
@dataclass(frozen=True, kw_only=True)
class StackPlan(MomentReleasePlan):
    """All releases, their noise and their price, from public facts alone."""

    facts: PublicFacts
    learners: tuple[LayerLearner, ...]
    encoders: tuple[PublicEncoder, ...]
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
    input_features: ClassVar[InputFeatures] = InputFeatures.FEW
    protects_users: ClassVar[bool] = True

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
        tuned_defaults.STACK_OUTPUT_RIDGE, help="Of the output layer, in units of the noise."
    )

    def __post_init__(self) -> None:
        given = self.layers if isinstance(self.layers, tuple | list) else (self.layers,)
        noise = None if self.noise is None else _check.member("noise", self.noise, Noise)
        for name, value in (
            ("layers", tuple(_check.count("layers", units) for units in given)),
            ("activation", _check.member("activation", self.activation, Activation)),
            ("noise", noise),
            ("adjacency", check_adjacency(self.adjacency)),
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
        learners, encoders, inputs = [], [], facts.features
        for units in self.layers:
            learners.append(self._learner(min(units, inputs), output is not None))
            encoders.append(PublicEncoder.for_inputs(inputs, units=learners[-1].units))
            inputs = learners[-1].units
        moments = [encoder.moments(influence) for encoder in encoders]
        if output is not None:
            moments.append(output.moments(inputs, influence))
        if not moments:
            raise InvalidArgument("layers", (), "at least one layer when there is no output layer")
        return StackPlan(
            facts=facts,
            learners=tuple(learners),
            encoders=tuple(encoders),
            output=output,
            releases=tuple(self._releases(facts, moments, self._shares(len(moments), output))),
            looseness=0.5 if output is None else None,
        )

    def _learner(self, units: int, signal: bool) -> LayerLearner:
        """For the signal, or for the way back: no gains, and away from the border of the ball."""
        learner = LayerLearner(units=units, activation=self.activation)
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
                mu = math.sqrt(share) * (facts.mu * BUDGET_MARGIN)
                made = GaussianMechanism.for_mu(shape, mu=mu, adjacency=terms)
            elif noise is Noise.DISCRETE_GAUSSIAN:
                mu = math.sqrt(2.0 * _zcdp(facts.epsilon, facts.delta)) * BUDGET_MARGIN
                made = self._discrete(shape, math.sqrt(share) * mu)
            else:
                budget = facts.epsilon * BUDGET_MARGIN * share
                made = mechanism_for(shape, noise=noise, epsilon=budget, adjacency=terms)
            yield MomentRelease(moments=m, mechanism=made, adjacency=terms)

    def _discrete(self, shape: BoundedValue, mu: float) -> DiscreteGaussianMechanism:
        """The least discrete noise with sensitivity over scale at most mu."""

        def of_scale(scale: float) -> DiscreteGaussianMechanism:
            # a millionth of the noise: rounding to it widens the sensitivity by next to nothing
            step = max(shape.spacing, grid.power_of_two_at_most(scale * 2.0**-20))
            return DiscreteGaussianMechanism(scale=scale, step=step)

        def needed(scale: float) -> float:
            return ratio_up(of_scale(scale).sensitivity(shape, adjacency=self.adjacency), mu)

        start = ratio_up(shape.sensitivity(self.adjacency).l2, mu)
        return of_scale(smallest_scale(needed, start))

    def fit(
        self, records: Records | StreamedRecords, plan: StackPlan, context: ReleaseContext
    ) -> StackModel:
        """One pass and one release for each layer and for the output."""
        context.charge(what="auto-encoder moments")
        model = StackModel(layers=(), looseness=plan.looseness)
        for k, (learner, encoder) in enumerate(zip(plan.learners, plan.encoders, strict=True)):
            found = self._release_moments(records, plan, k, model, encoder, context)
            model = replace(model, layers=(*model.layers, learner.learn(encoder, found)))
        if plan.output is None:
            return model
        found = self._release_moments(records, plan, len(model.layers), model, None, context)
        return replace(model, weights=plan.output.solve(found))

    def _release_moments(
        self,
        records: Records | StreamedRecords,
        plan: StackPlan,
        which: int,
        below: StackModel,
        encoder: PublicEncoder | None,
        context: ReleaseContext,
    ) -> Coefficients:
        """One pass over the records and one release; `encoder` None stands for the output layer."""
        release, done = plan.releases[which], 0
        total = release.moments.sum()
        name = "output layer" if encoder is None else f"layer {which + 1}"
        for block in iterate_blocks(records, self.user_share):
            codes = below.encode(block.rows)
            rows = output_rows(codes) if encoder is None else encoder.encode(codes)
            rows[block.rows.null] = 0.0  # counts for nothing, the constant included
            if encoder is None:
                total.add(rows, block.targets, block.users)
            else:
                total.add(rows, None if encoder.projection is None else codes, block.users)
            done += len(codes)
            if not plan.facts.declared:  # a declared number hides how many there are
                context.progress(name, done, plan.facts.records)
        if plan.facts.declared:
            context.progress(name, plan.facts.records, plan.facts.records)
        return release.release(total, context.rng.child("release", which))

    def neighbours(self, plan: StackPlan) -> NeighbouringPair:
        """A unit as heavy as it can be; where one is replaced, by its opposite."""
        return worst_unit_pair(plan.facts, replaced=plan.adjacency is Adjacency.REPLACE_ONE)


def _zcdp(epsilon: float, delta: float) -> float:
    """The largest rho whose zCDP is (epsilon, delta)-private, by bisection from below."""
    low, high = 0.0, 1.0
    while losses.ZCDP(rho=high).epsilon(delta) <= epsilon:
        low, high = high, 2.0 * high
    for _ in range(60):  # more halvings than a float64 has digits
        middle = (low + high) / 2.0
        if losses.ZCDP(rho=middle).epsilon(delta) <= epsilon:
            low = middle
        else:
            high = middle
    return low
