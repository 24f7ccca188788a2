"""What may leave a step beside the noisy sum: nothing, neither state nor gradients left behind."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import final

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from privet.errors import InvalidArgument
from privet.nets.per_example.shards import local_of
from privet.nets.ready import modules_of


@final
class StateGuard:
    """Refuses a forward pass that changes buffers or parameters.

    A running mean is a function of the records that is released with the model; so is a counter of
    batches. Changes are noticed by identity and version after every part of a step, and by value
    before the step is released, since writing through `.data` leaves no trace in the version.
    """

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._values: dict[str, Tensor] = {}
        self._marks: dict[str, tuple[int, int]] = {}

    def begin_step(self) -> None:
        """Note the values of buffers and parameters."""
        self._values = {name: local_of(t.detach()).clone() for name, t in _everything(self._model)}

    def begin_part(self) -> None:
        """Note who and how old everything is."""
        self._marks = _marks(self._model)

    def check_part(self) -> None:
        """Refuse what was changed, replaced or added since `begin_part`."""
        now = _marks(self._model)
        for name in {**self._marks, **now}:
            if self._marks.get(name) != now.get(name):
                raise _changed(name)

    def check_step(self) -> None:
        """Refuse values that are not those of `begin_step`."""
        for name, t in _everything(self._model):
            before = self._values.get(name)
            if before is None or not _same(before, local_of(t.detach())):
                raise _changed(name)


def _marks(model: nn.Module) -> dict[str, tuple[int, int]]:
    return {name: (id(t), t._version) for name, t in _everything(model)}


def _everything(model: nn.Module) -> list[tuple[str, Tensor]]:
    """Parameters and buffers with their names, each once."""
    found: dict[int, tuple[str, Tensor]] = {}
    for name, module in modules_of(model):
        for kind in (module._parameters, module._buffers):
            for key, t in kind.items():
                if t is not None:
                    found.setdefault(id(t), (f"{name}.{key}" if name else key, t))
    return list(found.values())


def _same(before: Tensor, after: Tensor) -> bool:
    if before.shape != after.shape or before.dtype != after.dtype:
        return False
    if torch.equal(before, after):
        return True
    if not before.is_floating_point():
        return False
    return bool(torch.isclose(before, after, rtol=0.0, atol=0.0, equal_nan=True).all())


def _changed(name: str) -> InvalidArgument:
    return InvalidArgument(
        f"{name!r} of the model",
        "changed by the forward pass",
        "buffers and parameters that only the optimiser changes",
        "running statistics would be released without noise; use layers without them",
    )


def clear_other_gradients(
    model: nn.Module, optimizer: Optimizer, summed: Collection[str], stepped: Mapping[str, Tensor]
) -> None:
    """Drop every gradient that is not of the released sum: an optimiser applies what it finds.

    A frozen layer may still carry the exact gradient of a backward pass made before. `stepped` are
    the tensors that the optimiser changes, by the names of the parameters.
    """
    released = {id(p) for name, p in stepped.items() if name in summed}
    others = [p for group in optimizer.param_groups for p in group["params"]]
    for p in [*model.parameters(), *others]:
        if id(p) not in released:
            p.grad = None
