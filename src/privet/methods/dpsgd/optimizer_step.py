"""The optimiser's step on a released sum, and the average of the weights after it.

All of it is free: it only reads what was released.
"""

from __future__ import annotations

import inspect
from collections.abc import Collection, Mapping
from typing import final

from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from privet.errors import InvalidArgument
from privet.gradients import ClippedSum
from privet.gradients.module_validator import all_modules_of
from privet.methods.dpsgd.float32_masters import Float32Masters
from privet.methods.dpsgd.schedule import Array
from privet.methods.dpsgd.weight_averaging import MovingAverage


@final
class OptimizerStep:
    """Sets learning rates and gradients, steps, and takes in the new weights' average."""

    def __init__(
        self,
        model: nn.Module,
        optimizer: Optimizer,
        *,
        learning_rates: Array | None = None,
        scheduler: LRScheduler | None = None,
        ema: float | None = None,
    ) -> None:
        self.model, self.optimizer, self.scheduler = model, optimizer, scheduler
        check_optimizer_parameters(self.parameters, optimizer)
        self._learning_rates = learning_rates
        self.average = None if ema is None else MovingAverage(model, decay=ema)

    @property
    def parameters(self) -> dict[str, nn.Parameter]:
        """What the optimiser changes, by the names of the model's parameters."""
        if isinstance(self.optimizer, Float32Masters):
            return self.optimizer.masters
        return dict(self.model.named_parameters())

    def apply(self, step: int, released: ClippedSum, *, divisor: float) -> None:
        """Descend along a released sum over the expected batch."""
        parameters = self.parameters
        released.assign(parameters, divisor=divisor)
        if self._learning_rates is not None:
            for group in self.optimizer.param_groups:
                group["lr"] = float(self._learning_rates[step])
        clear_other_gradients(self.model, self.optimizer, released.views, parameters)
        self.optimizer.step()
        if self.scheduler is not None:
            self.scheduler.step()
        if self.average is not None:
            self.average.update()


def check_optimizer_parameters(parameters: Mapping[str, Tensor], optimizer: Optimizer) -> None:
    """Refuse an optimiser over anything but the trainable parameters, which would not be trained.

    Frozen ones may be among them. `parameters` are the tensors to be changed, by their names.
    """
    closure = inspect.signature(optimizer.step).parameters.get("closure")
    if closure is not None and closure.default is inspect.Parameter.empty:
        raise InvalidArgument(
            "optimizer", type(optimizer).__name__, "one whose step() needs no closure",
            "a step has one private gradient, for SGD, Adam and their like",
        )  # fmt: skip
    inside = {id(p) for group in optimizer.param_groups for p in group["params"]}
    left_out = [n for n, p in parameters.items() if p.requires_grad and id(p) not in inside]
    strangers = inside - {id(p) for p in parameters.values()}
    if strangers:
        raise InvalidArgument(
            "optimizer", f"one with {len(strangers)} tensors that are not",
            "made of the parameters of the model that is trained",
            "make it anew from model.parameters(), after the model was copied or its layers "
            "were replaced",
        )  # fmt: skip
    if left_out:
        more = f" and {len(left_out) - 1} more" if len(left_out) > 1 else ""
        raise InvalidArgument(
            "optimizer", f"one without {left_out[0]}{more}",
            "made of all trainable parameters of the model",
            "add them, or freeze them before: parameter.requires_grad_(False)",
        )  # fmt: skip


def clear_other_gradients(
    model: nn.Module, optimizer: Optimizer, summed: Collection[str], stepped: Mapping[str, Tensor]
) -> None:
    """Drop every gradient that is not of the released sum: an optimiser applies what it finds.

    A frozen layer may still carry the exact gradient of a backward pass made before. `stepped` are
    the tensors that the optimiser changes, by the names of the parameters.
    """
    released = {id(p) for name, p in stepped.items() if name in summed}
    mine = [p for module in all_modules_of(model) for p in module._parameters.values()]
    others = [p for group in optimizer.param_groups for p in group["params"]]
    for p in [*mine, *others]:
        if p is not None and id(p) not in released:
            p.grad = None
