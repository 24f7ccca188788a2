"""The results of a comparison as CSV, as a LaTeX table or as JSON."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from pathlib import Path

from privet._atomic_files import write_json, write_whole
from privet.compare.comparison_cells import Row
from privet.errors import InvalidArgument

FIELDS = (
    "method", "epsilon", "delta", "seeds", "accuracy", "accuracy_sd", "accuracy_low",
    "accuracy_high", "balanced_accuracy", "auroc", "proved_epsilon", "claimed_epsilon",
    "audited_epsilon", "verdict", "attack_auc", "seconds",
)  # fmt: skip


EXPORTS = (".csv", ".tex", ".json")


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
                _escape(method),
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


def _escape(text: str) -> str:
    return "".join(f"\\{c}" if c in "_&%$#{}" else c for c in text)
