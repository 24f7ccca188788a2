"""The page of a comparison: what was compared, promised, attacked and spent, in one HTML file."""

from __future__ import annotations

import platform
from collections.abc import Iterable
from datetime import date
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from privet._atomic_files import write_whole
from privet._formatting import chance, odds
from privet.accounting import SampledGaussian
from privet.accounting.closed_form_validity import validity_map
from privet.errors import InvalidArgument
from privet.guarantee import EXPERIMENT
from privet.report import plots
from privet.report.comparison_sentences import by_budget, conclusions
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
    budgets = by_budget(results)
    last = list(budgets.values())[-1]
    return render_html(
        "comparison.html.j2",
        title=f"privet: {results['data']['name']} at epsilon {_list(budgets)}",
        epsilons=_list(budgets),
        date=f"{date.today():%-d %B %Y}",
        experiment=EXPERIMENT,
        odds=odds(results["epsilon"]),
        lead=_lead(results),
        sentences=conclusions(results),
        budgets={epsilon: _by_system(rows) for epsilon, rows in budgets.items()},
        interval=_interval_in_words(last[0]),
        verdicts=_verdicts(last),
        figures=_pictures(results),
        attacks=list(dict.fromkeys(a["attack"] for r in results["rows"] for a in r["attacks"])),
        accounts=_accounts(results["ledgers"]),
        versions=_versions(),
        **{k: results[k] for k in ("data", "epsilon", "delta", "reference", "rows")},
    )


def save_figure(results: Results, path: Path) -> Path:
    """Write the page's first picture for a paper: a .pdf or .svg file by its name."""
    return plots.save(_lead_figure(by_budget(results))[0], path)


def _list(budgets: Iterable[float]) -> str:
    """Epsilons in a heading.

    >>> _list([1.0]), _list([0.25, 1.0, 4.0])
    ('1', '0.25, 1 and 4')
    """
    *most, last = (f"{epsilon:g}" for epsilon in budgets)
    return f"{', '.join(most)} and {last}" if most else last


def _by_system(rows: list[Row]) -> dict[str, list[Row]]:
    """Rows under what they belong to, in the order in which these come first."""
    return {
        system: [row for row in rows if row["system"] == system]
        for system in dict.fromkeys(row["system"] for row in rows)
    }


def _interval_in_words(row: Row) -> str:
    """What the intervals of a table cover."""
    splits, seeds = row["splits"], row["seeds"]
    if splits > 1:
        each = f", {seeds} trainings on each" if seeds > 1 else ""
        return (
            f"95% intervals from {splits} splits{each}: they cover which records were trained on, "
            "the noise, and the finite number of test records"
        )
    noise = " and the noise" if seeds > 1 else "; of one split and one draw of the noise"
    return f"95% intervals, which cover the finite number of test records{noise}"


def _verdicts(rows: list[Row]) -> list[tuple[str, str, str]]:
    """What the audit says of those that it falsified, or could say nothing of."""
    told = []
    for verdict in ("falsified", "uninformative"):
        told += [(r["method"], verdict, r["in_words"]) for r in rows if r["verdict"] == verdict]
    return told


def _accounts(ledgers: list[Row]) -> list[Row]:
    """The accounts of each method's trainings, together: a page has no room for hundreds."""
    grouped: dict[str, list[Row]] = {}
    for account in ledgers:
        grouped.setdefault(account["account"].partition(":")[0], []).append(account)
    return [
        {
            "method": method,
            "accounts": len(own),
            "spent": max((a["spent"] for a in own), key=float),
            "charged": list(dict.fromkeys(e["what"] for a in own for e in a["entries"])),
            "interrupted": sum(e["interrupted"] for a in own for e in a["entries"]),
        }
        for method, own in grouped.items()
    ]


def _versions() -> list[str]:
    installed = [f"Python {platform.python_version()}"]
    for name in VERSIONS:
        try:
            installed.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            continue
    return installed


def _lead(results: Results) -> Picture:
    """The picture of the first screen: accuracy against epsilon, from where methods are on."""
    figure, caption = _lead_figure(by_budget(results))
    return _picture(figure, "accuracy against epsilon, with intervals", caption)


def _lead_figure(budgets: dict[float, list[Row]]) -> tuple[Any, str]:
    """Curves with bands; of one budget, a dot with an interval for each method."""
    last = list(budgets.values())[-1]
    interval = _interval_in_words(last[0])
    if len(budgets) == 1:
        caption = f"Accuracy: {interval}. ◂: methods too far below to be drawn."
        return plots.accuracy_dots(last), caption
    methods = dict.fromkeys(row["method"] for rows in budgets.values() for row in rows)
    own = {m: [r for rows in budgets.values() for r in rows if r["method"] == m] for m in methods}
    best = sorted(own, key=lambda m: -float(np.mean([row["accuracy"] for row in own[m]])))
    proved = [m for m in best if all(row["within_budget"] for row in own[m])]
    rest = [m for m in best if m not in proved]  # one without privacy, then proofs before others
    limit = [m for m in rest if not own[m][0]["private"]][:1]
    chosen = [*limit, *proved, *(m for m in rest if m not in limit)][: plots.MOST_CURVES]
    more = f" {len(chosen)} of {len(methods)} methods." if len(methods) > len(chosen) else ""
    dotted = ", dotted where no proof at that epsilon is known" if set(chosen) - set(proved) else ""
    caption = f"Accuracy against epsilon{dotted}. Bands: {interval}.{more}"
    return plots.accuracy_curves({m: own[m] for m in best if m in chosen}), caption


def _pictures(results: Results) -> list[Picture]:
    rows, delta = results["rows"], results["delta"]
    colours = plots.colours_of(list(dict.fromkeys(row["system"] for row in rows)))
    pictures = [roc_picture(rows, colours)]
    pictures += [relevance_picture(r, results["data"]) for r in rows if r["relevance"] is not None]
    if results["run"] is not None:
        run = SampledGaussian(**results["run"])
        pictures += [budget_picture(run, delta), validity_picture(run, delta)]
    return pictures


def _picture(figure: Any, alt: str, caption: str, legend: Any = ()) -> Picture:
    return {
        "svg": plots.to_svg(figure, alt), "caption": caption, "legend": list(legend), "maps": [],
    }  # fmt: skip


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
