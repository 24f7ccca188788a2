"""Where tensors lie: the model's device, moves to it, and parts of sharded tensors.

Model, batches, per-example gradients, sums and optimiser stay where the model is. The noise is
drawn on the host and added there, exactly, to the one vector that is released. On another device
products over several records are always made in float64, so that no setting of a library (TF32, for
instance) can take precision from a sum. *Untested on hardware*: tests run on fake "cuda"
tensors, which are kept apart from the host's.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor

from privet.errors import InvalidArgument

_NO_FLOAT64 = ("mps",)  # Apple's GPUs have no float64 in hardware, nor torch for them


def device_of(parameters: Iterable[Tensor]) -> torch.device:
    """The one device of a model; the host for a model without parameters."""
    devices = {p.device for p in parameters}
    if len(devices) > 1:
        raise InvalidArgument(
            "model", sorted(map(str, devices)), "one whose parameters share a device"
        )
    device = devices.pop() if devices else torch.device("cpu")
    if device.type in _NO_FLOAT64:
        raise InvalidArgument(
            "model", str(device), "on a device with float64, in which norms and sums are taken"
        )
    return device


def on_host(t: Tensor) -> bool:
    """Whether a tensor's numbers can be read by the processor."""
    return t.is_cpu


def move(tensors: tuple[Tensor, ...], device: torch.device) -> tuple[Tensor, ...]:
    """Move tensors to a device, through pinned memory where that is a GPU."""
    if device.type == "cpu":
        return tensors
    pinned = device.type == "cuda"
    return tuple(
        (t.pin_memory() if pinned and on_host(t) else t).to(device, non_blocking=pinned)
        for t in tensors
    )


def to_host(t: Tensor) -> Tensor:
    """The tensor itself on the host, else a copy of it there."""
    return t if on_host(t) else t.to("cpu")


def is_sharded_tensor(t: Any) -> bool:
    """Whether a tensor lies in parts in several processes (a DTensor of FSDP2)."""
    module = sys.modules.get("torch.distributed.tensor")
    if module is None:
        return False  # nobody has sharded anything, and importing it takes most of a second
    return isinstance(t, module.DTensor)


def local_part(t: Tensor) -> Tensor:
    """This process's part of a sharded tensor, in the same memory; any other tensor as it is."""
    if not is_sharded_tensor(t):
        return t
    local: Tensor = t.to_local()  # type: ignore[attr-defined]
    return local


def seed(device: torch.device, value: int) -> None:
    """Seed torch's generators on the host and on the model's device."""
    torch.default_generator.manual_seed(value)
    if device.type == "cuda":
        torch.cuda.manual_seed(value)


def autocast_enabled(device: torch.device) -> bool:
    """Whether operations there are made in lower precision at the moment."""
    return torch.amp.is_autocast_available(device.type) and torch.is_autocast_enabled(device.type)


def without_autocast(device: torch.device) -> AbstractContextManager[None]:
    """Switch lower precision off for a while: norms and sums are never taken in it."""
    if not autocast_enabled(device):
        return nullcontext()
    return torch.autocast(device.type, enabled=False)
