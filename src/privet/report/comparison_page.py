"""The page of a comparison: what was compared, promised, attacked and spent, in one HTML file."""

from __future__ import annotations

import platform
from datetime import date
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from privet._atomic_files import write_whole
from privet._formatting import chance, odds
from privet.accounting import SampledGaussian
from privet.accounting.accountant_comparison import validity_map
from privet.errors import InvalidArgument
from privet.guarantee import EXPERIMENT
from privet.report import plots
from privet.report.rendering import render_html

Row = dict[str, Any]
Results = dict[str, Any]
Picture = dict[str, Any]
"""What figure.html.j2 shows: svg or maps, a caption, and a legend of (text, name, colour)."""
VERSIONS = ("privet", "torch", "numpy", "scipy", "scikit-learn")
_MOST_COLUMNS = 20
"""Columns that have a bar, and classes that have a map: as many as a page shows at once."""
_EXPOSED = 3
"""Models that stand out among the attack's curves: more thick lines would hide each other."""


def write(results: Results, path: Path) -> Path:
    """Write the page of a comparison, whole or not at all."""
    try:
        write_whole(path, html(results))
    except OSError as e:
        raise InvalidArgument("page", str(path), "a file that can be written", str(e)) from None
    return path


def html(results: Results) -> str:
    """The page as text."""
    return render_html(
        "comparison.html.j2",
        title=f"privet: {results['data']['name']} at epsilon {results['epsilon']:g}",
        date=f"{date.today():%-d %B %Y}",
        experiment=EXPERIMENT,
        odds=odds(results["epsilon"]),
        figures=_pictures(results),
        versions=_versions(),
        **{k: results[k] for k in ("data", "epsilon", "delta", "seeds", "rows", "ledgers")},
    )


def _versions() -> list[str]:
    installed = [f"Python {platform.python_version()}"]
    for name in VERSIONS:
        try:
            installed.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            continue
    return installed


def _pictures(results: Results) -> list[Picture]:
    rows, delta = results["rows"], results["delta"]
    colours = plots.colours_of(list(dict.fromkeys(row["system"] for row in rows)))
    pictures = [accuracy_picture(rows, colours), roc_picture(rows, colours)]
    if len({row["epsilon"] for row in results.get("curves", ())}) > 1:
        pictures.insert(0, curves_picture(results["curves"]))
    pictures += [relevance_picture(r, results["data"]) for r in rows if r["relevance"] is not None]
    if results["run"] is not None:
        run = SampledGaussian(**results["run"])
        pictures += [budget_picture(run, delta), validity_picture(run, delta)]
    return pictures


def _picture(figure: Any, alt: str, caption: str, legend: Any = ()) -> Picture:
    return {
        "svg": plots.to_svg(figure, alt), "caption": caption, "legend": list(legend), "maps": [],
    }  # fmt: skip


def accuracy_picture(rows: list[Row], colours: dict[str, str]) -> Picture:
    """Accuracy against epsilon: proved in full, claimed hollow."""
    marks = [
        plots.Mark(
            x=float(row[f"{kind}_epsilon"]),
            y=row["accuracy"],
            text=str(k),
            colour=colours[row["system"]],
            hollow=kind == "claimed",
        )
        for kind in ("proved", "claimed")
        for k, row in enumerate(rows, 1)
        if row[f"{kind}_epsilon"] is not None
    ]
    caption = (
        "Accuracy against epsilon: full proved, hollow only claimed. Marks that would hide each "
        "other stand side by side; a dot is where each belongs."
    )
    legend = [(str(k), row["method"], colours[row["system"]]) for k, row in enumerate(rows, 1)]
    return _picture(plots.accuracy_marks(marks), "accuracy against epsilon", caption, legend)


def roc_picture(rows: list[Row], colours: dict[str, str]) -> Picture:
    """The membership attack on every model; the most exposed ones stand out."""
    exposed = sorted(rows, key=lambda row: -row["attack_auc"])[:_EXPOSED]
    curves = [
        plots.RocCurve(
            fpr=row["attack"]["roc"]["fpr"],
            tpr=row["attack"]["roc"]["tpr"],
            colour=colours[row["system"]],
            width=3.0 if row in exposed else 1.1,
        )
        for row in sorted(rows, key=lambda row: row in exposed)
    ]
    names = ", ".join(f"{row['method']} ({row['attack_auc']:.3f})" for row in exposed)
    caption = (
        f"Who was in the training set? {rows[0]['attack']['attack']}, on each model; dashed: "
        f"guessing. Thick, the most exposed by area: {names}."
    )
    legend = [("", name, colour) for name, colour in colours.items()]
    figure = plots.roc_curves(curves, least=1e-3, floor=1e-3)  # what a few thousand records tell
    return _picture(figure, "membership attack", caption, legend)


def budget_picture(run: SampledGaussian, delta: float) -> Picture:
    """What a run of DP-SGD has spent after each step, by every accountant."""
    q, z = float(np.ravel(run.sample_rate)[0]), float(np.ravel(run.noise_multiplier)[0])
    caption = (
        f"Budget over training: the {int(np.sum(run.steps)):,} steps of the network that DP-SGD "
        f"trains here, at sample rate {q:.3g} with noise multiplier {z:.3g}."
    )
    return _picture(plots.budget(run, delta, points=12), "budget over training", caption)


def validity_picture(run: SampledGaussian, delta: float) -> Picture:
    """Where the closed form is a bound at so many steps, and where this run stands."""
    grid = validity_map(
        steps=int(np.sum(run.steps)),
        delta=delta,
        sample_rates=np.geomspace(1e-4, 1.0, 7),
        noise_multipliers=np.geomspace(0.3, 30.0, 13),
    )
    caption = (
        f"Where the paper's closed form is a bound, and where it is not ({grid.steps:,} steps, "
        f"a chance δ of {chance(delta)}). The mark: DP-SGD's network here."
    )
    figure = plots.validity_map(grid, run=run, title=False)
    return _picture(figure, "validity of the closed form", caption)


def relevance_picture(row: Row, facts: Row) -> Picture:
    """What a released model looks at: a map for each class, or a bar for each column."""
    maps = np.array(row["relevance"]["maps"], dtype=np.float64)
    records, shape = row["relevance"]["records"], tuple(facts["shape"])
    why = (
        f"{row['method']}: layer-wise relevance of the released model, which was paid for, "
        f"on {sum(records):,} records treated as public. No other record was looked at for this."
    )
    if len(shape) >= 2:
        values = maps.reshape(len(maps), shape[0], shape[1], -1).sum(axis=3)
        largest = max(float(np.quantile(np.abs(values), 0.995)), 1e-12)  # a few pixels saturate
        shown = [
            {"name": name, "address": plots.to_png_address(map / largest), "records": count}
            for name, map, count in zip(facts["classes"], values, records, strict=True)
        ]
        caption = f"{why} Red for the class, blue against."
        return {"svg": "", "maps": shown[:_MOST_COLUMNS], "caption": caption, "legend": []}
    share = np.abs(maps).T @ (np.array(records, dtype=np.float64) / max(sum(records), 1))
    share = share / max(float(share.sum()), 1e-12)
    names = facts["columns"] or [f"column {j + 1}" for j in range(len(share))]
    order = np.argsort(-share)[:_MOST_COLUMNS]
    most = len(share) > _MOST_COLUMNS
    rest = f" The {_MOST_COLUMNS} most relevant of {len(share)} columns." if most else ""
    figure = plots.relevance_bars([names[j] for j in order], share[order])
    return _picture(
        figure, "relevance of columns", f"{why} Shares of the absolute relevance.{rest}"
    )


def curves_picture(rows: list[Row]) -> Picture:
    """Accuracy over epsilon of the methods with the best mean; others are in the table."""
    methods = list(dict.fromkeys(row["method"] for row in rows))
    mean = {
        m: float(np.mean([row["accuracy"] for row in rows if row["method"] == m])) for m in methods
    }
    shown = sorted(methods, key=lambda m: -mean[m])[: plots.MOST_CURVES]
    figure = plots.accuracy_curves({m: [r for r in rows if r["method"] == m] for m in shown})
    caption = (
        "Accuracy over epsilon: means over seeds; upright lines from the worst seed to the best."
    )
    if len(methods) > plots.MOST_CURVES:
        caption += f" The {plots.MOST_CURVES} best of {len(methods)} methods."
    legend = [
        (str(k), m, plots.PALETTE[(k - 1) % len(plots.PALETTE)]) for k, m in enumerate(shown, 1)
    ]
    return _picture(figure, "accuracy over epsilon", caption, legend)
