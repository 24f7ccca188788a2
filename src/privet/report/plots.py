"""Every picture: matplotlib figures, made without pyplot and without a display.

`save` writes a figure to a file; `to_svg` gives it to a page, whose colours it then follows.
"""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import TwoSlopeNorm
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, NullFormatter
from numpy.typing import ArrayLike, NDArray

from privet.accounting import PrivacyLoss, SampledGaussian
from privet.accounting.closed_form import closed_form_claim
from privet.accounting.closed_form_validity import ValidityMap
from privet.accounting.privacy_loss import Array
from privet.accounting.renyi_and_moments_accountants import moments_epsilon, renyi_epsilon
from privet.accounting.trade_off import TradeOff
from privet.audit.membership import MembershipFinding
from privet.errors import InvalidArgument
from privet.report.explanation import posterior

INK, MUTED, GRID = "#22303c", "#66737f", "#dfe5ea"
"""Of text, of what is beside the point (4.9 to 1 on white), and of grids: on a page, the page's."""
_PAGE_COLOURS = {INK: "var(--ink)", MUTED: "var(--muted)", GRID: "var(--line)"}
_ON_MAP = "#22303d"
"""Of lines on a light map, which stays light on a dark page: INK but for one bit."""
EXACT, CLAIM, RENYI, MOMENTS = "#1b6ca8", "#d1495b", "#8a9a5b", "#b08968"
PALETTE = ("#6b7a89", "#2f7fc1", "#3c9a4e", "#8e63c7", "#d1495b", "#c9780e", "#1f9e99", "#a0616a")
"""Mid-tones: each stands out from a white page and from a black one."""
FOR, AGAINST = (209, 73, 91), (47, 127, 193)
"""Red and blue of signed maps, both readable on white and on black."""
MOST_CURVES = len(PALETTE)
"""Methods that have a curve: more cannot be distinguished."""
SMALLEST_DELTA = 1e-10
"""The lower end of drawn deltas: below, no promise is stated."""
_PAGE_SIZE = (6.4, 4.0)
"""Inches of a picture on a page: with letters of 11 points they can be read on a phone."""
_MOST_PHASES = 40
"""Of a schedule whose ends are all drawn: a picture has no room for more corners."""


def save(figure: Figure, path: str | Path) -> Path:
    """Write a figure; the kind of file follows from its name."""
    path = Path(path)
    try:
        with mpl.rc_context({"pdf.fonttype": 42}):  # journals refuse matplotlib's own Type 3
            figure.savefig(path, dpi=160, bbox_inches="tight", facecolor="white")
    except (OSError, ValueError) as e:
        raise InvalidArgument("picture", str(path), "a file that can be written", str(e)) from None
    return path


def to_svg(figure: Figure, alt: str) -> str:
    """A figure for an HTML page, light or dark; `alt` is what a screen reader says.

    The same figure gives the same text every time, so that `privet verify` can compare pages.
    """
    file = io.StringIO()
    # text stays text, and the names of parts follow from their content
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "privet"}):
        figure.savefig(file, format="svg", transparent=True, metadata={"Date": None})
    svg = file.getvalue()
    svg = svg[svg.index("<svg") :]
    for useless in (
        r"<metadata>.*?</metadata>\s*",
        r"<style.*?</style>",
        r'(?<=<g) id="[^"]*"',  # the same in every figure, which a page may not have twice
        r"\s*font-family: [^;\"]*;?",
    ):
        svg = re.sub(useless, "", svg, flags=re.DOTALL)
    width, height = (72 * v for v in figure.get_size_inches())
    start = f'<svg viewBox="0 0 {width:g} {height:g}" role="img" aria-label="{escape(alt)}">'
    svg = re.sub(r"<svg.*?>", start, svg, count=1, flags=re.DOTALL).replace("xlink:href", "href")
    for colour, variable in _PAGE_COLOURS.items():
        svg = svg.replace(colour, variable)
    return svg


def to_png_address(values: NDArray[Any]) -> str:
    """Values in [-1, 1] as a data: address: red above 0, blue below, transparent at 0.

    >>> to_png_address(np.zeros((1, 1)))[:22]
    'data:image/png;base64,'
    """
    from matplotlib.image import imsave

    v = np.clip(np.asarray(values, dtype=np.float64), -1.0, 1.0)
    colour = np.where((v > 0.0)[..., None], FOR, AGAINST)
    pixels = np.concatenate([colour, np.round(255.0 * np.abs(v))[..., None]], axis=-1)
    file = io.BytesIO()
    imsave(file, pixels.astype(np.uint8), format="png")
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()


def colours_of(names: Sequence[str]) -> dict[str, str]:
    """One colour of the palette for each name."""
    return {name: PALETTE[i % len(PALETTE)] for i, name in enumerate(names)}


def plain(axes: Axes, title: str, *, x: str, y: str) -> None:
    """Style the axes in the same way on every picture: few lines, a title, labels."""
    axes.set_title(title, loc="left", fontsize=11, color=INK, pad=10)
    axes.set_xlabel(x, color=MUTED)
    axes.set_ylabel(y, color=MUTED)
    axes.grid(True, color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(colors=MUTED, which="both", length=0, pad=8)
    for side in ("top", "right", "left", "bottom"):
        axes.spines[side].set_visible(False)


_PERCENT = FuncFormatter(lambda share, _: f"{100 * share:.4g}%")


def _page_figure(*, right: float = 0.97) -> tuple[Figure, Axes]:
    figure = Figure(figsize=_PAGE_SIZE)
    return figure, figure.subplots(
        gridspec_kw={"left": 0.12, "right": right, "bottom": 0.15, "top": 0.97}
    )


def spending_by_accountant(
    loss: SampledGaussian, delta: float, points: int
) -> tuple[list[int], dict[str, list[float]]]:
    """Some steps of a run, and what each accountant says that was spent by then."""
    prefixes = _prefixes(loss, points)
    parts = [part for _, part in prefixes]
    return [steps for steps, _ in prefixes], {
        "moments": [moments_epsilon(part, delta) for part in parts],
        "Renyi": [renyi_epsilon(part, delta) for part in parts],
        "exact": [part.epsilon(delta) for part in parts],
        "closed form (claim)": [closed_form_claim(part, delta).epsilon for part in parts],
    }


def _prefixes(loss: SampledGaussian, points: int) -> list[tuple[int, SampledGaussian]]:
    """The first steps of a run, in the order in which they were given, cut at `points` places
    and at the end of every phase.

    >>> run = SampledGaussian(sample_rate=0.1, noise_multiplier=1.0, steps=100)
    >>> [steps for steps, _ in _prefixes(run, 4)]
    [12, 35, 65, 100]
    >>> phases = SampledGaussian(sample_rate=0.1, noise_multiplier=[1.0, 2.0], steps=[40, 60])
    >>> [steps for steps, _ in _prefixes(phases, 2)]
    [35, 40, 100]
    """
    q, z, n = (np.asarray(v) for v in (loss.sample_rate, loss.noise_multiplier, loss.steps))
    ends = np.cumsum(n)
    total = int(ends[-1])
    # closer together at the start, where the curves bend
    cuts = {max(1, round(total * (k / points) ** 1.5)) for k in range(1, points + 1)}
    changes = np.nonzero((np.diff(q) != 0.0) | (np.diff(z) != 0.0))[0]
    if len(changes) <= _MOST_PHASES:  # between the ends of phases a line would cut the corner
        cuts |= {int(end) for end in ends[changes]}
    prefixes = []
    for cut in sorted(cuts):
        last = int(np.searchsorted(ends, cut))
        m = n[: last + 1].copy()
        m[last] -= ends[last] - cut
        part = SampledGaussian(
            sample_rate=q[: last + 1],
            noise_multiplier=z[: last + 1],
            steps=m,
            adjacency=loss.adjacency,
        )
        prefixes.append((cut, part))
    return prefixes


def accountants(loss: PrivacyLoss, delta: float, *, points: int = 18) -> Figure:
    """epsilon as training goes on, by every accountant, and the exact trade against delta."""
    if not isinstance(loss, SampledGaussian):
        raise InvalidArgument("loss", type(loss).__name__, "a SampledGaussian")
    if len(loss.groups[0]) > 2000:
        points = 6  # every point of a schedule with so many different steps takes a second
    figure = Figure(figsize=(11.0, 4.4), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=[1.55, 1.0])
    exact, claim = _draw_budget(left, loss, delta, points)
    title = f"Privacy spent after each step, delta = {delta:g}"
    hidden = "; shaded: what the closed form hides" if exact > claim else ""
    plain(left, title + hidden, x="steps", y="epsilon")
    deltas = 10.0 ** np.linspace(-2, -12, 11)
    right.plot(deltas, [loss.epsilon(d) for d in deltas], color=EXACT, linewidth=2.6)
    right.plot([delta], [exact], "o", color=EXACT, markersize=7)
    right.annotate(
        f"epsilon {exact:.3g}", (delta, exact), xytext=(8, -16), textcoords="offset points",
        color=EXACT, fontweight="bold",
    )  # fmt: skip
    right.set_xscale("log")
    right.set_xlim(1.5e-2, 0.7e-12)
    right.set_ylim(0, None)
    plain(right, "The whole run, for every delta", x="delta", y="epsilon")
    return figure


def budget(loss: SampledGaussian, delta: float, *, points: int) -> Figure:
    """epsilon as training goes on, by every accountant, for a page."""
    figure, axes = _page_figure(right=0.72)  # room for the names beside the ends
    _draw_budget(axes, loss, delta, points)
    return figure


def _draw_budget(
    axes: Axes, loss: SampledGaussian, delta: float, points: int
) -> tuple[float, float]:
    """Draw what each accountant says; returns what the exact one and the claim say at the end."""
    steps, curves = spending_by_accountant(loss, delta, points)
    exact, claim = np.array(curves["exact"]), np.array(curves["closed form (claim)"])
    under = (exact > claim).tolist()
    axes.fill_between(steps, claim, exact, where=under, color=CLAIM, alpha=0.13, linewidth=0)
    styles = dict(zip(curves, ((MOMENTS, "-"), (RENYI, "-"), (EXACT, "-"), (CLAIM, "--")),
                      strict=True))  # fmt: skip
    for name, values in curves.items():
        colour, line = styles[name]
        axes.plot(steps, values, line, color=colour, linewidth=2.6 if name == "exact" else 1.8)
    plain(axes, "", x="steps", y="epsilon")
    axes.set_xlim(0, steps[-1] * 1.001)
    renyi = curves["Renyi"][-1]
    axes.set_ylim(0, max(1.35 * exact[-1], 1.06 * renyi, 1.06 * claim[-1]))
    _label_ends(axes, [(n, float(v[-1]), styles[n][0]) for n, v in curves.items()])
    axes.xaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:,.0f}"))
    return float(exact[-1]), float(claim[-1])


def _label_ends(axes: Axes, ends: list[tuple[str, float, str]], *, form: str = "{:.3g}") -> None:
    """Names beside the curves' ends, within the picture and moved apart where they would touch."""
    (bottom, top), gap = axes.get_ylim(), 0.06
    ordered = sorted(ends, key=lambda e: e[1])
    places = [min(max((value - bottom) / (top - bottom), 0.0), 1.0) for _, value, _ in ordered]
    for i in range(1, len(places)):
        places[i] = max(places[i], places[i - 1] + gap)
    places[-1] = min(places[-1], 1.0)
    for i in range(len(places) - 2, -1, -1):
        places[i] = min(places[i], places[i + 1] - gap)
    for (name, value, colour), at in zip(ordered, places, strict=True):
        axes.plot([1.025], [at], "s", color=colour, transform=axes.transAxes, clip_on=False,
                  markersize=5)  # fmt: skip
        axes.annotate(
            f"{name} {form.format(value)}"
            + (" (above)" if value > top else " (below)" if value < bottom else ""),
            (1.05, at),
            xycoords="axes fraction",
            color=INK,  # the colours are lines: as letters they would be too pale
            va="center",
            fontsize=9,
            fontweight="bold" if name == "exact" else "normal",
            annotation_clip=False,
        )


def validity_map(
    validity: ValidityMap, *, run: SampledGaussian | None = None, title: bool = True
) -> Figure:
    """The (rate, noise) plane: blue where the closed form is a bound, red where it is too small.

    `run` is marked, if given; a page has its own title.
    """
    figure = Figure(figsize=(8.6, 5.4), layout="constrained")
    axes = figure.subplots()
    z, q = validity.noise_multipliers, validity.sample_rates
    axes.set_xscale("log")
    axes.set_yscale("log")
    mesh = axes.pcolormesh(
        z,
        q,
        np.clip(np.log2(validity.ratio), -2.0, 4.0),
        cmap="RdBu_r",
        norm=TwoSlopeNorm(vmin=-2.5, vcenter=0.0, vmax=4.5),
        shading="gouraud",
        rasterized=True,
    )
    axes.contour(z, q, np.log2(validity.ratio), levels=[0.0], colors=_ON_MAP, linewidths=2.2)
    lines = axes.contour(
        z,
        q,
        validity.exact,
        levels=[0.1, 1.0, 10.0, 100.0],
        colors=_ON_MAP,
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
    figure.legend(handles=named, loc="outside lower center", ncols=3, frameon=False, labelcolor=INK)
    where = "Where the closed form can be believed"
    heading = f"{where}: {validity.steps:,} steps, delta = {validity.delta:g}"
    plain(axes, heading if title else "", x="noise multiplier z", y="sample rate q")
    if run is not None:
        here = float(np.ravel(run.noise_multiplier)[0]), float(np.ravel(run.sample_rate)[0])
        axes.plot(*here, "o", color=_ON_MAP, markerfacecolor="#ffffff", markersize=9, clip_on=False)
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
    figure.legend(loc="outside lower center", ncols=4, frameon=False, labelcolor=INK)
    plain(axes, "Squared error of an answer", x="components", y="error")
    return figure


COLOURS = (EXACT, CLAIM, RENYI, MOMENTS, INK, "#7b5ea7")


@final
@dataclass(frozen=True, kw_only=True)
class RocCurve:
    """Members found against non-members called members, as a line; with limits at some rates."""

    fpr: ArrayLike
    tpr: ArrayLike
    colour: str
    width: float = 2.0
    name: str | None = None
    limits: Sequence[tuple[float, float, float]] = ()
    """A false-positive rate, and the least and most true positives there."""


def roc(
    findings: Sequence[MembershipFinding], *, title: str = "Who was in the training set?"
) -> Figure:
    """Each attack's curve with its limits at the low false-positive rates, and chance."""
    if not findings:
        raise InvalidArgument("findings", findings, "at least one")
    curves = []
    for k, finding in enumerate(findings):
        fpr, tpr = finding.thin_curve(400)
        limits = [(rate, r.low, r.high) for rate, r in finding.tpr_at.items() if r.low > 0.0]
        name = f"{finding.attack}: AUC {finding.auc.value:.3f}"
        colour = COLOURS[k % len(COLOURS)]
        curves.append(RocCurve(fpr=fpr, tpr=tpr, colour=colour, name=name, limits=limits))
    # half a record: curves start where nobody was called a member
    least = 0.5 / max(f.non_members for f in findings)
    floor = 0.5 / max(f.members for f in findings)
    return roc_curves(curves, least=least, floor=floor, title=title)


def roc_curves(
    curves: Sequence[RocCurve], *, least: float, floor: float, title: str | None = None
) -> Figure:
    """Curves on logarithmic axes from `least` and `floor`, and chance; for a page without a title.

    A straight axis shows the average record; the records that a model memorised are the left end
    of a logarithmic one.
    """
    figure, axes = _page_figure()
    if title is not None:
        figure = Figure(figsize=(7.4, 5.6), layout="constrained")
        axes = figure.subplots()
    for curve in curves:
        axes.step(
            np.maximum(curve.fpr, least), np.maximum(curve.tpr, floor), where="post",
            color=curve.colour, linewidth=curve.width, label=curve.name,
        )  # fmt: skip
        for rate, low, high in curve.limits:
            if rate >= least:
                axes.vlines(rate, max(low, floor), high, color=curve.colour, lw=4, alpha=0.35)
    chance = np.geomspace(least, 1.0, 50)
    name = None if title is None else "chance"
    axes.plot(chance, chance, "--", color=MUTED, linewidth=1.2, label=name)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(least, 1.0)
    axes.set_ylim(min(floor, least), 1.05)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(FuncFormatter(lambda v, _: f"{100 * v:g}%"))
    plain(axes, title or "", x="non-members called members", y="members found")
    if title is not None:
        axes.legend(frameon=False, loc="lower right", labelcolor=INK)
    return figure


def zoom(accuracies: Sequence[float], guessing: float) -> float:
    """The accuracy above which methods are compared; the few below would squeeze the others.

    Half the way from guessing to the best: a method that gets no further is out of the running,
    and is told as a number at the edge.

    >>> round(zoom([0.2, 0.82, 0.9], 0.1), 2)
    0.5
    """
    best = max(accuracies)
    return min(best, guessing + 0.5 * (best - guessing))


def accuracy_dots(rows: Sequence[Mapping[str, Any]]) -> Figure:
    """Accuracy of each method with its interval, the best on top, from where methods are on."""
    ordered = sorted(rows, key=lambda row: row["accuracy"])
    figure = Figure(figsize=(_PAGE_SIZE[0], 1.0 + 0.185 * len(rows)))
    axes = figure.subplots()
    least = zoom([row["accuracy"] for row in rows], rows[0]["guessing"])
    inside = [row for row in rows if row["accuracy"] >= least]
    low = min(row["accuracy_interval"][0] for row in inside)
    high = max(row["accuracy_interval"][1] for row in inside)
    space = 0.06 * max(high - low, 0.01)
    outside = len(inside) < len(rows)
    axes.set_xlim(low - (4.0 if outside else 1.0) * space, min(high + space, 1.003))
    axes.set_ylim(-0.7, len(rows) - 0.3)
    for place, row in enumerate(ordered):
        colour, hollow = _kind_of(row)
        ends = row["accuracy_interval"]
        if row["accuracy"] < least:
            edge = f"◂ {row['accuracy']:.1%}"
            axes.annotate(edge, (0.005, place), xycoords=("axes fraction", "data"), va="center",
                          fontsize=8, color=INK)  # fmt: skip
            continue
        axes.plot(ends, [place, place], color=colour, linewidth=5.0, alpha=0.3,
                  solid_capstyle="butt")  # fmt: skip
        axes.plot([row["accuracy"]], [place], "o", color=colour, markersize=5.5,
                  markerfacecolor="#ffffff" if hollow else colour)  # fmt: skip
    for row in rows:
        if not row["private"] and row["accuracy"] == max(r["accuracy"] for r in rows):
            axes.axvline(row["accuracy"], color=MUTED, linewidth=0.9, linestyle=":")
    axes.xaxis.set_major_formatter(_PERCENT)
    plain(axes, "", x="accuracy", y="")
    axes.grid(False, axis="y")
    names = [row["method"] + ("" if row["learned"] else " (did not learn)") for row in ordered]
    axes.set_yticks(range(len(ordered)), names, fontsize=8.5)
    width, height = figure.get_size_inches()
    left = (14.0 + 4.9 * max(map(len, names))) / (72.0 * width)  # points of a letter of this size
    figure.subplots_adjust(
        left=min(left, 0.5), right=0.95, top=1.0 - 0.05 / height, bottom=0.75 / height
    )
    _legend_of_kinds(figure, [_kind_of(row) for row in rows])
    return figure


_PROVED, _STATED, _NOTHING = (EXACT, False), (CLAIM, True), (MUTED, True)
_KINDS = {_PROVED: "proved at this epsilon", _STATED: "not proved at it", _NOTHING: "no promise"}
"""How a method's mark looks, colour and whether it is hollow, and what that means."""


def _kind_of(row: Mapping[str, Any]) -> tuple[str, bool]:
    if row["within_budget"]:
        return _PROVED
    return _STATED if row["private"] else _NOTHING


def _legend_of_kinds(figure: Figure, shown: Sequence[tuple[str, bool]]) -> None:
    marks = [
        Line2D([], [], marker="o", linestyle="", color=colour, label=name,
               markerfacecolor="#ffffff" if hollow else colour)
        for (colour, hollow), name in _KINDS.items()
        if (colour, hollow) in shown
    ]  # fmt: skip
    figure.legend(handles=marks, loc="lower center", ncols=3, frameon=False, labelcolor=INK,
                  fontsize=9, handletextpad=0.2)  # fmt: skip


def accuracy_curves(rows: Mapping[str, Sequence[Mapping[str, Any]]]) -> Figure:
    """Accuracy over epsilon with a band for its interval, a named line for each method.

    Drawn through where the promise is proved at that epsilon, dotted and hollow where not.
    """
    figure, axes = _page_figure(right=0.66)  # room for the names beside the ends
    axes.set_xscale("log")
    epsilons = sorted({row["epsilon"] for own in rows.values() for row in own})
    ends = []
    for k, (name, own) in enumerate(rows.items()):
        colour = PALETTE[k % len(PALETTE)]
        x, y = [row["epsilon"] for row in own], [row["accuracy"] for row in own]
        low, high = zip(*(row["accuracy_interval"] for row in own), strict=True)
        proved = all(row["within_budget"] for row in own)
        axes.fill_between(x, low, high, color=colour, alpha=0.14, linewidth=0)
        axes.plot(x, y, "o-" if proved else "o:", color=colour, linewidth=2.0, markersize=4.5,
                  markerfacecolor=colour if proved else "#ffffff")  # fmt: skip
        ends.append((name, y[-1], colour))
    every = [row for own in rows.values() for row in own]
    inside = []
    for epsilon in epsilons:  # private methods set the scale: the limit is the same everywhere
        here = [row for row in every if row["epsilon"] == epsilon]
        private = [row["accuracy"] for row in here if row["private"]] or [here[0]["accuracy"]]
        least = zoom(private, here[0]["guessing"])
        inside += [row for row in here if row["accuracy"] >= least]
    floor = min(row["accuracy_interval"][0] for row in inside)
    top = max(row["accuracy_interval"][1] for row in every)
    space = 0.04 * max(top - floor, 0.01)
    axes.set_ylim(floor - space, min(top + space, 1.003))
    axes.set_xlim(epsilons[0] / 1.1, epsilons[-1] * 1.1)
    axes.set_xticks(epsilons, [f"{e:g}" for e in epsilons])
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.yaxis.set_major_formatter(_PERCENT)
    plain(axes, "", x="epsilon", y="accuracy")
    _label_ends(axes, ends, form="{:.1%}")
    return figure


def relevance_bars(names: Sequence[str], shares: ArrayLike) -> Figure:
    """A bar for each column, the most relevant on top."""
    figure = Figure(figsize=(_PAGE_SIZE[0], 0.4 + 0.27 * len(names)), layout="constrained")
    axes = figure.subplots()
    values, rows = np.asarray(shares), np.arange(len(names))[::-1]
    axes.barh(rows, values, color=PALETTE[2], height=0.7)
    plain(axes, "", x="", y="")
    axes.grid(False)
    axes.set_yticks(rows, names)
    axes.set_xticks([])
    for row, value in zip(rows, values, strict=True):
        axes.annotate(
            f"{value:.1%}", (value, row), xytext=(4, 0), textcoords="offset points", va="center",
            color=MUTED,
        )  # fmt: skip
    axes.set_xlim(0.0, 1.15 * max(float(values.max()), 1e-12))  # room for the numbers
    return figure


def trade_offs(curves: Sequence[tuple[float, TradeOff]]) -> Figure:
    """What attackers find and may believe at most, a line for each (epsilon, its curve)."""
    figure = Figure(figsize=(11.0, 4.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    rates, priors = np.geomspace(1e-4, 1.0, 200), np.linspace(0.0, 1.0, 201)
    for k, (epsilon, curve) in enumerate(curves):
        colour, name = PALETTE[(k + 1) % len(PALETTE)], f"epsilon {epsilon:.3g}"
        left.plot(rates, curve.curve(rates)[1], color=colour, linewidth=2.6, label=name)
        beliefs = [posterior(float(p), epsilon) for p in priors]
        right.plot(priors, beliefs, color=colour, linewidth=2.6, label=name)
    left.set_xscale("log")
    left.set_yscale("log")
    for axes, values in ((left, rates), (right, priors)):
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter(FuncFormatter(lambda v, _: f"{100 * v:g}%"))
        axes.plot(values, values, "--", color=MUTED, linewidth=1.2, label="nothing learned")
        axes.legend(frameon=False, loc="lower right", labelcolor=INK)
    left.set_xlim(rates[0], 1.0)
    left.set_ylim(rates[0], 1.3)
    right.set_xlim(0.0, 1.0)
    right.set_ylim(0.0, 1.02)
    plain(
        left,
        "What any attack finds, at most",
        x="false alarms, of those whose record was not used",
        y="found, of those whose record was used",
    )
    plain(
        right,
        "What somebody may come to believe, at most",
        x="belief before, that a record was used",
        y="belief after",
    )
    return figure


def privacy_curve(points: Sequence[tuple[float, float]]) -> Figure:
    """delta over epsilon for a page; the line ends where epsilon is 0."""
    figure, axes = _page_figure()
    zero = [k for k, (epsilon, _) in enumerate(points) if epsilon == 0.0]
    shown = points[: zero[0] + 1] if zero else points
    axes.plot([e for e, _ in shown], [d for _, d in shown], color=EXACT, linewidth=2.6)
    axes.set_yscale("log")
    axes.set_xlim(0.0, 1.05 * max([1.0, *(e for e, _ in shown)]))
    axes.set_ylim(SMALLEST_DELTA, 1.0)
    axes.set_yticks([10.0**k for k in range(-10, 1, 2)], [_power(k) for k in range(-10, 1, 2)])
    axes.yaxis.set_minor_formatter(NullFormatter())
    plain(axes, "", x="epsilon", y="delta")
    return figure


def _power(k: int) -> str:
    """A power of ten in ordinary letters.

    >>> _power(-4), _power(0)
    ('10⁻⁴', '1')
    """
    raised = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
    return f"10{str(k).translate(raised)}" if k else "1"
