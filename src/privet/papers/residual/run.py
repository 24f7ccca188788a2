"""All cells of a run: which networks, which attacks, and the tables they fill."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from privet.kept import write_json
from privet.nets.residual import Strategy
from privet.papers.residual import attacks
from privet.papers.residual.bench import Bench
from privet.papers.residual.settings import (
    AS_PRINTED,
    PRINTED,
    PRINTED_BUDGETS,
    Job,
    Settings,
)

Progress = Callable[[str, int, int], None]
"""Told what is being done, how many networks are done, and of how many."""

PLAIN = Job(part="target", half=0)


def reproduce(
    out: Path, settings: Settings, *, folder: Path | None = None, progress: Progress | None = None
) -> dict[str, Any]:
    """Train what is missing, attack it, write `results.json` and pictures; returns the results."""
    from privet.papers.residual import figures, inversion_figure

    bench = Bench(settings, out, folder)
    jobs = networks(bench)
    for i, job in enumerate(jobs):
        if progress is not None:
            progress(str(job), i, len(jobs))
        bench.answers(job)
    rows = list(_rows(bench))
    results: dict[str, Any] = {
        "settings": asdict(settings),
        "rows": rows,
        "printed": PRINTED.get(settings.data, {}),
        "budgets": budgets(settings.data),
    }
    if progress is not None:
        progress("inversion", len(jobs), len(jobs))
    results["inversion"], panels = inversion_figure.invert(bench.raw)
    drawn = inversion_figure.picture(out, results["inversion"], panels)
    results["pictures"] = [str(p) for p in (*figures.draw(out, results), drawn)]
    write_json(out / "results.json", results)
    if progress is not None:
        progress("done", len(jobs), len(jobs))
    return results


def kinds(settings: Settings) -> Iterator[tuple[str, Job, int, bool]]:
    """(name, kind of network, members, whether stronger attacks are run on it) of each row."""

    def noisy(gamma: float, **kw: Any) -> Job:
        return Job(part="target", half=0, gamma=gamma, **kw)

    two = Strategy.MULTIPLICATIVE
    yield "ResNet8", PLAIN, 1, True
    yield f"En1 ResNet8, gamma {settings.gamma:g}", noisy(settings.gamma), 1, True
    yield "ResNet8 (DP-SGD)", Job(part="target", half=0, dpsgd=True), 1, False
    for gamma in settings.gammas:
        yield f"En1 ResNet8, gamma {gamma:g}", noisy(gamma), 1, False
    for gamma in settings.multiplicative:
        yield f"Strategy II, En1, gamma {gamma:g}", noisy(gamma, strategy=two), 1, False
    yield f"no skips, gamma {settings.gamma:g}", noisy(settings.gamma, skip=False), 1, False
    for k in settings.sizes[1:]:
        for gamma in (0.0, settings.gamma, *settings.gammas):
            yield f"En{k} ResNet8, gamma {gamma:g}", noisy(gamma), k, False
        for gamma in settings.multiplicative[-1:]:
            yield f"Strategy II, En{k}, gamma {gamma:g}", noisy(gamma, strategy=two), k, False


def networks(bench: Bench) -> list[Job]:
    """Every network that the rows need, the main comparison first, none twice."""
    s = bench.settings
    wanted: list[Job] = []
    main = [kind for _, kind, _, compared in kinds(s) if compared]
    for seed in range(s.seeds):
        wanted.append(attacks.shadow_job(seed))
        wanted += [attacks.target_job(kind, seed) for kind in main]
    for seed in range(s.seeds):
        for kind in main:
            wanted += attacks.reference_jobs(bench, kind, seed)
            wanted.append(attacks.own_shadow_job(kind, seed))
    for _, kind, members, _ in kinds(s):
        for m in range(members):
            wanted.append(replace(attacks.target_job(kind, 0), member=m))
    return list(dict.fromkeys(wanted))


def _rows(bench: Bench) -> Iterator[dict[str, Any]]:
    for name, kind, members, compared in kinds(bench.settings):
        seeds = range(bench.settings.seeds if compared else 1)
        found = [attacks.outcome(bench, kind, seed, members) for seed in seeds]
        if compared:
            for one in found:
                one |= attacks.stronger(bench, kind, one["seed"])
        yield {
            "name": name,
            "gamma": kind.gamma,
            "strategy": kind.strategy.value,
            "skip": kind.skip,
            "dpsgd": kind.dpsgd,
            "members": members,
            **_means(found),
            "seeds": found,
        }


def _means(found: list[dict[str, Any]]) -> dict[str, float]:
    """Averages over seeds of what the tables show."""
    out: dict[str, float] = {
        key: float(np.mean([f[key] for f in found]))
        for key in ("train_accuracy", "test_accuracy", "control_auc", "seconds", "audited_epsilon")
        if key in found[0]
    }
    for attack in ("shadow", "loss", "adapted", "lira", "rmia"):
        if attack in found[0]:
            for key in ("auc", "tpr_at_1pct_fpr"):
                out[f"{attack}_{key}"] = float(np.mean([f[attack][key] for f in found]))
    return out


def budgets(data: str) -> dict[str, Any] | None:
    """Theorem 1 at the paper's settings beside what the paper prints; IDC for BreastMNIST."""
    name = "idc" if data == "breastmnist" else data
    if name not in AS_PRINTED:
        return None
    printed, dpsgd = PRINTED_BUDGETS[name]
    return {
        "of": name,
        "delta": 1e-5,
        "theorem_1": AS_PRINTED[name].epsilon(1e-5),
        "theorem_1_as_printed": printed,
        "dpsgd_as_printed": dpsgd,
    }
