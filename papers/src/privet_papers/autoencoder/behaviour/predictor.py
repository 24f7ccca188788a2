"""dPAH: private prediction of who will be more active tomorrow, from own past, friends and events.

After Phan, Wang, Wu and Dou, "Differential Privacy Preservation for Deep Auto-Encoders: An
Application of Human Behavior Prediction" (2016), with a proof for users instead of tuples.
"""

from __future__ import annotations

from typing import Self, final

import numpy as np
from numpy.typing import NDArray

from privet import _check
from privet.bounds import Quadratic, user_weights
from privet.data.records import PublicFacts
from privet.errors import InvalidArgument
from privet.guarantee import Guarantee, Unit
from privet.ledger import Entry, Ledger
from privet.mechanisms import Coefficients, release_moments
from privet.methods.autoencoder.behaviour.examples import Examples
from privet.methods.autoencoder.behaviour.graph import largest_degree
from privet.methods.autoencoder.behaviour.influence import (
    FriendshipInfluence,
    Influence,
    release_influence,
    tie_weights,
)
from privet.methods.autoencoder.behaviour.layers import Layer, release_layer
from privet.methods.autoencoder.behaviour.model import BehaviourModel, sigmoid
from privet.methods.autoencoder.behaviour.network import BehaviourNetwork, own_rows
from privet.methods.autoencoder.behaviour.plan import BehaviourPlan, Sizes, plan_behaviour
from privet.methods.autoencoder.behaviour.series import Layout
from privet.methods.contract import Spending
from privet.methods.promise import check_terms, ledger_for, promise
from privet.noise import Source
from privet.noise.source import source_of

Array = NDArray[np.float64]

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
    layers: tuple[Layer, ...] = ()
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
        layout=Layout(
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

    >>> from privet.data.behaviour import rolling
    >>> from privet.data.behaviour_health import health_network
    >>> panel = health_network(users=120, days=40, seed=0).panel
    >>> fold = rolling(panel, horizon=10)[0]
    >>> model = BehaviourPredictor(epsilon=4.0, random_state=0)
    >>> model = model.fit(Examples.of(panel, fold.train))
    >>> print(model.guarantee_)
    (4, 1e-05)-DP per user, add-remove, proved; EXPERIMENT, NOT A RELEASE
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
        self.epsilon = _check.positive("epsilon", epsilon)
        self.delta = _check.open_unit("delta", delta)
        if unit not in (Unit.USER.value, Unit.RECORD.value):
            raise InvalidArgument("unit", unit, "user or record")
        self.unit = Unit(unit)
        self.lags = _check.count("lags", lags)
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
        ledger = ledger_for(plan) if self.ledger is None else self.ledger
        check_terms(ledger, plan)
        spending = Spending(ledger=ledger, rng=rng, plan=plan)
        self.ledger_entry_ = spending.charge(what="behaviour prediction (dPAH)")
        self.model_ = learn(examples, plan, self.influence, rng)
        self.plan_ = plan
        self.guarantee_ = promise(plan, spending.loss, rng)
        return self

    def predict_proba(self, examples: Examples) -> Array:
        model = self.model_
        ties = tie_weights(examples.edges, examples.users, self.influence.levels, model.theta)
        return sigmoid(model.logits(examples, examples.social(ties)))

    def plan(self, examples: Examples) -> BehaviourPlan:
        """Releases, noise and price, from what is public about the examples."""
        sizes = Sizes(
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
