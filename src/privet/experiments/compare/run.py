"""All methods at one budget: every cell kept once it is done, then one table."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, final

import numpy as np
from scipy import special

from privet import _check
from privet.data import Dataset
from privet.errors import InvalidArgument
from privet.experiments.compare.bench import Bench
from privet.experiments.compare.entrants import ENTRANTS, LIMIT, Entrant
from privet.experiments.compare.trial import Row, audited, trial
from privet.experiments.kept import kept, path_of

Progress = Callable[[str, int, int], None]
"""Told what was done last, how many cells are done, and of how many."""
VERSION = 4
"""Of what a cell means: cells kept by another version are run again."""


@final
@dataclass(frozen=True, kw_only=True)
class Job:
    """A cell: what is done, to which method, with which seed."""

    what: str
    entrant: Entrant
    seed: int

    def __str__(self) -> str:
        return f"{self.entrant.name}: {self.what}, seed {self.seed}"


def chosen(names: Sequence[str] | None) -> tuple[Entrant, ...]:
    """The entrants of these names, the limit always first; all of them for None."""
    if names is None:
        return ENTRANTS
    known = {e.name: e for e in ENTRANTS}
    for name in names:
        if name not in known:
            raise InvalidArgument("methods", name, f"one of {', '.join(known)}")
    return (LIMIT, *(known[n] for n in names if n != LIMIT.name))


def compare(
    dataset: Dataset,
    out: Path,
    *,
    epsilon: float,
    delta: float,
    methods: Sequence[str] | None = None,
    seeds: int = 1,
    jobs: int = 2,
    backend: str = "loky",
    progress: Progress = lambda what, done, of: None,
) -> dict[str, Any]:
    """Train, attack and audit every method on the same split; returns the results.

    Cells are kept in OUT/cells: the same call goes on after a crash and repeats nothing finished.
    Noise is seeded by the cell, so that a cell run again is the same release, not another one.
    """
    bench = Bench(
        dataset=dataset,
        epsilon=_check.positive("epsilon", epsilon),
        delta=_check.open_unit("delta", delta),
    )
    cells = [
        Job(what=what, entrant=entrant, seed=seed)
        for seed in range(_check.count("seeds", seeds))
        for entrant in chosen(methods)
        for what in (("train", "audit") if entrant.private else ("train",))
    ]
    folder = out / "cells"
    missing = [job for job in cells if not path_of(folder, _key(job, bench)).exists()]
    progress("starting", len(cells) - len(missing), len(cells))
    if missing:
        _run(missing, bench, folder, jobs, backend, progress, len(cells))
    rows = [kept(folder, _key(job, bench), partial(_cell, job, bench)) for job in cells]
    done = list(zip(cells, rows, strict=True))
    return {
        "data": {
            "name": dataset.name,
            "about": dataset.about,
            "fingerprint": dataset.fingerprint,
            "records": len(dataset.y_train),
            "features": dataset.n_features,
            "classes": len(dataset.classes),
            "public_unlabelled": bench.cut,
            "tested_on": len(dataset.y_test) - bench.cut,
        },
        "epsilon": epsilon,
        "delta": delta,
        "seeds": seeds,
        "rows": [_summary(e, [(j.what, r) for j, r in done if j.entrant is e], done)
                 for e in dict.fromkeys(j.entrant for j in cells)],
    }  # fmt: skip


def _key(job: Job, bench: Bench) -> list[Any]:
    facts = [bench.dataset.fingerprint, bench.epsilon, bench.delta]
    return [VERSION, job.what, job.entrant.name, job.seed, *facts]


def _cell(job: Job, bench: Bench) -> Row:
    return (trial if job.what == "train" else audited)(job.entrant, bench, job.seed)


def _one(job: Job, bench: Bench, folder: Path) -> str:
    """In a worker: one thread each, and the result goes to its file at once."""
    import warnings

    import torch

    torch.set_num_threads(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a solver that stops early says so; the score tells
        kept(folder, _key(job, bench), lambda: _cell(job, bench))
    return str(job)


def _run(
    missing: list[Job],
    bench: Bench,
    folder: Path,
    jobs: int,
    backend: str,
    progress: Progress,
    total: int,
) -> None:
    import joblib

    if backend == "ray":
        from ray.util import joblib as ray_joblib

        ray_joblib.register_ray()  # type: ignore[no-untyped-call, unused-ignore]
    done = total - len(missing)
    with joblib.parallel_config(backend=backend, n_jobs=_check.count("jobs", jobs)):
        finished = joblib.Parallel(return_as="generator_unordered")(
            joblib.delayed(_one)(job, bench, folder) for job in missing
        )
        for name in finished:
            done += 1
            progress(name, done, total)


def _summary(entrant: Entrant, cells: list[tuple[str, Row]], done: list[Any]) -> Row:
    """One row of the table: means over seeds; the audit is that of the first seed."""
    trained = [r for what, r in cells if what == "train"]
    audits = [r["finding"] for what, r in cells if what == "audit"]
    limit = [r for j, r in done if j.entrant is LIMIT and j.what == "train"]
    right, asked = sum(r["right"] for r in trained), sum(r["asked"] for r in trained)
    first = trained[0]
    guarantee, claim = first["guarantee"], first["claim"]
    finding = audits[0] if audits else None
    return {
        "method": entrant.name,
        "system": entrant.system,
        "private": entrant.private,
        "accuracy": right / asked,
        "accuracy_interval": wilson(right, asked),
        "claimed_epsilon": None if claim is None else claim["epsilon"],
        "proved_epsilon": "inf" if guarantee is None else guarantee["epsilon"],
        "audited_epsilon": None if finding is None else finding["audited"],
        "verdict": "no promise" if finding is None else finding["verdict"],
        "attack_auc": float(np.mean([r["attack"]["auc"] for r in trained])),
        "attack_tpr_at_1pct_fpr": float(np.mean([r["attack"]["tpr_at_1pct_fpr"] for r in trained])),
        "time_ratio": sum(r["seconds"] for r in trained) / sum(r["seconds"] for r in limit),
        "seconds": sum(r["seconds"] for r in trained) / len(trained),
        "guarantee": guarantee,
        "claim": claim,
        "audit": finding,
        "attack": first["attack"],
        "spent": first["spent"],
    }


def wilson(right: int, asked: int, confidence: float = 0.95) -> list[float]:
    """Wilson's interval of a rate.

    >>> [round(x, 3) for x in wilson(90, 100)]
    [0.826, 0.945]
    """
    z = float(special.ndtri(0.5 + confidence / 2))
    p, n = right / asked, asked
    middle = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    return [middle - half, middle + half]
