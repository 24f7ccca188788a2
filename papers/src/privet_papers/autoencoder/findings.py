"""The paper's orderings, one by one: held or not held, with the numbers behind the verdict."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, final

import numpy as np
from scipy import stats

from privet.papers.autoencoder.cells import UNITS

if TYPE_CHECKING:
    from privet.papers.autoencoder.experiment import AutoencoderSettings

Row = dict[str, Any]
CLOSE = 0.02
"""How much accuracy may be missing for "competitive"."""
FLAT = 0.05
"""How much accuracy may be lost over all budgets for "robust against epsilon"."""


@final
@dataclass(frozen=True, kw_only=True)
class Finding:
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
        """In words."""
        if self.held:
            return "held"
        return "not held, though the means point that way" if self.on_average else "not held"


def interval(values: list[float], confidence: float = 0.95) -> tuple[float, float, float]:
    """Mean and Student interval over seeds; infinite for one value.

    >>> [round(x, 3) for x in interval([0.7, 0.72, 0.74])]
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
class Test:
    """One comparison within a finding."""

    held: bool
    on_average: bool
    text: str


@final
class Results:
    """Accuracies by cell, for comparisons seed by seed."""

    def __init__(self, rows: list[Row], settings: AutoencoderSettings) -> None:
        self.settings = settings
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
        sampled = sampled if rate < 1.0 else "days"
        out = []
        for seed in self.settings.numbers:
            for e, u in ((epsilon or self.settings.epsilon, unit), (None, None)):
                if (data, model, e, u, rate, sampled, seed) in self._found:
                    out.append(self._found[data, model, e, u, rate, sampled, seed])
                    break
        return out

    def difference(self, data: str, a: str, b: str, unit: str, **at: Any) -> list[float]:
        """Accuracy of a minus that of b, seed by seed."""
        first, second = self.accuracies(data, a, unit, **at), self.accuracies(data, b, unit, **at)
        return [x - y for x, y in zip(first, second, strict=True)]


def findings(rows: list[Row], settings: AutoencoderSettings) -> list[Finding]:
    """Every ordering the paper states, on every data set and for both units."""
    results = Results(rows, settings)
    return [
        finding
        for data in settings.data
        for unit in UNITS
        for finding in _of(results, data, unit)
        if finding is not None
    ]


def _of(r: Results, data: str, unit: str) -> Iterator[Finding | None]:
    s = r.settings
    first, last = min(s.rates), max(s.rates)
    several = int(first < last)  # with one rate there is nothing to say about cardinality

    def above(a: str, b: str, least: float, **at: Any) -> Test:
        mean, low, high = interval(r.difference(data, a, b, unit, **at))
        text = in_points(mean, low, high)
        return Test(held=low > least, on_average=mean > least, text=text)

    def every(claim: str, tests: list[tuple[str, Test]]) -> Finding | None:
        if not tests:
            return None
        return Finding(
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
        if has("dPAH", other):
            yield every(
                f"dPAH above {other} at every epsilon (Fig. 3)",
                [(f"{e:g}", above("dPAH", other, 0.0, epsilon=e)) for e in s.epsilons],
            )
            yield every(
                f"dPAH above {other} at every sampling rate (Fig. 2)",
                [(f"{q:g}", above("dPAH", other, 0.0, rate=q)) for q in s.rates],
            )
            yield every(
                f"{other} below dA and TdA on all data (Fig. 2)",
                [(m, above(m, other, 0.0)) for m in ("dA", "TdA") if has(m)],
            )
            yield every(
                f"{other} improves with cardinality (Fig. 2)",
                [_change(r, data, other, unit, {"rate": last}, {"rate": first})] * several,
            )
    if not has("dPAH"):
        return
    yield _robust(r, data, unit)
    for other in ("CRBM", "SctRBM"):
        if has(other):
            yield every(
                f"dPAH competitive with {other} at epsilon {s.epsilon:g}: no more than "
                f"{100 * CLOSE:g} points below (Fig. 3)",
                [("all data", above("dPAH", other, -CLOSE))],
            )
    if has("SctRBM"):
        higher = [q for q in s.rates if q > 0.3]
        yield every(
            "dPAH above SctRBM at rates over 0.3 (Fig. 2)",
            [(f"{q:g}", above("dPAH", "SctRBM", 0.0, rate=q)) for q in higher],
        )
        yield every(
            f"SctRBM above dPAH at the smallest rate, {first:g} (Fig. 2)",
            [(f"{first:g}", above("SctRBM", "dPAH", 0.0, rate=first))] * several,
        )
    for other in ("dA", "TdA"):
        if has(other):
            yield every(
                f"the gap of dPAH to {other} shrinks with cardinality (Fig. 2)",
                [_shrinks(r, data, unit, other, "days")] * several,
            )
    if has("dA") and unit == "user":
        yield every(
            "the gap of dPAH to dA shrinks with the number of users (our Fig. 2)",
            [_shrinks(r, data, unit, "dA", "users")] * several,
        )


def _change(
    r: Results, data: str, model: str, unit: str, to: dict[str, Any], since: dict[str, Any]
) -> tuple[str, Test]:
    after, before = (r.accuracies(data, model, unit, **at) for at in (to, since))
    mean, low, high = interval([a - b for a, b in zip(after, before, strict=True)])
    text = in_points(mean, low, high)
    where = f"from rate {since['rate']:g} to {to['rate']:g}"
    return where, Test(held=low > 0.0, on_average=mean > 0.0, text=text)


def _robust(r: Results, data: str, unit: str) -> Finding:
    s = r.settings
    low_e, high_e = min(s.epsilons), max(s.epsilons)
    small, large = (r.accuracies(data, "dPAH", unit, epsilon=e) for e in (low_e, high_e))
    mean, low, high = interval([b - a for a, b in zip(small, large, strict=True)])
    return Finding(
        claim=f"dPAH robust against epsilon: loses at most {100 * FLAT:g} points (Fig. 3)",
        data=data,
        unit=unit,
        held=high <= FLAT,
        on_average=mean <= FLAT,
        details=f"from {high_e:g} to {low_e:g}: {in_points(-mean, -high, -low)}",
    )


def _shrinks(r: Results, data: str, unit: str, other: str, sampled: str) -> tuple[str, Test]:
    first, last = min(r.settings.rates), max(r.settings.rates)
    before = r.difference(data, other, "dPAH", unit, rate=first, sampled=sampled)
    after = r.difference(data, other, "dPAH", unit, rate=last, sampled=sampled)
    mean, low, high = interval([b - a for b, a in zip(before, after, strict=True)])
    text = (
        f"gap {100 * float(np.mean(before)):+.1f} at rate {first:g}, "
        f"{100 * float(np.mean(after)):+.1f} at {last:g}; "
        f"change {in_points(-mean, -high, -low)}"
    )
    return sampled, Test(held=low > 0.0, on_average=mean > 0.0, text=text)


def as_rows(found: list[Finding]) -> list[dict[str, Any]]:
    """JSON-ready."""
    return [{**asdict(f), "verdict": f.verdict} for f in found]
