"""Accuracy over epsilon: a line a method, with a band from its worst to its best seed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from privet.report.charts import Axis, Line, Mark, chart, legend
from privet.report.figures import PALETTE, Figure

Row = dict[str, Any]
SHOWN = 12


def over_epsilon(rows: Sequence[Row]) -> Figure:
    """The methods with the best mean, by name; others are in the table."""
    methods = list(dict.fromkeys(row["method"] for row in rows))
    mean = {m: _mean([row["accuracy"] for row in rows if row["method"] == m]) for m in methods}
    shown = sorted(methods, key=lambda m: -mean[m])[:SHOWN]
    epsilons = sorted({row["epsilon"] for row in rows})
    low, high = epsilons[0] / 1.15, epsilons[-1] * 1.15
    floor = min(row["accuracy_low"] for row in rows if row["method"] in shown)
    bottom = max(0, math.floor(10 * floor - 0.3))
    x = Axis(low=low, high=high, log=True, ticks=[(e, f"{e:g}") for e in epsilons], label="epsilon")
    ticks = [(k / 10, f"{k * 10}%") for k in range(bottom, 11)]
    y = Axis(low=bottom / 10, high=1.0, ticks=ticks, label="accuracy")
    marks, lines, named = [], [], []
    for k, method in enumerate(shown, 1):
        colour = PALETTE[(k - 1) % len(PALETTE)]
        mine = [row for row in rows if row["method"] == method]
        aside = 1.012 ** (k - (len(shown) + 1) / 2)  # spreads of one budget stand side by side
        points = [(row["epsilon"], row["accuracy"]) for row in mine]
        lines.append(Line(points=points, name=method, colour=colour, dashed=k > len(PALETTE)))
        lines += [
            Line(
                points=[(aside * r["epsilon"], r[f"accuracy_{end}"]) for end in ("low", "high")],
                name=f"{method}: worst to best of {r['seeds']} seeds", colour=colour, width=1.2,
            )
            for r in mine
        ]  # fmt: skip
        last = mine[-1]
        told = f"{method}: {last['accuracy']:.1%} at epsilon {last['epsilon']:g}"
        marks.append(
            Mark(x=last["epsilon"], y=last["accuracy"], name=told, colour=colour, text=str(k))
        )
        named.append((str(k), method, colour))
    caption = (
        "Accuracy over epsilon: means over seeds; upright lines from the worst seed to the best."
    )
    if len(methods) > SHOWN:
        caption += f" The {SHOWN} best of {len(methods)} methods."
    return chart("accuracy over epsilon", x, y, marks=marks, lines=lines) + legend(named), caption


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
