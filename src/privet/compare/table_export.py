"""The results of a comparison as CSV, as a LaTeX table or as JSON."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path

from privet._atomic_files import write_json, write_whole
from privet._formatting import number
from privet.compare.comparison_cells import Row
from privet.errors import InvalidArgument

FIELDS = (
    "method", "system", "epsilon", "delta", "splits", "seeds", "accuracy", "accuracy_low",
    "accuracy_high", "accuracy_sd", "balanced_accuracy", "auroc", "guessing", "learned",
    "reference", "difference", "difference_low", "difference_high", "proved_epsilon",
    "claimed_epsilon", "audited_epsilon", "verdict", "attack_auc", "seconds", "time_ratio",
)  # fmt: skip
EXPORTS = (".csv", ".tex", ".json")


def export(rows: Sequence[Row], path: Path) -> Path:
    """Write curves as CSV, as a LaTeX table (booktabs) or as JSON, by the file's ending."""
    if path.suffix not in EXPORTS:
        raise InvalidArgument("export", str(path), f"a file that ends in {', '.join(EXPORTS)}")
    table = [_flat(row) for row in rows]
    if path.suffix == ".json":
        write_json(path, table)
    else:
        write_whole(path, to_csv(table) if path.suffix == ".csv" else latex(rows))
    return path


def _flat(row: Row) -> Row:
    """The row of a table, interval ends in fields of their own."""
    low, high = row["accuracy_interval"]
    apart = row["difference"] or {"mean": None, "low": None, "high": None}
    flat = row | {
        "accuracy_low": low, "accuracy_high": high, "difference": apart["mean"],
        "difference_low": apart["low"], "difference_high": apart["high"],
    }  # fmt: skip
    return {name: flat[name] for name in FIELDS}


def to_csv(rows: Sequence[Row]) -> str:
    """Rows with the same keys as CSV; what is not known is empty."""
    target = io.StringIO()
    table = csv.DictWriter(target, list(rows[0]), lineterminator="\n")
    table.writeheader()
    table.writerows(rows)
    return target.getvalue()


def latex(rows: Sequence[Row]) -> str:
    r"""Accuracy in per cent with its interval, a block a system, a line a method.

    Several budgets have a column each; one alone has epsilons and verdicts beside it.

    >>> row = {"method": "a_b", "system": "S", "accuracy": 0.9, "accuracy_interval": [0.88, 0.92],
    ...        "learned": False}
    >>> print(latex([row | {"epsilon": 1.0}, row | {"method": "c", "epsilon": 2.0}]))
    % \usepackage{booktabs}; accuracy in % [95% interval]; $^\dagger$: no better than guessing
    \begin{tabular}{lrr}
    \toprule
    method & $\varepsilon = 1$ & $\varepsilon = 2$ \\
    \midrule
    \multicolumn{3}{l}{\emph{S}} \\
    \quad a\_b & $90.0^\dagger$ {\scriptsize $[88.0, 92.0]$} & -- \\
    \quad c & -- & $90.0^\dagger$ {\scriptsize $[88.0, 92.0]$} \\
    \bottomrule
    \end{tabular}
    <BLANKLINE>
    """
    epsilons = sorted({row["epsilon"] for row in rows})
    beside = ("claimed", "proved", "audited") if len(epsilons) == 1 else ()
    head = ["method", *(rf"$\varepsilon = {e:g}$" for e in epsilons), *beside]
    head += ["verdict"] if beside else []
    at = {(row["method"], row["epsilon"]): row for row in rows}
    lines = []
    for system in dict.fromkeys(row["system"] for row in rows):
        lines.append(rf"\multicolumn{{{len(head)}}}{{l}}{{\emph{{{_escape(system)}}}}}")
        for row in {r["method"]: r for r in rows if r["system"] == system}.values():
            cells = [_cell(at.get((row["method"], e))) for e in epsilons]
            cells += [_epsilon(row[f"{kind}_epsilon"]) for kind in beside]
            cells += [row["verdict"]] if beside else []
            lines.append(" & ".join([rf"\quad {_escape(row['method'])}", *cells]))
    columns = "l" + "r" * (len(epsilons) + len(beside)) + ("l" if beside else "")
    return "\n".join(
        [
            r"% \usepackage{booktabs}; accuracy in % [95% interval]; "
            r"$^\dagger$: no better than guessing",
            rf"\begin{{tabular}}{{{columns}}}",
            r"\toprule",
            " & ".join(head) + r" \\",
            r"\midrule",
            *(line + r" \\" for line in lines),
            r"\bottomrule",
            r"\end{tabular}",
            "",
        ]
    )


def _cell(row: Row | None) -> str:
    if row is None:
        return "--"
    low, high = (100 * end for end in row["accuracy_interval"])
    mark = "" if row["learned"] else r"^\dagger"
    return rf"${100 * row['accuracy']:.1f}{mark}$ {{\scriptsize $[{low:.1f}, {high:.1f}]$}}"


def _epsilon(value: float | str | None) -> str:
    return number(value).replace("∞", r"$\infty$").replace("–", "--")


def _escape(text: str) -> str:
    return "".join(f"\\{c}" if c in "_&%$#{}" else c for c in text)
