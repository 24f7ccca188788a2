"""Figures 2 and 3 as pictures."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from privet_papers.autoencoder.findings import SeedAccuracies, student_interval
from privet_papers.autoencoder.training_runs import DELTA, DPAH, PRIVATE, UNITS
from privet_papers.figure_style import INK, MUTED, new_figure, remove_frame, save_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = {
    "dPAH": "#d55e00", "sound predictor": "#1b6ca8", "FM": "#d1495b", "FM, tight": "#e9a03b",
    "DPME": "#8a5a9b", "FP": "#b08968", "FM, all columns": "#f2a6b3", "dA": "#22303c",
    "TdA": "#6b7a88", "CRBM": "#a9b4bd", "SctRBM": "#4c8c4a",
}  # fmt: skip


def draw(out: Path, found: SeedAccuracies) -> list[Path]:
    """One picture a data set for each figure, as PNG and SVG; returns their paths."""
    written: list[Path] = []
    s = found.settings
    for data in s.data:
        budgets: list[tuple[float, dict[str, Any]]] = [(e, {"epsilon": e}) for e in s.epsilons]
        days: list[tuple[float, dict[str, Any]]] = [(q, {"rate": q}) for q in s.rates]
        users: list[tuple[float, dict[str, Any]]] = [
            (q, {"rate": q, "sampled": "users"}) for q in s.rates
        ]
        name = Path(data).stem  # of a table, whose path may be long
        at_one = f"epsilon {s.epsilon:g}"
        label = f"epsilon (the sound predictor: delta {DELTA:g})"
        written += _picture(
            out / f"{Path(data).stem}-accuracy-against-epsilon", found, data,
            [(f"{name}: epsilon per {unit}", unit, budgets, label) for unit in UNITS],
            logarithmic=True,
        )  # fmt: skip
        written += _picture(
            out / f"{Path(data).stem}-accuracy-against-cardinality", found, data,
            [
                (f"{name}: {at_one} per user", "user", days, "share of training days"),
                (f"{name}: {at_one} per record", "record", days, "share of training days"),
                (f"{name}: {at_one} per user", "user", users, "share of users"),
            ],
            logarithmic=False,
        )  # fmt: skip
    return written


def _picture(
    stem: Path,
    found: SeedAccuracies,
    data: str,
    drawn: list[tuple[str, str, list[tuple[float, dict[str, Any]]], str]],
    *,
    logarithmic: bool,
) -> list[Path]:
    figure, (row,) = new_figure(3.0 * len(drawn) + 2.0, 3.4, columns=len(drawn), sharey=True)
    handles: dict[str, Any] = {}
    heights: list[float] = []
    for axes, (title, unit, points, label) in zip(row, drawn, strict=True):
        for model in found.settings.models:
            line = _curve(axes, found, data, model, unit, points)
            if line is not None:
                handles.setdefault(model, line)
                heights += [float(y) for y in line.get_ydata()]
        axes.set_title(title, loc="left", fontsize=8, color=INK, pad=6)
        axes.set_xlabel(label, color=MUTED, fontsize=8)
        remove_frame(axes, grid="both")
        if logarithmic:
            axes.set_xscale("log")
            axes.set_xticks([x for x, _ in points], [f"{x:g}" for x, _ in points])
            axes.minorticks_off()
    row[0].set_ylim(min(heights) - 4.0, min(100.0, max(heights) + 4.0))
    row[0].set_ylabel("statuses predicted rightly, %", color=MUTED)
    standing = {m: "epsilon claimed" if m == DPAH else "epsilon proved" for m in PRIVATE}
    names = [f"{m} ({standing[m]})" if m in standing else m for m in handles]
    figure.legend(
        handles.values(),
        names,
        loc="outside right center",
        frameon=False,
        labelcolor=MUTED,
        fontsize=7,
    )
    return save_figure(figure, stem)


def _curve(
    axes: Axes,
    found: SeedAccuracies,
    data: str,
    model: str,
    unit: str,
    points: list[tuple[float, dict[str, Any]]],
) -> Any:
    """Mean over seeds with its 95% interval (of two their range); None where it was not run."""
    known = [(x, found.accuracies(data, model, unit, **at)) for x, at in points]
    known = [(x, a) for x, a in known if a]
    if not known:
        return None
    colour, private = COLOURS[model], model in PRIVATE
    at = [x for x, _ in known]
    mean, low, high = zip(*(_band(a) for _, a in known), strict=True)
    (line,) = axes.plot(
        at, [100 * m for m in mean], "-" if private else "--", color=colour,
        marker="o" if private else "", markersize=5, linewidth=2.6 if model == "dPAH" else 1.5,
        zorder=3 if model == "dPAH" else 2,
    )  # fmt: skip
    if len(known[0][1]) > 1 and private:
        axes.fill_between(
            at, [100 * v for v in low], [100 * v for v in high], color=colour, alpha=0.13, lw=0
        )
    return line


def _band(accuracies: list[float]) -> tuple[float, float, float]:
    """Mean, and what is shaded: two seeds have no interval worth the name."""
    if len(accuracies) == 2:
        return sum(accuracies) / 2.0, min(accuracies), max(accuracies)
    return student_interval(accuracies)
