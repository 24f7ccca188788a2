"""Which kernel measures a site: timed once per shape, or told by a cost model.

Kernels agree up to rounding, so a run that must be repeated bit for bit either uses the cost model
(a function of shapes alone) or restores the choices of the first run.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Literal

import torch

from privet.errors import InvalidArgument
from privet.nets.per_example.measured import Captured, Kernel, Measured
from privet.nets.per_example.sites import Site

KernelChoice = Literal["measured", "cost-model"]
_REPETITIONS = 5
_HOPELESS = 6.0  # a kernel the model puts this far behind the best is not even timed


class Chooser:
    """Chooses among a site's kernels and remembers the choice by shape."""

    def __init__(self, how: KernelChoice, choices: Mapping[str, str]) -> None:
        if how not in ("measured", "cost-model"):
            raise InvalidArgument("kernel_choice", how, "'measured' or 'cost-model'")
        self.how = how
        self.choices = dict(choices)

    def measure(self, site: Site, seen: Captured) -> Measured:
        """Measure the site with the chosen kernel."""
        kernels = site.kernels(seen)
        if len(kernels) == 1:
            return kernels[0].run()
        key = site.key(seen)
        name = self.choices.get(key)
        if name is None:
            name = (
                self._fastest(kernels, site, seen) if self.how == "measured" else _cheapest(kernels)
            )
            self.choices[key] = name
        for kernel in kernels:
            if kernel.name == name:
                return kernel.run()
        raise InvalidArgument(
            f"choices[{key!r}]", name, f"one of {[kernel.name for kernel in kernels]}"
        )

    def _fastest(self, kernels: list[Kernel], site: Site, seen: Captured) -> str:
        scratch = [t.of(torch.zeros_like(t.parameter, dtype=torch.float64)) for t in site.targets]
        limit = _HOPELESS * min(kernel.cost for kernel in kernels)
        seconds: dict[str, list[float]] = {k.name: [] for k in kernels if k.cost <= limit}
        weights = torch.ones(seen.a.shape[0] // seen.views, dtype=torch.float64).to(seen.a.device)
        # one thread: count its own time only, so that a busy machine does not decide
        clock = time.thread_time if torch.get_num_threads() == 1 else time.perf_counter
        for _ in range(_REPETITIONS):
            for kernel in kernels:
                if kernel.name in seconds:
                    start = clock()
                    kernel.run().add_weighted(weights, None, scratch)
                    seconds[kernel.name].append(clock() - start)
        return min(seconds, key=lambda name: min(seconds[name]))


def _cheapest(kernels: list[Kernel]) -> str:
    return min(kernels, key=lambda kernel: kernel.cost).name
