"""All methods at one budget: every cell kept once it is done, then one table."""

from __future__ import annotations

import difflib
import math
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np
from scipy import special

from privet import _check
from privet._words import number, small_table
from privet._workers import workers
from privet.compare import accounts
from privet.compare.bench import Bench, View
from privet.compare.entrants import LIMIT, Entrant, own_entrants
from privet.compare.exposed import REFERENCES
from privet.compare.trial import Row, audited, trial
from privet.data import Dataset
from privet.errors import InvalidArgument
from privet.guarantee import EXPERIMENT
from privet.kept import kept, path_of

Progress = Callable[[str, int, int], None]
"""Told what was done last, how many cells are done, and of how many."""
VERSION = 11
"""Of what a cell means: cells kept by another version are run again."""


@final
@dataclass(frozen=True, kw_only=True)
class Job:
    """A cell: what is done, to which method, with which seed; kept in a file, with an account."""

    what: str
    entrant: Entrant
    seed: int
    bench: Bench
    out: Path
    references: int = REFERENCES

    def __str__(self) -> str:
        return f"{self.entrant.name}: {self.what}, seed {self.seed}"

    @property
    def key(self) -> list[Any]:
        """Everything that its result depends on."""
        facts: list[Any] = [self.bench.dataset.fingerprint, self.bench.epsilon, self.bench.delta]
        if self.what == "train":
            facts.append(self.references)
        return [VERSION, self.what, self.entrant.name, self.seed, *facts]

    @property
    def path(self) -> Path:
        """Its result."""
        return path_of(self.out / "cells", self.key)

    @property
    def charges(self) -> bool:
        """Whether it releases something about the records: an audit on made-up neighbours no."""
        return self.entrant.charged and (self.what == "train" or self.entrant.audit is None)

    @property
    def account(self) -> Path:
        """Its ledger."""
        return accounts.path_for(self.out / "ledgers", str(self), self.path.stem[:8])

    def result(self) -> Row:
        """From its file, or found now; charged before anything is released."""
        return kept(self.path.parent, self.key, self._run)

    def _run(self) -> Row:
        e = self.entrant
        ledger = accounts.opened(self.account, e, self.bench) if self.charges else None
        before, began = 0 if ledger is None else len(ledger), time.process_time()
        if self.what == "train":
            kept_by_rows = self.out / "references"
            row = trial(
                e, self.bench, self.seed, ledger, references=self.references, kept=kept_by_rows
            )
        else:
            row = audited(e, self.bench, self.seed, ledger)
        return row | {"charged_before": before, "processor_seconds": time.process_time() - began}


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


def chosen(names: Sequence[str] | None, entrants: Sequence[Entrant]) -> tuple[Entrant, ...]:
    """The entrants of these names, the limit always first; all of them for None."""
    known = {e.name: e for e in (LIMIT, *entrants)}
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
    entrants: Sequence[Entrant] | None = None,
    methods: Sequence[str] | None = None,
    seeds: int = 1,
    references: int = REFERENCES,
    jobs: int = 2,
    backend: str = "loky",
    cache: bool = False,
    progress: Progress = lambda what, done, of: None,
) -> Comparison:
    """Train, attack and audit every method on the same split; returns the results.

    `entrants`: who takes part; every method of the catalogue unless told. `references`: models that
    membership attacks are calibrated with, 0 for attacks that need none.

    Cells are kept in OUT/cells: the same call goes on after a crash and repeats nothing finished.
    What they spend is charged in OUT/ledgers before it is released. Noise is seeded by the cell,
    so that a cell run again is the same release; it is charged again all the same. Features of
    pictures lie in OUT/features while it runs, and are removed unless `cache` is asked for.
    """
    bench = Bench(
        dataset=dataset,
        features_folder=out / "features",
        epsilon=_check.positive("epsilon", epsilon),
        delta=_check.open_unit("delta", delta),
    )
    known = own_entrants() if entrants is None else entrants
    cells = _cells(
        bench,
        out,
        chosen(methods, known),
        _check.count("seeds", seeds),
        _check.count("references", references, minimum=0),
    )
    missing = [job for job in cells if not job.path.exists()]
    progress("starting", len(cells) - len(missing), len(cells))
    try:
        if missing:
            _run(missing, _check.count("jobs", jobs), backend, progress, len(cells))
    finally:
        if not cache:
            shutil.rmtree(out / "features", ignore_errors=True)
    done = [(job, job.result()) for job in cells]
    limit = [row for job, row in done if job.entrant is LIMIT]
    return Comparison(
        {
            "data": bench.told(),
            "epsilon": epsilon,
            "delta": delta,
            "seeds": seeds,
            "run": _sampled(done),
            "processor_seconds": sum(row["processor_seconds"] for _, row in done),
            "rows": [
                _summary(e, [(j, r) for j, r in done if j.entrant is e], limit)
                for e in dict.fromkeys(job.entrant for job in cells)
            ],
            "ledgers": [
                accounts.told(job.account, str(job), row["charged_before"])
                for job, row in done
                if job.charges
            ],
        }
    )


def _sampled(done: list[tuple[Job, Row]]) -> dict[str, Any] | None:
    """The first plan with random samples, whose spending over its steps is worth a picture."""
    for _, row in done:
        plan = row.get("plan") or {}
        if plan.get("sample_rate", 1.0) < 1.0:
            return {k: plan[k] for k in ("sample_rate", "noise_multiplier", "steps")}
    return None


def _cells(
    bench: Bench, out: Path, entrants: Sequence[Entrant], seeds: int, references: int
) -> list[Job]:
    """Every method is trained with every seed, and audited with the first."""
    return [
        Job(what=what, entrant=entrant, seed=seed, bench=bench, out=out, references=references)
        for seed in range(seeds)
        for entrant in entrants
        for what in (("train", "audit") if entrant.promises and seed == 0 else ("train",))
    ]


def _one(job: Job) -> str:
    """In a worker: one thread each, and the result goes to its file at once."""
    import warnings

    import torch

    torch.set_num_threads(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a solver that stops early says so; the score tells
        job.result()
    return str(job)


def _run(missing: list[Job], jobs: int, backend: str, progress: Progress, total: int) -> None:
    from joblib import Parallel, delayed

    done = total - len(missing)
    with workers(backend, jobs):
        if any(job.entrant.sees is not View.COLUMNS for job in missing):
            progress("public features", done, total)
            missing[0].bench.prepare()
        told = "list" if backend == "ray" else "generator_unordered"  # Ray's tells only at the end
        finished = Parallel(return_as=told, batch_size=1)(delayed(_one)(job) for job in missing)
        for name in finished:
            done += 1
            progress(name, done, total)


def _summary(entrant: Entrant, cells: list[tuple[Job, Row]], limit: list[Row]) -> Row:
    """One row of the table: means over seeds; the audit is that of the first seed."""
    trained = [row for job, row in cells if job.what == "train"]
    audits = [row["finding"] for job, row in cells if job.what == "audit"]
    right, asked = sum(r["right"] for r in trained), sum(r["asked"] for r in trained)
    first = trained[0]
    guarantee, claim = first["guarantee"], first["claim"]
    finding = audits[0] if audits else None
    return {
        "method": entrant.name,
        "system": entrant.system,
        "private": entrant.promises,
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


def wilson(right: float, asked: float, confidence: float = 0.95) -> list[float]:
    """Wilson's interval of a rate; all seeds answer the same questions, which count once.

    >>> [round(x, 3) for x in wilson(90, 100)]
    [0.826, 0.945]
    """
    z = float(special.ndtri(0.5 + confidence / 2))
    p, n = right / asked, asked
    middle = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    return [middle - half, middle + half]
