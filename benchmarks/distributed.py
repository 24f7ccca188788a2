"""DP-SGD in several processes: step time and parallel efficiency on one machine (gloo, loopback).

    python -m benchmarks.distributed --json

Each process uses one thread and clips its shard of the same logical batch; the efficiency of w
processes is (time of one) / (w * time of w). On a machine with other work on its cores the figure
says more about that work than about the code.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.nn import functional

from privet.methods.dpsgd import Charging, Schedule, private
from privet.networks.architectures import SmallCNN
from privet.noise import seeded

ROOT = Path(__file__).parents[1]


def worker(batch: int, steps: int, answer: str) -> None:
    """What every process does: a few steps of a small CNN on pictures of noise."""
    torch.set_num_threads(1)
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        dist.init_process_group("gloo")
    torch.manual_seed(0)
    records = 4 * batch
    data = torch.randn(records, 784), torch.randint(10, (records,))
    model = SmallCNN(shape=(28, 28), classes=10)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    schedule = Schedule(steps=steps, sample_rate=0.25, noise_multiplier=1.0)
    seconds, examples = [], 0
    with private(
        model, optimizer, data, schedule, delta=1e-5, rng=seeded(0), charging=Charging(block=steps)
    ) as training:
        begun = None
        for part in training:
            if begun is None:  # the charge came before the first batch
                begun = time.perf_counter()
            examples += len(part)
            training.step(functional.cross_entropy(model(part.x), part.y, reduction="none"))
            if part.last:
                now = time.perf_counter()
                seconds.append(now - begun)
                begun = now
    if int(os.environ.get("RANK", "0")) == 0:
        weights = float(torch.cat([p.detach().reshape(-1) for p in model.parameters()]).norm())
        told = {"seconds": statistics.median(seconds[2:]), "weights": weights}
        Path(answer).write_text(json.dumps(told))
    if dist.is_initialized():
        dist.destroy_process_group()


def measure(world: int, batch: int, steps: int) -> dict[str, Any]:
    """Median step time with this many processes."""
    with tempfile.TemporaryDirectory() as folder, socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
        s.close()
        answer = str(Path(folder) / "answer.json")
        subprocess.run(
            [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={world}",
             "--master-addr=127.0.0.1", f"--master-port={port}", "-m", "benchmarks.distributed",
             "--worker", answer, "--batch", str(batch), "--steps", str(steps)],
            cwd=ROOT, check=True, capture_output=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )  # fmt: skip
        return {"processes": world, **json.loads(Path(answer).read_text())}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--batch", type=int, default=2048)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    a = parser.parse_args()
    if a.worker:
        worker(a.batch, a.steps, a.worker)
        return
    rows = [measure(world, a.batch, a.steps) for world in a.processes]
    for row in rows:
        row["efficiency"] = rows[0]["seconds"] / (row["processes"] * row["seconds"])
        row["difference"] = abs(row["weights"] / rows[0]["weights"] - 1.0)
    answer = {"batch": a.batch, "cores": os.cpu_count(), "load": os.getloadavg()[0], "rows": rows}
    if a.json:
        print(json.dumps(answer, indent=2))
        return
    for row in rows:
        print(
            f"{row['processes']} processes: {row['seconds']:.3f} s a step of {a.batch}, "
            f"efficiency {row['efficiency']:.2f} (load {answer['load']:.1f})"
        )


if __name__ == "__main__":
    main()
