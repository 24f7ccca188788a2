"""A comparison at several budgets: curves of accuracy over epsilon, with their intervals.

What was found at a budget is kept in OUT/budgets: another budget in the same folder adds a point to
the curves, and takes none away.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from privet._atomic_files import write_json
from privet.compare.comparison import compare
from privet.compare.comparison_cells import VERSION, Row
from privet.data import Dataset
from privet.errors import InvalidArgument
from privet.jobs import Progress, no_progress

_LONG = ("guarantee", "claim", "audit", "attack", "attacks", "relevance")
"""What a row of one budget holds, and a point of a curve does not."""


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

    Arguments as for `compare`. Curves and `runs` have every budget that was ever compared in this
    folder on these data, this call's and earlier ones.
    """
    if not epsilons:
        raise InvalidArgument("epsilon", epsilons, "at least one budget")
    results: dict[str, Any] = {}
    for k, epsilon in enumerate(epsilons):

        def tell(what: str, done: int, of: int, before: int = k, at: float = epsilon) -> None:
            progress(f"epsilon {at:g}: {what}", before * of + done, len(epsilons) * of)

        results = compare(dataset, out, epsilon=epsilon, delta=delta, progress=tell, **how)
        write_json(out / "budgets" / f"{epsilon:g}-{delta:g}.json", results)
    kept = _kept(out, results["data"]["fingerprint"])
    runs = [run for found in kept for run in found["runs"]]
    return results | {"curves": _points(kept), "runs": runs}


def curves(out: Path, fingerprint: str) -> list[Row]:
    """One row for each method at each budget that was compared in this folder on these data."""
    return _points(_kept(out, fingerprint))


def _kept(out: Path, fingerprint: str) -> list[Row]:
    """What was found at each budget, by this version."""
    found = [json.loads(path.read_text()) for path in (out / "budgets").glob("*.json")]
    mine = [
        results
        for results in found
        if results["data"]["fingerprint"] == fingerprint and results.get("version") == VERSION
    ]
    return sorted(mine, key=lambda results: (results["delta"], results["epsilon"]))


def _points(kept: Sequence[Row]) -> list[Row]:
    rows = [row for results in kept for row in results["rows"]]
    order = {row["method"]: i for i, row in reversed(list(enumerate(rows)))}
    return [
        {name: value for name, value in row.items() if name not in _LONG}
        for row in sorted(rows, key=lambda row: order[row["method"]])
    ]
