"""What audits find of DP-SGD and of every method, beside what is proved and claimed.

    python -m benchmarks.audit                      everything, about three minutes
    python -m benchmarks.audit --json               the same as rows
    python -m benchmarks.audit --only dpsgd         or: closed-form, many-runs, methods, bugs

DP-SGD is a softmax regression on digits (1,438 records, C = 1, delta 1e-5), trained by the loop
itself with Dirac canaries in it. `at_least` is what is asked of a row, `held` whether it was found.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from privet.audit import (
    Finding,
    OneRunAudit,
    shift_one_run_bound,
    trade_off_one_run_bound,
)
from privet.data import load
from privet.mechanisms import release_transcript
from privet.methods.catalogue import method_names, method_type
from privet.methods.dpsgd import canary_audit as dpsgd
from privet.methods.dpsgd import dpsgd_loop
from privet.methods.dpsgd.canaries import fair_coins
from privet.methods.dpsgd.samplers import PoissonSampler
from privet.methods.dpsgd.schedule import Schedule
from privet.methods.neighbour_replay import audit_method, small_facts
from privet.methods.neighbouring_pairs import NeighbouringPair, lone_record_pair
from privet.noise import seeded
from privet_papers.counter_examples import AUDITS, audit_published

Row = dict[str, Any]
DELTA = 1e-5


def digits(q: float, steps: int, z: float) -> dpsgd.AuditRecipe:
    """Softmax regression with these settings."""
    d = load("digits")
    schedule = Schedule(steps=steps, sample_rate=q, noise_multiplier=z)
    name = f"q={q:g}, T={steps}, z={z:g}"
    return dpsgd.softmax_recipe(name, d.train_rows(), d.y_train, d.n_classes, schedule, DELTA)


def _row(what: str, f: Finding, at_least: float | None = None) -> Row:
    row = {"case": what, **f.to_dict(), "at_least": at_least}
    return row | {"held": None if at_least is None else f.audited >= at_least}


def one_run(runs: int) -> Iterator[Row]:
    """The mean over several runs, because one run spreads by a tenth."""
    names = ("Steinke et al.", "whole curve", "normal curve, parametric")
    for q, steps, z, asked in (
        (1.0, 20, 9.0, (None, None, None)),
        (1.0, 20, 2.5, (None, 3.8, 5.4)),
        (0.1, 100, 1.0, (None, None, None)),
        (0.1, 100, 0.6, (None, None, None)),
    ):
        target, found, began = digits(q, steps, z), [], time.perf_counter()
        for i in range(runs):
            coins = fair_coins(dpsgd.CANARIES, seeded(i))
            seen = target.run(coins, seeded(i).child("run"))
            audits = [OneRunAudit(guesses=dpsgd.GUESSES, rule=rule) for rule in dpsgd.RULES]
            found.append([a.bound(seen.scores, coins) for a in audits])
        proved = seen.training.guarantee.epsilon
        seconds = (time.perf_counter() - began) / runs
        for k, (name, least) in enumerate(zip(names, asked, strict=True)):
            values = np.array(found)[:, k]
            yield {
                "case": f"one run, {target.name}, {name}, mean of {runs}",
                "proved": proved,
                "audited": float(values.mean()),
                "median": float(np.median(values)),
                "spread": float(values.std()),
                "at_least": least,
                "held": None if least is None else bool(values.mean() >= least),
                "seconds": round(seconds, 2),
            }


def many_canaries(runs: int) -> Iterator[Row]:
    """100,000 canaries and 1,000 guesses in one run, or the scores of all of them; then more.

    Two million canaries and 4,000 guesses take minutes and 4 GB: a fifth of the runs. Numbers of
    guesses were chosen on normal scores of the same shift, drawn for the purpose.
    """
    whole, all_scores = ("whole curve", 5.0), ("all scores, parametric", 6.5)
    for canaries, guesses, runs_here, asked in (
        (100_000, 1_000, runs, (whole, all_scores)),
        (2_000_000, 4_000, max(1, runs // 5), (("whole curve", 6.0),)),
    ):
        target, found, began = digits(1.0, 20, 2.5), [], time.perf_counter()
        for i in range(runs_here):
            coins = fair_coins(canaries, seeded(i))
            seen = target.run(coins, seeded(i).child("run"))
            counted = OneRunAudit(guesses=guesses, rule=trade_off_one_run_bound)
            bounds = [counted.bound(seen.scores, coins)]
            if all_scores in asked:
                scores = np.asarray(seen.scores)
                bounds.append(shift_one_run_bound(scores, coins, delta=DELTA, alpha=0.05))
            found.append(bounds)
        for k, (name, least) in enumerate(asked):
            values = np.array(found)[:, k]
            yield {
                "case": f"one run, {canaries:,} canaries, {name}, mean of {runs_here}",
                "proved": seen.training.guarantee.epsilon,
                "audited": float(values.mean()),
                "spread": float(values.std()),
                "at_least": least,
                "held": bool(values.mean() >= least),
                "seconds": round((time.perf_counter() - began) / runs_here, 2),
            }


def per_step(runs: int) -> Iterator[Row]:
    """Every noisy sum watched."""
    for z in (1.0, 0.6):
        f = dpsgd.per_step(digits(0.1, 100, z), seeded(5))
        yield _row(f"per step, {f.what}", f, 0.8 * f.proved)


def closed_form(runs: int) -> Iterator[Row]:
    """The run that the closed form describes, guessed about once; no shape assumed, 99%."""
    (f,) = dpsgd.one_run(
        digits(0.01, 100, 0.5), seeded(1), canaries=20_000, guesses=200, guesses_in=200,
        confidence=0.99,
    )  # fmt: skip
    row = _row(f"closed form, {f.what}", f, f.claimed)
    yield row | {"held": f.verdict.value == "falsified"}


def many_runs(runs: int) -> Iterator[Row]:
    """A hundred trainings a side, and with three copies of the canary."""
    for z, copies in ((2.5, 1), (9.0, 3)):
        for f in dpsgd.many_runs(digits(1.0, 20, z), seeded(6), runs=100, copies=copies):
            yield _row(f"many runs, {f.what}", f)


def methods(runs: int) -> Iterator[Row]:
    """Every method and every published algorithm at epsilon 1."""
    for name in method_names():
        method = method_type(name).for_audit()
        facts = small_facts(method, epsilon=1.0, delta=DELTA)
        yield _row(name, audit_method(method, facts, rng=seeded(0)))
    for paper in AUDITS:
        yield _row(f"{paper}, published", audit_published(paper, epsilon=1.0, delta=DELTA))


def bugs(runs: int) -> Iterator[Row]:
    """What audits of the whole training see of a release whose noise is wrong."""
    real = dpsgd_loop.release_sum_
    try:
        for name, factor in (("none", 1.0), ("5% less noise", 0.95), ("half the noise", 0.5),
                             ("noise / sqrt(batch)", 1.0 / 40.0)):  # fmt: skip
            dpsgd_loop.release_sum_ = _with_noise(real, factor)
            for epsilon in (1.0, 8.0):
                schedule = Schedule.for_budget(epsilon=epsilon, delta=DELTA, steps=20)
                target = replace(digits(1.0, 20, 1.0), schedule=schedule)
                (found,) = dpsgd.one_run(target, seeded(3))
                yield _row(f"bug: {name}, epsilon {epsilon:g}, one run", found)
                seen = dpsgd.per_step(target, seeded(4))
                yield _row(f"bug: {name}, epsilon {epsilon:g}, per step", seen)
    finally:
        dpsgd_loop.release_sum_ = real


def _with_noise(real: Callable[..., float], factor: float) -> Callable[..., float]:
    def release(flat: Any, *, noise_multiplier: float, **rest: Any) -> float:
        return real(flat, noise_multiplier=factor * noise_multiplier, **rest)

    return release


def mutants(runs: int) -> Iterator[Row]:
    """Bugs of a whole training, and what the audit of all releases sees of them, alone."""
    real, drawn, batch = dpsgd_loop.release_sum_, PoissonSampler.indices, [1.0]

    def counted(sampler: PoissonSampler, step: int) -> Any:
        found = drawn(sampler, step)
        batch[0] = max(1, len(found)) / sampler.expected_batch(step)
        return found

    def by_batch(flat: Any, **rest: Any) -> float:
        flat /= batch[0]  # as if the mean were taken over those who came
        return real(flat, **rest)

    def shuffled(sampler: PoissonSampler, step: int) -> Any:
        """Every record in so many of four steps, in random order."""
        turns = round(float(sampler.rates[0]) * 4)
        order = np.array([sampler._rng.child("turn", k).sample(4, turns) for k in range(sampler.n)])
        there = (order == step % 4).any(axis=1)
        seen = release_transcript.active_transcript.get()
        if seen is not None and seen.included is not None:
            there[seen.included] = True
        return np.flatnonzero(there)

    cases: tuple[tuple[str, Any, Any], ...] = (
        ("none", real, drawn),
        ("5% less noise", _with_noise(real, 0.95), drawn),
        ("half the noise", _with_noise(real, 0.5), drawn),
        ("sums over the actual batch", by_batch, counted),
        ("twice the sum", lambda flat, **rest: real(flat.mul_(2.0), **rest), drawn),
        ("shuffling, accounted as Poisson", real, shuffled),
    )
    method = method_type("dpsgd-network")(steps=8, sample_rate=0.5, learning_rate=1e-3)
    facts = small_facts(method, epsilon=1.0, delta=DELTA)
    try:
        for name, release, indices in cases:
            dpsgd_loop.release_sum_, PoissonSampler.indices = release, indices  # type: ignore[method-assign]
            yield _row(f"mutant: {name}", audit_method(method, facts, rng=seeded(0)))
            yield _row(
                f"mutant: {name}, record alone",
                audit_method(method, facts, rng=seeded(0), neighbours=_alone),
            )
    finally:
        dpsgd_loop.release_sum_, PoissonSampler.indices = real, drawn  # type: ignore[method-assign]


def _alone(plan: Any) -> NeighbouringPair:
    """One record where more were declared, or a null one in its place: every sample is small."""
    worst = lone_record_pair(plan.facts)
    first = np.arange(plan.facts.records) == 0

    def part(records: Any) -> Any:
        return replace(records, rows=records.rows.part(first), targets=records.targets[first])

    return NeighbouringPair(present=part(worst.present), absent=part(worst.absent))


PARTS: dict[str, tuple[Callable[[int], Iterator[Row]], ...]] = {
    "dpsgd": (one_run, per_step),
    "many-canaries": (many_canaries,),
    "closed-form": (closed_form,),
    "many-runs": (many_runs,),
    "methods": (methods,),
    "bugs": (bugs,),
    "mutants": (mutants,),
}


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--only", choices=PARTS)
    parser.add_argument("--runs", type=int, default=20, help="of each one-run case")
    parser.add_argument("--json", action="store_true")
    a = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    for name, parts in PARTS.items():
        for part in parts if a.only in (None, name) else ():
            for row in part(a.runs):
                rows.append(row)
                if not a.json:
                    print(_line(row), flush=True)
    if a.json:
        print(json.dumps({"rows": rows}, indent=2, allow_nan=False))
    if any(row["held"] is False for row in rows):
        sys.exit("a row did not reach what is asked of it")


def _line(row: Row) -> str:
    def number(x: Any) -> str:
        return f"{x:.3g}" if isinstance(x, float) else str(x)

    parts = [f"{k} {number(row[k])}" for k in ("claimed", "proved", "audited", "spread", "ceiling",
                                              "verdict", "at_least", "seconds")
             if row.get(k) is not None]  # fmt: skip
    return f"{row['case']}: " + ", ".join(parts)


if __name__ == "__main__":
    main()
