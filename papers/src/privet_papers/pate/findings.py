"""What the rows say together: means over seeds, the paper's orderings, eq. 3, and the table."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from privet.guarantee import number_to_json
from privet_papers.experiment import Row
from privet_papers.pate import row_names as names
from privet_papers.pate import table_rows
from privet_papers.pate.pca_sensitivity import largest_code
from privet_papers.result_tables import Table


def summarise(rows: list[Row]) -> list[Row]:
    """Mean over seeds, and the standard error of that mean, for every method and budget."""
    groups: dict[tuple[str, Any], list[Row]] = {}
    for row in rows:
        groups.setdefault((row["method"], row["epsilon"]), []).append(row)
    out = []
    for (method, epsilon), same in groups.items():
        means = [row["mean_dice"] for row in same]
        error = float(np.std(means, ddof=1) / math.sqrt(len(means))) if len(means) > 1 else None
        guarantee = same[0]["guarantee"]
        out.append(
            {
                "method": method,
                "epsilon": epsilon,
                "seeds": len(same),
                "dice": np.mean([row["dice"] for row in same], axis=0).tolist(),
                "mean_dice": float(np.mean(means)),
                "standard_error": error,
                "by_seed": means,
                "unit": None if guarantee is None else guarantee["unit"],
                **(
                    {}
                    if "claimed" not in same[0]
                    else {"claimed": same[0]["claimed"], "proved": guarantee["epsilon"]}
                ),
            }
        )
    return out


def solve_equation_3(maps: Any, teachers: int) -> list[Row]:
    """S_2 for the first components of public maps, solved, beside its bound sqrt(d) / K."""
    flat = maps.reshape(len(maps), -1)
    size = flat.shape[1]
    basis = np.linalg.svd(flat - flat.mean(axis=0), full_matrices=False)[2]
    return [
        {"components": k, "exact": largest_code(basis[:k]) / teachers,
         "bound": math.sqrt(size) / teachers}
        for k in (1, 2)
    ]  # fmt: skip


def compare_orderings(rows: list[Row], epsilon: float) -> list[Row]:
    """The paper's two comparisons and ours against the control: by how much, in each seed.

    Of the paper's own algorithms first, then of ours; what was not run is not compared.
    """
    by = {(row["method"], row["epsilon"]): row for row in rows}

    def at(method: str) -> Row | None:
        private = table_rows.METHODS[method][1]
        return by.get((method, number_to_json(epsilon if private else math.inf)))

    claims = [
        (first, second)
        for first in (
            names.ALGORITHM_2, names.ALGORITHM_1, names.AUTOENCODED, names.ABOUT_PUBLIC,
            names.WITH_PUBLIC,
        )
        for second in (names.MEAN_TEACHER, names.DPSGD, names.CONTROL)
    ]  # fmt: skip
    claims += [(names.ALGORITHM_2, names.MEAN_MAP), (names.ALGORITHM_1, names.MEAN_MAP)]
    claims += [(names.AUTOENCODED, names.MEAN_MAP), (names.ABOUT_PUBLIC, names.GUESS)]
    out = []
    for first, second in claims:
        a, b = at(first), at(second)
        if a is None or b is None:
            continue
        gaps = [x - y for x, y in zip(a["by_seed"], b["by_seed"], strict=True)]
        out.append(
            {
                "claim": f"{first} above {second}",
                "difference": float(np.mean(gaps)),
                "by_seed": gaps,
                "holds": float(np.mean(gaps)) > 0.0,
            }
        )
    return out


PRINTED = {names.ALGORITHM_2: 0.561, names.MEAN_TEACHER: 0.547, names.DPSGD_AS_PRINTED: 0.53}
"""Dice of the paper, on brain tumours."""


def dice_table(title: str, summary: list[Row], results: dict[str, Any]) -> Table:
    """The summary as a table; what the paper prints stands beside brain tumours alone."""
    classes = results["classes"]
    printed = PRINTED if "BrainTumour" in results["settings"]["data"] else {}
    head = (
        "method", "epsilon", *(f"Dice {c}" for c in classes), "mean", "each seed", "printed",
        "unit protected",
    )  # fmt: skip
    rows = (
        (
            row["method"], _budget(row), *(_short(x) for x in row["dice"]),
            _short(row["mean_dice"]) + (" *did not learn*" if row["mean_dice"] < 0.01 else ""),
            " ".join(map(_short, row["by_seed"])), printed.get(row["method"]),
            row["unit"] or "nothing",
        )
        for row in summary
    )  # fmt: skip
    return Table.of(title, head, rows)


def _budget(row: Row) -> str:
    """The epsilon of a row; a recipe that fixes its noise says what is claimed and proved."""
    if "claimed" in row:
        return f"{row['claimed']:.3g} claimed, {row['proved']:.3g} proved"
    return "none" if row["epsilon"] == "inf" else f"{row['epsilon']:g}"


def _short(x: float) -> str:
    """A number with three digits and no leading zero: .812."""
    return f"{x:.3f}".removeprefix("0")
