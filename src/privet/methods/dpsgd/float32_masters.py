"""Float32 copies of low-precision weights, on which any optimiser steps."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, final

import torch
from torch import Tensor, nn
from torch.optim import Optimizer


@final
class Float32Masters(Optimizer):
    """Any optimiser, on float32 copies of a model's weights that are rounded into it after a step.

    `make` gets the masters and returns the optimiser, as in
    `Float32Masters(model, lambda weights: torch.optim.AdamW(weights, lr=1e-3))`. Give it to
    `private` in place of the optimiser: the released sum is then divided and applied in float32,
    never rounded to the model's precision. Schedulers and checkpoints work as with any optimiser.

    **Guarantee** none of its own: it only reads what was released.

    >>> model = nn.Linear(1, 1, bias=False).bfloat16()
    >>> optimizer = Float32Masters(model, lambda weights: torch.optim.SGD(weights, lr=1.0))
    >>> optimizer.masters["weight"].dtype, model.weight.dtype
    (torch.float32, torch.bfloat16)
    """

    def __init__(self, model: nn.Module, make: Callable[[Iterable[Tensor]], Optimizer]) -> None:
        self._weights = {name: p for name, p in model.named_parameters() if p.requires_grad}
        self.masters = {name: nn.Parameter(p.detach().float()) for name, p in self._weights.items()}
        self.inner = make(list(self.masters.values()))
        self.defaults = self.inner.defaults
        super().__init__(self.inner.param_groups, self.inner.defaults)
        self.param_groups, self.state = self.inner.param_groups, self.inner.state

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """A step of the masters; then the model's weights are their roundings."""
        loss = self.inner.step(closure)
        for name, p in self._weights.items():
            p.copy_(self.masters[name])
        return loss

    def state_dict(self) -> dict[str, Any]:
        """The state of the optimiser, with each master beside it."""
        saved = self.inner.state_dict()
        state = {k: dict(saved["state"].get(k, {})) for k in range(len(self._in_order))}
        for k, master in enumerate(self._in_order):
            state[k]["master"] = master.detach()
        return {**saved, "state": state}

    @torch.no_grad()
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore what `state_dict` gave."""
        state = {k: dict(values) for k, values in state_dict["state"].items()}
        for k, master in enumerate(self._in_order):
            master.copy_(state[k].pop("master"))
        self.inner.load_state_dict({**state_dict, "state": {k: v for k, v in state.items() if v}})
        self.param_groups, self.state = self.inner.param_groups, self.inner.state

    @property
    def _in_order(self) -> list[Tensor]:
        return [p for group in self.inner.param_groups for p in group["params"]]
