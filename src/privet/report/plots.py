"""Pictures in files: matplotlib figures, made without pyplot and without a display."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import TwoSlopeNorm
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, NullFormatter

from privet.audit.membership import MembershipFinding
from privet.errors import InvalidArgument
from privet.loss import PrivacyLoss, SampledGaussian
from privet.loss.base import Array
from privet.loss.compare import ValidityMap
from privet.report.spending import by_accountant

INK, MUTED, GRID = "#22303c", "#6b7a88", "#dfe5ea"
EXACT, CLAIM, RENYI, MOMENTS = "#1b6ca8", "#d1495b", "#8a9a5b", "#b08968"


def save(figure: Figure, path: str | Path) -> Path:
    """Write a figure; the kind of file follows from its name."""
    path = Path(path)
    try:
        figure.savefig(path, dpi=160, bbox_inches="tight", facecolor="white")
    except (OSError, ValueError) as e:
        raise InvalidArgument("picture", str(path), "a file that can be written", str(e)) from None
    return path


def plain(axes: Axes, title: str, *, x: str, y: str) -> None:
    """The house style: few lines, a title that says what is seen."""
    axes.set_title(title, loc="left", fontsize=11, color=INK, pad=10)
    axes.set_xlabel(x, color=MUTED)
    axes.set_ylabel(y, color=MUTED)
    axes.grid(True, color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(colors=MUTED, which="both", length=0, pad=8)
    for side in ("top", "right", "left", "bottom"):
        axes.spines[side].set_visible(False)


def accountants(loss: PrivacyLoss, delta: float, *, points: int = 18) -> Figure:
    """epsilon as training goes on, by every accountant, and the exact trade against delta."""
    if not isinstance(loss, SampledGaussian):
        raise InvalidArgument("loss", type(loss).__name__, "a SampledGaussian")
    if len(loss.groups[0]) > 2000:
        points = 6
    steps, said = by_accountant(loss, delta, points)
    exact, claim = np.array(said["exact"]), np.array(said["closed form"])
    figure = Figure(figsize=(11.0, 4.4), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=[1.55, 1.0])

    left.fill_between(
        steps, claim, exact, where=(exact > claim).tolist(), color=CLAIM, alpha=0.13, linewidth=0
    )
    curves: list[tuple[str, Any, str, str]] = [
        ("moments", said["moments"], MOMENTS, "-"),
        ("Renyi", said["Renyi"], RENYI, "-"),
        ("exact", exact, EXACT, "-"),
        ("closed form (claim)", claim, CLAIM, "--"),
    ]
    for name, values, colour, style in curves:
        left.plot(steps, values, style, color=colour, linewidth=2.6 if name == "exact" else 1.8)
    under = exact[-1] > claim[-1]
    plain(
        left,
        f"Privacy spent after each step, delta = {delta:g}"
        + ("; shaded: what the closed form hides" if under else ""),
        x="steps",
        y="epsilon",
    )
    left.set_xlim(0, steps[-1] * 1.001)
    left.set_ylim(0, max(1.35 * exact[-1], 1.06 * float(curves[1][1][-1]), 1.06 * claim[-1]))
    _label_ends(left, [(n, float(v[-1]), c) for n, v, c, _ in curves])
    left.xaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:,.0f}"))

    exponents = np.linspace(-2, -12, 11)
    deltas = 10.0**exponents
    right.plot(deltas, [loss.epsilon(d) for d in deltas], color=EXACT, linewidth=2.6)
    right.plot([delta], [exact[-1]], "o", color=EXACT, markersize=7)
    right.annotate(
        f"epsilon {exact[-1]:.3g}",
        (delta, exact[-1]),
        xytext=(8, -16),
        textcoords="offset points",
        color=EXACT,
        fontweight="bold",
    )
    right.set_xscale("log")
    right.set_xlim(1.5e-2, 0.7e-12)
    right.set_ylim(0, None)
    plain(right, "The whole run, for every delta", x="delta", y="epsilon")
    return figure


def _label_ends(axes: Axes, ends: list[tuple[str, float, str]]) -> None:
    """Names beside the curves' ends, within the picture and moved apart where they would touch."""
    top, gap = axes.get_ylim()[1], 0.06
    ordered = sorted(ends, key=lambda e: e[1])
    places = [min(value / top, 1.0) for _, value, _ in ordered]
    for i in range(1, len(places)):
        places[i] = max(places[i], places[i - 1] + gap)
    places[-1] = min(places[-1], 1.0)
    for i in range(len(places) - 2, -1, -1):
        places[i] = min(places[i], places[i + 1] - gap)
    for (name, value, colour), at in zip(ordered, places, strict=True):
        axes.annotate(
            f"{name} {value:.3g}" + (" (above)" if value > top else ""),
            (1.015, at),
            xycoords="axes fraction",
            color=colour,
            va="center",
            fontsize=9,
            fontweight="bold" if name == "exact" else "normal",
            annotation_clip=False,
        )


def validity_map(found: ValidityMap) -> Figure:
    """The (rate, noise) plane: blue where the closed form is a bound, red where it is too small."""
    figure = Figure(figsize=(8.6, 5.4), layout="constrained")
    axes = figure.subplots()
    z, q = found.noise_multipliers, found.sample_rates
    axes.set_xscale("log")
    axes.set_yscale("log")
    mesh = axes.pcolormesh(
        z,
        q,
        np.clip(np.log2(found.ratio), -2.0, 4.0),
        cmap="RdBu_r",
        norm=TwoSlopeNorm(vmin=-2.5, vcenter=0.0, vmax=4.5),
        shading="gouraud",
    )
    axes.contour(z, q, np.log2(found.ratio), levels=[0.0], colors=INK, linewidths=2.2)
    lines = axes.contour(
        z,
        q,
        found.exact,
        levels=[0.1, 1.0, 10.0, 100.0],
        colors=INK,
        linewidths=0.9,
        linestyles=":",
    )
    axes.clabel(lines, fmt=lambda v: f"epsilon {v:g}", fontsize=8)
    axes.set_xlim(z[0], z[-1])
    axes.set_ylim(q[0], q[-1])
    ticks = [t for t in (0.1, 0.2, 0.3, 0.5, 1, 2, 3, 5, 10, 20, 30, 50) if z[0] <= t <= z[-1]]
    axes.set_xticks(ticks, [f"{t:g}" for t in ticks])
    axes.xaxis.set_minor_formatter(NullFormatter())
    named = [
        Patch(color="#8c1327", label="under-reports"),
        Line2D([], [], color=INK, linewidth=2.2, label="equal"),
        Patch(color="#12507f", label="valid bound"),
    ]
    figure.legend(handles=named, loc="outside lower center", ncols=3, frameon=False)
    plain(
        axes,
        f"Where the closed form can be believed: {found.steps:,} steps, delta = {found.delta:g}",
        x="noise multiplier z",
        y="sample rate q",
    )
    axes.grid(False)
    bar = figure.colorbar(mesh, ax=axes, ticks=[-2, -1, 0, 1, 2, 3, 4], pad=0.02)
    bar.ax.set_ylim(-2.0, 4.0)
    bar.ax.set_yticklabels(["1/4 or less", "1/2", "1", "2", "4", "8", "16 or more"])
    bar.set_label("exact epsilon / closed form   (red: under-reports)", color=MUTED)
    bar.outline.set_visible(False)
    bar.ax.tick_params(colors=MUTED, length=0)
    return figure


def release(
    *,
    edges: Array,
    truth: Array,
    released: Array,
    classes: tuple[str, ...],
    names: tuple[str, ...],
    true_means: Array,
    released_means: Array,
    spread: float,
    guarantee: str,
) -> Figure:
    """A private histogram and private means beside the truth, which only a demo may show."""
    figure = Figure(figsize=(11.0, 4.6), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=[1.45, 1.0])
    width = np.diff(edges)
    for sign, kind, colour, name in zip((1.0, -1.0), (0, 1), (CLAIM, EXACT), classes, strict=False):
        left.bar(
            edges[:-1],
            sign * np.maximum(released[kind], 0.0),
            width=0.92 * width,
            align="edge",
            color=colour,
            alpha=0.75,
            linewidth=0,
        )
        left.stairs(sign * truth[kind], edges, color=INK, linewidth=1.4)
        left.annotate(
            name,
            (0.98, 0.93 if sign > 0 else 0.05),
            xycoords="axes fraction",
            ha="right",
            color=colour,
            fontsize=12,
            fontweight="bold",
        )
    left.axhline(0.0, color=INK, linewidth=0.8)
    left.yaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{abs(v):.0f}"))
    plain(
        left,
        "Size of breast masses: private counts (bars), truth (line)",
        x="mean radius",
        y="records",
    )
    rows = np.arange(len(names))[::-1]
    right.hlines(rows, released_means - 2 * spread, released_means + 2 * spread, color=RENYI, lw=5)
    right.plot(released_means, rows, "o", color=EXACT, markersize=6, label="private")
    right.plot(true_means, rows, "|", color=INK, markersize=15, markeredgewidth=2, label="truth")
    right.set_yticks(rows, names)
    right.set_xlim(0.0, max(0.7, float(np.max(released_means)) + 4 * spread))
    plain(right, "Private means, with two standard deviations", x="share of the public range", y="")
    right.legend(frameon=False, loc="lower right", labelcolor=MUTED)
    figure.suptitle(guarantee, x=0.005, ha="left", fontsize=13, fontweight="bold", color=INK)
    return figure


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


COLOURS = (EXACT, CLAIM, RENYI, MOMENTS, INK, "#7b5ea7")


def roc(
    findings: Sequence[MembershipFinding], *, title: str = "Who was in the training set?"
) -> Figure:
    """Each attack's curve with its limits at the low false-positive rates, and chance.

    A straight axis shows the average record; the records that a model memorised are the left end
    of a logarithmic one.
    """
    if not findings:
        raise InvalidArgument("findings", findings, "at least one")
    figure = Figure(figsize=(7.4, 5.6), layout="constrained")
    axes = figure.subplots()
    least = 0.5 / max(f.non_members for f in findings)
    floor = 0.5 / max(f.members for f in findings)
    for finding, colour in zip(findings, np.resize(np.array(COLOURS), len(findings)), strict=True):
        fpr, tpr = finding.thinned(400)
        label = f"{finding.attack}: AUC {finding.auc.value:.3f}"
        axes.step(
            np.maximum(fpr, least),
            np.maximum(tpr, floor),
            where="post",
            color=str(colour),
            linewidth=2.0,
            label=label,
        )
        for rate, found in finding.tpr_at.items():
            if rate >= least and found.low > 0.0:
                axes.vlines(
                    rate,
                    max(found.low, floor),
                    found.high,
                    color=str(colour),
                    linewidth=4,
                    alpha=0.35,
                )
    chance = np.geomspace(least, 1.0, 50)
    axes.plot(chance, chance, "--", color=MUTED, linewidth=1.2, label="chance")
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(least, 1.0)
    axes.set_ylim(min(floor, least), 1.05)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(FuncFormatter(lambda v, _: f"{100 * v:g}%"))
    plain(axes, title, x="non-members called members", y="members found")
    axes.legend(frameon=False, loc="lower right", labelcolor=INK)
    return figure
