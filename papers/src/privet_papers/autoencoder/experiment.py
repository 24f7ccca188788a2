"""dPAH against the models it is compared to: Figures 2 and 3 of the paper, and its orderings."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, ClassVar, Self, final

from privet.errors import InvalidArgument
from privet.jobs import Cell, Tell
from privet_papers.autoencoder import figures
from privet_papers.autoencoder.baselines import DeepAutoencoder
from privet_papers.autoencoder.behaviour.health_network import ATTRIBUTES
from privet_papers.autoencoder.findings import (
    SeedAccuracies,
    findings,
    to_json_rows,
)
from privet_papers.autoencoder.published_behaviour import PublishedDPAH
from privet_papers.autoencoder.training_runs import (
    DATA,
    DPAH,
    LAGS,
    MODELS,
    NOT_PRIVATE,
    PRIVATE,
    TDA,
    UNITS,
    BehaviourRuns,
    TrainingRun,
    is_table,
    units_of,
)
from privet_papers.experiment import Experiment, Row, Settings, Shown, seconds_of, setting
from privet_papers.result_tables import Table, mean_and_spread
from privet_papers.taylor_error import truncation_error


@final
@dataclass(frozen=True, kw_only=True)
class AutoencoderSettings(Settings):
    """All of a run. `users` and `days` are those of the generated network."""

    data: tuple[str, ...] = setting(
        DATA,
        help="health or weekly (generated), copenhagen, or a CSV file; the first three.",
        picks=True,
    )
    bounds: str = setting("", help="JSON file that declares the columns of a CSV file.")
    edges: str = setting("", help="CSV file of friendships of a CSV file.")
    target: str = setting("", help="Column of a CSV file whose rise is predicted.")
    user: str = setting("user", help="Column of a CSV file that names the user.")
    day: str = setting("day", help="Column of a CSV file with the day.")
    models: tuple[str, ...] = setting(
        MODELS, help="Only these models.", option="model", among=MODELS, picks=True
    )
    epsilons: tuple[float, ...] = setting(
        (0.2, 0.5, 1.0, 2.0, 4.0, 8.0), help="Budgets of Figure 3 instead of the usual ones.",
        option="epsilon", least=1e-6, picks=True,
    )  # fmt: skip
    epsilon: float = 1.0
    """The budget of Figure 2."""
    rates: tuple[float, ...] = setting(
        (0.1, 0.3, 0.6, 1.0), help="Rates of Figure 2 instead of the usual ones.", option="rate",
        least=1e-3, picks=True,
    )  # fmt: skip
    seeds: int = setting(5, help="How many seeds.", least=1, picks=True)
    """From 1 on: seeds 0 and 100 were used to choose settings."""
    users: int = setting(254, help="Users of the generated network.", least=8)
    days: int = setting(300, help="Days of the generated network.", least=20)
    weeks: int = setting(48, help="Weeks of the weekly one.", least=12)
    labelled: float = setting(
        1.0, help="Share of tuples with a label, of dPAH and TdA.", least=0.01
    )
    steps: int = setting(1000, help="Steps of the deep models that are not private.", least=1)
    """After a quarter as many of pre-training."""
    hidden: int = setting(200, help="Units of each layer of the deep models.", least=1)
    learning_rate: float = setting(1e-3, help="Of the deep models.", least=1e-9)
    published_steps: int = setting(400, help="Steps of dPAH and TdA, which are slow.", least=1)
    published_seeds: int = setting(2, help="Seeds of these two.", picks=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in self.data:
            if name not in DATA and not is_table(name):
                raise InvalidArgument("data", name, f"one of {', '.join(DATA)}, or a .csv file")
        if max(self.rates) > 1.0:
            raise InvalidArgument("rate", max(self.rates), "a share, at most 1")

    def given(self, **values: Any) -> Self:
        """Budgets and rates in order, all of the data always among the rates."""
        for name, always in (("epsilons", ()), ("rates", (1.0,))):
            if name in values:
                values[name] = tuple(sorted({*values[name], *always}))
        return super().given(**values)

    @property
    def numbers(self) -> range:
        """The seeds, which count from 1."""
        return range(1, self.seeds + 1)

    def trainings(self) -> list[TrainingRun]:
        """Every model to be trained once, those with the same examples together."""
        found = dict.fromkeys((*self._figure_2(), *self._figure_3()))
        few = (c for c in found if c.model not in (DPAH, TDA) or c.seed <= self.published_seeds)
        return sorted(few, key=lambda c: [str(part) for part in c.key])

    def _figure_2(self) -> Iterator[TrainingRun]:
        for data in self.data:
            for seed in self.numbers:
                for rate in self.rates:
                    for sampled in ("days", "users") if rate < 1.0 else ("days",):
                        for model in self.models:
                            yield from self._models(data, model, seed, rate, sampled)

    def _models(
        self, data: str, model: str, seed: int, rate: float, sampled: str
    ) -> Iterator[TrainingRun]:
        at: dict[str, Any] = {
            "data": data, "model": model, "seed": seed, "rate": rate, "sampled": sampled,
        }  # fmt: skip
        if model == DPAH and sampled == "users":
            return
        if model in PRIVATE:
            for unit in units_of(model) if sampled == "days" else UNITS[:1]:
                yield TrainingRun(**at, epsilon=self.epsilon, unit=unit)
        elif sampled == "days" or model == "dA":
            yield TrainingRun(**at, epsilon=None, unit=None)

    def _figure_3(self) -> Iterator[TrainingRun]:
        for data in self.data:
            for seed in self.numbers:
                for model in self.models:
                    for epsilon in self.epsilons if model in PRIVATE else ():
                        for unit in units_of(model):
                            yield TrainingRun(
                                data=data, model=model, seed=seed, epsilon=epsilon, unit=unit
                            )


@final
class AutoencoderExperiment(Experiment[AutoencoderSettings]):
    """Figures 2 and 3: accuracy against sampling rate and epsilon; the paper's orderings tested."""

    name = "autoencoder"
    version = 2
    quick: ClassVar = {"all": AutoencoderSettings()}
    paper: ClassVar = {
        "all": AutoencoderSettings(steps=10_000, published_steps=4_000, published_seeds=5)
    }
    shows: ClassVar = (
        Shown(of="Figure 1", rows="architecture"),
        Shown(of="Lemma 4", rows="lemma_4"),
        *(
            Shown(of=f"Figure {k}, {how}", picture=f"{data}-accuracy-against-{what}", rows="rows")
            for k, what in ((2, "cardinality"), (3, "epsilon"))
            for how, data in (("daily", "health"), ("weekly", "weekly"))
        ),
    )

    @cached_property
    def runs(self) -> BehaviourRuns:
        """What makes the examples and models of cells."""
        return BehaviourRuns(self.settings, self.folder)

    def cells(self) -> Iterator[Cell]:
        """A cell for every model of both figures."""
        for one in self.settings.trainings():
            budget = "" if one.epsilon is None else f", epsilon {one.epsilon:g} per {one.unit}"
            yield Cell(
                f"{one.data}: {one.model}{budget}, seed {one.seed}", partial(self._trained, one)
            )

    def _trained(self, one: TrainingRun, report: Tell) -> Row:
        key: Any = asdict(one)
        if is_table(one.data):  # another table under the same name is other data
            key = [key, hashlib.sha256(Path(one.data).read_bytes()).hexdigest()]
        return self.kept(key, lambda: self.runs.run(one))

    def expected_seconds(self) -> float:
        """From twenty steps of a deep model; the models without steps take seconds in all."""
        s = self.settings
        train, _ = self.runs.examples(s.trainings()[0])
        deep = DeepAutoencoder(hidden=(s.hidden,) * 2, steps=20, pretraining_steps=0)
        step = seconds_of(lambda: deep.fit(train)) / 20
        cost = dict.fromkeys(NOT_PRIVATE, 1.25 * s.steps)
        cost |= {DPAH: 6.0 * s.published_steps, TDA: 2.0 * s.published_steps}
        return sum(step * cost.get(c.model, 0.0) for c in s.trainings())

    def collect(self, found: list[Any]) -> Row:
        """Rows, and the paper's orderings."""
        return {
            "rows": found,
            "findings": to_json_rows(findings(found, self.settings)),
            "architecture": architecture(self.settings),
            "lemma_4": {
                "reconstruction": truncation_error(dpah_inputs()),
                "output": truncation_error(1),
            },
        }

    def draw(self, results: Row) -> list[Path]:
        """Both figures for each data set."""
        return figures.draw(self.out, SeedAccuracies(results["rows"], self.settings))

    def tables(self, results: Row) -> list[Table]:
        """Both figures as tables, and the orderings."""
        return tables(results, self.settings)

    def remarks(self, results: Row) -> Iterator[str]:
        """Lemma 4 as printed, and right."""
        for of, error in results["lemma_4"].items():
            yield (
                f"Lemma 4, {of}, error of order 2 for |z| <= 1: printed {error['printed']:.3f}, "
                f"right {error['right']:.4f}; nothing holds |z| there"
            )


def dpah_inputs() -> int:
    """d of dPAH: the attributes today and at N lags, and the mean influence of friends."""
    return len(ATTRIBUTES) * (LAGS + 1) + 1


def architecture(settings: AutoencoderSettings) -> list[Row]:
    """Figure 1 in numbers: the layers of dPAH, and the noise of each at epsilon 1."""
    model = PublishedDPAH(hidden=(settings.hidden,) * 2)
    plan = model.plan(1, dpah_inputs())
    names = ("first private auto-encoder", "second private auto-encoder", "output")
    return [
        {
            "layer": name,
            "inputs": plan.sizes[k],
            "units": 1 if name == "output" else plan.sizes[k + 1],
            "sensitivity": plan.coefficients(k).published,
        }
        for k, name in enumerate(names)
    ]


def tables(results: Row, settings: AutoencoderSettings) -> list[Table]:
    """Figures 2 and 3 as tables (mean accuracy in per cent and its spread), and the orderings."""
    found, parts = SeedAccuracies(results["rows"], settings), []
    budgets: list[Column] = [(f"{e:g}", {"epsilon": e}) for e in settings.epsilons]
    days: list[Column] = [(f"{q:g}", {"rate": q}) for q in settings.rates]
    users: list[Column] = [(n, at | {"sampled": "users"}) for n, at in days]
    at_one = f"epsilon {settings.epsilon:g}"
    for data in settings.data:
        for unit in UNITS:
            title = f"Figure 3, {data}: accuracy against epsilon, per {unit}"
            parts.append(_table(title, found, budgets, data, unit))
            title = f"Figure 2, {data}: accuracy against the share of days, {at_one} per {unit}"
            parts.append(_table(title, found, days, data, unit))
        title = f"Figure 2 by users, {data}: accuracy against the share of users, {at_one} per user"
        parts.append(_table(title, found, users, data, "user"))
    head = ("claim", "data", "per", "verdict", "points")
    orderings = ([f[k] for k in ("claim", "data", "unit", "verdict", "details")]
                 for f in results["findings"])  # fmt: skip
    return [*parts, Table.of("The paper's orderings", head, orderings)]


Column = tuple[str, dict[str, Any]]
"""What stands above it, and which cells it shows."""


def _table(title: str, found: SeedAccuracies, columns: list[Column], data: str, unit: str) -> Table:
    rows = []
    for model in found.settings.models:
        each = [found.accuracies(data, model, unit, **at) for _, at in columns]
        if any(each):
            shown = [mean_and_spread([100.0 * a for a in some]) for some in each]
            flat = [found.of_one_class(data, model, unit, **at) for _, at in columns]
            marks = [
                f" *{k} of {len(some)} did not learn*" if k else ""
                for k, some in zip(flat, each, strict=True)
            ]
            rows.append((model, *(a + b for a, b in zip(shown, marks, strict=True))))
    return Table.of(title, ("model", *(name for name, _ in columns)), rows)
