"""How good a model is, released with noise that is paid for, so that it may be published.

The people are those kept for tests, who are not in the training: their own ledger is charged, or
the ledger of the training, which then counts both for everybody. The model was released before, so
its answer for a test record is a function of that record alone: each is asked by itself.

Classes: every record is in one of 2K cells, its class and whether it was found, and one more or
less changes one count by 1. Numbers: every record adds (1, |e|, e^2, u, u^2), e its error in units
of the target's range and u its target in [-1, 1], so at most 5 in all. Counts and sums are released
once; everything else is made of them, the number of test records too, which stays private.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from privet import _check
from privet.accounting import PrivacyLoss, compose
from privet.data.domain import Rows
from privet.errors import BudgetExceeded, InvalidArgument
from privet.guarantee import Adjacency, Unit
from privet.ledger import Ledger
from privet.mechanisms import DiscreteLaplaceMechanism, LaplaceMechanism
from privet.methods.contract import Model
from privet.noise import Source
from privet.sensitivity import BoundedValue, categories, clip_l1

Array = NDArray[Any]
_NUMBERS = 5
"""What a record adds to the sums of a regression, at most, in the L1 norm."""
_DRAWS = 400
"""Of fresh noise, for the deviation that noise alone gives a measure."""
LEDGER = "test.ledger"


@final
@dataclass(frozen=True, kw_only=True)
class MetricsRelease:
    """A budget for the measures of one model on test records, pure epsilon; nothing is read yet.

    `replace_one`: whether the ledger's neighbours replace a record; else one more or less.

    **Guarantee** epsilon with delta = 0 per test record, by (discrete) Laplace noise on a histogram
    of L1 sensitivity 1 (2 where a record is replaced), or on sums of L1 sensitivity 5 (10).
    **Assumes** a test person has one record, and is not trained on too: who is in both parts is
    covered by the sum of both budgets.
    """

    outputs: int
    """Classes, or 1 for a number."""
    epsilon: float
    replace_one: bool = False

    def __post_init__(self) -> None:
        _check.positive("metrics_epsilon", self.epsilon)

    @property
    def _adjacency(self) -> Adjacency:
        return Adjacency.REPLACE_ONE if self.replace_one else Adjacency.ADD_REMOVE

    def _empty(self) -> BoundedValue:
        if self.outputs > 1:
            return categories([], 2 * self.outputs).histogram()
        return clip_l1(np.zeros((1, _NUMBERS)), _NUMBERS).sum()

    @property
    def mechanism(self) -> DiscreteLaplaceMechanism | LaplaceMechanism:
        """The least noise for the budget."""
        kind = DiscreteLaplaceMechanism if self.outputs > 1 else LaplaceMechanism
        return kind.for_budget(self._empty(), epsilon=self.epsilon, adjacency=self._adjacency)

    @property
    def loss(self) -> Any:
        """What it costs."""
        return self.mechanism.loss(self._empty(), adjacency=self._adjacency)

    def own_ledger(self, folder: Path | None = None) -> Ledger:
        """A ledger of the test people alone, in this folder or in memory, with this as its cap."""
        terms: dict[str, Any] = {
            "cap_epsilon": self.epsilon,
            "cap_delta": 0.0,
            "adjacency": self._adjacency,
        }
        if folder is None:
            return Ledger.in_memory(**terms)
        path = folder / LEDGER
        return Ledger.open(path) if path.exists() else Ledger.create(path, **terms)

    def require(self, ledger: Ledger | None, training: PrivacyLoss) -> None:
        """Refuse now what a ledger could not pay after the training of this cost."""
        if ledger is not None and not ledger.affords(compose([training, self.loss])):
            raise BudgetExceeded(
                cap_epsilon=ledger.cap_epsilon,
                would_be=ledger.epsilon_after(compose([training, self.loss])),
                delta=ledger.cap_delta,
                what="the training and its test metrics",
            )

    def release(
        self,
        outputs: NDArray[np.float64],
        y: Array,
        *,
        classes: tuple[str, ...],
        target_bounds: tuple[float, float] | None,
        ledger: Ledger,
        rng: Source,
    ) -> dict[str, Any]:
        """Charge, draw once, and say what follows; `outputs` are a model's, offsets included."""
        bounded = (
            self._cells(outputs, y) if target_bounds is None else _sums(outputs, y, target_bounds)
        )
        noisy = self.mechanism.release(
            bounded, rng=rng, ledger=ledger, what="test metrics", adjacency=self._adjacency
        )
        told = measures(noisy, classes, target_bounds)
        fresh = np.random.default_rng(0)  # of what was released: no secret
        again = noisy + fresh.laplace(scale=self.mechanism.scale, size=(_DRAWS, len(noisy)))
        spread = [measures(v, classes, target_bounds) for v in again]
        stated = self.mechanism.guarantee(bounded, rng=rng, adjacency=self._adjacency)
        return {
            **told,
            "noise_deviation": {k: _deviation([s[k] for s in spread]) for k in told},
            "guarantee": stated.to_dict(),
        }

    def _cells(self, outputs: NDArray[np.float64], y: Array) -> BoundedValue:
        """How many records each class has, found and not found; a label that is none is class 0."""
        found = outputs.argmax(axis=1) == y
        return categories(2 * np.asarray(y) + found, 2 * self.outputs).histogram()


def _sums(outputs: NDArray[np.float64], y: Array, bounds: tuple[float, float]) -> BoundedValue:
    """Sums of errors and targets, each record clipped; one that is not finite adds nothing."""
    low, high = bounds
    target = np.clip((np.asarray(y, dtype=np.float64) - low) / (high - low), 0.0, 1.0)
    said = np.clip((outputs + 1.0) / 2.0, 0.0, 1.0)
    error, u = np.abs(said - target), 2.0 * target - 1.0
    rows = np.column_stack([np.ones_like(u), error, error**2, u, u**2])
    return clip_l1(rows, _NUMBERS).sum()


def measures(
    noisy: Array, classes: tuple[str, ...], target_bounds: tuple[float, float] | None
) -> dict[str, Any]:
    """The measures that noisy counts or sums give, each held where it can be.

    >>> measures(np.array([5.0, 15.0, 0.0, 80.0]), ("ill", "well"), None)
    {'test_accuracy': 0.95, 'balanced_accuracy': 0.875}
    >>> sums = np.array([100.0, 10.0, 2.0, 0.0, 40.0])  # u has variance .4, so the target has .1
    >>> found = measures(sums, (), (0.0, 50.0))
    >>> round(found["mean_absolute_error"], 6), round(found["r2"], 6)
    (5.0, 0.8)
    """
    if target_bounds is None:
        cells = np.maximum(noisy, 0.0).reshape(len(classes), 2)
        total = cells.sum(axis=1)
        recalls = cells[:, 1] / np.maximum(total, 1.0)
        return {
            "test_accuracy": float(min(1.0, cells[:, 1].sum() / max(1.0, total.sum()))),
            "balanced_accuracy": float(np.minimum(recalls, 1.0).mean()),
        }
    low, high = target_bounds
    n = max(1.0, float(noisy[0]))
    error, square, u, uu = (float(v) / n for v in noisy[1:])
    variance = max(uu - u**2, 0.0) / 4.0  # of the target, in units of its range
    r2 = 1.0 - max(square, 0.0) / variance if variance > 0.0 else -1.0
    return {
        "mean_absolute_error": min(max(error, 0.0), 1.0) * (high - low),
        "r2": min(max(r2, -1.0), 1.0),
    }


def _deviation(values: list[float]) -> float:
    return float(np.std(values))


def answers_alone(model: Model, rows: Rows) -> NDArray[np.float64]:
    """The model's outputs, each record asked by itself: none depends on its company's rounding."""
    parts = [model.outputs(rows.part(slice(i, i + 1))) for i in range(len(rows))]
    return np.concatenate(parts)


def check_unit(ledger: Ledger | None, user: str | None) -> None:
    """Refuse where whole people, or teachers' shards, are what a ledger counts."""
    unit = Unit.USER if user is not None else Unit.RECORD if ledger is None else ledger.unit
    if unit is not Unit.RECORD:
        raise InvalidArgument(
            "--release-metrics", f"with a promise per {unit.value}", "left out",
            "a test person's single records are what it would cover",
        )  # fmt: skip
