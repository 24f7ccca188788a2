"""The paper's orderings, one by one: held or not held, with the numbers behind the verdict."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, final

import numpy as np
from scipy import stats

from privet_papers.autoencoder.training_runs import DPAH, SOUND, UNITS, units_of

if TYPE_CHECKING:
    from privet_papers.autoencoder.experiment import AutoencoderSettings

Row = dict[str, Any]
CLOSE = 0.02
"""How much accuracy may be missing for "competitive"; our reading of the word."""
ROUNDING = 1e-9
"""Of two shares of the same tuples, one of which was taken from 1."""
FLAT = 0.05
"""How much accuracy may be lost over all budgets for "robust against epsilon"."""


@final
@dataclass(frozen=True, kw_only=True)
class OrderingFinding:
    """One sentence of the paper, tested at one unit of protection on one data set.

    `held` is True when every comparison points the stated way with 95% confidence, seed by seed;
    `on_average` when every mean points that way, whatever the confidence.
    """

    claim: str
    data: str
    unit: str
    held: bool
    on_average: bool
    details: str

    @property
    def verdict(self) -> str:
        """The outcome in words."""
        if self.held:
            return "held"
        return "not held, though the means point that way" if self.on_average else "not held"


def student_interval(values: list[float], confidence: float = 0.95) -> tuple[float, float, float]:
    """Mean and Student interval over seeds; infinite for one value.

    >>> [round(x, 3) for x in student_interval([0.7, 0.72, 0.74])]
    [0.72, 0.67, 0.77]
    """
    x = np.asarray(values, dtype=np.float64)
    mean = float(x.mean())
    if len(x) < 2:
        return mean, -math.inf, math.inf
    half = float(stats.t.ppf((1.0 + confidence) / 2.0, len(x) - 1) * x.std(ddof=1)) / math.sqrt(
        len(x)
    )
    return mean, mean - half, mean + half


def in_points(mean: float, low: float, high: float) -> str:
    """A difference in percentage points, with its interval where there is one.

    >>> in_points(0.1, 0.05, 0.15), in_points(0.1, -math.inf, math.inf)
    ('+10.0 [+5.0, +15.0]', '+10.0')
    """
    text = f"{100 * mean:+.1f}"
    return text if math.isinf(high) else f"{text} [{100 * low:+.1f}, {100 * high:+.1f}]"


@final
@dataclass(frozen=True, kw_only=True)
class SeedTest:
    """One comparison within a finding, seed by seed."""

    held: bool
    on_average: bool
    text: str


@final
class SeedAccuracies:
    """Accuracies by cell, for comparisons seed by seed."""

    def __init__(self, rows: list[Row], settings: AutoencoderSettings) -> None:
        self.settings = settings
        self._always = {(r["data"], r["seed"]): r["always"] for r in rows if "always" in r}
        self._found = {
            (r["data"], r["model"], r["epsilon"], r["unit"], r["rate"], r["sampled"], r["seed"]): r[
                "accuracy"
            ]
            for r in rows
        }

    def accuracies(
        self, data: str, model: str, unit: str, *, epsilon: float | None = None, rate: float = 1.0,
        sampled: str = "days",
    ) -> list[float]:  # fmt: skip
        """Over seeds; a model that is not private is the same at every budget and unit."""
        at: dict[str, Any] = {"epsilon": epsilon, "rate": rate, "sampled": sampled}
        return list(self.by_seed(data, model, unit, **at).values())

    def of_one_class(self, data: str, model: str, unit: str, **at: Any) -> int:
        """For how many seeds it is no better than the more frequent status: it did not learn."""
        seeds = self.by_seed(data, model, unit, **at)
        least = {seed: self._always.get((data, seed), -1.0) + ROUNDING for seed in seeds}
        return sum(accuracy <= least[seed] for seed, accuracy in seeds.items())

    def by_seed(
        self, data: str, model: str, unit: str, *, epsilon: float | None = None, rate: float = 1.0,
        sampled: str = "days",
    ) -> dict[int, float]:  # fmt: skip
        """The same, with the seeds, of which a slow model has fewer than others."""
        sampled = sampled if rate < 1.0 else "days"
        out = {}
        for seed in self.settings.numbers:
            for e, u in ((epsilon or self.settings.epsilon, unit), (None, None)):
                if (data, model, e, u, rate, sampled, seed) in self._found:
                    out[seed] = self._found[data, model, e, u, rate, sampled, seed]
                    break
        return out

    def difference(self, data: str, a: str, b: str, unit: str, **at: Any) -> list[float]:
        """Accuracy of a minus that of b, for each seed that both have."""
        first, second = self.by_seed(data, a, unit, **at), self.by_seed(data, b, unit, **at)
        return [first[seed] - second[seed] for seed in first if seed in second]


def findings(rows: list[Row], settings: AutoencoderSettings) -> list[OrderingFinding]:
    """Every ordering the paper states, of its own model and of ours, on every data set.

    The paper's model has a claim for tuples alone; ours is tested for both units.
    """
    results = SeedAccuracies(rows, settings)
    return [
        finding
        for data in settings.data
        for unit in UNITS
        for model in (DPAH, SOUND)
        if unit in units_of(model)
        for finding in _orderings(results, data, unit, model)
        if finding is not None
    ]


def _orderings(
    r: SeedAccuracies, data: str, unit: str, model: str
) -> Iterator[OrderingFinding | None]:
    s = r.settings
    first, last = min(s.rates), max(s.rates)
    several = int(first < last)  # with one rate there is nothing to say about cardinality

    def above(a: str, b: str, least: float, **at: Any) -> SeedTest:
        mean, low, high = student_interval(r.difference(data, a, b, unit, **at))
        text = in_points(mean, low, high)
        return SeedTest(held=low > least, on_average=mean > least, text=text)

    def every(claim: str, tests: list[tuple[str, SeedTest]]) -> OrderingFinding | None:
        if not tests:
            return None
        return OrderingFinding(
            claim=claim,
            data=data,
            unit=unit,
            held=all(t.held for _, t in tests),
            on_average=all(t.on_average for _, t in tests),
            details="; ".join(f"{where}: {t.text}" for where, t in tests),
        )

    def has(*models: str) -> bool:
        return all(m in s.models for m in models)

    for other in ("FM", "DPME", "FP"):
        if has(model, other):
            yield every(
                f"{model} above {other} at every epsilon (Fig. 3)",
                [(f"{e:g}", above(model, other, 0.0, epsilon=e)) for e in s.epsilons],
            )
            yield every(
                f"{model} above {other} at every sampling rate (Fig. 2)",
                [(f"{q:g}", above(model, other, 0.0, rate=q)) for q in s.rates],
            )
        if model == SOUND and has(other):  # said of others: once a unit
            yield every(
                f"{other} below dA and TdA on all data (Fig. 2)",
                [(m, above(m, other, 0.0)) for m in ("dA", "TdA") if has(m)],
            )
            yield every(
                f"{other} improves with cardinality (Fig. 2)",
                [_change(r, data, other, unit, {"rate": last}, {"rate": first})] * several,
            )
    if not has(model):
        return
    yield _robust(r, data, unit, model)
    for other in ("CRBM", "SctRBM"):
        if has(other):
            yield every(
                f"{model} competitive with {other} at epsilon {s.epsilon:g}: no more than "
                f"{100 * CLOSE:g} points below (Fig. 3)",
                [("all data", above(model, other, -CLOSE))],
            )
    if has("SctRBM"):
        higher = [q for q in s.rates if q > 0.3]
        yield every(
            f"{model} above SctRBM at rates over 0.3 (Fig. 2)",
            [(f"{q:g}", above(model, "SctRBM", 0.0, rate=q)) for q in higher],
        )
        yield every(
            f"SctRBM above {model} at the smallest rate, {first:g} (Fig. 2)",
            [(f"{first:g}", above("SctRBM", model, 0.0, rate=first))] * several,
        )
    for other in ("dA", "TdA"):
        if has(other):
            yield every(
                f"the gap of {model} to {other} shrinks with cardinality (Fig. 2)",
                [_shrinks(r, data, unit, (model, other), "days")] * several,
            )
    if has("dA") and unit == "user" and model == SOUND:
        yield every(
            f"the gap of {model} to dA shrinks with the number of users (our Fig. 2)",
            [_shrinks(r, data, unit, (model, "dA"), "users")] * several,
        )


def _change(
    r: SeedAccuracies, data: str, model: str, unit: str, to: dict[str, Any], since: dict[str, Any]
) -> tuple[str, SeedTest]:
    after, before = (r.accuracies(data, model, unit, **at) for at in (to, since))
    mean, low, high = student_interval([a - b for a, b in zip(after, before, strict=True)])
    text = in_points(mean, low, high)
    where = f"from rate {since['rate']:g} to {to['rate']:g}"
    return where, SeedTest(held=low > 0.0, on_average=mean > 0.0, text=text)


def _robust(r: SeedAccuracies, data: str, unit: str, model: str) -> OrderingFinding:
    s = r.settings
    low_e, high_e = min(s.epsilons), max(s.epsilons)
    small, large = (r.accuracies(data, model, unit, epsilon=e) for e in (low_e, high_e))
    mean, low, high = student_interval([b - a for a, b in zip(small, large, strict=True)])
    return OrderingFinding(
        claim=f"{model} robust against epsilon: loses at most {100 * FLAT:g} points (Fig. 3)",
        data=data,
        unit=unit,
        held=high <= FLAT,
        on_average=mean <= FLAT,
        details=f"from {high_e:g} to {low_e:g}: {in_points(-mean, -high, -low)}",
    )


def _shrinks(
    r: SeedAccuracies, data: str, unit: str, pair: tuple[str, str], sampled: str
) -> tuple[str, SeedTest]:
    first, last = min(r.settings.rates), max(r.settings.rates)
    model, other = pair
    before = r.difference(data, other, model, unit, rate=first, sampled=sampled)
    after = r.difference(data, other, model, unit, rate=last, sampled=sampled)
    mean, low, high = student_interval([b - a for b, a in zip(before, after, strict=True)])
    text = (
        f"gap {100 * float(np.mean(before)):+.1f} at rate {first:g}, "
        f"{100 * float(np.mean(after)):+.1f} at {last:g}; "
        f"change {in_points(-mean, -high, -low)}"
    )
    return sampled, SeedTest(held=low > 0.0, on_average=mean > 0.0, text=text)


def to_json_rows(found: list[OrderingFinding]) -> list[dict[str, Any]]:
    """Findings as JSON can write them, with their verdicts."""
    return [{**asdict(f), "verdict": f.verdict} for f in found]
