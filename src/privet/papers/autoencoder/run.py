"""Run what is missing, keep every cell, write tables and pictures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from privet.kept import kept, write_json, write_whole
from privet.papers.autoencoder.bench import Bench
from privet.papers.autoencoder.findings import Results, as_rows, findings, interval
from privet.papers.autoencoder.settings import NOT_PRIVATE, UNITS, Cell, Settings

Progress = Callable[[str, int, int], None]
"""Told what is being done, how many cells are done, and of how many."""


def reproduce(
    out: Path, settings: Settings, *, folder: Path | None = None, progress: Progress | None = None
) -> dict[str, Any]:
    """Every cell of Figures 2 and 3, from its file where it was run before; the orderings tested.

    Writes `results.json`, `tables.md` and the pictures to `out`.
    """
    from privet.papers.autoencoder import figures

    bench, cells, rows = Bench(settings, folder), list(settings.cells()), []
    for i, cell in enumerate(cells):
        if progress is not None:
            budget = "" if cell.epsilon is None else f", epsilon {cell.epsilon:g} per {cell.unit}"
            progress(f"{cell.data}: {cell.model}{budget}, seed {cell.seed}", i, len(cells))
        rows.append(_kept(out, settings, cell, bench))
    if progress is not None:
        progress("tables and pictures", len(cells), len(cells))
    results: dict[str, Any] = {
        "settings": asdict(settings),
        "rows": rows,
        "findings": as_rows(findings(rows, settings)),
    }
    results["pictures"] = [str(p) for p in figures.draw(out, Results(rows, settings))]
    write_json(out / "results.json", results)
    write_whole(out / "tables.md", tables(results, settings))
    return results


def _kept(out: Path, settings: Settings, cell: Cell, bench: Bench) -> dict[str, Any]:
    """The cell from its file, or run and written: whole or not at all."""
    sizes = [settings.users, settings.days] if cell.data == "health" else []
    steps = [settings.steps] if cell.model in NOT_PRIVATE else []
    return kept(out / "cells", [asdict(cell), sizes, steps], lambda: bench.run(cell))


def tables(results: dict[str, Any], settings: Settings) -> str:
    """Figures 2 and 3 as tables (mean accuracy and half of the 95% interval), and the orderings."""
    found = Results(results["rows"], settings)
    parts = []
    for data in settings.data:
        for unit in UNITS:
            parts.append(
                _table(
                    f"Figure 3, {data}: accuracy against epsilon, per {unit}",
                    found, settings, [(f"{e:g}", {"epsilon": e}) for e in settings.epsilons],
                    data, unit,
                )
            )  # fmt: skip
            parts.append(
                _table(
                    f"Figure 2, {data}: accuracy against the share of days, "
                    f"epsilon {settings.epsilon:g} per {unit}",
                    found, settings, [(f"{q:g}", {"rate": q}) for q in settings.rates], data, unit,
                )
            )  # fmt: skip
        parts.append(
            _table(
                f"Figure 2 by users, {data}: accuracy against the share of users, "
                f"epsilon {settings.epsilon:g} per user",
                found, settings,
                [(f"{q:g}", {"rate": q, "sampled": "users"}) for q in settings.rates], data, "user",
            )
        )  # fmt: skip
    lines = ["The paper's orderings", ""]
    lines += [
        f"- {f['verdict']}: {f['data']}, per {f['unit']}: {f['claim']} ({f['details']})"
        for f in results["findings"]
    ]
    return "\n".join([*parts, *lines]) + "\n"


def _table(
    title: str,
    found: Results,
    settings: Settings,
    columns: list[tuple[str, dict[str, Any]]],
    data: str,
    unit: str,
) -> str:
    width = max(len(m) for m in settings.models) + 2
    lines = [title, "", " " * width + "".join(f"{name:>13}" for name, _ in columns)]
    for model in settings.models:
        shown = [_shown(found.accuracies(data, model, unit, **at)) for _, at in columns]
        if any(shown):
            lines.append(f"{model:<{width}}" + "".join(f"{text:>13}" for text in shown))
    return "\n".join([*lines, ""])


def _shown(accuracies: list[float]) -> str:
    if not accuracies:
        return ""
    mean, _, high = interval(accuracies)
    return f"{100 * mean:.1f} ± {100 * (high - mean):.1f}"
