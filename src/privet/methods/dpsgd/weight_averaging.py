"""The exponential moving average of the weights."""

from __future__ import annotations

import copy
from typing import final

import torch
from torch import Tensor, nn

from privet import _check


@final
class MovingAverage:
    """a <- d a + (1 - d) w after every step, divided by 1 - d^t so that the start does not count.

    >>> model = nn.Linear(1, 1, bias=False)
    >>> average = MovingAverage(model, decay=0.9)
    >>> average.update()
    >>> bool(torch.isclose(average.model().weight, model.weight))
    True
    """

    def __init__(self, model: nn.Module, *, decay: float) -> None:
        self.decay = _check.open_unit("ema", decay)
        self._model = model
        self.steps = 0
        self.tensors: dict[str, Tensor] = {
            name: torch.zeros_like(p, requires_grad=False)
            for name, p in model.named_parameters()
            if p.requires_grad
        }

    @torch.no_grad()
    def update(self) -> None:
        """Take in the present weights."""
        self.steps += 1
        for name, p in self._model.named_parameters():
            if name in self.tensors:
                self.tensors[name].lerp_(p, 1.0 - self.decay)

    @torch.no_grad()
    def model(self) -> nn.Module:
        """A copy of the model with the averaged weights (its own weights before any step)."""
        averaged = copy.deepcopy(self._model)
        if self.steps:
            share = 1.0 - self.decay**self.steps
            for name, p in averaged.named_parameters():
                if name in self.tensors:
                    p.copy_(self.tensors[name] / share)
        return averaged
