"""Pictures of PATE: how many components are worth their noise."""

from __future__ import annotations

from typing import TYPE_CHECKING

from matplotlib.figure import Figure

from privet.report.plots import CLAIM, EXACT, INK, MUTED, plain

if TYPE_CHECKING:
    from privet.methods.pate import ErrorCurve


def error_curve(curve: ErrorCurve, chosen: int) -> Figure:
    """What is cut off, what noise adds, and their sum, against the number of components."""
    figure = Figure(figsize=(7.2, 4.4), layout="constrained")
    axes = figure.subplots()
    shown = slice(1, min(len(curve.lost), max(4 * chosen, 12)) + 1)
    l = curve.components[shown]  # noqa: E741
    axes.plot(l, curve.lost[shown], color=MUTED, linewidth=1.8, label="cut off")
    axes.plot(l, curve.noise[shown], "--", color=CLAIM, linewidth=1.8, label="noise")
    axes.plot(l, curve.predicted[shown], color=EXACT, linewidth=2.6, label="predicted error")
    axes.plot([chosen], [curve.predicted[chosen]], "o", color=INK, label=f"chosen: {chosen}")
    axes.set_ylim(bottom=0.0)
    figure.legend(loc="outside lower center", ncols=4, frameon=False)
    plain(axes, "Squared error of an answer", x="components", y="error")
    return figure
