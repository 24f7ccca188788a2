"""The figures of a run: attack and accuracy against gamma, ROC curves, ensembles, pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privet_papers.figure_style import new_figure, save_figure
from privet_papers.residual.inversion import FLOWS, WAYS

Row = dict[str, Any]
ATTACKS = {"shadow": "the paper's", "lira": "LiRA", "rmia": "RMIA"}
STRATEGIES = {"additive": ("I", 1), "multiplicative": ("II", 2)}


def draw(out: Path, results: Row, pictures: NDArray[Any]) -> list[Path]:
    """All pictures of a run; returns their paths."""
    made = {"ensembles": _ensembles(results), "pictures": _sample_pictures(pictures)}
    for strategy, (_, number) in STRATEGIES.items():
        made[f"strategy-{number}"] = _performance(results, strategy)
        made[f"roc-{number}"] = _roc(results, strategy)
    return [
        path
        for n, figure in made.items()
        if figure is not None
        for path in save_figure(figure, out / n)
    ]


def _rows(results: Row, strategy: str, members: int) -> list[Row]:
    """The plain network and the perturbed ones of a strategy, by gamma."""
    rows = [
        r for r in results["rows"]
        if r["skip"] and not r["dpsgd"] and (
            (r["strategy"] == strategy and r["gamma"] and r["members"] == members)
            or (not r["gamma"] and r["members"] == 1)
        )
    ]  # fmt: skip
    return sorted(rows, key=lambda r: r["gamma"])


def _largest(results: Row) -> int:
    return max(int(r["members"]) for r in results["rows"])


def _performance(results: Row, strategy: str) -> Any:
    """Figs. 3-5 and 9-11: precision, recall, accuracies and AUC of the largest ensemble."""
    k = _largest(results)
    rows = _rows(results, strategy, k)
    if len(rows) < 2:
        return None
    figure, (line,) = new_figure(7.2, 2.2, columns=4)
    for r in rows:
        at = r["seeds"][0]["shadow"]["thresholds"]
        for axes, key in zip(line, ("precision", "recall"), strict=False):
            values = [np.nan if a[key] is None else a[key] for a in at]
            axes.plot([a["threshold"] for a in at], values, "o-", label=f"gamma {r['gamma']:g}")
            axes.set(xlabel="threshold", title=key, ylim=(0, 1))
    gammas = [r["gamma"] for r in rows]
    for key, place in (("train_accuracy", 2), ("test_accuracy", 2), ("shadow_auc", 3)):
        label = key.replace("_", " ").replace("shadow auc", "AUC of the paper's attack")
        line[place].plot(gammas, [r[key] for r in rows], "o-", label=label)
    line[3].axhline(0.5, color="grey", lw=0.8, ls=":")
    for axes in line:
        axes.legend(fontsize=5)
        axes.tick_params(labelsize=6)
    for axes in line[2:]:
        axes.set_ylim(0.0, 1.05)  # one scale for the panels of a figure
    for axes in line[2:]:
        axes.set_xlabel("gamma (0: plain ResNet8)")
    name, _ = STRATEGIES[strategy]
    figure.suptitle(f"{results['settings']['data']}, Strategy {name}, En{k} ResNet8", fontsize=10)
    return figure


def _roc(results: Row, strategy: str) -> Any:
    """Figs. 7 and 12, and the same on logarithmic axes with LiRA and RMIA where they were run."""
    rows = [r for k in {1, _largest(results)} for r in _rows(results, strategy, k)]
    rows = list({r["name"]: r for r in rows}.values())
    if len(rows) < 2:
        return None
    figure, ((left, right),) = new_figure(7.2, 3.4, columns=2)
    for r in rows:
        curve = r["seeds"][0]["shadow"]["roc"]
        area = r["seeds"][0]["shadow"]["auc"]
        left.plot(curve["fpr"], curve["tpr"], label=f"{r['name']}, AUC {area:.3f}")
        for attack, style in (("shadow", "-"), ("lira", "--"), ("rmia", ":")):
            if attack in r["seeds"][0] and "lira" in r["seeds"][0]:
                own = r["seeds"][0][attack]["roc"]
                label = f"{r['name']}: {ATTACKS[attack]}, AUC {r['seeds'][0][attack]['auc']:.3f}"
                right.plot(own["fpr"], own["tpr"], style, label=label)
    for axes in (left, right):
        axes.plot([1e-4, 1], [1e-4, 1], color="grey", lw=0.8, ls=":")
        axes.set(xlabel="false positive rate", ylabel="true positive rate")
        axes.legend(fontsize=5)
    left.set_title("the paper's attack")
    right.set_title("low false-positive rates")
    right.set(xscale="log", yscale="log", xlim=(1e-3, 1), ylim=(1e-3, 1))
    return figure


def _ensembles(results: Row) -> Any:
    """Fig. 6: AUC, training and test accuracy by ensemble size and gamma."""
    sizes = sorted({r["members"] for r in results["rows"]})
    if len(sizes) < 2:
        return None
    additive = [
        r for r in results["rows"]
        if r["skip"] and not r["dpsgd"] and (r["strategy"] == "additive" or not r["gamma"])
    ]  # fmt: skip
    gammas = sorted({r["gamma"] for r in additive if r["members"] == sizes[-1]})
    figure, (line,) = new_figure(9.0, 2.8, columns=3)
    for axes, key in zip(line, ("shadow_auc", "train_accuracy", "test_accuracy"), strict=True):
        table = np.full((len(sizes), len(gammas)), np.nan)
        for r in additive:
            if r["gamma"] in gammas:
                table[sizes.index(r["members"]), gammas.index(r["gamma"])] = r[key]
        axes.imshow(table, cmap="Blues", vmin=0.0, vmax=1.0)  # one scale for all panels
        for (i, j), value in np.ndenumerate(table):
            ink = "white" if value > 0.6 else "black"
            axes.text(j, i, f"{value:.3f}", ha="center", va="center", color=ink, fontsize=8)
        axes.set_xticks(range(len(gammas)), [f"{g:g}" for g in gammas])
        axes.set_yticks(range(len(sizes)), [str(k) for k in sizes])
        axes.set(xlabel="gamma", title=key.replace("_", " "))
    line[0].set_ylabel("members")
    return figure


def _sample_pictures(pictures: NDArray[Any]) -> Any:
    """Fig. 2: a few of the data set."""
    figure, (line,) = new_figure(9.0, 1.4, columns=8)
    for axes, one in zip(line, pictures, strict=False):
        axes.imshow(one, cmap="gray" if one.ndim == 2 else None, vmin=0.0, vmax=1.0)
        axes.set_axis_off()
    return figure


def draw_inversion(
    out: Path, rows: list[dict[str, Any]], shown: dict[str, NDArray[Any]]
) -> list[Path]:
    """All panels side by side, one line an equation, with PSNR and SSIM below."""
    columns = ("original", "feature", *WAYS)
    figure, axes = new_figure(9.0, 2.1 * len(FLOWS), rows=len(FLOWS), columns=len(columns))
    numbers = {(r["equation"], r["way"]): f"{r['psnr']:.1f} dB, {r['ssim']:.2f}" for r in rows}
    for line, name in zip(axes, FLOWS, strict=True):
        for place, column in zip(line, columns, strict=True):
            one = shown["original" if column == "original" else f"{name}: {column}"]
            low, high = float(one.min()), float(one.max())
            inside = (one - low) / (high - low or 1.0) if column == "feature" else one
            place.imshow(inside, cmap="gray" if one.ndim == 2 else None, vmin=0.0, vmax=1.0)
            place.set_xticks([])
            place.set_yticks([])
            place.set_title(column, fontsize=8)
            place.set_xlabel(numbers.get((name, column), ""), fontsize=8)
        line[0].set_ylabel(name, fontsize=8)
    return save_figure(figure, out / "inversion")
