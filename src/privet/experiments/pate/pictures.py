"""Pictures of the PATE experiment: outlines on slices, Dice by method and against epsilon."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from privet.experiments.pate.rows import AUTOENCODED, DPSGD

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from privet.experiments.pate.trial import Trial

INK, MUTED, GRID = "#22303c", "#6b7a88", "#dfe5ea"
OUTLINES = ("#e6a700", "#2a9d8f", "#d1495b", "#8a6fb0")
"""One colour for each class but the background."""


def draw(out: Path, results: dict[str, Any], trials: Mapping[int, Trial]) -> list[Path]:
    """Write all pictures as PNG; returns their paths."""
    import matplotlib

    matplotlib.use("Agg")
    first = next(iter(trials.values()))
    figures = {
        "dice-by-method": _by_method(results),
        "dice-against-epsilon": _against_epsilon(results),
        "slices": _slices(first, results),
    }
    written = []
    for name, figure in figures.items():
        path = out / f"{name}.png"
        figure.savefig(path, dpi=150, bbox_inches="tight", facecolor="white")
        written.append(path)
    return written


def _axes(width: float, height: float) -> tuple[Figure, Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height))
    axes = figure.subplots()
    axes.set_axisbelow(True)
    axes.tick_params(colors=MUTED, length=0)
    for side in ("top", "right", "left", "bottom"):
        axes.spines[side].set_visible(False)
    return figure, axes


def _table(results: dict[str, Any]) -> list[dict[str, Any]]:
    """The rows of the table without the sweep, best first."""
    main = results["settings"]["epsilon"]
    sweep = {(AUTOENCODED, e) for e in results["settings"]["sweep"] if e != main}
    rows = [r for r in results["summary"] if (r["method"], r["epsilon"]) not in sweep]
    return sorted(rows, key=lambda r: r["mean_dice"])


def _by_method(results: dict[str, Any]) -> Figure:
    rows = _table(results)
    figure, axes = _axes(8.0, 0.42 * len(rows) + 1.0)
    for i, row in enumerate(rows):
        colour = "#1b6ca8" if row["unit"] else "#b9c3cc"
        axes.barh(i, row["mean_dice"], color=colour, height=0.62)
        axes.plot(row["by_seed"], [i] * row["seeds"], "o", color=INK, markersize=3)
        axes.text(0.01, i, f"{row['mean_dice']:.3f}", va="center", color="white", fontsize=9)
    axes.set_yticks(range(len(rows)), [r["method"] for r in rows], color=INK)
    axes.grid(True, axis="x", color=GRID)
    axes.set_xlabel("Dice, mean of classes; dots are seeds", color=MUTED)
    budget = f"({results['settings']['epsilon']:g}, {results['settings']['delta']:g})"
    axes.set_title(f"Blue: private at {budget}; grey: not", loc="left", fontsize=11, color=INK)
    return figure


def _against_epsilon(results: dict[str, Any]) -> Figure:
    rows = [r for r in results["summary"] if r["method"] == AUTOENCODED]
    finite = sorted((r for r in rows if r["epsilon"] != "inf"), key=lambda r: r["epsilon"])
    figure, axes = _axes(7.0, 4.2)
    axes.plot(
        [r["epsilon"] for r in finite], [r["mean_dice"] for r in finite], "o-", color="#1b6ca8",
        label=AUTOENCODED,
    )  # fmt: skip
    flat = {r["method"]: r["mean_dice"] for r in results["summary"] if r["method"] != AUTOENCODED}
    noiseless = [r["mean_dice"] for r in rows if r["epsilon"] == "inf"]
    if noiseless:
        flat["autoencoded, no noise"] = noiseless[0]
    shown = (
        "mean teacher", "ensemble without noise", "public labels only",
        "mean public map, no teacher", "autoencoded, no noise",
    )  # fmt: skip
    styles = ("-", "--", "-.", ":", (0, (6, 3)))
    for name, style in zip(shown, styles, strict=True):
        if name in flat:
            axes.axhline(flat[name], color=MUTED, linestyle=style, linewidth=1.2, label=name)
    axes.set_xscale("log", base=2)
    axes.set_xticks([r["epsilon"] for r in finite], [f"{r['epsilon']:g}" for r in finite])
    axes.grid(True, color=GRID)
    axes.set_xlabel("epsilon, for a teacher's shard", color=MUTED)
    axes.set_ylabel("Dice, mean of classes", color=MUTED)
    axes.legend(
        frameon=False, fontsize=8, labelcolor=INK, loc="center left", bbox_to_anchor=(1, 0.5)
    )
    axes.set_title("The student against its budget", loc="left", fontsize=11, color=INK)
    return figure


def _slices(trial: Trial, results: dict[str, Any]) -> Figure:
    """Three test volumes, one slice each: the truth and what five networks say."""
    from matplotlib.figure import Figure

    epsilon = trial.settings.epsilon
    networks = {
        "one teacher": trial.teacher(0),
        f"autoencoded PATE, {epsilon:g}": trial.kept(f"{AUTOENCODED} {epsilon:g}", trial.fresh),
        f"PCA-PATE, {epsilon:g}": trial.kept(f"PCA-PATE {epsilon:g}", trial.fresh),
        f"DP-SGD, {epsilon:g}": trial.kept(trial.settings.dpsgd_name(DPSGD, epsilon), trial.fresh),
        "public labels only": trial.control(),
    }
    chosen = trial.test.take(range(min(3, len(trial.test))))
    maps = {"truth": chosen.labels}
    for name, network in networks.items():
        maps[name] = trial.probabilities(network, chosen.images).argmax(axis=1)
    figure = Figure(figsize=(2.1 * len(maps), 1.6 * len(chosen) + 0.4), layout="constrained")
    grid = figure.subplots(len(chosen), len(maps), squeeze=False)
    for i, row in enumerate(grid):
        # the slice that cuts most of the labelled voxels
        k = int((chosen.labels[i] > 0).sum(axis=(1, 2)).argmax())
        for axes, (name, found) in zip(row, maps.items(), strict=True):
            axes.imshow(chosen.images[i, k].T, cmap="gray", origin="lower")
            _outline(axes, found[i, k], trial.classes)
            axes.set_axis_off()
            if i == 0:
                axes.set_title(name, fontsize=9, color=INK)
    named = ", ".join(
        f"{c} {o}"
        for c, o in zip(results["classes"], ("yellow", "green", "red", "violet"), strict=False)
    )
    figure.suptitle(f"Test volumes, a sagittal slice each: {named}", fontsize=10, color=MUTED)
    return figure


def _outline(axes: Any, labels: NDArray[Any], classes: int) -> None:
    for c in reversed(range(1, classes)):  # an inner class is drawn over what surrounds it
        mask = (labels == c).T.astype(np.float64)
        if mask.any() and not mask.all():
            axes.contour(
                mask, levels=[0.5], colors=[OUTLINES[(c - 1) % len(OUTLINES)]], linewidths=1.4
            )
