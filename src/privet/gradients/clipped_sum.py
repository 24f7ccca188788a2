"""The sum over examples of clipped gradients, in one flat buffer that accumulates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from privet.gradients.device import device_of, is_sharded_tensor, local_part
from privet.gradients.float64_sums import divide_into


@dataclass(kw_only=True)
class ClippedSum:
    """sum_i w_i g_i with ||w_i g_i|| <= bound for every example i, in float64.

    `gradients` are views of `flat`, by parameter name, strided like the parameters. What is named
    `unprotected` is a function of single examples: look, but do not publish.

    After `reset` the memory still holds the step before. A layer that can writes its gradient over
    it (see `claim`); what nobody wrote is set to zero when `flat` or `gradients` is looked at.

    **Guarantee**: adding or removing one example changes the exact sum by at most `sensitivity` in
    L2 norm. How far the computed sum is from the exact one is proved in docs/theory/summation.md;
    the noise must cover it.
    """

    buffer: Tensor = field(repr=False)
    views: dict[str, Tensor] = field(repr=False)
    capacity: int = 2**24
    """The most examples that a sum is made for, a public number."""
    sensitivity: float = 0.0
    examples_unprotected: int = 0
    non_finite_unprotected: int = 0
    norms: list[Tensor] = field(default_factory=list, repr=False)
    _stale: set[str] = field(default_factory=set, repr=False)
    _grads: dict[str, Tensor] = field(default_factory=dict, repr=False)
    _flat_grad: Tensor | None = field(default=None, repr=False)

    @classmethod
    def zeros(cls, parameters: dict[str, nn.Parameter], *, capacity: int = 2**24) -> ClippedSum:
        """An empty sum over the given parameters."""
        device = device_of(parameters.values())
        count = sum(p.numel() for p in parameters.values())
        flat = torch.zeros(count, dtype=torch.float64, device=device)
        views, start = {}, 0
        for name, p in parameters.items():
            views[name] = _like(flat[start : start + p.numel()], p)
            start += p.numel()
        return cls(buffer=flat, views=views, capacity=capacity)

    @property
    def flat(self) -> Tensor:
        """The whole sum as one vector."""
        self._zero_stale()
        return self.buffer

    @property
    def gradients(self) -> dict[str, Tensor]:
        """The sum by parameter name."""
        self._zero_stale()
        return self.views

    def claim(self, name: str) -> tuple[Tensor, bool]:
        """A parameter's gradient, and whether it must be overwritten; from now on it counts."""
        stale = name in self._stale
        self._stale.discard(name)
        return self.views[name], stale

    def _zero_stale(self) -> None:
        for name in self._stale:
            self.views[name].zero_()
        self._stale.clear()

    @property
    def norms_unprotected(self) -> Tensor:
        """Every example's gradient norm before clipping (float64), in order of arrival."""
        return torch.cat(self.norms) if self.norms else torch.zeros(0, dtype=torch.float64)

    def reset(self) -> ClippedSum:
        """Empty the sum for the next step, keeping its memory."""
        self._stale = set(self.views)
        self.sensitivity, self.examples_unprotected, self.non_finite_unprotected = 0.0, 0, 0
        self.norms = []
        return self

    def assign_to(self, model: nn.Module, *, divisor: float = 1.0) -> None:
        """Set the parameters' .grad to this sum over the divisor, in memory of its own."""
        self.assign(dict(model.named_parameters()), divisor=divisor)

    def assign(self, parameters: Mapping[str, Tensor], *, divisor: float = 1.0) -> None:
        """The same for those parameters, or what stands for them, that the sum has."""
        gradients = self.gradients
        mine = {name: p for name, p in parameters.items() if name in gradients}
        if self._grads.keys() != mine.keys():
            self._flat_grad = self._room_for(mine)
        if self._flat_grad is not None:
            divide_into(self.buffer, divisor, self._flat_grad)
        for name, p in mine.items():
            p.grad = self._grads[name].detach()  # who gives it other memory has not changed ours
            if self._flat_grad is None:
                divide_into(gradients[name], divisor, local_part(p.grad))

    def _room_for(self, parameters: Mapping[str, Tensor]) -> Tensor | None:
        """Make room for gradients: together if they can lie as in the sum, and by parameter."""
        together = parameters.keys() == self.views.keys() and all(
            p.dtype == torch.float32 and p.device == self.buffer.device and not is_sharded_tensor(p)
            for p in parameters.values()
        )
        if not together:
            self._grads = {
                n: torch.empty_like(p, requires_grad=False) for n, p in parameters.items()
            }
            return None
        flat = torch.empty_like(self.buffer, dtype=torch.float32)
        self._grads = {
            name: flat.as_strided(v.shape, v.stride(), v.storage_offset())
            for name, v in self.views.items()
        }
        return flat


def _like(flat: Tensor, parameter: Tensor) -> Tensor:
    """A view of `flat` with the parameter's shape, and its strides where they are dense."""
    dense = torch.empty_like(parameter, device="meta", memory_format=torch.preserve_format)
    return flat.as_strided(parameter.shape, dense.stride(), flat.storage_offset())
