"""A comparison at several budgets: curves of accuracy over epsilon, with their spread over seeds.

What was found at a budget is kept in OUT/budgets: another budget in the same folder adds a point to
the curves, and takes none away.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from privet._atomic_files import write_json
from privet.compare.comparison import compare
from privet.compare.comparison_cells import Row
from privet.compare.table_export import FIELDS
from privet.data import Dataset
from privet.errors import InvalidArgument
from privet.jobs import Progress, no_progress


def sweep(
    dataset: Dataset,
    out: Path,
    *,
    epsilons: Sequence[float],
    delta: float,
    progress: Progress = no_progress,
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

        def tell(what: str, done: int, of: int, before: int = k, at: float = epsilon) -> None:
            progress(f"epsilon {at:g}: {what}", before * of + done, len(epsilons) * of)

        results = compare(dataset, out, epsilon=epsilon, delta=delta, progress=tell, **how)
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
