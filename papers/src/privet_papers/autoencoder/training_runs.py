"""The examples and models of a cell."""

from __future__ import annotations

import math
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

import numpy as np

from privet.errors import InvalidArgument
from privet_papers.autoencoder.baselines import (
    ConditionalRBM,
    DeepAutoencoder,
    FilterPriority,
    FunctionalMechanism,
    PerturbedHistogram,
    SocialRBM,
)
from privet_papers.autoencoder.behaviour import BehaviourModel, BehaviourPredictor, Examples
from privet_papers.autoencoder.behaviour.health_network import health_network
from privet_papers.autoencoder.behaviour.method import BehaviourFiles
from privet_papers.autoencoder.behaviour.panel_data import Panel, rolling_folds
from privet_papers.autoencoder.datasets import copenhagen
from privet_papers.autoencoder.published_behaviour import PublishedDPAH

if TYPE_CHECKING:
    from privet_papers.autoencoder.experiment import AutoencoderSettings

DPAH, TDA, SOUND = "dPAH", "TdA", "sound predictor"
"""The paper's model, the same without noise, and ours under a proof (`BehaviourPredictor`)."""
PRIVATE = (DPAH, SOUND, "FM", "FM, all columns", "FM, tight", "DPME", "FP")
NOT_PRIVATE = ("dA", TDA, "CRBM", "SctRBM")
MODELS = (*PRIVATE, *NOT_PRIVATE)
DATA = ("health", "weekly", "copenhagen")
UNITS = ("user", "record")
DELTA = 1e-5
"""Of the sound predictor; the other private models are pure."""
LAGS = 3
"""N, the days before today that are read; the default of `Behaviour` as well."""
HORIZON = {"health": 0.2, "weekly": 0.2, "copenhagen": 0.25}
"""The share of days, the last ones, whose statuses are predicted."""


def is_table(data: str) -> bool:
    """Whether the name of data is a CSV file of the user's own."""
    return Path(data).suffix == ".csv"


def units_of(model: str) -> tuple[str, ...]:
    """Whom a private model is run for; the paper claims its own for tuples alone."""
    return ("record",) if model == DPAH else UNITS


@final
@dataclass(frozen=True, kw_only=True)
class TrainingRun:
    """A model to train, and the data and budget that it gets."""

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


def hide_statuses(examples: Examples, share: float, seed: int) -> Examples:
    """The same tuples, of which only this share have a label."""
    hidden = np.random.default_rng([seed, 2]).random(len(examples)) >= share
    return replace(examples, status=np.where(hidden, -1, examples.status))


@final
class BehaviourRuns:
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
                return by_week(health_network(users=s.users, days=7 * s.weeks, seed=seed).panel)
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

    def examples(self, cell: TrainingRun) -> tuple[Examples, Examples]:
        """Training and test examples; the test days are the same at every rate."""
        if self._examples is None or cell.key != self._key:
            self._key, self._examples = cell.key, self._make(cell)
        return self._examples

    def _make(self, cell: TrainingRun) -> tuple[Examples, Examples]:
        panel = self.panel(cell.data, cell.seed)
        horizon = max(1, round(HORIZON.get(cell.data, 0.25) * panel.days))
        if cell.rate < 1.0 and cell.sampled == "users":
            rng = np.random.default_rng([cell.seed, 1])
            count = max(8, round(cell.rate * len(panel.users)))
            kept = np.sort(rng.permutation(len(panel.users))[:count])
            few = panel.sample(kept)
            (fold,) = rolling_folds(panel, horizon=horizon, first=LAGS + 1)
            # what is learned from few users is tested on the network of all of them
            return Examples.of(few, fold.train, lags=LAGS), Examples.of(panel, fold.test, lags=LAGS)
        training = panel.days - horizon - LAGS - 1
        window = max(1, round(cell.rate * training))
        first = panel.days - horizon - window - LAGS - 1
        recent = replace(panel, values=panel.values[:, max(first, 0) :])
        (fold,) = rolling_folds(recent, horizon=horizon, first=LAGS + 1)
        return (
            Examples.of(recent, fold.train, lags=LAGS),
            Examples.of(recent, fold.test, lags=LAGS),
        )

    def model(self, cell: TrainingRun) -> BehaviourModel:
        """The untrained model of a cell."""
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
                return PublishedDPAH(epsilon=math.inf, **two | self._published_steps)
            case "CRBM":
                return ConditionalRBM(**one)
            case "SctRBM":
                return SocialRBM(**one)
        if cell.epsilon is None or cell.unit is None:
            raise InvalidArgument("model", cell.model, "one of the models of the comparison")
        if cell.model == DPAH:
            return PublishedDPAH(epsilon=cell.epsilon, **two | self._published_steps)
        paid: dict[str, Any] = {
            "epsilon": cell.epsilon, "unit": cell.unit, "random_state": cell.seed,
        }  # fmt: skip
        match cell.model:
            case "sound predictor":
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

    @property
    def _published_steps(self) -> dict[str, int]:
        """Of dPAH and TdA, which are one object."""
        n = self.settings.published_steps
        return {"steps": n, "pretraining_steps": n // 4}

    def run(self, cell: TrainingRun) -> dict[str, Any]:
        """Train and test one cell; what came out, with what is proved."""
        train, test = self.examples(cell)
        if cell.model in (DPAH, TDA) and self.settings.labelled < 1.0:
            train = hide_statuses(train, self.settings.labelled, cell.seed)
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
