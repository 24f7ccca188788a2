"""Pictures of the PATE experiment: outlines on slices, Dice by method and against epsilon."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from numpy.typing import NDArray

from privet_papers.figure_style import INK, MUTED, new_figure, remove_frame, save_figure
from privet_papers.pate import row_names as names
from privet_papers.pate import table_rows

if TYPE_CHECKING:
    from privet_papers.pate.training_runs import VolumeRuns

OUTLINES = ("#e6a700", "#2a9d8f", "#d1495b", "#8a6fb0")
"""One colour for each class but the background."""
UNITS = {"teacher shard": "#1b6ca8", "record": "#7fb2d9", None: "#b9c3cc"}
CURVES = {
    names.AUTOENCODED: ("#1b6ca8", "o"),
    names.ABOUT_PUBLIC: ("#2a9d8f", "s"),
    names.DPSGD: ("#d1495b", "^"),
}
FLAT: dict[str, Any] = {
    names.CONTROL: "-.",
    names.GUESS: (0, (6, 3)),
    names.ENSEMBLE: "--",
    names.MEAN_TEACHER: "-",
    names.MEAN_MAP: ":",
}
"""Rows without a budget, and how their lines are drawn."""


def draw(out: Path, results: dict[str, Any], runs: VolumeRuns) -> list[Path]:
    """Write all pictures; returns their paths."""
    figures = {
        "dice-by-method": _by_method(results),
        "dice-against-epsilon": _against_epsilon(results),
        "slices": _slices(runs, results),
        "logistic-and-normal": _logistic_and_normal(),
        "activation": _activation(),
    }
    return [path for name, figure in figures.items() for path in save_figure(figure, out / name)]


def _table(results: dict[str, Any]) -> list[dict[str, Any]]:
    """The rows of the table without the sweep, best last."""
    main = results["settings"]["epsilon"]
    sweep = {
        (m, e) for m in table_rows.SWEEP_METHODS for e in results["settings"]["sweep"] if e != main
    }
    rows = [r for r in results["summary"] if (r["method"], r["epsilon"]) not in sweep]
    return sorted(rows, key=lambda r: r["mean_dice"])


def _by_method(results: dict[str, Any]) -> Figure:
    rows = _table(results)
    figure, ((axes,),) = new_figure(8.0, 0.36 * len(rows) + 1.0)
    remove_frame(axes, grid="x")
    for i, row in enumerate(rows):
        axes.barh(i, row["mean_dice"], color=UNITS[row["unit"]], height=0.62)
        axes.plot(row["by_seed"], [i] * row["seeds"], "o", color=INK, markersize=3)
        end = max(row["mean_dice"], *row["by_seed"]) + 0.012
        axes.text(end, i, f"{row['mean_dice']:.3f}", va="center", color=INK, fontsize=9)
    axes.set_yticks(range(len(rows)), [r["method"] for r in rows], color=INK)
    axes.set_xlim(0.0, 1.0)
    axes.set_xlabel("Dice, mean of classes; dots are seeds", color=MUTED)
    handles = [Patch(color=c, label=f"protects {u or 'nothing'}") for u, c in UNITS.items()]
    axes.legend(
        handles=handles, frameon=False, fontsize=8, labelcolor=INK, ncols=3,
        loc="lower left", bbox_to_anchor=(0.0, 1.0),
    )  # fmt: skip
    budget = f"({results['settings']['epsilon']:g}, {results['settings']['delta']:g})"
    axes.set_title(f"Test volumes, budgets {budget}", loc="left", fontsize=11, color=INK, pad=22)
    return figure


def _against_epsilon(results: dict[str, Any]) -> Figure:
    figure, ((axes,),) = new_figure(7.0, 4.2)
    remove_frame(axes, grid="both")
    budgets: set[float] = set()
    for name, (colour, mark) in CURVES.items():
        rows = [r for r in results["summary"] if r["method"] == name and r["epsilon"] != "inf"]
        if not rows:
            continue
        rows.sort(key=lambda r: r["epsilon"])
        budgets |= {r["epsilon"] for r in rows}
        x, y = [r["epsilon"] for r in rows], [r["mean_dice"] for r in rows]
        axes.errorbar(
            x, y, yerr=[r["standard_error"] or 0.0 for r in rows], fmt=mark, linestyle="-",
            color=colour, capsize=3, label=f"{name}, per {rows[0]['unit']}",
        )  # fmt: skip
    flat = {r["method"]: r["mean_dice"] for r in results["summary"]}
    for name, style in FLAT.items():
        if name not in flat:
            continue
        axes.axhline(flat[name], color=MUTED, linestyle=style, linewidth=1.2, label=name)
    axes.set_xscale("log", base=2)
    axes.set_xticks(sorted(budgets), [f"{e:g}" for e in sorted(budgets)])
    axes.set_xlabel(f"epsilon, delta {results['settings']['delta']:g}", color=MUTED)
    axes.set_ylabel("Dice, mean of classes", color=MUTED)
    axes.legend(
        frameon=False, fontsize=8, labelcolor=INK, loc="center left", bbox_to_anchor=(1, 0.5)
    )
    axes.set_title("Students and DP-SGD against their budgets", loc="left", fontsize=11, color=INK)
    return figure


def _slices(runs: VolumeRuns, results: dict[str, Any]) -> Figure:
    """Three test volumes, one slice each: the truth and what networks say."""
    epsilon = runs.settings.epsilon
    students = (names.ALGORITHM_2, names.AUTOENCODED, names.ABOUT_PUBLIC)
    made = {row["method"] for row in results["summary"]}
    networks = {"one teacher": runs.teacher(0)}
    networks |= {
        name: runs.load_or_train(f"{name} {epsilon:g}", runs.new_network)
        for name in students if name in made
    }  # fmt: skip
    if names.DPSGD in made:
        networks["DP-SGD"] = runs.dpsgd(epsilon)[0]
    if names.CONTROL in made:
        networks["public labels only"] = runs.public_labels_network()
    chosen = runs.test.take(range(min(3, len(runs.test))))
    pictures = chosen.images if chosen.images.ndim == 4 else chosen.images[:, 0]
    maps = {"truth": chosen.labels}
    for name, network in networks.items():
        maps[name] = runs.probabilities(network, chosen.images).argmax(axis=1)
    size = 2.1 * len(maps), 1.6 * len(chosen) + 0.4
    figure, grid = new_figure(*size, rows=len(chosen), columns=len(maps))
    for i, row in enumerate(grid):
        # the slice that cuts most of the labelled voxels
        k = int((chosen.labels[i] > 0).sum(axis=(1, 2)).argmax())
        for axes, (name, found) in zip(row, maps.items(), strict=True):
            axes.imshow(pictures[i, k].T, cmap="gray", origin="lower")
            _outline(axes, found[i, k], runs.classes)
            axes.set_axis_off()
            if i == 0:
                title = name.replace("autoencoded PATE about", "about")
                axes.set_title(title, fontsize=8, color=INK)
    named = ", ".join(
        f"{c} {o}"
        for c, o in zip(results["classes"], ("yellow", "green", "red", "violet"), strict=False)
    )
    figure.suptitle(
        f"Test volumes, a sagittal slice each: {named}; private at epsilon {epsilon:g}",
        fontsize=10, color=MUTED,
    )  # fmt: skip
    return figure


def _logistic_and_normal() -> Figure:
    """Figure 1 of the appendix: densities of the logistic law and of a normal one, 8/pi."""
    from scipy import stats

    figure, ((axes,),) = new_figure(5.0, 3.4)
    remove_frame(axes, grid="both")
    x = np.linspace(-8.0, 8.0, 400)
    axes.plot(x, stats.logistic.pdf(x), color="#1b6ca8", label="logistic")
    normal = stats.norm(scale=np.sqrt(8.0 / np.pi))
    axes.plot(x, normal.pdf(x), "--", color="#d1495b", label="normal, variance 8/pi")
    apart = float(np.abs(stats.logistic.cdf(x) - normal.cdf(x)).max())
    axes.set_title(
        f"Distribution functions at most {apart:.3f} apart", loc="left", fontsize=11, color=INK
    )
    axes.legend(frameon=False, labelcolor=INK)
    return figure


def _activation(draws: int = 400_000, bins: int = 40) -> Figure:
    """Figure 2 of the appendix: activations (l = 2) of normal inputs against a uniform ball."""
    import torch

    from privet.networks.bounded_layers import UnitBall

    rng = np.random.default_rng(0)
    made = UnitBall()(torch.from_numpy(rng.normal(size=(draws, 3)))).numpy()
    angle, radius = 2.0 * np.pi * rng.random(draws), np.sqrt(rng.random(draws))
    uniform = np.column_stack([radius * np.cos(angle), radius * np.sin(angle)])
    edges = np.linspace(-1.0, 1.0, bins + 1)
    counts = [
        np.histogram2d(z[:, 0], z[:, 1], bins=(edges, edges), density=True)[0]
        for z in (made, uniform)
    ]
    figure, (row,) = new_figure(9.0, 3.2, columns=3)
    titles = ("activations of normal inputs", "uniform", "absolute difference")
    for axes, shown, title in zip(
        row, (*counts, np.abs(counts[0] - counts[1])), titles, strict=True
    ):
        axes.imshow(shown.T, origin="lower", extent=(-1, 1, -1, 1), vmin=0.0, vmax=0.5)
        axes.set_title(title, fontsize=10, color=INK)
        axes.set_axis_off()
    return figure


def _outline(axes: Any, labels: NDArray[Any], classes: int) -> None:
    for c in reversed(range(1, classes)):  # an inner class is drawn over what surrounds it
        mask = (labels == c).T.astype(np.float64)
        if mask.any() and not mask.all():
            axes.contour(
                mask, levels=[0.5], colors=[OUTLINES[(c - 1) % len(OUTLINES)]], linewidths=1.4
            )
