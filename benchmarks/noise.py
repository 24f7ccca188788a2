"""What noise costs: ours, seeded or secure, against torch's and numpy's own generators.

    python -m benchmarks.noise [--json] [--elements N] [--rounds R]

One thread. The methods take turns, round after round; each gets its median processor time (not wall
time, so that other programs on the machine matter less). `ratio_to_torch_float64` is to
`torch.Tensor.normal_` on a float64 tensor in the same run.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable

import numpy as np
import torch

from privet.noise import secure, seeded
from privet.noise.torch_noise import add_gaussian_, gaussian_

REFERENCE = "torch normal_ float64"


def methods(n: int) -> dict[str, Callable[[], object]]:
    """Each fills or makes n elements."""
    wide, narrow = torch.empty(n, dtype=torch.float64), torch.empty(n, dtype=torch.float32)
    rng, known, other = secure(), seeded(0), np.random.default_rng(0)
    return {
        REFERENCE: wide.normal_,
        "torch normal_ float32": narrow.normal_,
        "numpy standard_normal": lambda: other.standard_normal(n),
        "secure gaussian_ float64": lambda: gaussian_(wide, 1.0, rng),
        "secure gaussian_ float32": lambda: gaussian_(narrow, 1.0, rng),
        "seeded gaussian_ float64": lambda: gaussian_(wide, 1.0, known),
        "secure add_gaussian_ float64, on the grid": lambda: add_gaussian_(wide, 1.0, rng),
        "secure add_gaussian_ float32, on the grid": lambda: add_gaussian_(narrow, 1.0, rng),
        "secure numpy gaussian": lambda: rng.gaussian(n),
        "secure numpy laplace": lambda: rng.laplace(n),
        "secure gaussian_on_grid": lambda: rng.gaussian_on_grid(n, 1.0),
        "secure laplace_on_grid": lambda: rng.laplace_on_grid(n, 1.0),
        "secure k_norm_on_grid, n/100": lambda: rng.k_norm_on_grid(n // 100, 1.0),
        "secure numpy bernoulli": lambda: rng.bernoulli(n, 0.01),
        "secure numpy discrete_gaussian, n/100": lambda: rng.discrete_gaussian(n // 100, 10),
    }


def measure(n: int, rounds: int) -> list[dict[str, object]]:
    """One row a method."""
    torch.set_num_threads(1)
    table = methods(n)
    times: dict[str, list[float]] = {name: [] for name in table}
    for draw in table.values():
        draw()
    for _ in range(rounds):
        for name, draw in table.items():
            start = time.process_time()
            draw()
            elements = n // 100 if name.endswith("n/100") else n
            times[name].append((time.process_time() - start) / elements * 1e9)
    median = {name: statistics.median(t) for name, t in times.items()}
    return [
        {
            "method": name,
            "ns_per_element": round(t, 2),
            "ratio_to_torch_float64": round(t / median[REFERENCE], 3),
        }
        for name, t in median.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description="what noise costs")
    parser.add_argument("--json", action="store_true", help="machine-readable output")
    parser.add_argument("--elements", type=int, default=1 << 21)
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    rows = measure(options.elements, options.rounds)
    if options.json:
        print(json.dumps({"elements": options.elements, "rows": rows}, indent=2))
        return
    for row in rows:
        numbers = f"{row['ns_per_element']:9.2f} ns  {row['ratio_to_torch_float64']:8.3f}"
        print(f"{row['method']:45s} {numbers}")


if __name__ == "__main__":
    main()
