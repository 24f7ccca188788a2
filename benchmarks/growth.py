"""How cost grows with the work: five kinds of it, with slope, memory and one picture.

    python -m benchmarks.growth                  minutes; writes docs/growth.png
    python -m benchmarks.growth --full           the whole sizes: hours, 164 GB for the file of rows
    python -m benchmarks.growth --only ledger    one of them, without the picture

- accounting: so many steps, each with a rate and a noise of its own, and epsilon at delta 1e-5.
- moments: the one-shot release of all second moments of rows of 4,096 numbers, read from a file.
- pate: one answer of 1,000 numbers from so many sites, checked, charged, added up and noised.
- membership: LiRA, BaVarIA and RMIA from eight reference models, with limits, on so many records.
- ledger: a file with so many charges, every one of them different (`benchmarks.ledger`).

Every cell runs in a process of its own, with one thread, and is timed by the processor, so that a
busy machine counts for little; memory is by how much the work raised the peak. `slope` is
d log(seconds) / d log(size) between the last two sizes, where what is paid once hides least: 1 is
linear. What a ledger's charge costs is told for the first and the last thousand: it should not
grow.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

DELTA, WIDTH, ANSWER, REFERENCES = 1e-5, 4096, 1_000, 8
PICTURE = Path(__file__).parents[1] / "docs" / "growth.png"
SIZES: dict[str, tuple[tuple[int, ...], tuple[int, ...], str]] = {
    "accounting": ((10**4, 10**5, 10**6), (10**5, 10**6, 10**7), "different steps"),
    "moments": ((1_000, 4_000, 16_000), (10**5, 10**6, 10**7), "rows of 4,096 numbers"),
    "pate": ((100, 1_000, 10_000), (100, 1_000, 10_000), "sites"),
    "membership": ((10**4, 10**5, 10**6), (10**4, 10**5, 10**6), "records"),
    "ledger": ((1_000, 3_000, 10_000), (1_000, 10_000, 100_000), "mixed charges"),
}
"""Sizes by default, those of --full, and what is counted."""
Work = Callable[[], dict[str, Any]]


def accounting(steps: int, folder: Path) -> Work:
    """Rates and noises that drift at random, no two alike."""
    from privet.accounting import SampledGaussian

    rng = np.random.default_rng(0)
    q = 1e-3 * rng.uniform(0.5, 1.5, steps) * math.sqrt(1e4 / steps)
    z = rng.uniform(0.8, 2.0, steps)
    ones = np.ones(steps, dtype=np.int64)

    def work() -> dict[str, Any]:
        loss = SampledGaussian(sample_rate=q, noise_multiplier=z, steps=ones)
        return {"epsilon": loss.epsilon(DELTA)}

    return work


def moments(rows: int, folder: Path) -> Work:
    """A file of rows of length 1, a block of them over and over; one pass, one release."""
    from privet.ledger import Ledger
    from privet.mechanisms import GaussianMechanism, release_moments
    from privet.noise import seeded
    from privet.sensitivity import Moments

    block = np.random.default_rng(0).normal(size=(1_000, WIDTH)).astype(np.float32)
    block /= np.linalg.norm(block, axis=1, keepdims=True)
    path = folder / "rows.npy"
    made = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=(rows, WIDTH))
    for start in range(0, rows, len(block)):
        made[start : start + len(block)] = block
    made.flush()
    del made

    def work() -> dict[str, Any]:
        mapped, of = np.load(path, mmap_mode="r"), Moments(features=WIDTH)
        ledger = Ledger.in_memory(cap_epsilon=1.0, cap_delta=DELTA)
        total = of.sum()
        for start in range(0, rows, 1_000):
            total.add(np.array(mapped[start : start + 1_000]))
        mechanism = GaussianMechanism.for_mu(total.bounded(), mu=0.2)
        ledger.charge(mechanism.loss(total.bounded()), what="moments")
        return {"trace": float(np.trace(release_moments(total, mechanism, rng=seeded(0)).gram))}

    return work


def pate(sites: int, folder: Path) -> Work:
    """Answers that are made as they are asked for, so that only the aggregation counts."""
    from benchmarks.pate import Drawn
    from privet.methods.pate import Aggregator, shard_ledger
    from privet.noise import seeded

    answers = [Drawn(k, ANSWER) for k in range(sites)]

    def work() -> dict[str, Any]:
        plan = Aggregator.for_budget(
            teachers=sites, queries=1, epsilon=8.0, delta=1e-5, dimension=ANSWER,
            radius=answers[0].header.radius,
        )  # fmt: skip
        checked = plan.check(answers, allow_equal=True)
        plan.charge(checked, ledger=shard_ledger(epsilon=8.0, delta=1e-5))
        return {"sum": sum(float(p.sum()) for _, p in plan.blocks(checked, rng=seeded(0)))}

    return work


def membership(records: int, folder: Path) -> Work:
    """Confidences as a model that remembers a little would have them."""
    from privet.audit import membership as attacks

    rng = np.random.default_rng(0)
    inside = attacks.random_halves(records, REFERENCES + 2, seed=0)
    phi = rng.normal(size=inside.shape) + rng.normal(size=records) + 0.3 * inside
    references = attacks.References(confidence=phi[2:], members=inside[2:])

    def work() -> dict[str, Any]:
        kinds = (attacks.LiRA(), attacks.BaVarIA(), attacks.RMIA())
        found = [attacks.evaluate(k.score(phi[0], references), inside[0]) for k in kinds]
        return {"auc": [f.auc.value for f in found]}

    return work


def ledger(charges: int, folder: Path) -> Work:
    """A file of charges, then its exact total."""
    from benchmarks.ledger import draw
    from privet.ledger import Ledger

    rng, size, cap = np.random.default_rng(0), 2.0 / charges**0.5 / 2.5, 20.0
    losses = [draw(i, size, rng) for i in range(charges)]
    kept = Ledger.create(folder / "many.ledger", cap_epsilon=cap, cap_delta=DELTA)

    def work() -> dict[str, Any]:
        each = []
        for start in range(0, charges, 1_000):
            begun = time.process_time()
            for loss in losses[start : start + 1_000]:
                kept.charge(loss, what="benchmark")
            each.append(time.process_time() - begun)
        return {
            "milliseconds_first_thousand": each[0], "milliseconds_last_thousand": each[-1],
            "spent": kept.spent(),
        }  # fmt: skip

    return work


KINDS = {f.__name__: f for f in (accounting, moments, pate, membership, ledger)}


def cell(name: str, size: int) -> dict[str, Any]:
    """One piece of work in this process: its own seconds and memory, preparations apart."""
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR")) as folder:
        work = KINDS[name](size, Path(folder))
        before = _peak()
        begun, used = time.perf_counter(), time.process_time()
        found = work()
        return {
            "kind": name, "size": size, "processor_seconds": time.process_time() - used,
            "seconds": time.perf_counter() - begun, "megabytes": _peak() - before, **found,
        }  # fmt: skip


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measured(name: str, size: int) -> dict[str, Any]:
    """`cell` in a process of its own, with one thread."""
    one = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.growth", "--cell", name, str(size)],
        stdout=subprocess.PIPE, text=True, check=True, env=os.environ | one,
    )  # fmt: skip
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def slope(rows: list[dict[str, Any]]) -> float:
    """How processor time grows with the size, from the last but one to the last."""
    first, last = rows[-2:]
    times = math.log(last["processor_seconds"] / first["processor_seconds"])
    return times / math.log(last["size"] / first["size"])


def draw_picture(found: dict[str, list[dict[str, Any]]], path: Path) -> None:
    """Seconds against size, both on a log scale, and a line of slope 1."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 4.2), layout="constrained")
    axes = figure.add_subplot()
    for name, rows in found.items():
        x, y = ([row[k] for row in rows] for k in ("size", "processor_seconds"))
        axes.loglog(x, y, "o-", label=f"{name}: slope {slope(rows):.2f}")
    axes.loglog([1e3, 1e6], [1e-1, 1e2], ":", color="grey", label="slope 1")
    axes.set_xlabel("size: steps, rows, sites, records, charges")
    axes.set_ylabel("seconds of one processor")
    axes.legend(frameon=False)
    figure.savefig(path, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--full", action="store_true", help="The whole sizes.")
    parser.add_argument("--only", choices=tuple(KINDS), nargs="+")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--picture", type=Path, default=PICTURE)
    parser.add_argument("--cell", nargs=2, metavar=("KIND", "SIZE"), help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.cell:
        print(json.dumps(cell(asked.cell[0], int(asked.cell[1]))))
        return
    found: dict[str, list[dict[str, Any]]] = {}
    for name in asked.only or KINDS:
        found[name] = []
        for size in SIZES[name][1 if asked.full else 0]:
            row = measured(name, size)
            found[name].append(row)
            if not asked.json:
                print(
                    f"{name:<11}{size:>11,} {SIZES[name][2]:<22}{row['processor_seconds']:9.2f} s"
                    f"{row['megabytes']:9.0f} MB",
                    flush=True,
                )
        if not asked.json:
            print(f"{name:<11}slope {slope(found[name]):.2f}")
            if name == "ledger":
                last = found[name][-1]
                a, b = (last[f"milliseconds_{k}_thousand"] for k in ("first", "last"))
                print(f"ledger     a charge: {a:.2f} ms at first, {b:.2f} ms at last")
    if asked.json:
        print(json.dumps({k: {"slope": slope(v), "rows": v} for k, v in found.items()}, indent=2))
    if not asked.only:
        draw_picture(found, asked.picture)


if __name__ == "__main__":
    main()
