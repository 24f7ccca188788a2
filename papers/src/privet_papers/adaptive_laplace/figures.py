"""The pictures of the Adaptive Laplace experiments: Figs. 1, 3 and 4 of the paper."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from privet.networks.relevance import (
    average_relevance,
    bounded_average_relevance,
    relevance,
    scale_to_unit_interval,
    scale_to_unit_l1,
)
from privet.noise import seeded
from privet_papers.adaptive_laplace.networks import pretrain
from privet_papers.adaptive_laplace.training_runs import DELTA, FULL_WIDTH, WITH_PROOF
from privet_papers.figure_style import new_figure, remove_frame, save_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from privet_papers.adaptive_laplace.training_runs import AdaptiveLaplaceRuns

COLOURS = {
    "AdLM": "#b2182b", "ILM": "#ef8a62", FULL_WIDTH: "#f4a582", "AdLM, |h0| = 1": "#762a83",
    "AdLM as released": "#4d4d4d", "ILM as released": "#999999",
    "pSGD": "#2166ac", "sound": "#1b7837",
}  # fmt: skip
PUBLISHED = {"AdLM": {0.25: 90.2, 0.5: 93.66}, "ILM": {0.25: 88.46, 0.5: 92.39},
             "pSGD": {0.25: 82.09, 0.5: 88.59}}  # fmt: skip
"""What the paper prints for MNIST, in per cent."""


def draw(out: Path, results: dict[str, Any], runs: AdaptiveLaplaceRuns) -> list[Path]:
    """Write all pictures as PNG and SVG; returns their paths."""
    written = [
        *save_figure(_against_epsilon(results), out / "accuracy-against-epsilon"),
        *save_figure(_against_epochs(results), out / "accuracy-against-epochs"),
    ]
    if runs.shape[0] == 1 and len(runs.shape) == 3:
        written += _relevance(out, runs)
    return written


def _against_epsilon(results: dict[str, Any]) -> Figure:
    """Fig. 4a: mean accuracy over seeds, beside the numbers the paper prints."""
    figure, ((axes,),) = new_figure(7.5, 4.6)
    for method, colour in COLOURS.items():
        rows = [r for r in results["rows"] if r["method"] == method]
        present = {r["epsilon"] for r in rows}
        epsilons = [e for e in results["settings"]["epsilons"] if e in present]
        if not epsilons:
            continue
        means = [
            100 * np.mean([r["accuracy"] for r in rows if r["epsilon"] == e]) for e in epsilons
        ]
        stated = "proved" if method in WITH_PROOF else "claimed"
        delta = f", delta {DELTA:g}" if method in WITH_PROOF else ""
        label = f"{method} (epsilon {stated}{delta})"
        axes.plot(epsilons, means, "o-", color=colour, label=label)
        if results["settings"]["data"] == "mnist" and method in PUBLISHED:
            printed = PUBLISHED[method]
            axes.plot(list(printed), list(printed.values()), "x", color=colour, markersize=9, mew=2)
    if results["settings"]["data"] == "mnist":
        axes.plot([], [], "kx", label="printed in the paper")
    larger = results["settings"]["larger"]
    without = [r["accuracy"] for r in results["rows"] if r["epsilon"] in larger]
    if without:
        label = "published methods, no noise to speak of"
        axes.axhline(100 * max(without), color="#888888", linestyle=":", zorder=0, label=label)
    axes.axhline(10, color="#cccccc", linewidth=1, zorder=0)
    axes.set(xscale="log", xlabel="epsilon", ylabel="test accuracy, %", ylim=(0, 100))
    axes.set_title(f"Accuracy against epsilon, {results['settings']['data']}")
    shown = results["settings"]["epsilons"]
    axes.set_xticks(shown, labels=[f"{e:g}" for e in shown])
    axes.minorticks_off()
    axes.legend(fontsize=8, loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False)
    remove_frame(axes)
    return figure


def _against_epochs(results: dict[str, Any]) -> Figure:
    """Figs. 4b-c: accuracy after every epoch at two budgets, and at one without noise."""
    settings = results["settings"]
    budgets = [*settings["curves"], *settings["larger"][-1:]]
    figure, (line,) = new_figure(3.6 * len(budgets), 3.4, columns=len(budgets), sharey=True)
    for axes, epsilon in zip(line, budgets, strict=True):
        for row in results["rows"]:
            if row["epsilon"] == epsilon and row["seed"] == 0:
                colour = COLOURS[row["method"]]
                if row["curve"]:
                    epochs = range(1, len(row["curve"]) + 1)
                    axes.plot(
                        epochs, 100 * np.array(row["curve"]), color=colour, label=row["method"]
                    )
                else:
                    axes.axhline(
                        100 * row["accuracy"], color=colour, linestyle=":", label=row["method"]
                    )
        axes.set(xlabel="epoch", title=f"epsilon {epsilon:g}", ylim=(0, 100))
        remove_frame(axes)
    line[0].set_ylabel("test accuracy, %")
    if line[0].get_legend_handles_labels()[0]:
        line[0].legend(fontsize=7, loc="center right")
    return figure


def _relevance(out: Path, runs: AdaptiveLaplaceRuns) -> list[Path]:
    """Figs. 1 and 3: relevance of single records, and the average, exact and with noise."""
    network = runs.relevance_network(0)
    epochs = runs.settings.pretraining_epochs
    model = pretrain(network, runs.rows, runs.labels, epochs, seeded(0))
    rows = torch.from_numpy(runs.rows[:4000]).reshape(-1, *runs.shape)
    labels = torch.from_numpy(runs.labels[:4000].copy())
    first = [int((labels == k).nonzero()[0]) for k in range(runs.data.n_classes)]
    size = runs.shape[-2:]
    figure, axes = new_figure(1.1 * len(first), 2.5, rows=2, columns=len(first))
    single = scale_to_unit_interval(relevance(model, rows[first], labels[first])).reshape(-1, *size)
    for k, i in enumerate(first):
        axes[0, k].imshow(rows[i].reshape(size).numpy(), cmap="gray_r")
        axes[1, k].imshow(single[k].numpy(), cmap="RdYlGn_r", vmin=0, vmax=1)
    for axis in axes.flat:
        axis.set_axis_off()
    figure.suptitle("Relevance of the pixels to the output of the label (red: strong)", fontsize=10)
    written = save_figure(figure, out / "relevance-of-records")

    count = len(rows)
    signed = average_relevance(model, rows, labels)
    unit = average_relevance(model, rows, labels, normalise=lambda r: scale_to_unit_l1(r).abs())
    n, d = len(runs.rows), runs.rows.shape[1]
    papers, ours = seeded(1).laplace(d, 3 * 2 * d / n), seeded(2).laplace(d, 3 / n)
    shown_maps: list[tuple[str, NDArray[np.float64]]] = [
        ("paper: mean, no noise", signed),
        ("paper: Lap(2d / n eps1), eps1 = 1/3", signed.reshape(-1) + papers),
        ("unit L1: mean, no noise", unit),
    ]
    if not network.mixes_records:  # otherwise one record moves the relevance of all others
        bounded = bounded_average_relevance(model, rows, labels, records=count, magnitudes=True)
        shown_maps.append(
            ("unit L1: Lap(1 / n eps1), eps1 = 1/3", bounded.value.reshape(-1) + ours)
        )
    figure, (row,) = new_figure(3.0 * len(shown_maps), 3.2, columns=len(shown_maps))
    for axis, (title, values) in zip(row, shown_maps, strict=True):
        shown = axis.imshow(np.abs(values).reshape(size), cmap="RdYlGn_r")
        axis.set_title(title, fontsize=8)
        axis.set_axis_off()
        figure.colorbar(shown, ax=axis, shrink=0.7).ax.tick_params(labelsize=7)
    figure.suptitle(f"Average relevance of the pixels (n = {n}; means over {count} records)")
    return [*written, *save_figure(figure, out / "average-relevance")]
