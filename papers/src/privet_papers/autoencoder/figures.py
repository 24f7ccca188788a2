"""Figures 2 and 3 as pictures."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from privet.papers.autoencoder.cells import PRIVATE, UNITS
from privet.papers.autoencoder.findings import Results, interval
from privet.papers.drawing import INK, MUTED, panels, quiet, save

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = {
    "dPAH": "#1b6ca8", "dPAH as published": "#5fb0d9", "FM": "#d1495b", "FM, tight": "#e9a03b",
    "DPME": "#8a5a9b", "FP": "#b08968", "FM, all columns": "#f2a6b3", "dA": "#22303c",
    "TdA": "#6b7a88", "CRBM": "#a9b4bd", "SctRBM": "#4c8c4a",
}  # fmt: skip


def draw(out: Path, found: Results) -> list[Path]:
    """One picture a data set for each figure, as PNG and SVG; returns their paths."""
    written: list[Path] = []
    s = found.settings
    for data in s.data:
        budgets: list[tuple[float, dict[str, Any]]] = [(e, {"epsilon": e}) for e in s.epsilons]
        days: list[tuple[float, dict[str, Any]]] = [(q, {"rate": q}) for q in s.rates]
        users: list[tuple[float, dict[str, Any]]] = [
            (q, {"rate": q, "sampled": "users"}) for q in s.rates
        ]
        at_one = f"epsilon {s.epsilon:g}"
        written += _picture(
            out / f"{Path(data).stem}-accuracy-against-epsilon", found, data,
            [(f"{data}: epsilon per {unit}", unit, budgets, "epsilon") for unit in UNITS],
            logarithmic=True,
        )  # fmt: skip
        written += _picture(
            out / f"{Path(data).stem}-accuracy-against-cardinality", found, data,
            [
                (f"{data}: {at_one} per user", "user", days, "share of training days"),
                (f"{data}: {at_one} per record", "record", days, "share of training days"),
                (f"{data}: {at_one} per user", "user", users, "share of users"),
            ],
            logarithmic=False,
        )  # fmt: skip
    return written


def _picture(
    stem: Path,
    found: Results,
    data: str,
    drawn: list[tuple[str, str, list[tuple[float, dict[str, Any]]], str]],
    *,
    logarithmic: bool,
) -> list[Path]:
    figure, (row,) = panels(4.6 * len(drawn), 4.6, columns=len(drawn), sharey=True)
    handles: dict[str, Any] = {}
    heights: list[float] = []
    for axes, (title, unit, points, label) in zip(row, drawn, strict=True):
        for model in found.settings.models:
            line = _curve(axes, found, data, model, unit, points)
            if line is not None:
                handles.setdefault(model, line)
                heights += [float(y) for y in line.get_ydata()]
        axes.set_title(title, loc="left", fontsize=11, color=INK, pad=10)
        axes.set_xlabel(label, color=MUTED)
        quiet(axes, grid="both")
        if logarithmic:
            axes.set_xscale("log")
            axes.set_xticks([x for x, _ in points], [f"{x:g}" for x, _ in points])
            axes.minorticks_off()
    row[0].set_ylim(min(heights) - 4.0, min(100.0, max(heights) + 4.0))
    row[0].set_ylabel("statuses predicted rightly, %", color=MUTED)
    names = [f"{m} (private)" if m in PRIVATE else m for m in handles]
    figure.legend(
        handles.values(), names, loc="outside right center", frameon=False, labelcolor=MUTED
    )
    return save(figure, stem)


def _curve(
    axes: Axes,
    found: Results,
    data: str,
    model: str,
    unit: str,
    points: list[tuple[float, dict[str, Any]]],
) -> Any:
    """Mean over seeds with its 95% interval; None where the model was not run."""
    known = [(x, found.accuracies(data, model, unit, **at)) for x, at in points]
    known = [(x, a) for x, a in known if a]
    if not known:
        return None
    colour, private = COLOURS[model], model in PRIVATE
    at = [x for x, _ in known]
    mean, low, high = zip(*(interval(a) for _, a in known), strict=True)
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
