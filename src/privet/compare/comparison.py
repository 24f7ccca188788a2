"""All methods at one budget: every cell kept once it is done, then one table."""

from __future__ import annotations

import difflib
import math
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import ndtri

from privet import _check
from privet._formatting import number, small_table
from privet.compare.comparison_cells import REFERENCES, ComparisonCell, Row
from privet.compare.comparison_data import ComparisonData, View
from privet.compare.participants import LIMIT, Participant, catalogue_participants
from privet.data import Dataset
from privet.errors import InvalidArgument
from privet.guarantee import EXPERIMENT
from privet.jobs import Cell, Progress, no_progress, run_cells


class Comparison(dict[str, Any]):
    """The results of `compare`: a dict that shows itself as a table in a notebook."""

    def _repr_html_(self) -> str:
        rows = [
            (
                row["method"],
                f"{row['accuracy']:.1%} right; claimed ε {number(row['claimed_epsilon'])}, proved "
                f"{number(row['proved_epsilon'])}, audited {number(row['audited_epsilon'])}: "
                f"{row['verdict']}",
            )
            for row in self["rows"]
        ]
        title = f"{self['data']['name']} at ε {number(self['epsilon'])}"
        return small_table(title, rows, mark=EXPERIMENT)


def select_participants(
    names: Sequence[str] | None, participants: Sequence[Participant]
) -> tuple[Participant, ...]:
    """The participants of these names, the limit always first; all of them for None."""
    known = {e.name: e for e in (LIMIT, *participants)}
    if names is None:
        return tuple(known.values())
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]}?" if near else ""
            raise InvalidArgument("methods", name, f"one of {', '.join(known)}", hint)
    return (LIMIT, *(known[n] for n in dict.fromkeys(names) if n != LIMIT.name))


def compare(
    dataset: Dataset,
    out: Path,
    *,
    epsilon: float,
    delta: float,
    participants: Sequence[Participant] | None = None,
    methods: Sequence[str] | None = None,
    seeds: int = 1,
    references: int = REFERENCES,
    jobs: int = 2,
    backend: str = "loky",
    cache: bool = False,
    progress: Progress = no_progress,
) -> Comparison:
    """Train, attack and audit every method on the same split; returns the results.

    `participants`: who takes part; every method of the catalogue by default. `references`: models
    that membership attacks are calibrated with, 0 for attacks that need none.

    Cells are kept in OUT/cells: the same call goes on after a crash and repeats nothing finished.
    What they spend is charged in OUT/ledgers before it is released. Noise is seeded by the cell,
    so that a cell run again is the same release; it is charged again all the same. Features of
    pictures lie in OUT/features while it runs, and are removed unless `cache` is asked for.
    """
    data = ComparisonData(
        dataset=dataset,
        features_folder=out / "features",
        epsilon=_check.positive("epsilon", epsilon),
        delta=_check.open_unit("delta", delta),
    )
    known = catalogue_participants() if participants is None else participants
    cells = _cells(
        data,
        out,
        select_participants(methods, known),
        _check.count("seeds", seeds),
        _check.count("references", references, minimum=0),
    )
    missing = [cell for cell in cells if not cell.path.exists()]
    progress("starting", len(cells) - len(missing), len(cells))
    try:
        if missing:
            _run(missing, _check.count("jobs", jobs), backend, progress, len(cells))
    finally:
        if not cache:
            shutil.rmtree(out / "features", ignore_errors=True)
    done = [(cell, cell.result()) for cell in cells]
    limit = [row for cell, row in done if cell.participant is LIMIT]
    return Comparison(
        {
            "data": data.describe(),
            "epsilon": epsilon,
            "delta": delta,
            "seeds": seeds,
            "run": _sampled_plan(done),
            "processor_seconds": sum(row["processor_seconds"] for _, row in done),
            "rows": [
                _summary(p, [(c, r) for c, r in done if c.participant is p], limit)
                for p in dict.fromkeys(cell.participant for cell in cells)
            ],
            "ledgers": [
                cell.describe_ledger(row["charged_before"]) for cell, row in done if cell.charges
            ],
        }
    )


def _sampled_plan(done: list[tuple[ComparisonCell, Row]]) -> dict[str, Any] | None:
    """The first plan with random samples, whose spending over its steps is worth a picture."""
    for _, row in done:
        plan = row.get("plan") or {}
        if plan.get("sample_rate", 1.0) < 1.0:
            return {k: plan[k] for k in ("sample_rate", "noise_multiplier", "steps")}
    return None


def _cells(
    data: ComparisonData,
    out: Path,
    participants: Sequence[Participant],
    seeds: int,
    references: int,
) -> list[ComparisonCell]:
    """Every method is trained with every seed, and audited with the first."""
    return [
        ComparisonCell(
            task=task, participant=participant, seed=seed, data=data, out=out, references=references
        )
        for seed in range(seeds)
        for participant in participants
        for task in (("train", "audit") if participant.promises and seed == 0 else ("train",))
    ]


def _run(
    missing: list[ComparisonCell], jobs: int, backend: str, progress: Progress, total: int
) -> None:
    """Compute what is missing; public features first, so that workers find them on the disk."""
    before = total - len(missing)
    if any(cell.participant.view is not View.COLUMNS for cell in missing):
        progress("public features", before, total)
        missing[0].data.prepare()
    run_cells(
        [Cell(str(cell), cell.run) for cell in missing],
        jobs=jobs,
        backend=backend,
        progress=lambda what, done, of: progress(what, before + done, total),
    )
    progress("done", total, total)


def _summary(
    participant: Participant, cells: list[tuple[ComparisonCell, Row]], limit: list[Row]
) -> Row:
    """One row of the table: means over seeds; the audit is that of the first seed."""
    trained = [row for cell, row in cells if cell.task == "train"]
    audits = [row["finding"] for cell, row in cells if cell.task == "audit"]
    right, asked = sum(r["right"] for r in trained), sum(r["asked"] for r in trained)
    first = trained[0]
    guarantee, claim = first["guarantee"], first["claim"]
    finding = audits[0] if audits else None
    return {
        "method": participant.name,
        "system": participant.system,
        "private": participant.promises,
        "accuracy": right / asked,
        "accuracy_by_seed": [r["right"] / r["asked"] for r in trained],
        "balanced_accuracy": float(np.mean([r["balanced_accuracy"] for r in trained])),
        "auroc": _mean([r["auroc"] for r in trained if r["auroc"] is not None]),
        "accuracy_interval": wilson(right / len(trained), asked / len(trained)),
        "claimed_epsilon": None if claim is None else claim["epsilon"],
        "proved_epsilon": "inf" if guarantee is None else guarantee["epsilon"],
        "audited_epsilon": None if finding is None else finding["audited"],
        "verdict": "no promise" if finding is None else finding["verdict"],
        "in_words": None if finding is None else finding["in_words"],
        "attack_auc": float(np.mean([r["attack"]["auc"] for r in trained])),
        "attack_tpr_at_1pct_fpr": float(np.mean([r["attack"]["tpr_at_1pct_fpr"] for r in trained])),
        "time_ratio": sum(r["seconds"] for r in trained) / sum(r["seconds"] for r in limit),
        "seconds": sum(r["seconds"] for r in trained) / len(trained),
        "guarantee": guarantee,
        "claim": claim,
        "audit": finding,
        "attack": first["attack"],
        "attacks": first["attacks"],
        "relevance": first["relevance"],
    }


def _mean(values: list[float]) -> float | None:
    return float(np.mean(values)) if values else None


def wilson(successes: float, trials: float, confidence: float = 0.95) -> list[float]:
    """Wilson's interval of a rate; all seeds answer the same questions, which count once.

    So `successes` may be a mean over seeds, a fraction, where scipy's interval wants whole counts.

    >>> [round(x, 3) for x in wilson(90, 100)]
    [0.826, 0.945]
    >>> from scipy.stats import binomtest
    >>> [round(float(x), 3) for x in binomtest(90, 100).proportion_ci(method="wilson")]
    [0.826, 0.945]
    """
    z = float(ndtri(0.5 + confidence / 2))
    p, n = successes / trials, trials
    middle = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    return [middle - half, middle + half]
