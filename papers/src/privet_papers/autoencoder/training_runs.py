"""The examples and models of a cell."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

import numpy as np

from privet.data.behaviour import Panel, rolling
from privet.data.behaviour_health import health_network
from privet.errors import InvalidArgument
from privet.methods.autoencoder.behaviour import BehaviourModel, BehaviourPredictor, Examples
from privet.methods.autoencoder.behaviour.files import BehaviourFiles
from privet.papers.autoencoder.compared import (
    ConditionalRBM,
    DeepAutoencoder,
    FilterPriority,
    FunctionalMechanism,
    PerturbedHistogram,
    SocialRBM,
    TruncatedAutoencoder,
)
from privet.papers.autoencoder.panels import copenhagen
from privet.papers.autoencoder.published_behaviour import PublishedDPAH

if TYPE_CHECKING:
    from privet.papers.autoencoder.experiment import AutoencoderSettings

PUBLISHED = "dPAH as published"
PRIVATE = ("dPAH", PUBLISHED, "FM", "FM, all columns", "FM, tight", "DPME", "FP")
NOT_PRIVATE = ("dA", "TdA", "CRBM", "SctRBM")
MODELS = (*PRIVATE, *NOT_PRIVATE)
DATA = ("health", "weekly", "copenhagen")
UNITS = ("user", "record")
DELTA = 1e-5
"""dPAH's; the other private models are pure."""
LAGS = 3
HORIZON = {"health": 0.2, "weekly": 0.2, "copenhagen": 0.25}
"""The share of days, the last ones, whose statuses are predicted."""


def is_table(data: str) -> bool:
    """Whether it names a file of the user's own."""
    return Path(data).suffix == ".csv"


def units_of(model: str) -> tuple[str, ...]:
    """Whom a private model is run for; the paper claims its own for tuples alone."""
    return ("record",) if model == PUBLISHED else UNITS


@final
@dataclass(frozen=True, kw_only=True)
class Trained:
    """One model, trained once."""

    data: str
    model: str
    seed: int
    epsilon: float | None
    """None for models that are not private."""
    unit: str | None
    rate: float = 1.0
    sampled: str = "days"
    """What the rate is a share of: training days (the paper's M) or users."""

    @property
    def key(self) -> tuple[object, ...]:
        """What decides the examples: those with one key share them."""
        return (self.data, self.seed, self.sampled if self.rate < 1.0 else "days", self.rate)


def by_week(panel: Panel) -> Panel:
    """Means of the recorded days of each week; a week with none is not recorded."""
    weeks = panel.days // 7
    days = panel.values[:, : 7 * weeks].reshape(len(panel.users), weeks, 7, -1)
    there = ~np.isnan(days)
    mean = np.nansum(days, axis=2) / np.maximum(there.sum(axis=2), 1)
    values = np.where(there.any(axis=2), mean, np.nan)
    return replace(panel, name=f"{panel.name}, weekly", values=values, season=0)


@final
class Bench:
    """Makes examples for cells and keeps the last ones: cells come sorted."""

    def __init__(self, settings: AutoencoderSettings, folder: Path | None = None) -> None:
        self.settings = settings
        self.folder = folder
        self._key: tuple[object, ...] = ()
        self._examples: tuple[Examples, Examples] | None = None

    def panel(self, data: str, seed: int) -> Panel:
        """A network of its own for each seed; tables of files end a day earlier for each seed."""
        match data:
            case "health":
                s = self.settings
                return health_network(users=s.users, days=s.days, seed=seed).panel
            case "weekly":
                s = self.settings
                return by_week(health_network(users=s.users, days=s.days, seed=seed).panel)
            case "copenhagen":
                whole = copenhagen(self.folder)
                return whole.before(whole.days - (seed - 1) % 5)
            case table:
                whole = self._own(Path(table))
                return whole.before(whole.days - (seed - 1) % 5)

    def _own(self, table: Path) -> Panel:
        """The user's own table, declared as for `privet train behaviour`."""
        s = self.settings
        read = BehaviourFiles(edges=s.edges or None, user=s.user, day=s.day, target=s.target)
        panel = read.panel(table, Path(s.bounds) if s.bounds else None)
        if panel.days < 5 + 4 * (LAGS + 2):
            raise InvalidArgument("data", f"{panel.days} days", f"{5 + 4 * (LAGS + 2)} or more")
        return panel

    def examples(self, cell: Trained) -> tuple[Examples, Examples]:
        """Training and test examples; the test days are the same at every rate."""
        if self._examples is None or cell.key != self._key:
            self._key, self._examples = cell.key, self._make(cell)
        return self._examples

    def _make(self, cell: Trained) -> tuple[Examples, Examples]:
        panel = self.panel(cell.data, cell.seed)
        horizon = max(1, round(HORIZON.get(cell.data, 0.25) * panel.days))
        if cell.rate < 1.0 and cell.sampled == "users":
            rng = np.random.default_rng([cell.seed, 1])
            count = max(8, round(cell.rate * len(panel.users)))
            kept = np.sort(rng.permutation(len(panel.users))[:count])
            few = panel.sample(kept)
            (fold,) = rolling(panel, horizon=horizon, first=LAGS + 1)
            # what is learned from few users is tested on the network of all of them
            return Examples.of(few, fold.train, lags=LAGS), Examples.of(panel, fold.test, lags=LAGS)
        training = panel.days - horizon - LAGS - 1
        window = max(1, round(cell.rate * training))
        first = panel.days - horizon - window - LAGS - 1
        recent = replace(panel, values=panel.values[:, max(first, 0) :])
        (fold,) = rolling(recent, horizon=horizon, first=LAGS + 1)
        return (
            Examples.of(recent, fold.train, lags=LAGS),
            Examples.of(recent, fold.test, lags=LAGS),
        )

    def model(self, cell: Trained) -> BehaviourModel:
        """The model of a cell."""
        steps: dict[str, Any] = {
            "steps": self.settings.steps,
            "pretraining_steps": self.settings.steps // 4,
            "learning_rate": self.settings.learning_rate,
            "random_state": cell.seed,
        }
        one: dict[str, Any] = steps | {"hidden": self.settings.hidden}
        two: dict[str, Any] = steps | {"hidden": (self.settings.hidden,) * 2}
        match cell.model:
            case "dA":
                return DeepAutoencoder(**two)
            case "TdA":
                return TruncatedAutoencoder(**two)
            case "CRBM":
                return ConditionalRBM(**one)
            case "SctRBM":
                return SocialRBM(**one)
        if cell.epsilon is None or cell.unit is None:
            raise InvalidArgument("model", cell.model, "one of the models of the comparison")
        if cell.model == PUBLISHED:
            n = self.settings.published_steps
            fewer = two | {"steps": n, "pretraining_steps": n // 4}
            return PublishedDPAH(epsilon=cell.epsilon, **fewer)
        paid: dict[str, Any] = {
            "epsilon": cell.epsilon, "unit": cell.unit, "random_state": cell.seed,
        }  # fmt: skip
        match cell.model:
            case "dPAH":
                return BehaviourPredictor(delta=DELTA, lags=LAGS, **paid)
            case "FM":
                return FunctionalMechanism(**paid)
            case "FM, all columns":
                return FunctionalMechanism(all_columns=True, **paid)
            case "FM, tight":
                return FunctionalMechanism(tight=True, **paid)
            case "DPME":
                return PerturbedHistogram(**paid)
            case "FP":
                return FilterPriority(**paid)
        raise InvalidArgument("model", cell.model, "one of the models of the comparison")

    def run(self, cell: Trained) -> dict[str, Any]:
        """Train and test one cell; what came out, with what is proved."""
        train, test = self.examples(cell)
        began = time.perf_counter()
        model = self.model(cell).fit(train)
        seconds = time.perf_counter() - began
        proved = model.guarantee_
        share = float(test.status.mean())
        return {
            **asdict(cell),
            "accuracy": model.score(test),
            "always": max(share, 1.0 - share),
            "proved": None if proved is None else proved.to_dict(),
            "examples": len(train),
            "seconds": round(seconds, 3),
        }
