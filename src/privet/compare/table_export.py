"""A comparison at several budgets: curves of accuracy over epsilon, with their spread over seeds.

What was found at a budget is kept in OUT/budgets: another budget in the same folder adds a point to
the curves, and takes none away.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from privet._files import write_json, write_whole
from privet.compare.run import Progress, compare
from privet.data import Dataset
from privet.errors import InvalidArgument

Row = dict[str, Any]
FIELDS = (
    "method", "epsilon", "delta", "seeds", "accuracy", "accuracy_sd", "accuracy_low",
    "accuracy_high", "balanced_accuracy", "auroc", "proved_epsilon", "claimed_epsilon",
    "audited_epsilon", "verdict", "attack_auc", "seconds",
)  # fmt: skip
EXPORTS = (".csv", ".tex", ".json")


def sweep(
    dataset: Dataset,
    out: Path,
    *,
    epsilons: Sequence[float],
    delta: float,
    progress: Progress = lambda what, done, of: None,
    **how: Any,
) -> dict[str, Any]:
    """Compare at each budget; returns what was found at the last, with `curves` over all of them.

    Arguments as for `compare`. The curves have every budget that was ever compared in this folder
    on these data, this call's and earlier ones.
    """
    if not epsilons:
        raise InvalidArgument("epsilon", epsilons, "at least one budget")
    results: dict[str, Any] = {}
    for k, epsilon in enumerate(epsilons):

        def told(what: str, done: int, of: int, before: int = k, at: float = epsilon) -> None:
            progress(f"epsilon {at:g}: {what}", before * of + done, len(epsilons) * of)

        results = compare(dataset, out, epsilon=epsilon, delta=delta, progress=told, **how)
        write_json(out / "budgets" / f"{epsilon:g}-{delta:g}.json", results)
    return results | {"curves": curves(out, results["data"]["fingerprint"])}


def curves(out: Path, fingerprint: str) -> list[Row]:
    """One row for each method at each budget that was compared in this folder on these data."""
    found = [json.loads(path.read_text()) for path in sorted((out / "budgets").glob("*.json"))]
    rows = [
        _point(results, row)
        for results in found
        if results["data"]["fingerprint"] == fingerprint
        for row in results["rows"]
    ]
    order = {row["method"]: i for i, row in reversed(list(enumerate(rows)))}
    return sorted(rows, key=lambda row: (order[row["method"]], row["delta"], row["epsilon"]))


def _point(results: Row, row: Row) -> Row:
    seeds = row["accuracy_by_seed"]
    spread = float(np.std(seeds, ddof=1)) if len(seeds) > 1 else None
    return {
        "epsilon": results["epsilon"], "delta": results["delta"], "seeds": len(seeds),
        "accuracy_sd": spread, "accuracy_low": min(seeds), "accuracy_high": max(seeds),
        **{name: row[name] for name in FIELDS if name in row},
    }  # fmt: skip


def export(rows: Sequence[Row], path: Path) -> Path:
    """Write curves as CSV, as a LaTeX table (booktabs) or as JSON, by the file's ending."""
    if path.suffix not in EXPORTS:
        raise InvalidArgument("--export", str(path), f"a file that ends in {', '.join(EXPORTS)}")
    if path.suffix == ".json":
        write_json(path, [{name: row[name] for name in FIELDS} for row in rows])
        return path
    write_whole(path, _csv(rows) if path.suffix == ".csv" else latex(rows))
    return path


def _csv(rows: Sequence[Row]) -> str:
    target = io.StringIO()
    table = csv.DictWriter(target, FIELDS, extrasaction="ignore", lineterminator="\n")
    table.writeheader()
    table.writerows(rows)
    return target.getvalue()


def latex(rows: Sequence[Row]) -> str:
    r"""Accuracy in per cent, one line a method and one column a budget, with its spread.

    >>> row = {"method": "a_b", "epsilon": 1.0, "accuracy": 0.9, "accuracy_sd": 0.01}
    >>> print(latex([row]))
    \begin{tabular}{lr}
    \toprule
    method & $\varepsilon = 1$ \\
    \midrule
    a\_b & $90.0 \pm 1.0$ \\
    \bottomrule
    \end{tabular}
    <BLANKLINE>
    """
    epsilons = sorted({row["epsilon"] for row in rows})
    at = {(row["method"], row["epsilon"]): row for row in rows}
    lines = [
        " & ".join(
            [
                _escaped(method),
                *(_cell(at[method, e]) if (method, e) in at else "--" for e in epsilons),
            ]
        )
        for method in dict.fromkeys(row["method"] for row in rows)
    ]
    head = " & ".join(["method", *(rf"$\varepsilon = {e:g}$" for e in epsilons)])
    return "\n".join(
        [
            rf"\begin{{tabular}}{{l{'r' * len(epsilons)}}}",
            r"\toprule",
            head + r" \\",
            r"\midrule",
            *(line + r" \\" for line in lines),
            r"\bottomrule",
            r"\end{tabular}",
            "",
        ]
    )


def _cell(row: Row) -> str:
    spread = row["accuracy_sd"]
    return f"${100 * row['accuracy']:.1f}" + (
        "$" if spread is None or math.isnan(spread) else rf" \pm {100 * spread:.1f}$"
    )


def _escaped(text: str) -> str:
    return "".join(f"\\{c}" if c in "_&%$#{}" else c for c in text)
