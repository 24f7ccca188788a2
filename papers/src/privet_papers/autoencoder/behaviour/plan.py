"""The plan of dPAH: what is released and how the budget is split, from public facts alone."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, final

from privet import accounting as losses
from privet import premises
from privet.data.records import PublicFacts
from privet.guarantee import Premise, Unit
from privet.mechanisms import GaussianMechanism
from privet.methods.contract import Plan
from privet.methods.feasibility import Signal
from privet.sensitivity import Moments
from privet_papers.argument_checks import check_counts, check_positive
from privet_papers.autoencoder.behaviour.released_layers import noise_edge
from privet_papers.autoencoder.behaviour.sensitivity import RowShape
from privet_papers.autoencoder.behaviour.social_influence import Influence, PropagationInfluence

SECOND, CROSS = 0.5, 1.0
"""Weights of z z^T and z y in the output layer's moments: the label matters more."""
LAYER_SHARE = 0.15
"""Part of the budget (of mu^2) for each learned layer."""
SOCIAL = 0.3
"""c: how much of a row's length is social."""


@final
@dataclass(frozen=True, kw_only=True)
class PanelSizes:
    """Public sizes of the panel and of the graph, and whether a user or a tuple is covered."""

    users: int
    days: int
    """Predicted days in training: the most examples a user can have."""
    friends: int
    attributes: int
    events: int
    lags: int
    per_user: bool = True

    @property
    def weight(self) -> int:
        """The most that all examples weigh together."""
        return self.users if self.per_user else self.users * self.days


@final
@dataclass(frozen=True, kw_only=True)
class BehaviourPlan(Plan):
    """Up to four releases: influence, two encoders, and the output layer's moments.

    The number of inputs of the second encoder and of the output layer depend on how many units
    stood out of the noise before; the noise does not, so neither does the price.
    """

    facts: PublicFacts
    sizes: PanelSizes
    hidden: tuple[int, ...]
    influence: GaussianMechanism | None
    layers: tuple[GaussianMechanism, ...]
    output: GaussianMechanism
    costs: tuple[losses.PrivacyLoss, ...]

    @property
    def loss(self) -> losses.PrivacyLoss:
        """The cost of all releases."""
        return losses.compose(list(self.costs))

    @property
    def theorem(self) -> str:
        return f"{self.output.theorem}, composed"

    @property
    def premises(self) -> tuple[Premise, ...]:
        """What bounds a unit, the law of the noise, the public graph, and who is covered."""
        people = premises.one_group_each("user")
        if not self.sizes.per_user:
            people = premises.tuple_records(self.sizes.lags + 2)
        bound = self.output_moments(self.own_features()).sum().bounded().premise
        return bound, self.output.law, premises.PUBLIC_GRAPH, people

    @property
    def unit(self) -> Unit:
        return Unit.USER if self.sizes.per_user else Unit.RECORD

    @property
    def signal(self) -> Signal:
        """All examples, against the numbers of the output layer."""
        return Signal(units=self.sizes.weight, numbers=self.own_features() + 1)

    def summary(self) -> dict[str, Any]:
        return {"hidden": list(self.hidden), "noise": self.output.scale}

    def own_features(self, codes: int = 0, deeper: int = 0) -> int:
        """Length of the own part: target and lags, events, calendar, constant, codes with lags."""
        f = self.sizes
        return (f.lags + 1) * (1 + codes) + f.events + 3 + deeper

    def layer_moments(self, features: int) -> Moments:
        """The second moments that a layer releases."""
        bits = RowShape(own=features, social=0.0, friends=0, days=1, weight=self.sizes.weight).bits
        return Moments(features=features, bits=bits)

    def row_shape(self, own: int) -> RowShape:
        """The shape of the output layer's rows."""
        f = self.sizes
        return RowShape(
            own=own,
            social=SOCIAL if f.friends else 0.0,
            friends=f.friends,
            days=f.days,
            weight=f.weight,
        )

    def output_moments(self, own: int) -> Moments:
        """The moments that the output layer releases."""
        return self.row_shape(own).moments(second=SECOND, cross=CROSS, per_user=self.sizes.per_user)


def plan_behaviour(
    facts: PublicFacts, sizes: PanelSizes, *, hidden: tuple[int, ...] | None, influence: Influence
) -> BehaviourPlan:
    """Split the budget and set the noise.

    `hidden` None asks for the rule: a layer is learned when its average eigenvalue, at most
    weight / features, is above what noise alone would show; otherwise the budget is kept for the
    output layer. With 254 users no layer is worth its price at epsilon 1; with 50,000 tuples it is.
    """
    mu = facts.mu * (1.0 - 2.0**-40)
    if hidden is None:
        edge = noise_edge(1.0 / (mu * math.sqrt(LAYER_SHARE)), sizes.attributes)
        hidden = (8, 8) if sizes.weight / sizes.attributes > edge else ()
    for units in hidden:
        check_counts(hidden=units)
    spent = influence.share + LAYER_SHARE * len(hidden)
    rest = 1.0 - spent
    check_positive(**{"the budget left for the output layer": rest})
    widest = BehaviourPlan(
        facts=facts, sizes=sizes, hidden=hidden, influence=None, layers=(),
        output=GaussianMechanism(scale=1.0), costs=(),
    )  # fmt: skip
    codes = hidden[0] if hidden else 0
    deeper = hidden[1] if len(hidden) > 1 else 0
    inputs = (sizes.attributes, widest.own_features(codes))[: len(hidden)]
    made = [
        _gaussian(
            widest.layer_moments(d).add_remove.l2, d * (d + 1) // 2, mu * math.sqrt(LAYER_SHARE)
        )
        for d in inputs
    ]
    last = widest.output_moments(widest.own_features(codes, deeper))
    output = _gaussian(last.add_remove.l2, last.dimension, mu * math.sqrt(rest))
    first = None
    if isinstance(influence, PropagationInfluence):
        first = _gaussian(
            influence.sensitivity.l2, influence.release_size, mu * math.sqrt(influence.share)
        )
    return BehaviourPlan(
        facts=facts,
        sizes=sizes,
        hidden=hidden,
        influence=None if first is None else first[0],
        layers=tuple(m for m, _ in made),
        output=output[0],
        costs=tuple(loss for _, loss in [*([first] if first else []), *made, output]),
    )


def _gaussian(
    sensitivity: float, dimension: int, mu: float
) -> tuple[GaussianMechanism, losses.PrivacyLoss]:
    """The least noise whose release costs at most mu, and its exact loss."""
    mechanism = GaussianMechanism.for_mu(sensitivity, mu=mu, dimension=dimension)
    return mechanism, mechanism.loss(sensitivity, dimension=dimension)
