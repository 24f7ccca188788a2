"""The pictures of a comparison: each a piece of HTML and its caption."""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Iterator, Sequence
from html import escape
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privet._words import chance, number
from privet.loss import SampledGaussian
from privet.loss.compare import validity_map
from privet.report.charts import Axis, Line, Mark, bars, chart, legend, powers, round_ticks
from privet.report.spending import by_accountant

Row = dict[str, Any]
Figure = tuple[str, str]
"""HTML and a caption, which is text."""
PALETTE = ("#6b7a88", "#2f7fc1", "#3c9a4e", "#8e63c7", "#d1495b", "#c9780e", "#1f9e99", "#a0616a")
EXACT, CLAIM, RENYI, MOMENTS = PALETTE[1], PALETTE[4], PALETTE[2], PALETTE[5]
SHOWN = 20
"""Columns that have a bar."""
CURVES = 12
"""Methods that have a curve."""


def colours(rows: Sequence[Row]) -> dict[str, str]:
    """One colour a system."""
    systems = list(dict.fromkeys(row["system"] for row in rows))
    return {name: PALETTE[i % len(PALETTE)] for i, name in enumerate(systems)}


def utility(rows: Sequence[Row]) -> Figure:
    """Accuracy against epsilon: proved in full, claimed hollow."""
    x = Axis(
        low=0.05,
        high=1e6,
        log=True,
        label="epsilon (right edge: no bound)",
        ticks=[*powers(-1, 5), (1e6, "∞")],
    )
    y = Axis(low=0.0, high=1.0, label="accuracy", ticks=[(k / 5, f"{20 * k}%") for k in range(6)])
    of, marks = colours(rows), []
    for kind in ("proved", "claimed"):
        for k, row in enumerate(rows, 1):
            value = row[f"{kind}_epsilon"]
            if value is None:
                continue
            name = f"{row['method']}: {row['accuracy']:.1%}, {kind} epsilon {number(value)}"
            marks.append(
                Mark(
                    x=float(value),
                    y=row["accuracy"],
                    name=name,
                    colour=of[row["system"]],
                    text=str(k),
                    hollow=kind == "claimed",
                )
            )
    named = [(str(k), row["method"], of[row["system"]]) for k, row in enumerate(rows, 1)]
    caption = (
        "Accuracy against epsilon: full proved, hollow only claimed. Marks that would hide each "
        "other stand side by side; a dot is where each belongs."
    )
    return chart("accuracy against epsilon", x, y, marks=marks) + legend(named), caption


def roc(rows: Sequence[Row]) -> Figure:
    """The membership attack on every model; the most exposed ones stand out."""
    ticks = powers(-3, 0)
    x = Axis(low=1e-3, high=1.0, log=True, ticks=ticks, label="false-positive rate")
    y = Axis(low=1e-3, high=1.0, log=True, ticks=ticks, label="true-positive rate")
    of = colours(rows)
    exposed = sorted(rows, key=lambda row: -row["attack_auc"])[:3]
    lines = [
        Line(
            points=[(f, t) for f, t in _curve(row) if f > 0],
            name=f"{row['method']}: AUC {row['attack_auc']:.3f}",
            colour=of[row["system"]],
            width=3.0 if row in exposed else 1.1,
        )
        for row in sorted(rows, key=lambda row: row in exposed)
    ]
    picture = chart("membership attack", x, y, lines=lines, diagonal=True)
    named = [("", name, colour) for name, colour in of.items()]
    told = ", ".join(f"{row['method']} ({row['attack_auc']:.3f})" for row in exposed)
    caption = (
        f"Who was in the training set? {rows[0]['attack']['attack']}, on each model; dashed: "
        f"guessing. Thick, the most exposed by area: {told}."
    )
    return picture + legend(named), caption


def _curve(row: Row) -> Iterator[tuple[float, float]]:
    found = row["attack"]["roc"]
    return zip(found["fpr"], found["tpr"], strict=True)


def budget(run: SampledGaussian, delta: float) -> Figure:
    """What a run of DP-SGD has spent after each step, by every accountant."""
    steps, said = by_accountant(run, delta, 12)
    names = ("moments", "Renyi", "exact", "closed form (a claim)")
    curves = list(zip(names, said.values(), (MOMENTS, RENYI, EXACT, CLAIM), strict=True))
    high = 1.08 * max(values[-1] for _, values, _ in curves)
    x = Axis(low=0.0, high=steps[-1], ticks=round_ticks(steps[-1]), label="steps")
    y = Axis(low=0.0, high=high, ticks=round_ticks(high), label="epsilon")
    lines = [
        Line(
            points=list(zip(steps, values, strict=True)),
            name=f"{name}: {values[-1]:.3g}",
            colour=colour,
            width=3.0 if name == "exact" else 1.8,
            dashed=name.startswith("closed"),
        )
        for name, values, colour in curves
    ]
    named = [("", f"{name} {values[-1]:.3g}", colour) for name, values, colour in curves]
    q, z = float(np.ravel(run.sample_rate)[0]), float(np.ravel(run.noise_multiplier)[0])
    caption = (
        f"Budget over training: the {steps[-1]:,} steps of the network that DP-SGD trains here, at "
        f"sample rate {q:.3g} with noise multiplier {z:.3g}."
    )
    return chart("budget over training", x, y, lines=lines) + legend(named), caption


def validity(run: SampledGaussian, delta: float) -> Figure:
    """Where the closed form is a bound at so many steps, and where this run stands."""
    found = validity_map(
        steps=int(np.sum(run.steps)),
        delta=delta,
        sample_rates=np.geomspace(1e-4, 1.0, 7),
        noise_multipliers=np.geomspace(0.3, 30.0, 13),
    )
    rates, noises = found.sample_rates, found.noise_multipliers
    shade = np.clip(np.log2(found.ratio), -2.0, 4.0)
    pixels = signed(np.where(shade > 0.0, shade / 4.0, shade / 2.0) * 0.85)
    x = Axis(
        low=noises[0],
        high=noises[-1],
        log=True,
        ticks=[(v, f"{v:g}") for v in (0.3, 1, 3, 10, 30)],
        label="noise multiplier",
    )
    y = Axis(low=rates[0], high=rates[-1], log=True, ticks=powers(-4, 0), label="sample rate")
    edge = Line(points=_crossings(rates, noises, shade), name="equal", colour="currentColor")
    here = Mark(
        x=float(np.ravel(run.noise_multiplier)[0]),
        y=float(np.ravel(run.sample_rate)[0]),
        name="this comparison's DP-SGD",
        colour=PALETTE[0],
    )
    picture = chart(
        "validity of the closed form",
        x,
        y,
        lines=[edge],
        marks=[here],
        behind=data_uri(pixels[::-1]),
    )
    named = [
        ("", "under-reports: exact epsilon is larger", CLAIM),
        ("", "a valid bound", EXACT),
        ("", "DP-SGD's network here", PALETTE[0]),
    ]
    caption = (
        f"Where the paper's closed form is a bound, and where it is not ({found.steps:,} steps, "
        f"a chance δ of {chance(delta)})."
    )
    return picture + legend(named), caption


def _crossings(rates: Any, noises: Any, shade: Any) -> list[tuple[float, float]]:
    """For each rate the noise from which on the closed form is a bound."""
    out = []
    for rate, row in zip(rates, shade, strict=True):
        under = np.flatnonzero(row > 0.0)
        if not len(under) or under[-1] + 1 == len(row):
            continue
        j = int(under[-1])
        part = row[j] / (row[j] - row[j + 1])
        out.append((float(noises[j] * (noises[j + 1] / noises[j]) ** part), float(rate)))
    return out


def relevance(row: Row, facts: Row) -> Figure:
    """What a released model looks at: a map for each class, or a bar for each column."""
    maps = np.array(row["relevance"]["maps"], dtype=np.float64)
    seen = row["relevance"]["records"]
    shape = tuple(facts["shape"])
    why = (
        f"{row['method']}: layer-wise relevance of the released model, which was paid for, "
        f"on {sum(seen):,} records treated as public. No other record was looked at for this."
    )
    if len(shape) >= 2:
        return _maps(maps, seen, facts["classes"], shape), f"{why} Red for the class, blue against."
    total = np.abs(maps).T @ (np.array(seen, dtype=np.float64) / max(sum(seen), 1))
    total = total / max(float(total.sum()), 1e-12)
    names = facts["columns"] or [f"column {j + 1}" for j in range(len(total))]
    order = np.argsort(-total)[:SHOWN]
    picture = bars("relevance of columns", [(names[j], float(total[j])) for j in order], PALETTE[2])
    most = f" The {SHOWN} most relevant of {len(total)} columns." if len(total) > SHOWN else ""
    return picture, f"{why} Shares of the absolute relevance.{most}"


def _maps(maps: Any, seen: Sequence[int], classes: Sequence[str], shape: tuple[int, ...]) -> str:
    pictures = maps.reshape(len(maps), shape[0], shape[1], -1).sum(axis=3)
    largest = max(float(np.quantile(np.abs(pictures), 0.995)), 1e-12)
    cells = (
        f'<li><img alt="relevance for {escape(str(name))}" src="{data_uri(signed(p / largest))}">'
        f"{escape(str(name))} <span class=small>({count})</span></li>"
        for name, p, count in list(zip(classes, pictures, seen, strict=True))[:SHOWN]
    )
    return f'<ul class="maps">{"".join(cells)}</ul>'


FOR, AGAINST = (209, 73, 91), (47, 127, 193)
"""Red and blue, both readable on white and on black."""


def data_uri(pixels: NDArray[np.uint8]) -> str:
    """An array (height, width, 4) of red, green, blue and opacity as a data: address.

    >>> data_uri(np.zeros((1, 1, 4), dtype=np.uint8))[:22]
    'data:image/png;base64,'
    """
    from PIL import Image

    target = io.BytesIO()
    Image.fromarray(pixels, "RGBA").save(target, "PNG")
    return "data:image/png;base64," + base64.b64encode(target.getvalue()).decode()


def signed(values: NDArray[Any]) -> NDArray[np.uint8]:
    """Values in [-1, 1] as pixels: red above 0, blue below, transparent at 0.

    >>> signed(np.array([[1.0, 0.0, -0.5]]))[0].tolist()
    [[209, 73, 91, 255], [47, 127, 193, 0], [47, 127, 193, 128]]
    """
    v = np.clip(np.asarray(values, dtype=np.float64), -1.0, 1.0)
    colour = np.where((v > 0.0)[..., None], FOR, AGAINST)
    return np.concatenate([colour, np.round(255.0 * np.abs(v))[..., None]], axis=-1).astype(
        np.uint8
    )


def over_epsilon(rows: Sequence[Row]) -> Figure:
    """The methods with the best mean, by name; others are in the table."""
    methods = list(dict.fromkeys(row["method"] for row in rows))
    mean = {m: _mean([row["accuracy"] for row in rows if row["method"] == m]) for m in methods}
    shown = sorted(methods, key=lambda m: -mean[m])[:CURVES]
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
    if len(methods) > CURVES:
        caption += f" The {CURVES} best of {len(methods)} methods."
    return chart("accuracy over epsilon", x, y, marks=marks, lines=lines) + legend(named), caption


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
