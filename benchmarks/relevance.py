"""Time of relevance over a data set against a forward-backward pass over it, in one run.

    python -m benchmarks.relevance [--json] [--records 60000] [--batch 500]

One thread. Both take turns batch by batch, so that a busy machine slows them alike. MNIST if it is
there, random pictures of its shape otherwise; the network is the paper's (5x5x32, 5x5x64, 25).
"""

from __future__ import annotations

import argparse
import json
import time

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.networks import cifar_cnn, mnist_cnn
from privet import data
from privet.errors import PrivetError
from privet.networks.relevance import relevance


def pictures(records: int) -> tuple[str, Tensor, Tensor]:
    """MNIST as (records, 1, 28, 28) in [0, 1], or random pictures."""
    try:
        mnist = data.load("mnist")
    except PrivetError:
        return "random", torch.rand(records, 1, 28, 28), torch.randint(0, 10, (records,))
    x = torch.from_numpy(mnist.train_rows()[:records]).reshape(-1, 1, 28, 28)
    return "mnist", x, torch.from_numpy(mnist.y_train[:records].copy())


def measure(model: nn.Module, x: Tensor, y: Tensor, batch: int) -> tuple[float, float]:
    """Seconds of forward-backward passes and of relevance over all records."""
    passes = found = 0.0
    for start in range(-batch, len(x), batch):  # the first round warms up and does not count
        part, labels = (t[max(start, 0) :][:batch] for t in (x, y))
        began = time.perf_counter()
        F.cross_entropy(model(part), labels).backward()
        model.zero_grad()
        middle = time.perf_counter()
        relevance(model, part, labels)
        if start >= 0:
            passes += middle - began
            found += time.perf_counter() - middle
    return passes, found


def main() -> None:
    """Print a row a case."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--records", type=int, default=60_000)
    parser.add_argument("--batch", type=int, default=500)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    name, x, y = pictures(arguments.records)
    few = max(arguments.batch, arguments.records // 100)
    cases = [
        (f"{name}, {len(x)} records", mnist_cnn(), x, y, arguments.batch),
        (
            f"cifar-cnn, {few} random pictures",
            cifar_cnn(),
            torch.rand(few, 3, 32, 32),
            y[:few],
            100,
        ),
    ]
    rows = []
    for case, model, inputs, labels, batch in cases:
        passes, found = measure(model, inputs, labels, batch)
        rows.append({
            "case": case, "forward_backward_seconds": round(passes, 2),
            "relevance_seconds": round(found, 2), "time_ratio": round(found / passes, 3),
        })  # fmt: skip
    if arguments.json:
        print(json.dumps({"rows": rows}, indent=2))
        return
    for row in rows:
        print(f"{row['case']:<36} {row['time_ratio']:6.2f} times a forward-backward pass")


if __name__ == "__main__":
    main()
