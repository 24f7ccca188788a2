"""Exact accounting against the peers: seconds, epsilon and relative error, all in one run.

    python -m benchmarks.accounting [--json] [--full] [--cells N]

`--cells N` looks at N random compositions of two or three wild releases instead, down to tiny
deltas, in every relation, against an oracle that integrates over outcomes (tests/reference): how
many are below the truth, how many lower bounds are above it, and how far apart the bounds are.

The truth that `relative_error` refers to: closed forms for one step and for rate 1; for 10^4 steps
and more an inversion integral summed without smoothing or bounds; otherwise dp-accounting's
connect-the-dots PLD on a grid refined for the cell, above the truth by a second-order error, with
its optimistic estimate below, where delta >= 1e-8 and memory allows a grid fine enough; elsewhere,
where the peer's own rounding shows, our lattice accountant at four times its resolution, which
shares no step with the contour. A row is `within_bounds` when ours is not below the truth, our
lower bound (`epsilon_low`) not above it, and the two are at most 0.12% apart.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import sys
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np
from absl import logging
from dp_accounting import dp_event
from dp_accounting.pld import privacy_loss_distribution as pld
from dp_accounting.rdp import RdpAccountant

from privet.accounting import (
    Direction,
    SampledGaussian,
    calibration,
    fft_accountant,
    gaussian_epsilon,
)
from tests.reference.cells import check, random_cell
from tests.reference.inversion import epsilon_of_many

Row = dict[str, Any]


def timed(f: Callable[[], float]) -> tuple[float, float]:
    start = time.perf_counter()
    value = f()
    return value, time.perf_counter() - start


def peer_pld(q: float, z: float, steps: int, *, interval: float = 1e-4, up: bool = True) -> Any:
    """dp-accounting's distribution: connect-the-dots, or its optimistic estimate."""
    one = pld.from_gaussian_mechanism(
        z,
        sampling_prob=q,
        value_discretization_interval=interval,
        pessimistic_estimate=up,
        use_connect_dots=up,
    )
    return one.self_compose(steps)


def peer_rdp(q: Any, z: Any, steps: Any, delta: float) -> float:
    accountant = RdpAccountant()
    for a, b, n in zip(np.atleast_1d(q), np.atleast_1d(z), np.atleast_1d(steps), strict=True):
        event = dp_event.PoissonSampledDpEvent(float(a), dp_event.GaussianDpEvent(float(b)))
        accountant.compose(event, int(n))
    return float(accountant.get_epsilon(delta))


def fine_interval(epsilon: float, steps: int) -> float:
    """A grid on which the oracle's own error is far below 0.1%."""
    return min(1e-4, epsilon / (30.0 * math.sqrt(steps)))


def fine_lattice(loss: SampledGaussian, delta: float, guess: float) -> tuple[float, float]:
    """Bounds of epsilon by the lattice accountant on a grid four times finer than its own."""
    releases = fft_accountant.releases_of(loss.parts, Direction.REMOVE)
    assert releases is not None
    plan = fft_accountant.plan(
        releases, Direction.REMOVE, delta=delta, epsilon=guess, sought=delta, relative=8e-6
    )
    return plan.lower().epsilon_below(delta), plan.upper().epsilon_above(delta)


def inversion(q: float, z: float, steps: int, delta: float) -> float | None:
    """The inversion integral summed without any bound, where there are steps enough for it."""
    if steps < 10_000:
        return None
    try:
        return max(epsilon_of_many(q, z, steps, delta, d) for d in Direction)
    except (ArithmeticError, ValueError):
        return None


def homogeneous(full: bool) -> list[Row]:
    rates = [1e-4, 1e-3, 1e-2, 0.1, 1.0] if full else [1e-3, 1e-2, 0.1]
    noises = [0.5, 1.0, 2.0, 8.0, 50.0] if full else [0.7, 1.0, 4.0]
    lengths = [1, 10, 1000, 100_000, 1_000_000] if full else [100, 10_000]
    deltas = [1e-3, 1e-6, 1e-9, 1e-12] if full else [1e-5]
    rows = []
    for q, z, steps in itertools.product(rates, noises, lengths):
        loss = SampledGaussian(sample_rate=q, noise_multiplier=z, steps=steps)
        answers = {d: timed(lambda loss=loss, d=d: loss.epsilon(d)) for d in deltas}
        largest = max(e for e, _ in answers.values())
        if largest > 300.0:  # the peer's grid would not fit
            continue
        typical = max(min(e for e, _ in answers.values()), 0.02)
        affordable = max(1e-6, largest / 3e5)
        interval = max(fine_interval(typical, steps), affordable)
        default, compose_seconds = timed(lambda c=(q, z, steps): peer_pld(*c))
        above = peer_pld(q, z, steps, interval=interval)
        below = peer_pld(q, z, steps, interval=interval, up=False) if steps <= 1000 else None
        for delta, (ours, seconds) in answers.items():
            case = f"q={q:g} z={z:g} T={steps} delta={delta:g}"
            theirs, more = timed(lambda d=delta, peer=default: float(peer.get_epsilon_for_delta(d)))
            least, doubt = 0.0, 1e-4
            if q == 1.0:
                truth = gaussian_epsilon(math.sqrt(steps) / z, delta)
            elif steps == 1:
                truth, doubt = ours, 0.0  # the profile itself; tested against a sum over the line
            elif (many := inversion(q, z, steps, delta)) is not None:
                truth = many
            elif delta >= 1e-8 and ours > 0.02 and fine_interval(ours, steps) >= affordable:
                truth = float(above.get_epsilon_for_delta(delta))
                least = float(below.get_epsilon_for_delta(delta)) if below is not None else 0.0
                doubt = 1e-3  # of the peer's grid
            else:
                least, truth = fine_lattice(loss, delta, ours) if ours > 0.0 else (0.0, 0.0)
                doubt = max(doubt, 1.0 - least / truth) if truth > 0.0 else doubt
            known = truth > 0.02 and doubt <= 1e-3
            error = ours / truth - 1.0 if known else None
            low, _ = loss.epsilon_bounds(delta)
            sound = ours >= least * (1 - 1e-9) and ours >= truth * (1 - doubt) - 5e-5
            sound = sound and low <= truth * (1 + doubt) + 5e-5
            row = _row(case, "privet", seconds, ours, error, sound)
            rows.append(row | {"epsilon_low": low, "width": (ours - low) / ours if ours else 0.0})
            peer_error = theirs / truth - 1.0 if known else None
            peer_seconds = compose_seconds + more
            rows.append(_row(case, "dp-accounting PLD", peer_seconds, theirs, peer_error, None))
    return rows


def _row(
    case: str, method: str, seconds: float, epsilon: float, error: float | None, ok: bool | None
) -> Row:
    return {
        "case": case,
        "method": method,
        "seconds": seconds,
        "epsilon": epsilon,
        "relative_error": error,
        "within_bounds": ok,
    }


def cosine(steps: int) -> tuple[np.ndarray, np.ndarray]:
    """All distinct: the noise multiplier falls from 3 to 0.8, the rate is 1/sqrt(T)."""
    z = 0.8 + 1.1 * (1.0 + np.cos(np.pi * np.arange(steps) / (steps - 1)))
    return np.full(steps, steps**-0.5), z


def heterogeneous() -> list[Row]:
    rows = []
    for steps in (1000, 100_000):
        q, z = cosine(steps)
        value, seconds = timed(
            lambda q=q, z=z: SampledGaussian(sample_rate=q, noise_multiplier=z).epsilon(1e-6)
        )
        rows.append(_row(f"cosine T={steps}", "privet", seconds, value, None, None))
    both = np.linspace(0.005, 0.02, 100_000)
    z = 0.8 + 2.2 * np.linspace(1, 0, 100_000) ** 2
    value, seconds = timed(
        lambda: SampledGaussian(sample_rate=both, noise_multiplier=z).epsilon(1e-6)
    )
    rows.append(_row("rate and noise vary T=100000", "privet", seconds, value, None, None))
    rng = np.random.default_rng(0)
    q = np.exp(rng.uniform(np.log(1e-3), np.log(0.05), 100_000))
    z = rng.uniform(0.8, 4.0, 100_000)
    value, seconds = timed(
        lambda q=q, z=z: SampledGaussian(sample_rate=q, noise_multiplier=z).epsilon(1e-6)
    )
    rows.append(_row("rate and noise at random T=100000", "privet", seconds, value, None, None))
    q, z = cosine(100)
    value, seconds = timed(lambda: _pld_of_distinct(q, z))
    rows.append(_row("cosine T=100", "dp-accounting PLD", seconds, value, None, None))
    value, seconds = timed(lambda: peer_rdp(q, z, np.ones(100), 1e-6))
    rows.append(_row("cosine T=100", "dp-accounting RDP", seconds, value, None, None))
    ours, seconds = timed(lambda: SampledGaussian(sample_rate=q, noise_multiplier=z).epsilon(1e-6))
    rows.append(_row("cosine T=100", "privet", seconds, ours, None, None))
    q, z = cosine(10_000)
    schedule = SampledGaussian(sample_rate=q, noise_multiplier=z)
    factor, seconds = timed(
        lambda: calibration.scale_schedule(schedule=schedule, epsilon=3.0, delta=1e-6).value
    )
    rows.append(
        _row(
            "calibrate cosine T=10000 to epsilon 3 (factor shown)",
            "privet",
            seconds,
            factor,
            None,
            None,
        )
    )
    return rows


def _pld_of_distinct(q: np.ndarray, z: np.ndarray) -> float:
    total = None
    for a, b in zip(q, z, strict=True):
        one = pld.from_gaussian_mechanism(
            float(b), sampling_prob=float(a), value_discretization_interval=1e-4
        )
        total = one if total is None else total.compose(one)
    assert total is not None
    return float(total.get_epsilon_for_delta(1e-6))


def wild_cells(count: int, seed: int) -> dict[str, Any]:
    """Random cells against the oracle: counts of false bounds, quantiles of width and of time."""
    wrong: dict[str, list[int]] = {"below_truth": [], "false_lower_bound": []}
    widths, seconds = [], []
    for i in range(count):
        cell = random_cell(np.random.default_rng([seed, i]), three=0.02)
        found = check(cell)
        seconds.append(found.seconds)
        widths.append(found.width)
        if found.below_truth:
            wrong["below_truth"].append(i)
        if found.above_truth:
            wrong["false_lower_bound"].append(i)
        if (i + 1) % 20 == 0:
            print(f"{i + 1} of {count}, wrong: {wrong}", file=sys.stderr, flush=True)
    levels = [0.5, 0.9, 0.99, 0.999, 1.0]
    return {
        "cells": count,
        "seed": seed,
        **wrong,
        "relative_width": dict(zip(levels, np.quantile(widths, levels).tolist(), strict=True)),
        "wider_than_1_percent": int(np.sum(np.array(widths) > 0.01)),
        "cpu_seconds_of_epsilon": dict(
            zip(levels, np.quantile(seconds, levels).tolist(), strict=True)
        ),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument(
        "--full", action="store_true", help="the whole grid of the issue; half an hour"
    )
    parser.add_argument("--cells", type=int, help="so many random cells against the oracle")
    parser.add_argument("--seed", type=int, default=0, help="of the random cells")
    options = parser.parse_args()
    if options.cells:
        print(json.dumps(wild_cells(options.cells, options.seed), indent=1))
        return
    logging.set_verbosity(logging.ERROR)  # the peer's RDP accountant warns hundreds of times
    SampledGaussian(sample_rate=0.5, noise_multiplier=3.0, steps=7).epsilon(1e-4)  # warm up
    rows = homogeneous(options.full) + heterogeneous()
    pairs = [
        (a["seconds"], b["seconds"])
        for a, b in itertools.pairwise(rows)
        if b["method"] == "dp-accounting PLD" and a["case"] == b["case"]
    ]
    errors = [
        r["relative_error"]
        for r in rows
        if r["method"] == "privet" and r["relative_error"] is not None
    ]
    summary = {
        "cells": len(pairs),
        "median_speedup_over_dp_accounting": median(b / a for a, b in pairs),
        "largest_relative_error": max(errors),
        "smallest_relative_error": min(errors),
        "brackets_wider_than_0.12%": {
            r["case"]: round(r["width"], 5) for r in rows if r.get("width", 0.0) > 1.2e-3
        },
        "outside_bounds": [r["case"] for r in rows if r["within_bounds"] is False],
    }
    if options.json:
        print(json.dumps({"rows": rows, "summary": summary}, indent=1))
        return
    for r in rows:
        error = "" if r["relative_error"] is None else f"{100 * r['relative_error']:+.3f}%"
        figures = f"{1e3 * r['seconds']:10.1f} ms {r['epsilon']:12.5f} {error}"
        print(f"{r['case']:54s} {r['method']:20s} {figures}")
    print(json.dumps(summary, indent=1))


if __name__ == "__main__":
    main()
