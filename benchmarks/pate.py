"""Aggregation in streams: time and memory against teachers and voxels, with the slope.

    python -m benchmarks.pate                   10^6 voxels x 250 teachers, and the way there
    python -m benchmarks.pate --files           the same through answer files (1 GB on disk)
    python -m benchmarks.pate --json

Codes are whole maps (identity reducer, nothing is compressed): the largest that aggregation meets.
Each cell runs in a process of its own, and memory is what its peak exceeds a run on a tiny map by.
Slopes are of processor time, so that a busy machine does not matter.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from privet.methods.pate import Aggregator, AnswerFile, Answers, shard_ledger
from privet.methods.pate.answer_files import AnswerSource, Header, Units
from privet.noise import seeded

VOXELS = (125_000, 250_000, 500_000, 1_000_000)
TEACHERS = (32, 64, 125, 250)
ROUNDS = 5
"""The quickest of so many counts."""


class Drawn(AnswerSource):
    """Answers that are made as they are asked for, so that only the aggregation takes memory."""

    def __init__(self, site: int, voxels: int) -> None:
        # a map of one repeated value: what is in it does not change the cost
        small = Answers.clip(np.zeros((1, 1)), radius=0.5 * voxels**0.5, site=str(site)).header
        self._header = replace(small, dimension=voxels)
        self._unit = int(0.499 / small.spacing)

    @property
    def header(self) -> Header:
        return self._header

    @property
    def display_name(self) -> str:
        return f"site {self._header.site}"

    def read(self, start: int, stop: int) -> Units:
        return np.full(stop - start, self._unit, dtype=np.int32)


def sources(voxels: int, teachers: int, folder: Path | None) -> list[AnswerSource]:
    """The answers of all teachers, drawn or in files."""
    if folder is None:
        return [Drawn(k, voxels) for k in range(teachers)]
    rng, radius = np.random.default_rng(0), 0.5 * voxels**0.5
    out: list[AnswerSource] = []
    for k in range(teachers):
        answers = Answers.clip(rng.uniform(-0.5, 0.5, (1, voxels)), radius=radius, site=str(k))
        out.append(AnswerFile(answers.write(folder / f"{k}.safetensors")))
    return out


def cell(voxels: int, teachers: int, files: bool) -> dict[str, Any]:
    """One aggregation: checks, charge, sums, noise; the answers are not kept."""
    with tempfile.TemporaryDirectory() as place:
        answers = sources(voxels, teachers, Path(place) if files else None)
        plan = Aggregator.for_budget(
            teachers=teachers, queries=1, epsilon=8.0, delta=1e-3,
            radius=answers[0].header.radius, dimension=voxels,
        )  # fmt: skip
        times = []
        for _ in range(ROUNDS):
            ledger = shard_ledger(epsilon=8.0, delta=1e-3)
            begun, used = time.perf_counter(), time.process_time()
            checked = plan.check(answers, allow_equal=not files)
            plan.charge(checked, ledger=ledger)
            total = sum(float(part.sum()) for _, part in plan.blocks(checked, rng=seeded(0)))
            times.append((time.process_time() - used, time.perf_counter() - begun))
    processor, seconds = min(times)
    return {
        "voxels": voxels,
        "teachers": teachers,
        "seconds": seconds,
        "processor_seconds": processor,
        "peak_megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "mean": total / voxels,
        "spent": ledger.spent(),
    }


def measured(voxels: int, teachers: int, files: bool) -> dict[str, Any]:
    """`cell` in a process of its own, so that its peak is its own."""
    words = ["--cell", str(voxels), str(teachers), *(["--files"] if files else [])]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.pate", *words],
        capture_output=True,
        text=True,
        check=True,
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def slopes(rows: list[dict[str, Any]], key: str) -> dict[str, float]:
    """How processor time grows with `key`.

    `log_log`: d log(seconds) / d log(key). `line`: the straight line's seconds for each further
    unit, and `unexplained`, the part of the variance that the line leaves. Noise is drawn once a
    voxel whatever the number of teachers: the line does not start at 0, and `log_log` is below 1.
    """
    x, y = (np.array([row[k] for row in rows]) for k in (key, "processor_seconds"))
    line = np.polyfit(x, y, 1)
    rest = y - np.polyval(line, x)
    return {
        "log_log": float(np.polyfit(np.log(x), np.log(y), 1)[0]),
        "line": float(line[0]),
        "unexplained": float(rest.var() / y.var()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--files", action="store_true")
    parser.add_argument("--cell", nargs=2, type=int, metavar=("VOXELS", "TEACHERS"))
    args = parser.parse_args()
    if args.cell:
        print(json.dumps(cell(*args.cell, files=args.files)))
        return
    base = measured(1_000, 2, args.files)["peak_megabytes"]
    by_voxels = [measured(v, TEACHERS[-1], args.files) for v in VOXELS]
    by_teachers = [measured(VOXELS[-1], k, args.files) for k in TEACHERS[:-1]] + [by_voxels[-1]]
    rows = [*by_voxels, *by_teachers[:-1]]
    for row in rows:
        row["megabytes"] = row["peak_megabytes"] - base
    found: dict[str, Any] = {
        "rows": rows,
        "slope_voxels": slopes(by_voxels, "voxels"),
        "slope_teachers": slopes(by_teachers, "teachers"),
        "files": args.files,
    }
    if args.json:
        print(json.dumps(found, indent=2))
        return
    print("   voxels teachers  seconds processor  MB above a tiny run")
    for row in rows:
        size = f"{row['voxels']:>9} {row['teachers']:>8}"
        spent = f"{row['seconds']:8.2f} {row['processor_seconds']:9.2f}"
        print(f"{size} {spent} {row['megabytes']:20.1f}")
    for key, each in (("voxels", "million voxels"), ("teachers", "teacher")):
        found_slope = found[f"slope_{key}"]
        scale = 1e6 if key == "voxels" else 1.0
        print(
            f"{key}: {scale * found_slope['line']:.4f} s for each further {each}, "
            f"{found_slope['unexplained']:.1%} of the variance off the line, "
            f"log-log slope {found_slope['log_log']:.2f}"
        )


if __name__ == "__main__":
    main()
