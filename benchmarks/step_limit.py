"""How far from the limit is a private step? Counts of bytes and flops, from shapes alone.

    python -m benchmarks.step_limit [--cases bert-16 ...] [--json]

*Plain*: the flops of a forward and a backward pass (torch's own counter) and the bytes that its
operators read and write, each as if nothing stayed in a cache. *Private, at least*: the same
products, and for every number of a single example's gradient that has to be made (layers whose norm
follows from inputs and output gradients make none) 4 bytes written, 4 read again for the weighted
sum, 2 flops for its square and 2 for its share of the sum; and for every trained number 16 bytes
for the sum in float64 and 16 for noise. *Limit*: both in seconds, private over plain, by how fast
this machine multiplies matrices and reads memory, which is measured first. A step that counts more
than plain in its operators as they are, and less in caches, is why the limit is not sharp: it says
what of a ratio is traffic that cannot be avoided in this way of working.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.dpsgd import losses_of
from benchmarks.networks import CASES, Case
from privet.gradients import PerExampleGradients


@dataclass(frozen=True, kw_only=True)
class Count:
    """What a step of a case does at least."""

    case: str
    plain_gigaflops: float
    plain_gigabytes: float
    trained: int
    """Trained numbers."""
    made: int
    """Numbers of single examples' gradients that are made, of the whole batch."""
    more_gigaflops: float
    more_gigabytes: float

    def limit(self, flops: float, bandwidth: float) -> float:
        """Private over plain at so many flops and bytes a second."""
        plain = 1e9 * (self.plain_gigaflops / flops + self.plain_gigabytes / bandwidth)
        more = 1e9 * (self.more_gigaflops / flops + self.more_gigabytes / bandwidth)
        return 1.0 + more / plain


class Traffic(TorchDispatchMode):
    """Adds up the bytes that operators read and write; views move none."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        if not func.is_view:
            some = [t for t in tree_leaves((args, kwargs, out)) if isinstance(t, Tensor)]
            self.bytes += sum(t.numel() * t.element_size() for t in some)
        return out


def count(case: Case) -> Count:
    """Bytes and flops of a plain step, and what a private one has to add."""
    model, x, y = case.build()
    with FlopCounterMode(display=False) as flops, Traffic() as traffic:
        losses_of(model, x, y).mean().backward()  # type: ignore[no-untyped-call]
    engine = PerExampleGradients(model)
    with engine.recording(1):
        losses_of(model, x[:1], y[:1])
    assert engine._tape is not None
    made = case.batch * sum(s.instance_size(a, z, 1) for s, a, z in engine._tape.shapes)
    trained = sum(p.numel() for p in model.parameters() if p.requires_grad)
    return Count(
        case=case.name,
        plain_gigaflops=flops.get_total_flops() / 1e9,
        plain_gigabytes=traffic.bytes / 1e9,
        trained=trained,
        made=made,
        more_gigaflops=4 * made / 1e9,
        more_gigabytes=(8 * made + 32 * trained) / 1e9,
    )


def fastest(job: Callable[[], object], *, rounds: int = 50) -> float:
    """Seconds of the quickest of a few rounds."""
    seconds = []
    for _ in range(rounds):
        start = time.perf_counter()
        job()
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cases", nargs="*", default=list(CASES), choices=list(CASES))
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(1)
    a, many = torch.randn(512, 512), torch.randn(32 * 2**20)  # short: a busy machine interrupts
    flops = 2 * len(a) ** 3 / fastest(lambda: a @ a)
    bandwidth = 4 * len(many) / fastest(lambda: many.sum())
    counts = [count(CASES[name]) for name in args.cases]
    if args.json:
        rows = [asdict(c) | {"limit": c.limit(flops, bandwidth)} for c in counts]
        print(json.dumps({"flops": flops, "bandwidth": bandwidth, "rows": rows}, indent=1))
        return
    print(f"{flops / 1e9:.0f} Gflop/s, {bandwidth / 1e9:.1f} GB/s")
    for c in counts:
        print(
            f"{c.case:12} plain {c.plain_gigaflops:7.2f} Gflop {c.plain_gigabytes:6.2f} GB; "
            f"private adds {c.more_gigaflops:5.2f} Gflop {c.more_gigabytes:5.2f} GB "
            f"({c.made / 1e6:.1f} million numbers made); limit {c.limit(flops, bandwidth):.2f}"
        )


if __name__ == "__main__":
    main()
