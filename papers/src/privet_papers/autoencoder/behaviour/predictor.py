"""dPAH: private prediction of who will be more active tomorrow, from own past, friends and events.

After Phan, Wang, Wu and Dou, "Differential Privacy Preservation for Deep Auto-Encoders: An
Application of Human Behavior Prediction" (2016), with a proof for users instead of tuples.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Self, final

import numpy as np
from numpy.typing import NDArray

from privet.data.records import PublicFacts
from privet.errors import InvalidArgument
from privet.guarantee import Guarantee, Unit
from privet.ledger import Entry, Ledger
from privet.mechanisms import Coefficients, release_moments
from privet.methods.contract import ReleaseContext
from privet.methods.train_method import ledger_in_memory, state_guarantee
from privet.noise import Source
from privet.noise.source import source_of
from privet.sensitivity import Quadratic, user_weights
from privet_papers.argument_checks import check_counts, check_in_open_unit, check_positive
from privet_papers.autoencoder.behaviour.examples import Examples, SeriesLayout
from privet_papers.autoencoder.behaviour.panel_data import Panel
from privet_papers.autoencoder.behaviour.plan import BehaviourPlan, PanelSizes, plan_behaviour
from privet_papers.autoencoder.behaviour.released_layers import (
    BehaviourLayer,
    BehaviourNetwork,
    own_rows,
    release_layer,
)
from privet_papers.autoencoder.behaviour.social_influence import (
    FriendshipInfluence,
    Influence,
    largest_degree,
    release_influence,
    tie_weights,
)

Array = NDArray[np.float64]


class BehaviourModel(ABC):
    """Predicts tomorrow's statuses; private or not, as `guarantee_` says after `fit`."""

    guarantee_: Guarantee | None
    """What is proved; None for a model without any privacy."""

    claim_: Guarantee | None
    """What the model's paper claims, where that differs from what is proved."""

    @abstractmethod
    def fit(self, examples: Examples) -> Self:
        """Learn from examples with statuses."""

    @abstractmethod
    def predict_proba(self, examples: Examples) -> Array:
        """The probability of an increase for each example."""

    def predict(self, examples: Examples) -> NDArray[np.int64]:
        """1 for an increase, 0 for a decrease."""
        return (self.predict_proba(examples) > 0.5).astype(np.int64)

    def score(self, examples: Examples) -> float:
        """The share of statuses that are predicted rightly."""
        if (examples.status < 0).any():
            raise InvalidArgument("examples", examples, "examples whose statuses are known")
        return float((self.predict(examples) == examples.status).mean())

    def predict_tomorrow(self, panel: Panel, *, lags: int = 3) -> Array:
        """Probabilities for all users of the panel, for the day after its last."""
        return self.predict_proba(Examples.tomorrow(panel, lags=lags))


def sigmoid(z: Array) -> Array:
    """1 / (1 + e^-z), without overflow."""
    return np.asarray(0.5 * (1.0 + np.tanh(np.asarray(z) / 2.0)))


RIDGE = 1.0
"""In units of what noise adds to an eigenvalue."""


def learn(
    examples: Examples, plan: BehaviourPlan, influence: Influence, rng: Source
) -> BehaviourNetwork:
    """Release what was planned and solve; whoever calls this has charged for it."""
    weights = user_weights(examples.user) if plan.sizes.per_user else np.ones(len(examples))
    theta = release_influence(
        influence, examples.activity, examples.edges, mechanism=plan.influence,
        rng=rng.child("influence"),
    )  # fmt: skip
    layers: tuple[BehaviourLayer, ...] = ()
    for k, (units, mechanism) in enumerate(zip(plan.hidden, plan.layers, strict=True)):
        inputs = examples.now if k == 0 else own_rows(examples, layers)
        layer = release_layer(
            inputs,
            weights,
            units=units,
            moments=plan.layer_moments(inputs.shape[1]),
            mechanism=mechanism,
            rng=rng.child(f"layer {k}"),
        )
        layers = (*layers, layer)
    own = own_rows(examples, layers)
    shape = plan.row_shape(own.shape[1])
    total = plan.output_moments(own.shape[1]).sum()
    social = examples.social(tie_weights(examples.edges, examples.users, influence.levels, theta))
    total.add(shape.rows(own, social), examples.signs[:, None], weights)
    found = release_moments(total, plan.output, rng=rng.child("output"))
    return BehaviourNetwork(
        layout=SeriesLayout(
            attributes=plan.sizes.attributes,
            target=examples.target,
            events=examples.events,
            levels=influence.levels,
        ),
        lags=plan.sizes.lags,
        social=shape.social,
        theta=theta,
        layers=layers,
        weights=_solve(found),
    )


@final
class BehaviourPredictor(BehaviourModel):
    """dPAH: a private auto-encoder stack with dynamic biases and a logistic output.

    A row for user u and day t + 1 is z = (o, s). The own part o holds the target today and on N
    days before, today's events, the place in the week, and the codes of up to two private
    auto-encoder layers: of all attributes (today and lagged: the dynamic biases), then of o itself.
    The social part s is the influence of friends. The output layer minimises the cross-entropy to
    order two, sum_i w_i ((1/2 - y_i) z_i theta + (z_i theta)^2 / 8), from its noisy coefficients.

    - `epsilon`, `delta`: the budget, all of which is spent.
    - `unit`: "user" protects all records of a person, also where they show in friends' rows;
      "record" one tuple (row), as the paper counts.
    - `lags`: N. `hidden`: units of the learned layers, () for none, None for the rule of
      `plan_behaviour`.
    - `influence`: `FriendshipInfluence` (public graph) or `PropagationInfluence` (paid for).
    - `ledger`: charged once, before anything is drawn. `random_state`: None draws secret noise.

    **Guarantee** `guarantee_`: add or remove all records of one user (or one tuple), the graph
    staying. It covers the released model. A *prediction* for somebody reads the friends' records of
    that day: showing it to others is another release, which is not covered.

    **Assumes** that the graph, its users and the declared bounds are public, and that settings were
    not tuned on these records.

    >>> from privet_papers.autoencoder.behaviour.panel_data import rolling_folds
    >>> from privet_papers.autoencoder.behaviour.health_network import health_network
    >>> panel = health_network(users=120, days=40, seed=0).panel
    >>> fold = rolling_folds(panel, horizon=10)[0]
    >>> model = BehaviourPredictor(epsilon=4.0, random_state=0)
    >>> model = model.fit(Examples.of(panel, fold.train))
    >>> print(model.guarantee_)
    (4, 1e-05)-DP per user, add-remove, proved, if 4 assumed premises hold; EXPERIMENT...
    >>> model.score(Examples.of(panel, fold.test)) > 0.6
    True
    >>> model.predict_tomorrow(panel).shape
    (120,)
    """

    guarantee_: Guarantee
    ledger_entry_: Entry
    model_: BehaviourNetwork

    def __init__(
        self,
        *,
        epsilon: float = 1.0,
        delta: float = 1e-5,
        unit: str = "user",
        lags: int = 3,
        hidden: tuple[int, ...] | None = None,
        influence: Influence | None = None,
        ledger: Ledger | None = None,
        random_state: int | Source | None = None,
    ) -> None:
        check_positive(epsilon=epsilon)
        check_in_open_unit(delta=delta)
        check_counts(lags=lags)
        self.epsilon = float(epsilon)
        self.delta = float(delta)
        if unit not in (Unit.USER.value, Unit.RECORD.value):
            raise InvalidArgument("unit", unit, "user or record")
        self.unit = Unit(unit)
        self.lags = lags
        if hidden is not None and len(hidden) > 2:
            raise InvalidArgument("hidden", hidden, "at most two layers, such as (8, 8)")
        self.hidden = hidden
        self.influence = FriendshipInfluence() if influence is None else influence
        self.ledger = ledger
        self.random_state = random_state
        self.claim_ = None

    def fit(self, examples: Examples) -> Self:
        """Charge, release and solve; the whole budget is spent."""
        if examples.past.shape[1] != self.lags:
            raise InvalidArgument("examples", examples.past.shape[1], f"with {self.lags} lags")
        if (examples.status < 0).any():
            raise InvalidArgument("examples", examples, "examples whose statuses are known")
        plan = self.plan(examples)
        rng = source_of(self.random_state)
        ledger = ledger_in_memory(plan) if self.ledger is None else self.ledger
        ledger.check_terms(plan.stated_adjacency, plan.unit, plan.protects)
        context = ReleaseContext(ledger=ledger, rng=rng, plan=plan)
        self.ledger_entry_ = context.charge(what="behaviour prediction (dPAH)")
        self.model_ = learn(examples, plan, self.influence, rng)
        self.plan_ = plan
        self.guarantee_ = state_guarantee(plan, context.loss, rng)
        return self

    def predict_proba(self, examples: Examples) -> Array:
        model = self.model_
        ties = tie_weights(examples.edges, examples.users, self.influence.levels, model.theta)
        return sigmoid(model.logits(examples, examples.social(ties)))

    def plan(self, examples: Examples) -> BehaviourPlan:
        """Releases, noise and price, from what is public about the examples."""
        sizes = PanelSizes(
            users=examples.users,
            days=examples.span,
            friends=largest_degree(examples.edges),
            attributes=examples.now.shape[1],
            events=len(examples.events),
            lags=self.lags,
            per_user=self.unit is Unit.USER,
        )
        facts = PublicFacts(
            records=sizes.users,
            features=sizes.attributes,
            outputs=2,
            epsilon=self.epsilon,
            delta=self.delta,
        )
        return plan_behaviour(facts, sizes, hidden=self.hidden, influence=self.influence)


def _solve(found: Coefficients) -> Array:
    """The minimum of the order-2 cross-entropy: curvature A/4, slope -B/2, statuses -1 and 1."""
    loss = Quadratic(curvature=found.gram / 4.0, linear=-found.cross / 2.0)
    return np.asarray(loss.minimum(ridge=max(RIDGE * found.ridge / 4.0, 1e-9))[:, 0])
