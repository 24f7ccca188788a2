"""All cells of an experiment, each kept once it is done, then tables and pictures."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from privet.kept import kept, write_json
from privet.noise import seeded
from privet.papers.adaptive_laplace.audit import audit_record
from privet.papers.adaptive_laplace.cells import Bench, cell
from privet.papers.adaptive_laplace.settings import PROVED, Settings

Progress = Callable[[str, int, int], None]
"""Told what is being done, how many cells are done, and of how many."""
VERSION = 2
"""Of what a cell means: cells kept by another version are run again."""
AUDITED = (0.25, 0.5, 1.0)


def nobody(what: str, done: int, of: int) -> None:
    """Is told and says nothing."""


def reproduce(
    out: Path, settings: Settings, *, folder: Path | None = None, progress: Progress = nobody
) -> dict[str, Any]:
    """Run what is missing, write `results.json` and the pictures; returns the results.

    Every cell (a method, a budget, a seed) is kept as JSON in OUT/cells, so that an interrupted run
    goes on where it stopped.
    """
    from privet.papers.adaptive_laplace import figures

    bench = Bench(settings, folder)
    jobs = list(_jobs(settings))
    total = len(jobs) + len(AUDITED)
    rows, audits = [], []
    for i, (method, epsilon, seed) in enumerate(jobs):
        name = f"{method}, epsilon {epsilon:g}, seed {seed}"
        progress(name, i, total)

        def run(job: tuple[str, float, int] = (method, epsilon, seed), i: int = i) -> Any:
            return cell(bench, *job, told=lambda at: progress(f"{job[0]}: {at}", i, total))

        rows.append(_kept(out, settings, [method, epsilon, seed], run))
    for i, epsilon in enumerate(AUDITED):
        progress(f"audit at eps_2 = {epsilon:g}", len(jobs) + i, total)

        def tested(epsilon: float = epsilon) -> Any:
            trials = settings.audit_trials
            return audit_record(epsilon=epsilon, trials=trials, rng=seeded(0)).to_dict()

        audits.append(_kept(out, settings, ["audit", epsilon], tested))
    progress("pictures", total, total)
    results = {"settings": asdict(settings), "rows": rows, "audits": audits}
    results["summary"] = summary(rows)
    results["pictures"] = [str(p) for p in figures.draw(out, results, bench)]
    write_json(out / "results.json", results)
    return results


def summary(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One row for each method and budget: mean and standard deviation over seeds, in per cent."""
    keys = dict.fromkeys((r["method"], r["epsilon"]) for r in rows)
    out = []
    for method, epsilon in keys:
        some = [r for r in rows if (r["method"], r["epsilon"]) == (method, epsilon)]
        accuracies = [100.0 * r["accuracy"] for r in some]
        out.append({
            "method": method, "epsilon": epsilon, "standing": _standing(method),
            "claimed": some[0]["claimed"], "proved": some[0]["proved"], "seeds": len(some),
            "accuracy": round(float(np.mean(accuracies)), 2),
            "std": round(float(np.std(accuracies, ddof=1)), 2) if len(some) > 1 else None,
            "seconds": round(float(np.mean([r["seconds"] for r in some])), 1),
        })  # fmt: skip
    return out


def _standing(method: str) -> str:
    return "proved" if method in PROVED else "claimed"


def _jobs(settings: Settings) -> Iterator[tuple[str, float, int]]:
    for method in settings.methods:
        published = method not in PROVED
        for epsilon in (*settings.epsilons, *(settings.larger if published else ())):
            for seed in settings.seeds:
                yield method, epsilon, seed


def _kept(
    out: Path, settings: Settings, key: list[Any], run: Callable[[], dict[str, Any]]
) -> dict[str, Any]:
    """The cell from its file, or run and written: whole or not at all."""
    relevant = {
        k: v
        for k, v in asdict(settings).items()
        if k not in ("epsilons", "larger", "seeds", "methods", "curves")
    }
    return kept(out / "cells", [VERSION, relevant, key], run)
