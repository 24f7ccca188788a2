"""Everything that knows of devices: the model's home, what moves there, and sums in float64 there.

Model, batches, per-example gradients, sums and optimiser stay where the model is. The noise is
drawn on the host and added there, exactly, to the one vector that is released. On another device
products over several records are always made in float64, so that no setting of a library (TF32, for
instance) can take precision from a sum. *Untested on hardware*: tests run on fake "cuda"
tensors, which are kept apart from the host's.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor

from privet.errors import InvalidArgument

_NO_FLOAT64 = ("mps",)


def home_of(parameters: Iterable[Tensor]) -> torch.device:
    """The one device of a model; the host for a model without parameters."""
    found = {p.device for p in parameters}
    if len(found) > 1:
        raise InvalidArgument(
            "model", sorted(map(str, found)), "one whose parameters share a device"
        )
    home = found.pop() if found else torch.device("cpu")
    if home.type in _NO_FLOAT64:
        raise InvalidArgument(
            "model", str(home), "on a device with float64, in which norms and sums are taken"
        )
    return home


def on_host(t: Tensor) -> bool:
    """Whether a tensor's numbers can be read by the processor."""
    return t.is_cpu


def moved(tensors: tuple[Tensor, ...], home: torch.device) -> tuple[Tensor, ...]:
    """The tensors at the model's home; from pinned memory where that is a GPU."""
    if home.type == "cpu":
        return tensors
    pinned = home.type == "cuda"
    return tuple(
        (t.pin_memory() if pinned and on_host(t) else t).to(home, non_blocking=pinned)
        for t in tensors
    )


def to_host(t: Tensor) -> Tensor:
    """The tensor itself on the host, else a copy of it there."""
    return t if on_host(t) else t.to("cpu")


def seed(home: torch.device, value: int) -> None:
    """Seed torch's generators on the host and at the model's home."""
    torch.default_generator.manual_seed(value)
    if home.type == "cuda":
        torch.cuda.manual_seed(value)


def autocasting(home: torch.device) -> bool:
    """Whether operations there are made in lower precision at the moment."""
    return torch.amp.is_autocast_available(home.type) and torch.is_autocast_enabled(home.type)


def without_autocast(home: torch.device) -> AbstractContextManager[None]:
    """Norms and sums are never taken in lower precision."""
    if not autocasting(home):
        return nullcontext()
    return torch.autocast(home.type, enabled=False)


def squared_norms(rows: Tensor) -> Tensor:
    """Of each row of a matrix, in float64."""
    return rows.detach().double().square().sum(1)


def weighted_total(weights: Tensor, values: Tensor) -> Tensor:
    """sum_i w_i v_i over the examples of (parts, examples, width), in float64."""
    return torch.einsum("i,piw->pw", weights.double(), values.detach().double())


def divided_into(total: Tensor, divisor: float, out: Tensor) -> Tensor:
    """out = total / divisor, rounded to the precision of `out` once more."""
    return out.copy_(total / divisor)
