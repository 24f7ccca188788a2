"""How much a record's gradient depends on the rows it is computed with, measured on this machine.

Kernels may round a row differently by its place and by how many others there are. The guarantee of
a network rests on the premise that they do not (or on `batch_invariant=True`, which computes every
record alone); this tells how far the premise is from the truth here, in the last bits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from privet.gradients.engine import PerExampleGradients


def batch_invariance_error(
    model: nn.Module,
    loss_fn: Callable[..., Tensor],
    *tensors: Tensor,
    records: int = 8,
) -> float:
    """The largest ||in the batch - alone|| / ||alone|| over the first records of a batch.

    `loss_fn(model, *tensors)` gives one loss a row. Use made-up rows: the figure is about the
    machine and the network, not about the data.

    >>> torch.manual_seed(0)  # doctest: +ELLIPSIS
    <torch._C.Generator object at ...>
    >>> net = nn.Sequential(nn.Linear(20, 50), nn.Tanh(), nn.Linear(50, 3))
    >>> batch_invariance_error(net, lambda m, x: m(x).square().sum(1), torch.randn(33, 20)) < 1e-4
    True
    """
    engine = PerExampleGradients(model, kernel_choice="cost-model")

    def gradient(rows: Sequence[Tensor], which: int) -> Tensor:
        with engine.recording():
            losses = loss_fn(model, *rows)
        only = torch.arange(len(losses)).eq(which).double()
        return engine.weighted_sum(losses, only).flat

    tensors = engine.arrange(*tensors)
    worst = 0.0
    for i in range(min(records, len(tensors[0]))):
        alone = gradient([t[i : i + 1] for t in tensors], 0)
        off = float((gradient(tensors, i) - alone).norm())
        worst = max(worst, off / max(float(alone.norm()), 1e-300))  # no division by a norm of 0
    return worst
