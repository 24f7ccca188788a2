"""All methods at one budget: every cell kept once it is done, then one table."""

from __future__ import annotations

import difflib
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from privet import _check
from privet._formatting import number, small_table
from privet.compare.comparison_cells import REFERENCES, VERSION, ComparisonCell, Row
from privet.compare.comparison_data import ComparisonData, View
from privet.compare.participants import LIMIT, Participant, catalogue_participants
from privet.compare.repetition_intervals import Array, accuracy_interval, difference_interval
from privet.data import Dataset
from privet.errors import InvalidArgument
from privet.guarantee import EXPERIMENT
from privet.jobs import Cell, Progress, no_progress, run_cells

SPLITS = 5
"""Splits of small data: of two, the interval of a mean has one degree of freedom and says nothing;
beyond five it narrows by less than a tenth for each split more."""
SMALL = 10_000
"""The most training records that are split `SPLITS` times unless asked otherwise. Beyond, thousands
of test records leave little doubt of their own, and five times the training takes hours (MNIST,
every method once: 24 minutes)."""


class Comparison(dict[str, Any]):
    """The results of `compare`: a dict that shows itself as a table in a notebook."""

    def _repr_html_(self) -> str:
        rows = [
            (
                row["method"],
                f"{row['accuracy']:.1%} right{'' if row['learned'] else ' (did not learn)'}; "
                f"claimed ε {number(row['claimed_epsilon'])}, proved "
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
    splits: int | None = None,
    seeds: int = 1,
    reference: str | None = None,
    references: int = REFERENCES,
    jobs: int = 2,
    backend: str = "loky",
    cache: bool = False,
    progress: Progress = no_progress,
) -> Comparison:
    """Train every method on the same splits, attack and audit it; returns the results.

    `participants`: who takes part; every method of the catalogue by default. `splits`: the data
    set's own, and others that deal its records anew, each with noise of its own (`SPLITS` up to
    `SMALL` records, else one); `seeds`: trainings on each. Attacks are on models of the first
    split, audits replay a method in small, once. `reference`: what differences are taken to, by
    default the first private method. `references`: models that membership attacks are calibrated
    with, 0 for attacks that need none.

    Cells are kept in OUT/cells: the same call goes on after a crash and repeats nothing finished.
    What they spend is charged in OUT/ledgers before it is released. Noise is seeded by the cell,
    so that a cell run again is the same release; it is charged again all the same. Features of
    pictures lie in OUT/features while it runs, and are removed unless `cache` is asked for.
    """
    data = [
        ComparisonData(
            dataset=dataset,
            features_folder=out / "features",
            epsilon=_check.positive("epsilon", epsilon),
            delta=_check.open_unit("delta", delta),
            split=split,
        )
        for split in range(_count_splits(dataset, splits))
    ]
    known = catalogue_participants() if participants is None else participants
    chosen = select_participants(methods, known)
    compared_to = _reference(chosen, reference)
    cells = _cells(
        data,
        out,
        chosen,
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
    trained = [(cell, row) for cell, row in done if cell.task == "train"]
    return Comparison(
        {
            "version": VERSION,
            "data": data[0].describe(),
            "epsilon": epsilon,
            "delta": delta,
            "splits": len(data),
            "seeds": seeds,
            "reference": compared_to.name,
            "run": _sampled_plan(done),
            "processor_seconds": sum(row["processor_seconds"] for _, row in done),
            "rows": _summaries(data, chosen, done, compared_to),
            "runs": [
                _one_run(row, epsilon, delta, cell.participant.system) for cell, row in trained
            ],
            "ledgers": [
                cell.describe_ledger(row["charged_before"]) for cell, row in done if cell.charges
            ],
        }
    )


def _count_splits(dataset: Dataset, splits: int | None) -> int:
    """As many as asked for; several only where any record may go to either side."""
    if splits is None:
        small = len(dataset.y_train) <= SMALL and dataset.groups is None
        return SPLITS if small else 1
    if _check.count("splits", splits) > 1 and dataset.groups is not None:
        raise InvalidArgument(
            "splits", splits, "1 where people have several records",
            "a new split would put a person's records on both sides",
        )  # fmt: skip
    return splits


def _reference(chosen: Sequence[Participant], name: str | None) -> Participant:
    """The method that differences are taken to."""
    if name is None:
        return next((p for p in chosen if p.promises), chosen[0])
    found = {p.name: p for p in chosen}
    if name not in found:
        raise InvalidArgument("reference", name, f"one that takes part: {', '.join(found)}")
    return found[name]


def _sampled_plan(done: list[tuple[ComparisonCell, Row]]) -> dict[str, Any] | None:
    """The first plan with random samples, whose spending over its steps is worth a picture."""
    for _, row in done:
        plan = row.get("plan") or {}
        if plan.get("sample_rate", 1.0) < 1.0:
            return {k: plan[k] for k in ("sample_rate", "noise_multiplier", "steps")}
    return None


def _cells(
    data: Sequence[ComparisonData],
    out: Path,
    participants: Sequence[Participant],
    seeds: int,
    references: int,
) -> list[ComparisonCell]:
    """Every method is trained on every split with every seed, and audited once."""
    return [
        ComparisonCell(
            task=task, participant=participant, seed=seed, data=split, out=out,
            references=references,
        )
        for split in data
        for seed in range(seeds)
        for participant in participants
        for task in ("train", "audit")
        if task == "train" or (participant.promises and split.split == 0 and seed == 0)
    ]  # fmt: skip


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


def _summaries(
    data: Sequence[ComparisonData],
    participants: Sequence[Participant],
    done: Sequence[tuple[ComparisonCell, Row]],
    reference: Participant,
) -> list[Row]:
    """The rows of the table, with differences on the same records to three others.

    To the `reference`, to no privacy, and to the most accurate method with a proof at this budget.
    """
    asked = len(np.unique(np.concatenate([split.tested for split in data])))
    own = {p: [(cell, row) for cell, row in done if cell.participant is p] for p in participants}
    rows = {p: _summary(p, cells) for p, cells in own.items()}
    right = {
        p: _repetitions([r for c, r in cells if c.task == "train"]) for p, cells in own.items()
    }
    proved = [p for p, row in rows.items() if row["within_budget"]]
    best = max(proved, key=lambda p: rows[p]["accuracy"]) if proved else None
    labels = [split.tested_labels for split in data]
    labels = labels * (len(right[LIMIT]) // len(labels))
    guesses = [(y == np.bincount(y).argmax()).astype(np.float64) for y in labels]

    def difference(p: Participant, other: Participant | None) -> Row | None:
        if other is None or other is p:
            return None
        apart = [a - b for a, b in zip(right[p], right[other], strict=True)]
        low, high = difference_interval(apart, asked)
        return {"mean": rows[p]["accuracy"] - rows[other]["accuracy"], "low": low, "high": high}

    for p, row in rows.items():
        low, high = accuracy_interval(right[p], asked)
        means = [float(values.mean()) for values in right[p]]
        gains = [
            [a - g for a, g in zip(right[p], guesses, strict=True)],
            [_recall_gains(a, y) for a, y in zip(right[p], labels, strict=True)],
        ]
        row |= {
            "epsilon": data[0].epsilon,
            "delta": data[0].delta,
            "splits": len(data),
            "seeds": len(row["accuracy_by_seed"]) // len(data),
            "accuracy_interval": [low, high],
            "accuracy_sd": float(np.std(means, ddof=1)) if len(means) > 1 else None,
            "guessing": float(np.mean(guesses)),
            "learned": any(difference_interval(gain, asked)[0] > 0.0 for gain in gains),
            "reference": reference.name,
            "difference": difference(p, reference),
            "to_limit": difference(p, LIMIT),
            "to_best": difference(p, best),
            "best": p is best,
            "time_ratio": row["seconds"] / rows[LIMIT]["seconds"],
        }
    return list(rows.values())


def _repetitions(trained: Sequence[Row]) -> list[Array]:
    """Whether each record was right: of each split, the mean of its seeds; of one, each seed."""
    by_split: dict[int, list[Array]] = {}
    for row in trained:
        bits = np.unpackbits(np.frombuffer(bytes.fromhex(row["answers"]), dtype=np.uint8))
        by_split.setdefault(row["split"], []).append(bits[: row["asked"]].astype(np.float64))
    if len(by_split) == 1:
        return by_split[0]
    return [np.mean(values, axis=0) for values in by_split.values()]


def _recall_gains(right: Array, labels: Any) -> Array:
    """Record by record, what has mean accuracy over classes minus that of guessing as its mean."""
    counts = np.bincount(labels)
    present = np.count_nonzero(counts)
    return np.asarray((right * len(labels) / counts[labels] - 1.0) / present)


def _summary(participant: Participant, cells: Sequence[tuple[ComparisonCell, Row]]) -> Row:
    """What one row says without looking at others: means over runs, and what was found once."""
    trained = [row for cell, row in cells if cell.task == "train"]
    finding = next((row["finding"] for cell, row in cells if cell.task == "audit"), None)
    attacked = [row["attack"] for row in trained if row["attack"] is not None]
    first = trained[0]
    guarantee, claim = first["guarantee"], first["claim"]
    proved = "inf" if guarantee is None else guarantee["epsilon"]
    budget = cells[0][0].data.epsilon
    return {
        "method": participant.name,
        "system": participant.system,
        "private": participant.promises,
        "within_budget": participant.promises and float(proved) <= budget * (1.0 + 1e-9),
        "accuracy": sum(r["right"] for r in trained) / sum(r["asked"] for r in trained),
        "accuracy_by_seed": [r["right"] / r["asked"] for r in trained],
        "balanced_accuracy": float(np.mean([r["balanced_accuracy"] for r in trained])),
        "auroc": _mean([r["auroc"] for r in trained if r["auroc"] is not None]),
        "claimed_epsilon": None if claim is None else claim["epsilon"],
        "proved_epsilon": proved,
        "audited_epsilon": None if finding is None else finding["audited"],
        "without_noise_epsilon": None if finding is None else finding["control"],
        "verdict": "no promise" if finding is None else finding["verdict"],
        "in_words": None if finding is None else finding["in_words"],
        "attack_auc": float(np.mean([a["auc"] for a in attacked])),
        "attack_auc_interval": first["attack"]["auc_interval"],
        "attack_tpr_at_1pct_fpr": float(np.mean([a["tpr_at_1pct_fpr"] for a in attacked])),
        "seconds": float(np.median([r["seconds"] for r in trained])),
        "guarantee": guarantee,
        "claim": claim,
        "audit": finding,
        "attack": first["attack"],
        "attacks": first["attacks"],
        "relevance": first["relevance"],
    }


def _one_run(row: Row, epsilon: float, delta: float, system: str) -> Row:
    """One training as a row of runs.csv."""
    attack, guarantee, claim = row["attack"], row["guarantee"], row["claim"]
    return {
        "epsilon": epsilon,
        "delta": delta,
        "method": row["method"],
        "system": system,
        "split": row["split"],
        "seed": row["seed"],
        **{k: row[k] for k in ("right", "asked")},
        "accuracy": row["right"] / row["asked"],
        **{k: row[k] for k in ("balanced_accuracy", "auroc", "seconds")},
        "claimed_epsilon": None if claim is None else claim["epsilon"],
        "proved_epsilon": "inf" if guarantee is None else guarantee["epsilon"],
        "attack_auc": None if attack is None else attack["auc"],
    }


def _mean(values: list[float]) -> float | None:
    return float(np.mean(values)) if values else None
