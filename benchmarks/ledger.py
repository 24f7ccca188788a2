"""A ledger that does not slow down: many mixed charges in one file, every one of them different.

    python -m benchmarks.ledger [--charges 100000] [--cap 20] [--in-memory] [--json]

Charges in turn: a Gaussian, a pure, a Laplace and (every tenth) a sampled Gaussian loss, each with
settings of its own. Timed by the processor, so that a busy machine and the disk's own time count
for nothing. Rows: each thousand charges, in milliseconds of processor time a charge. Then what was
recorded with the last charge, the exact epsilon on demand, and one composition of all losses from
scratch, which must agree; and `guarantee`, `verify`, `export` and opening the file again.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from privet.accounting import Gaussian, Laplace, PrivacyLoss, Pure, SampledGaussian, compose
from privet.ledger import Ledger

DELTA = 1e-5
BLOCK = 1_000


def draw(number: int, size: float, rng: np.random.Generator) -> PrivacyLoss:
    """The next loss: no two have the same settings."""
    if number % 10 == 9:
        return SampledGaussian(
            sample_rate=size * float(rng.uniform(0.5, 1.5)),
            noise_multiplier=float(rng.uniform(1.0, 3.0)),
            steps=int(rng.integers(1, 4)),
        )
    each = size * float(rng.uniform(0.5, 1.5))
    kinds: tuple[Callable[[], PrivacyLoss], ...] = (
        lambda: Gaussian(mu=each),
        lambda: Pure(epsilon_each=each),
        lambda: Laplace(epsilon_each=each),
    )
    return kinds[number % 3]()


def timed(f: Callable[[], Any]) -> tuple[Any, float]:
    """What it gives, and its seconds of processor time."""
    start = time.process_time()
    found = f()
    return found, time.process_time() - start


def run(charges: int, cap: float, folder: Path | None) -> dict[str, Any]:
    """Charge, time and compare."""
    terms = {"cap_epsilon": cap, "cap_delta": DELTA}
    path = None if folder is None else folder / "many.ledger"
    ledger = Ledger.in_memory(**terms) if path is None else Ledger.create(path, **terms)
    rng, size = np.random.default_rng(0), 0.4 * cap / charges**0.5 / 10.0
    losses, blocks, last = [], [], 0.0
    for start in range(0, charges, BLOCK):
        block = [draw(i, size, rng) for i in range(start, min(start + BLOCK, charges))]
        begun = time.process_time()
        for loss in block:
            last = ledger.charge(loss, what="benchmark").spent
        blocks.append(1e3 * (time.process_time() - begun) / len(block))
        losses += block
    spent, spent_seconds = timed(ledger.spent)
    total, scratch_seconds = timed(lambda: compose_all(losses).epsilon(DELTA))
    _, guarantee_seconds = timed(ledger.guarantee)
    checked, verify_seconds = timed(ledger.verify)
    _, export_seconds = timed(ledger.export)
    open_seconds = None if path is None else timed(lambda: Ledger.open(path))[1]
    return {
        "charges": charges,
        "distinct_losses": len({json.dumps(loss.to_dict()) for loss in losses}),
        "milliseconds_per_charge": {
            "first_thousand": blocks[0],
            "last_thousand": blocks[-1],
            "worst_thousand": max(blocks),
            "mean": float(np.mean(blocks)),
        },
        "last_over_first": blocks[-1] / blocks[0],
        "epsilon": {
            "recorded_with_the_last_charge": last,
            "exact_on_demand": spent,
            "one_composition_of_all": total,
            "verified": checked.spent,
        },
        "relative_difference": abs(spent - total) / total,
        "seconds": {
            "spent": spent_seconds,
            "one_composition_of_all": scratch_seconds,
            "guarantee": guarantee_seconds,
            "verify": verify_seconds,
            "export": export_seconds,
            "open": open_seconds,
        },
        "blocks": blocks,
    }


def compose_all(losses: list[PrivacyLoss]) -> PrivacyLoss:
    """One composition, not by the ledger's bookkeeping: sorted by kind, each kind composed."""
    from privet.accounting.running_total import MixedPureLosses

    gaussians = compose([p for p in losses if isinstance(p, Gaussian)])
    pure = [p for p in losses if isinstance(p, Pure | Laplace)]
    sampled = [p for p in losses if isinstance(p, SampledGaussian)]
    parts: list[PrivacyLoss] = [gaussians, MixedPureLosses.of(pure)]
    if sampled:
        q, z, n = (np.concatenate([s.groups[i] for s in sampled]) for i in range(3))
        parts.append(SampledGaussian(sample_rate=q, noise_multiplier=z, steps=n))
    return compose(parts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--charges", type=int, default=100_000)
    parser.add_argument("--cap", type=float, default=20.0)
    parser.add_argument("--in-memory", action="store_true")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        found = run(asked.charges, asked.cap, None if asked.in_memory else Path(name))
    if asked.json:
        print(json.dumps(found, indent=2))
        return
    each, epsilon = found["milliseconds_per_charge"], found["epsilon"]
    print(f"{found['charges']} charges, {found['distinct_losses']} different losses")
    for name, value in each.items():
        print(f"  {name.replace('_', ' '):<32}{value:8.2f} ms a charge")
    print(f"  {'last / first':<32}{found['last_over_first']:8.2f}")
    for name, value in epsilon.items():
        print(f"  {name.replace('_', ' '):<32}{value:12.6f}")
    for name, value in found["seconds"].items():
        if value is not None:
            print(f"  {name.replace('_', ' '):<32}{value:8.2f} s")


if __name__ == "__main__":
    main()
