"""Behaviour prediction as a method of the contract: a record is the whole series of one user."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self, final

import numpy as np
from numpy.typing import NDArray

from privet.data.dataset import Dataset
from privet.data.declarations import declared_columns
from privet.data.domain import Domain, RowKind, Rows
from privet.data.records import PublicFacts, Records
from privet.errors import InvalidArgument
from privet.methods.contract import Array, Files, Method, ReleaseContext, setting
from privet.methods.neighbouring_pairs import NeighbouringPair, lone_record_pair
from privet_papers.argument_checks import check_counts
from privet_papers.autoencoder.behaviour.examples import SeriesLayout
from privet_papers.autoencoder.behaviour.panel_data import Panel, load_panel
from privet_papers.autoencoder.behaviour.plan import BehaviourPlan, PanelSizes, plan_behaviour
from privet_papers.autoencoder.behaviour.predictor import learn
from privet_papers.autoencoder.behaviour.released_layers import BehaviourNetwork
from privet_papers.autoencoder.behaviour.social_influence import (
    FriendshipInfluence,
    Influence,
    PropagationInfluence,
    largest_degree,
)


@final
@dataclass(frozen=True, kw_only=True)
class BehaviourFiles(Files):
    """A table with a row for each user and day, and a list of friends."""

    record: ClassVar[str] = "user"
    places: ClassVar[tuple[str, ...]] = ("edges",)

    edges: str | None = setting(None, help="CSV file of friendships, with a header or without.")
    user: str = setting("user", help="Column of the table that names the user.")
    day: str = setting("day", help="Column of the day: a date (2026-11-16) or a whole number.")
    target: str = setting("", help="Column whose rise is predicted.")
    events: tuple[str, ...] = setting((), help="Columns that are events, with commas between.")
    season: int = setting(7, help="Days of a public cycle; 0 for none.")
    test_days: int = setting(7, help="The last days, which are predicted and not learned from.")

    def __post_init__(self) -> None:
        if self.edges is not None:  # the run is asked from other folders too
            object.__setattr__(self, "edges", str(Path(self.edges).resolve()))

    def panel(self, data: Path, declaration: Path | None) -> Panel:
        """Read the table with its declared columns."""
        bounds, categories = declared_columns(declaration)
        if not self.target:
            raise InvalidArgument("--target", "", f"one of {', '.join(bounds)}")
        return load_panel(
            data, self.edges, bounds=bounds, categories=categories, target=self.target,
            user=self.user, day=self.day, events=self.events, season=self.season,
        )  # fmt: skip

    def read_training(
        self, data: Path, declaration: Path | None, method: Any
    ) -> tuple[Any, Dataset]:
        panel = self.panel(data, declaration)
        check_counts(**{"--test-days": self.test_days})
        days = panel.days - self.test_days
        if days < method.lags + 2:
            raise InvalidArgument(
                "--test-days", self.test_days, f"few enough to leave {method.lags + 2} days",
                f"the table has {panel.days}",
            )  # fmt: skip
        learned = panel.before(days)
        method = method.for_panel(learned)
        statuses = panel.statuses()
        test = [
            (_last(method.series(panel.before(t)), days)[there], statuses[there, t])
            for t in range(days, panel.days)
            if (there := statuses[:, t] >= 0).any()
        ]
        series = method.series(learned)
        none = np.zeros(len(series), dtype=np.int64)
        return method, Dataset(
            name=panel.name, about=panel.about, classes=("falls", "rises"),
            low=np.array(0.0), high=np.array(1.0), x_train=series, y_train=none,
            x_test=np.concatenate([series[:0], *(x for x, _ in test)]),
            y_test=np.concatenate([none[:0], *(y for _, y in test)]),
            split_assumes="",
        )  # fmt: skip

    def read_inputs(
        self, data: Path, declaration: Path | None, method: Any, shape: tuple[int, ...]
    ) -> tuple[Array, list[str]]:
        panel = self.panel(data, declaration)
        return _last(method.series(panel), shape[0]), list(panel.users)


def _last(series: Array, days: int) -> Array:
    """The last so many days; those before the first are days without a record."""
    missing = max(0, days - series.shape[1])
    return np.pad(series, ((0, 0), (missing, 0), (0, 0)))[:, -days:]


@final
@dataclass(frozen=True, kw_only=True)
class Behaviour(Method[BehaviourPlan]):
    """Who will be more active tomorrow? From one's own past, friends and events.

    A record is everything a user left: days x columns (`SeriesLayout`). The graph is a public
    setting.

    **Guarantee** per user: all records of one user are there or count for nothing, also where they
    show in friends' rows; the graph and its users stay. A *prediction* reads what friends did
    today: showing it to others is another release, which is not covered.

    **Assumes** that the graph and its users are public.

    >>> from privet.methods.train_method import make_plan, train
    >>> from privet_papers.autoencoder.behaviour.health_network import health_network
    >>> from privet.noise import seeded
    >>> panel = health_network(users=120, days=40, seed=0).panel
    >>> method, records = Behaviour().on(panel)
    >>> plan = make_plan(method, records.facts(epsilon=4.0, delta=1e-5))
    >>> print(train(method, records, plan, rng=seeded(0)).guarantee)
    (4, 1e-05)-DP per user, zero-out, proved, if 5 assumed premises hold; EXPERIMENT, NOT A RELEASE

    Phan, Wang, Wu and Dou (2016), with a proof for users instead of tuples.
    """

    name: ClassVar[str] = "behaviour"
    system: ClassVar[str] = "deep private auto-encoder"
    in_comparison: ClassVar[bool] = False
    files: ClassVar[type[Files] | None] = BehaviourFiles
    model: ClassVar[type[BehaviourNetwork]] = BehaviourNetwork
    audit_shape: ClassVar[tuple[int, ...]] = (4, 6)

    lags: int = setting(3, help="Days before today that are read.")
    hidden: tuple[int, ...] | None = setting(
        None, help="Units of the learned layers, 8,8; by default from public sizes."
    )
    influence_share: float = setting(
        0.0, help="Part of the budget for the strength of kinds of ties; 0: all count alike."
    )
    target: int = setting(0, help="Column that is predicted.", option=False)
    events: tuple[int, ...] = setting((), help="Columns that are events.", option=False)
    edges: tuple[tuple[int, int], ...] = setting((), help="The public graph.", option=False)

    @classmethod
    def for_audit(cls) -> Self:
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
        return method, Records.with_classes(series, none, domain=domain, classes=np.arange(2))

    def for_panel(self, panel: Panel) -> Self:
        """The same with the public facts of a panel."""
        layout = SeriesLayout.of(panel)
        edges = tuple((int(a), int(b)) for a, b in panel.edges)
        return dataclasses.replace(self, target=layout.target, events=layout.events, edges=edges)

    def series(self, panel: Panel) -> NDArray[np.float32]:
        """The series of all users: users x days x columns."""
        return SeriesLayout.of(panel, levels=self.influence.levels).series(panel)

    def layout(self, columns: int) -> SeriesLayout:
        """What the columns of a series are."""
        levels = self.influence.levels
        return SeriesLayout(
            attributes=columns - 4 - len(levels),
            target=self.target,
            events=self.events,
            levels=levels,
        )

    def plan(self, facts: PublicFacts) -> BehaviourPlan:
        check_counts(lags=self.lags)
        lags = self.lags
        if len(facts.shape) != 2 or facts.shape[0] < lags + 2:
            raise InvalidArgument(
                "records", facts.shape, f"series of at least {lags + 2} days", "or fewer lags"
            )
        if self.hidden is not None and len(self.hidden) > 2:
            raise InvalidArgument("hidden", self.hidden, "at most two layers, such as 8,8")
        if max((max(edge) for edge in self.edges), default=-1) >= facts.records:
            raise InvalidArgument("edges", facts.records, "friends among the users")
        layout = self.layout(facts.shape[1])
        sizes = PanelSizes(
            users=facts.records,
            days=facts.shape[0] - lags - 1,
            friends=largest_degree(self._edges()),
            attributes=layout.attributes,
            events=len(layout.events),
            lags=lags,
        )
        return plan_behaviour(facts, sizes, hidden=self.hidden, influence=self.influence)

    def fit(
        self, records: Records, plan: BehaviourPlan, context: ReleaseContext
    ) -> BehaviourNetwork:
        """Charge once, then make all releases."""
        context.charge(what="behaviour prediction")
        series = records.rows.box().astype(np.float64)
        absent = plan.sizes.users - len(series)  # who has no record at all comes last
        if absent < 0:
            raise InvalidArgument("n_public", plan.sizes.users, "the users of the graph")
        series = np.concatenate([series, np.zeros((absent, *series.shape[1:]))])
        layout = self.layout(series.shape[2])
        examples = layout.training_examples(series, self._edges(), lags=plan.sizes.lags)
        return learn(examples, plan, self.influence, context.rng)

    def _edges(self) -> Any:
        return np.asarray(self.edges, dtype=np.int64).reshape(-1, 2)

    def neighbours(self, plan: BehaviourPlan) -> NeighbouringPair:
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
                lone_record_pair(facts).present,
                rows=Rows(values=values, kind=RowKind.BOX, null=null),
                targets=np.where(null, -1, 0),
            )

        null = np.arange(facts.records) > 3
        return NeighbouringPair(
            present=records(null), absent=records(null | (np.arange(len(null)) == 0))
        )
