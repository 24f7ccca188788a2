"""What is run: data, models, budgets, sampling rates and seeds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import final

PRIVATE = ("dPAH", "FM", "FM, tight", "DPME", "FP")
NOT_PRIVATE = ("dA", "TdA", "CRBM", "SctRBM")
MODELS = (*PRIVATE, *NOT_PRIVATE)
DATA = ("health", "copenhagen")
UNITS = ("user", "record")
DELTA = 1e-5
"""dPAH's; the other private models are pure."""


@final
@dataclass(frozen=True, kw_only=True)
class Cell:
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
        """What decides the examples: cells with one key share them."""
        return (self.data, self.seed, self.sampled if self.rate < 1.0 else "days", self.rate)


@final
@dataclass(frozen=True, kw_only=True)
class Settings:
    """All of a run. `users` and `days` are those of the generated network."""

    data: tuple[str, ...] = DATA
    models: tuple[str, ...] = MODELS
    epsilons: tuple[float, ...] = (0.2, 0.5, 1.0, 2.0, 4.0, 8.0)
    epsilon: float = 1.0
    """The budget of Figure 2."""
    rates: tuple[float, ...] = (0.1, 0.3, 0.6, 1.0)
    seeds: tuple[int, ...] = (1, 2, 3, 4, 5)
    """Seeds 0 and 100 were used to choose settings; none of these was."""
    users: int = 254
    days: int = 300
    steps: int = 1000
    """Steps of the deep models that are not private, after a quarter as many of pre-training."""

    def cells(self) -> Iterator[Cell]:
        """Every cell once, those with the same examples together."""
        found = dict.fromkeys(self._figure_2()) | dict.fromkeys(self._figure_3())
        yield from sorted(found, key=lambda c: [str(part) for part in c.key])

    def _figure_2(self) -> Iterator[Cell]:
        for data in self.data:
            for seed in self.seeds:
                for rate in self.rates:
                    for sampled in ("days", "users") if rate < 1.0 else ("days",):
                        for model in self.models:
                            yield from self._models(data, model, seed, rate, sampled)

    def _models(
        self, data: str, model: str, seed: int, rate: float, sampled: str
    ) -> Iterator[Cell]:
        if model in PRIVATE:
            for unit in UNITS if sampled == "days" else UNITS[:1]:
                yield Cell(
                    data=data, model=model, seed=seed, epsilon=self.epsilon, unit=unit, rate=rate,
                    sampled=sampled,
                )  # fmt: skip
        elif sampled == "days" or model == "dA":
            yield Cell(
                data=data, model=model, seed=seed, epsilon=None, unit=None, rate=rate,
                sampled=sampled,
            )  # fmt: skip

    def _figure_3(self) -> Iterator[Cell]:
        for data in self.data:
            for seed in self.seeds:
                for model in self.models:
                    for epsilon in self.epsilons if model in PRIVATE else ():
                        for unit in UNITS:
                            yield Cell(
                                data=data, model=model, seed=seed, epsilon=epsilon, unit=unit
                            )


QUICK = Settings()
