"""PATE for high-dimensional targets: the paper's comparison on hippocampus volumes.

Rows: the mean teacher, the ensemble without noise, the students of PCA-PATE and autoencoded PATE,
DP-SGD on the same U-Net, the control that the paper lacks (the public labels alone), and training
without privacy. Every network and every row is kept in the output folder, so that an interrupted
run goes on where it stopped.

Two units: PATE protects a teacher's whole shard (replace-one), DP-SGD a single volume (add-remove).
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from privet.kept import number_to_json, write_json, write_whole
from privet.papers.pate.rows import (
    ABOUT_PUBLIC,
    AUTOENCODED,
    CONTROL,
    DPSGD,
    GUESS,
    MEAN_MAP,
    MEAN_TEACHER,
    METHODS,
    SWEPT,
    WITH_PUBLIC,
    Row,
    kept_row,
)
from privet.papers.pate.settings import Settings, load
from privet.papers.pate.trial import Trial

Progress = Callable[[str, int, int], None]
"""Told what is being done, how many rows are done, and of how many."""


def reproduce(
    out: Path, settings: Settings, *, folder: Path | None = None, progress: Progress | None = None
) -> dict[str, Any]:
    """Run what is missing, write `results.json`, `table.md` and the pictures."""
    from privet.papers.pate import figures

    volumes = load(settings, folder)
    place = out / "cells" / settings.digest()
    jobs = list(_jobs(settings))
    done = 0

    def told(what: str) -> None:
        if progress is not None:
            progress(what, done, len(jobs))

    trials = {
        seed: Trial(volumes, settings, seed, place / f"seed-{seed}", told)
        for seed in settings.seeds
    }
    rows = []
    for done, (method, epsilon, seed) in enumerate(jobs):  # noqa: B007
        told(f"{method}, epsilon {epsilon:g}, seed {seed}")
        rows.append(kept_row(trials[seed], method, epsilon))
    results = {
        "settings": json.loads(json.dumps(asdict(settings)).replace("Infinity", '"inf"')),
        "volumes": {"private": settings.teachers * settings.shard, "public": settings.public,
                    "test": settings.test, "grid": list(volumes.grid)},
        "classes": list(volumes.classes[1:]),
        "rows": rows,
        "summary": summary(rows),
    }  # fmt: skip
    results["findings"] = findings(results["summary"], settings.epsilon)
    out.mkdir(parents=True, exist_ok=True)
    write_whole(out / "table.md", table(results))
    results["pictures"] = [str(p) for p in figures.draw(out, results, trials)]
    write_json(out / "results.json", results)
    if progress is not None:
        progress("done", len(jobs), len(jobs))
    return results


def _jobs(settings: Settings) -> Iterator[tuple[str, float, int]]:
    """The table for every seed first, then the sweep."""
    for seed in settings.seeds:
        for method, (_, private) in METHODS.items():
            yield method, settings.epsilon if private else math.inf, seed
    for seed in settings.seeds:
        for method in SWEPT:
            for epsilon in settings.sweep:
                if math.isfinite(epsilon) or method != DPSGD:
                    yield method, epsilon, seed


def summary(rows: list[Row]) -> list[Row]:
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
            }
        )
    return out


def findings(rows: list[Row], epsilon: float) -> list[Row]:
    """The paper's two comparisons and ours against the control: by how much, in each seed."""
    by = {(row["method"], row["epsilon"]): row for row in rows}

    def at(method: str) -> Row:
        private = METHODS[method][1]
        found: Row = by[method, number_to_json(epsilon if private else math.inf)]
        return found

    out = []
    claims = [
        (first, second)
        for first in (AUTOENCODED, ABOUT_PUBLIC, WITH_PUBLIC)
        for second in (MEAN_TEACHER, DPSGD, CONTROL)
    ]
    for first, second in [*claims, (AUTOENCODED, MEAN_MAP), (ABOUT_PUBLIC, GUESS)]:
        a, b = at(first), at(second)
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


def table(results: dict[str, Any]) -> str:
    """The summary as Markdown."""
    classes = results["classes"]
    head = [
        "method", "epsilon", *(f"Dice {c}" for c in classes), "mean", "s.e.", "each seed",
        "unit protected",
    ]  # fmt: skip
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for row in results["summary"]:
        error = row["standard_error"]
        cells = [
            row["method"],
            "none" if row["epsilon"] == "inf" else f"{row['epsilon']:g}",
            *(_short(x) for x in row["dice"]),
            _short(row["mean_dice"]),
            "" if error is None else _short(error),
            " ".join(map(_short, row["by_seed"])),
            row["unit"] or "nothing",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _short(x: float) -> str:
    """.812 rather than 0.812."""
    return f"{x:.3f}".removeprefix("0")
