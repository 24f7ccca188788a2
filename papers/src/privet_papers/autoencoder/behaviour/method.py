"""Behaviour prediction as a method of the contract: a record is the whole series of one user."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, ClassVar, Self, final

import numpy as np
from numpy.typing import NDArray

from privet import _check
from privet.data.behaviour import Panel
from privet.data.records import PublicFacts, Records
from privet.data.rows import Domain, Kind, Rows
from privet.errors import InvalidArgument
from privet.methods.autoencoder.behaviour.files import BehaviourFiles
from privet.methods.autoencoder.behaviour.graph import largest_degree
from privet.methods.autoencoder.behaviour.influence import (
    FriendshipInfluence,
    Influence,
    PropagationInfluence,
)
from privet.methods.autoencoder.behaviour.network import BehaviourNetwork
from privet.methods.autoencoder.behaviour.plan import BehaviourPlan, Sizes, plan_behaviour
from privet.methods.autoencoder.behaviour.predictor import learn
from privet.methods.autoencoder.behaviour.series import Layout
from privet.methods.contract import Files, Method, Spending, Worst, lone_record, setting


@final
@dataclass(frozen=True, kw_only=True)
class Behaviour(Method[BehaviourPlan]):
    """Who will be more active tomorrow? From one's own past, friends and events.

    A record is everything a user left: days x columns (`Layout`). The graph is a public setting.

    **Guarantee** per user: all records of one user are there or count for nothing, also where they
    show in friends' rows; the graph and its users stay. A *prediction* reads what friends did
    today: showing it to others is another release, which is not covered.

    **Assumes** that the graph and its users are public.

    >>> from privet.methods.promise import planned, train
    >>> from privet.data.behaviour_health import health_network
    >>> from privet.noise import seeded
    >>> panel = health_network(users=120, days=40, seed=0).panel
    >>> method, records = Behaviour().on(panel)
    >>> plan = planned(method, records.facts(epsilon=4.0, delta=1e-5))
    >>> print(train(method, records, plan, rng=seeded(0)).guarantee)
    (4, 1e-05)-DP per user, zero-out, proved; EXPERIMENT, NOT A RELEASE

    Phan, Wang, Wu and Dou (2016), with a proof for users instead of tuples.
    """

    name: ClassVar[str] = "behaviour"
    system: ClassVar[str] = "deep private auto-encoder"
    compared: ClassVar[bool] = False
    files: ClassVar[type[Files] | None] = BehaviourFiles
    model: ClassVar[type[BehaviourNetwork]] = BehaviourNetwork
    smallest_shape: ClassVar[tuple[int, ...]] = (4, 6)

    lags: int = setting(3, help="Days before today that are read.")
    hidden: tuple[int, ...] | None = setting(
        None, help="Units of the learned layers, 8,8; chosen from public sizes unless told."
    )
    influence_share: float = setting(
        0.0, help="Part of the budget for the strength of kinds of ties; 0: all count alike."
    )
    target: int = setting(0, help="Column that is predicted.", option=False)
    events: tuple[int, ...] = setting((), help="Columns that are events.", option=False)
    edges: tuple[tuple[int, int], ...] = setting((), help="The public graph.", option=False)

    @classmethod
    def small(cls) -> Self:
        """Two days to learn from, and friends."""
        return cls(lags=1, edges=((0, 1), (0, 2), (2, 3)))

    @property
    def influence(self) -> Influence:
        """How strongly friends move each other."""
        share = self.influence_share
        return PropagationInfluence(budget_share=share) if share else FriendshipInfluence()

    def on(self, panel: Panel) -> tuple[Self, Records]:
        """The method for this panel, and its users as records."""
        method = self.for_panel(panel)
        series = method.series(panel)
        domain = Domain(shape=series.shape[1:], bounds=(0.0, 1.0))
        none = np.zeros(len(series), dtype=np.int64)
        return method, Records.classified(series, none, domain=domain, classes=np.arange(2))

    def for_panel(self, panel: Panel) -> Self:
        """The same with the public facts of a panel."""
        layout = Layout.of(panel)
        edges = tuple((int(a), int(b)) for a, b in panel.edges)
        return dataclasses.replace(self, target=layout.target, events=layout.events, edges=edges)

    def series(self, panel: Panel) -> NDArray[np.float32]:
        """Users x days x columns."""
        return Layout.of(panel, levels=self.influence.levels).series(panel)

    def layout(self, columns: int) -> Layout:
        """What the columns of a series are."""
        levels = self.influence.levels
        return Layout(
            attributes=columns - 4 - len(levels),
            target=self.target,
            events=self.events,
            levels=levels,
        )

    def plan(self, facts: PublicFacts) -> BehaviourPlan:
        lags = _check.count("lags", self.lags)
        if len(facts.shape) != 2 or facts.shape[0] < lags + 2:
            raise InvalidArgument(
                "records", facts.shape, f"series of at least {lags + 2} days", "or fewer lags"
            )
        if self.hidden is not None and len(self.hidden) > 2:
            raise InvalidArgument("hidden", self.hidden, "at most two layers, such as 8,8")
        if max((max(edge) for edge in self.edges), default=-1) >= facts.records:
            raise InvalidArgument("edges", facts.records, "friends among the users")
        layout = self.layout(facts.shape[1])
        sizes = Sizes(
            users=facts.records,
            days=facts.shape[0] - lags - 1,
            friends=largest_degree(self._edges()),
            attributes=layout.attributes,
            events=len(layout.events),
            lags=lags,
        )
        return plan_behaviour(facts, sizes, hidden=self.hidden, influence=self.influence)

    def fit(self, records: Records, plan: BehaviourPlan, spending: Spending) -> BehaviourNetwork:
        """One charge, then all releases."""
        spending.charge(what="behaviour prediction")
        series = records.rows.box().astype(np.float64)
        absent = plan.sizes.users - len(series)  # who has no record at all comes last
        if absent < 0:
            raise InvalidArgument("n_public", plan.sizes.users, "the users of the graph")
        series = np.concatenate([series, np.zeros((absent, *series.shape[1:]))])
        layout = self.layout(series.shape[2])
        examples = layout.learned_from(series, self._edges(), lags=plan.sizes.lags)
        return learn(examples, plan, self.influence, spending.rng)

    def _edges(self) -> Any:
        return np.asarray(self.edges, dtype=np.int64).reshape(-1, 2)

    def neighbours(self, plan: BehaviourPlan) -> Worst:
        """The first user, whose target rises from day to day as that of friends does, or not."""
        facts = plan.facts
        days, columns = facts.shape
        layout = self.layout(columns)
        rows = np.zeros((facts.records, days, columns), dtype=np.float32)
        rows[..., layout.target] = np.linspace(0.0, 1.0, days)
        rows[..., layout.attributes] = 1.0
        rows[..., layout.attributes + 1 :] = 0.5

        def records(null: Any) -> Records:
            values = np.where(null[:, None, None], 0.0, rows).astype(np.float32)
            return dataclasses.replace(
                lone_record(facts).present,
                rows=Rows(values=values, kind=Kind.BOX, null=null),
                targets=np.where(null, -1, 0),
            )

        null = np.arange(facts.records) > 3
        return Worst(present=records(null), absent=records(null | (np.arange(len(null)) == 0)))
