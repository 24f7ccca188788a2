"""The sound reading: every layer's moments released once, budgets composed, nothing else read.

A stack of k layers and an output layer makes k + 1 releases, one pass over the data each. Each is
behind encoders that are public or were paid for by the releases before it, so that adaptive
composition gives the total: mu^2 adds up for Gaussian noise, epsilon for pure noise.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, final

from numpy.typing import NDArray

from privet import _check, chosen, premises
from privet import loss as losses
from privet.bounds import Bounded, Moments
from privet.errors import InvalidArgument
from privet.guarantee import Adjacency, Guarantee, Unit
from privet.ledger import Entry, Ledger, Scope
from privet.mechanisms import (
    Coefficients,
    DiscreteGaussian,
    Gaussian,
    Mechanism,
    Noise,
    mechanism_for,
    release_moments,
)
from privet.mechanisms.base import ratio_up, smallest_scale
from privet.methods.autoencoder.layers import Frozen, Layer, Learner
from privet.methods.autoencoder.records import Block, Records, Scaling
from privet.methods.autoencoder.stack import ClassifierStack, OutputLayer, Stack
from privet.methods.base import PublicFacts, Release, check_terms
from privet.noise import Source, grid

Array = NDArray[Any]
Watcher = Callable[[str, int], None]
"""Told the name of a pass and how many records a block had, after every block."""

LAYERS_SHARE = chosen.STACK_LAYERS_SHARE
"""The part of the budget for all layers together when an output layer follows."""
_MARGIN = 1.0 - 2.0**-40


@final
@dataclass(frozen=True, kw_only=True)
class StackPlan:
    """All releases, their noise and their price, from public facts alone."""

    facts: PublicFacts
    frozen: tuple[Frozen, ...]
    moments: tuple[Moments, ...]
    mechanisms: tuple[Mechanism, ...]
    shares: tuple[float, ...]
    adjacency: Adjacency
    unit: Unit
    user_share: float

    @property
    def loss(self) -> losses.PrivacyLoss:
        """The cost of all releases."""
        return losses.compose(
            [
                mechanism.loss(moments.sum().bounded(), adjacency=self.adjacency)
                for moments, mechanism in zip(self.moments, self.mechanisms, strict=True)
            ],
            adjacency=self.adjacency,
        )

    @property
    def guarantee(self) -> Guarantee:
        """What is promised, known before a record is read."""
        first = self.mechanisms[0]
        theorem = f"{first.theorem}, composed over {len(self.moments)} releases of moments"
        stated = self.loss.guarantee(self.facts.delta, theorem=theorem, unit=self.unit)
        bound = self.moments[0].sum().bounded().premise
        return replace(stated, premises=(bound, first.law, premises.SECRET_KEY))


@final
@dataclass(frozen=True, kw_only=True)
class SoundStack:
    """A stack of private auto-encoders, with an output layer or without one.

    `learners`: one for each layer, the lowest first; () leaves the scaled records to the output
    layer. `shares`: the part of the budget (of mu^2, or of a pure epsilon) of each release; None:
    the rule. `user_share`: how many records' worth of influence a user has when the unit is the
    user. `watcher` only watches.

    **Guarantee** `StackPlan.guarantee`, for records or users; the ledger is charged once, before
    the first draw, and when it refuses nothing is drawn.

    **Assumes** `facts.records` and the classes are public; settings were not tuned on the records.

    deep-private-auto-encoder, Algorithm 1, with encoders frozen before each release.
    """

    scaling: Scaling
    learners: tuple[Learner, ...]
    output: OutputLayer | None = None
    noise: Noise | None = None
    shares: tuple[float, ...] | None = None
    adjacency: Adjacency = Adjacency.ADD_REMOVE
    unit: Unit = Unit.RECORD
    user_share: float = 1.0
    watcher: Watcher = field(default=lambda what, records: None, repr=False)

    def plan(self, facts: PublicFacts) -> StackPlan:
        """Sizes, noise and price of every release."""
        influence = 1.0 if self.unit is Unit.RECORD else self.user_share
        frozen, inputs = [], self.scaling.size
        for learner in self.learners:
            frozen.append(Frozen.for_inputs(inputs, units=learner.units))
            if learner.units > frozen[-1].width:
                raise InvalidArgument(
                    "layers", learner.units, f"at most {frozen[-1].width} units on {inputs} inputs"
                )
            inputs = learner.units
        moments = [f.moments(influence) for f in frozen]
        if self.output is not None:
            moments.append(self.output.moments(inputs, influence))
        if not moments:
            raise InvalidArgument("layers", (), "at least one layer when there is no output layer")
        shares = self._shares(len(moments))
        return StackPlan(
            facts=facts,
            frozen=tuple(frozen),
            moments=tuple(moments),
            mechanisms=self._mechanisms(facts, moments, shares),
            shares=shares,
            adjacency=self.adjacency,
            unit=self.unit,
            user_share=self.user_share,
        )

    def _shares(self, releases: int) -> tuple[float, ...]:
        if self.shares is not None:
            if len(self.shares) != releases:
                raise InvalidArgument("shares", self.shares, f"{releases} numbers, one a release")
            total = sum(_check.positive("shares", s) for s in self.shares)
            return tuple(float(s) / total for s in self.shares)
        k = len(self.learners)
        if self.output is None or k == 0:
            return (1.0 / releases,) * releases
        return (*[LAYERS_SHARE / k] * k, 1.0 - LAYERS_SHARE)

    def _mechanisms(
        self, facts: PublicFacts, moments: list[Moments], shares: tuple[float, ...]
    ) -> tuple[Mechanism, ...]:
        epsilon = _check.positive("epsilon", facts.epsilon)
        noise = self.noise or (Noise.GAUSSIAN if facts.delta > 0.0 else Noise.K_NORM)
        shapes = [m.sum().bounded() for m in moments]
        if noise not in (Noise.GAUSSIAN, Noise.DISCRETE_GAUSSIAN):
            return tuple(
                mechanism_for(
                    shape, noise=noise, epsilon=epsilon * s * _MARGIN, adjacency=self.adjacency
                )
                for shape, s in zip(shapes, shares, strict=True)
            )
        delta = _check.open_unit("delta", facts.delta)
        if noise is Noise.GAUSSIAN:
            mu = losses.gaussian_mu(epsilon, delta) * _MARGIN
        else:
            mu = math.sqrt(2.0 * _zcdp(epsilon, delta)) * _MARGIN
        return tuple(
            self._gaussian(shape, noise, math.sqrt(s) * mu)
            for shape, s in zip(shapes, shares, strict=True)
        )

    def _gaussian(self, shape: Bounded, noise: Noise, mu: float) -> Mechanism:
        """The least noise with sensitivity over scale at most mu."""

        def of_scale(scale: float) -> Gaussian | DiscreteGaussian:
            if noise is Noise.GAUSSIAN:
                return Gaussian(scale=scale)
            step = max(shape.spacing, grid.power_of_two_below(scale * 2.0**-20))
            return DiscreteGaussian(scale=scale, step=step)

        def needed(scale: float) -> float:
            return ratio_up(of_scale(scale).sensitivity(shape, adjacency=self.adjacency), mu)

        start = ratio_up(shape.sensitivity(self.adjacency).l2, mu)
        return of_scale(smallest_scale(needed, start))

    def fit(
        self, records: Records, plan: StackPlan, *, ledger: Ledger | None, rng: Source
    ) -> Release[Stack] | Release[ClassifierStack]:
        """One pass and one release for each layer and for the output."""
        entries: tuple[Entry, ...] = ()
        if ledger is not None:
            check_terms(ledger, plan.adjacency, plan.unit)
            scope = Scope(unit=plan.unit, secret=rng.secret)
            entries = (ledger.charge(plan.loss, what="auto-encoder moments", scope=scope),)
        layers: tuple[Layer, ...] = ()
        for k, (learner, frozen) in enumerate(zip(self.learners, plan.frozen, strict=True)):
            below = Stack(scaling=self.scaling, layers=layers)
            found = self._released(records, plan, k, below, frozen, rng)
            layers = (*layers, learner.learn(frozen, found))
        stack = Stack(scaling=self.scaling, layers=layers)
        if self.output is None:
            return Release(model=stack, guarantee=plan.guarantee, claim=None, entries=entries)
        found = self._released(records, plan, len(layers), stack, None, rng)
        model = ClassifierStack(stack=stack, output=self.output, weights=self.output.solve(found))
        return Release(model=model, guarantee=plan.guarantee, claim=None, entries=entries)

    def _released(
        self,
        records: Records,
        plan: StackPlan,
        which: int,
        below: Stack,
        frozen: Frozen | None,
        rng: Source,
    ) -> Coefficients:
        """One pass over the records and one release; `frozen` None stands for the output layer."""
        total = plan.moments[which].sum()
        name = "output layer" if frozen is None else f"layer {which + 1}"
        for block in records.blocks():
            codes = below.encode(block.rows)
            if frozen is None:
                total.add(self._output_rows(codes), self._labels(block), block.weights)
            else:
                crossed = None if frozen.projection is None else codes
                total.add(frozen.encode(codes), crossed, block.weights)
            self.watcher(name, len(block.rows))
        mechanism = plan.mechanisms[which]
        return release_moments(
            total, mechanism, rng=rng.child("release", which), adjacency=plan.adjacency
        )

    def _output_rows(self, codes: Array) -> Array:
        assert self.output is not None
        return self.output.rows(codes)

    @staticmethod
    def _labels(block: Block) -> Array:
        if block.labels is None:
            raise InvalidArgument("labels", None, "given with every block for a classifier")
        return block.labels


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
