"""The figures: accuracy and AUC against gamma, thresholds, ROC curves, ensembles."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from privet.papers.drawing import panels, save


def draw(out: Path, results: dict[str, Any]) -> list[Path]:
    """All pictures of a run; returns their paths."""
    made = {
        "gamma": _against_gamma(results),
        "thresholds": _thresholds(results),
        "roc": _roc(results),
        "ensembles": _ensembles(results),
    }
    return [
        path for n, figure in made.items() if figure is not None for path in save(figure, out / n)
    ]


def _additive(results: dict[str, Any], members: int = 1) -> list[dict[str, Any]]:
    rows = [
        r for r in results["rows"]
        if r["members"] == members and r["skip"] and not r["dpsgd"]
        and (r["strategy"] == "additive" or r["gamma"] == 0.0)
    ]  # fmt: skip
    return sorted(rows, key=lambda r: r["gamma"])


def _against_gamma(results: dict[str, Any]) -> Any:
    """Figs. 3 and 4: AUC, training and test accuracy."""
    rows = _additive(results)
    figure, ((axes,),) = panels(5.5, 3.5)
    gammas = [r["gamma"] for r in rows]
    for key, label in (
        ("train_accuracy", "training accuracy"),
        ("test_accuracy", "test accuracy"),
        ("shadow_auc", "AUC of the paper's attack"),
    ):
        axes.plot(gammas, [r[key] for r in rows], "o-", label=label)
    axes.axhline(0.5, color="grey", lw=0.8, ls=":")
    axes.set_xlabel("gamma (0: plain ResNet8)")
    axes.set_title(f"{results['settings']['data']}, Strategy I")
    axes.legend()
    return figure


def _thresholds(results: dict[str, Any]) -> Any:
    """Figs. 3, 4, 9 and 10: precision and recall of the attack at fixed thresholds."""
    rows = [r for r in results["rows"] if r["members"] == 1 and r["skip"]]
    figure, ((left, right),) = panels(9.0, 3.5, columns=2, sharex=True)
    for r in rows:
        at = r["seeds"][0]["shadow"]["thresholds"]
        t = [a["threshold"] for a in at]
        for axes, key in ((left, "precision"), (right, "recall")):
            values = [np.nan if a[key] is None else a[key] for a in at]
            axes.plot(t, values, "o-", label=r["name"])
    for axes, key in ((left, "precision"), (right, "recall")):
        axes.set_xlabel("threshold")
        axes.set_title(key)
        axes.set_ylim(0, 1)
    right.legend(fontsize=7, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure


def _roc(results: dict[str, Any]) -> Any:
    """Figs. 7 and 12, and the same on logarithmic axes with LiRA and RMIA where they were run."""
    figure, ((left, right),) = panels(9.5, 4.0, columns=2)
    rows = [r for r in results["rows"] if r["members"] == 1 and r["skip"]]
    for r in rows:
        curve = r["seeds"][0]["shadow"]["roc"]
        left.plot(curve["fpr"], curve["tpr"], label=r["name"])
        for attack, style in (("shadow", "-"), ("lira", "--"), ("rmia", ":")):
            if attack in r["seeds"][0] and "lira" in r["seeds"][0]:
                own = r["seeds"][0][attack]["roc"]
                right.plot(own["fpr"], own["tpr"], style, label=f"{r['name']}: {attack}")
    for axes in (left, right):
        axes.plot([1e-4, 1], [1e-4, 1], color="grey", lw=0.8, ls=":")
        axes.set_xlabel("false positives")
        axes.set_ylabel("true positives")
        axes.legend(fontsize=6)
    left.set_title("the paper's attack")
    right.set_title("low false-positive rates")
    right.set_xscale("log")
    right.set_yscale("log")
    right.set_xlim(1e-3, 1)
    right.set_ylim(1e-3, 1)
    return figure


def _ensembles(results: dict[str, Any]) -> Any:
    """Fig. 6: AUC, training and test accuracy by ensemble size and gamma."""
    sizes = sorted({r["members"] for r in results["rows"]})
    if len(sizes) < 2:
        return None
    gammas = sorted({r["gamma"] for r in _additive(results, sizes[-1])})
    figure, (line,) = panels(9.0, 2.8, columns=3)
    for axes, key in zip(line, ("shadow_auc", "train_accuracy", "test_accuracy"), strict=True):
        table = np.full((len(sizes), len(gammas)), np.nan)
        for i, k in enumerate(sizes):
            for r in _additive(results, k):
                if r["gamma"] in gammas:
                    table[i, gammas.index(r["gamma"])] = r[key]
        axes.imshow(table, cmap="viridis")
        for (i, j), value in np.ndenumerate(table):
            axes.text(j, i, f"{value:.3f}", ha="center", va="center", color="w", fontsize=8)
        axes.set_xticks(range(len(gammas)), [f"{g:g}" for g in gammas])
        axes.set_yticks(range(len(sizes)), [str(k) for k in sizes])
        axes.set_xlabel("gamma")
        axes.set_title(key.replace("_", " "))
    line[0].set_ylabel("members")
    return figure
