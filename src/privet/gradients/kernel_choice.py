"""Which kernel a layer uses: the fastest when timed once for each shape, or by a cost model.

Kernels agree up to rounding, so a run that must be repeated bit for bit either calls the cost model
(a function of shapes alone) or restores the choices of the first run.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Literal

import torch

from privet.errors import InvalidArgument
from privet.gradients.layer_protocol import BackwardCall, Kernel, LayerHandler
from privet.gradients.norms_and_sum import NormsAndSum

KernelChoice = Literal["measured", "cost-model"]
# Times each kernel runs; the least time counts, so that one disturbance does not decide.
_REPETITIONS = 5
# A kernel that the cost model puts this far behind the best is not timed: the model orders kernels
# roughly, and timing a hopeless one five times could take longer than the step.
_HOPELESS = 6.0


class KernelChooser:
    """Chooses among a layer's kernels and remembers the choice by shape."""

    def __init__(self, how: KernelChoice, choices: Mapping[str, str]) -> None:
        if how not in ("measured", "cost-model"):
            raise InvalidArgument("kernel_choice", how, "'measured' or 'cost-model'")
        self.how = how
        self.choices = dict(choices)

    def run(self, handler: LayerHandler, call: BackwardCall) -> NormsAndSum:
        """Norms and sum by the kernel that is chosen for the shape."""
        kernels = handler.kernels(call)
        if len(kernels) == 1:
            return kernels[0].run()
        key = handler.key(call)
        name = self.choices.get(key)
        if name is None:
            name = (
                self._fastest(kernels, handler, call)
                if self.how == "measured"
                else _cheapest(kernels)
            )
            self.choices[key] = name
        for kernel in kernels:
            if kernel.name == name:
                return kernel.run()
        raise InvalidArgument(
            f"choices[{key!r}]", name, f"one of {[kernel.name for kernel in kernels]}"
        )

    def _fastest(self, kernels: list[Kernel], handler: LayerHandler, call: BackwardCall) -> str:
        scratch = [
            t.of(torch.zeros_like(t.parameter, dtype=torch.float64)) for t in handler.targets
        ]
        limit = _HOPELESS * min(kernel.cost for kernel in kernels)
        seconds: dict[str, list[float]] = {k.name: [] for k in kernels if k.cost <= limit}
        weights = torch.ones(call.a.shape[0] // call.views, dtype=torch.float64).to(call.a.device)
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
