"""Training from a file that is larger than one would like to hold in memory.

    python -m benchmarks.large_file [--gigabytes 20] [--steps 200] [--rounds 9] [--workers 0]

A generated file of rows of 1,024 numbers is mapped into memory and trained on by
`privet.dpsgd.private`; `resident_mb` is how much memory of its own the process grew by (pages of
the file that the system keeps as a cache are not counted), worker processes that read ahead
included. The same steps are then made twice with rows from memory, and compared. All three take
turns, round after round, since a machine shared with others is at one time three times slower than
at another; a ratio is the median of those of the rounds. Before a round pages of the file are
dropped from the system's cache.

- `throughput_ratio`: on 2,048 rows, of which a step draws a quarter. Such a run pays next to
  nothing for drawing its sample: what drawing among the file's millions costs counts as well.
- `throughput_ratio_same_records`: on as many records as the file has, drawn alike, whose rows are
  those of a block in memory over and over: what differs is where rows come from, and nothing else.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from privet.dpsgd import Sampling, Schedule, private
from privet.methods.dpsgd.dataset_rows import DatasetRows
from privet.noise import secure

WIDTH, BATCH, BLOCK = 1024, 512, 16_384


def main() -> None:
    """Write the file, train from it, and say what that took."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gigabytes", type=float, default=20.0)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = int(options.gigabytes * 2**30 / (4 * WIDTH))
    path = options.folder / "privet-large-file.npy"
    try:
        write(path, rows)
        mapped = np.load(path, mmap_mode="r")
        trained(np.array(mapped[: 4 * BATCH]), 2)  # compiles what has to be compiled
        few, block = np.array(mapped[: 4 * BATCH]), np.array(mapped[:BLOCK])
        before, most = anonymous_mb(), 0.0
        rounds = []
        for _ in range(options.rounds):
            forget(path)
            seconds, grown = trained(mapped, options.steps, options.workers)
            inside, _ = trained(few, options.steps)
            alike, _ = trained(RepeatedRows(block, rows), options.steps)
            rounds.append((seconds, inside, alike))
            most = max(most, grown - before)
    finally:
        path.unlink(missing_ok=True)
    found = {
        "gigabytes": options.gigabytes,
        "rows": rows,
        "steps": options.steps,
        "rounds": options.rounds,
        "resident_mb": round(most),
        "seconds": median([seconds for seconds, _, _ in rounds]),
        "seconds_in_memory": median([inside for _, inside, _ in rounds]),
        "throughput_ratio": median([inside / seconds for seconds, inside, _ in rounds]),
        "seconds_same_records": median([alike for _, _, alike in rounds]),
        "throughput_ratio_same_records": median([alike / seconds for seconds, _, alike in rounds]),
    }
    print(json.dumps(found) if options.json else "\n".join(f"{k} {v}" for k, v in found.items()))


def median(values: list[float]) -> float:
    """To three places."""
    return round(statistics.median(values), 3)


def write(path: Path, rows: int) -> None:
    """Random rows, a block at a time."""
    out = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=(rows, WIDTH))
    draw = np.random.default_rng(0)
    block = draw.normal(size=(min(BLOCK, rows), WIDTH)).astype(np.float32)
    for start in range(0, rows, BLOCK):
        out[start : start + BLOCK] = block[: rows - start]
    out.flush()


def forget(path: Path) -> None:
    """Ask the system to drop what it keeps of the file."""
    with path.open("rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def labels_of(count: int) -> NDArray[np.int64]:
    """A class for every record."""
    return np.arange(count) % 10


class RepeatedRows(DatasetRows):
    """As many records as one likes, with the rows of a block over and over."""

    def __init__(self, block: NDArray[np.float32], count: int) -> None:
        self._block, self._labels = torch.from_numpy(block), torch.from_numpy(labels_of(count))

    def __len__(self) -> int:
        return len(self._labels)

    def take(self, indices: NDArray[np.int64]) -> tuple[Tensor, ...]:
        """The rows with these numbers."""
        where = torch.from_numpy(indices)
        rows = self._block.index_select(0, where % len(self._block))
        return rows, self._labels.index_select(0, where)

    def fingerprint(self, key: bytes) -> str:
        """Not asked for: nothing is saved."""
        raise NotImplementedError


def trained(
    x: NDArray[np.float32] | RepeatedRows, steps: int, workers: int = 0
) -> tuple[float, float]:
    """Seconds for private steps of the expected batch, and the most memory in megabytes."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(WIDTH, 512), nn.ReLU(), nn.Linear(512, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    data = x if isinstance(x, RepeatedRows) else (x, labels_of(len(x)))
    schedule = Schedule(steps=steps, sample_rate=BATCH / len(x), noise_multiplier=1.0)
    most, start = 0.0, time.perf_counter()
    with private(
        model, optimizer, data, schedule, delta=1e-6, rng=secure(),
        sampling=Sampling(num_workers=workers, prefetch=4),
    ) as training:  # fmt: skip
        for batch in training:
            if batch.step % 20 == 10:
                most = max(most, anonymous_mb())
            losses = nn.functional.cross_entropy(model(batch.x), batch.y, reduction="none")
            training.step(losses)
    return time.perf_counter() - start, most


def anonymous_mb() -> float:
    """Memory of this process and its workers that is not the file's, from /proc."""
    processes = ["self", *(str(p.pid) for p in multiprocessing.active_children())]
    lines = [
        line
        for process in processes
        for line in Path(f"/proc/{process}/status").read_text().splitlines()
    ]
    own = ("RssAnon", "RssShmem")
    return sum(float(line.split()[1]) / 1024 for line in lines if line.startswith(own))


if __name__ == "__main__":
    main()
