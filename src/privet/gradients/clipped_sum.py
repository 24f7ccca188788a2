"""The sum over examples of clipped gradients, in one flat buffer that accumulates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from privet.nets.per_example.device import home_of
from privet.nets.per_example.shards import is_spread, local_of
from privet.nets.per_example.wide import divided_into


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
    """The most examples that a sum is made for: a public number."""
    sensitivity: float = 0.0
    examples_unprotected: int = 0
    non_finite_unprotected: int = 0
    norms: list[Tensor] = field(default_factory=list, repr=False)
    _outdated: set[str] = field(default_factory=set, repr=False)
    _given: dict[str, Tensor] = field(default_factory=dict, repr=False)
    _together: Tensor | None = field(default=None, repr=False)

    @classmethod
    def zeros(cls, parameters: dict[str, nn.Parameter], *, capacity: int = 2**24) -> ClippedSum:
        """An empty sum over the given parameters."""
        home = home_of(parameters.values())
        count = sum(p.numel() for p in parameters.values())
        flat = torch.zeros(count, dtype=torch.float64, device=home)
        views, start = {}, 0
        for name, p in parameters.items():
            views[name] = _like(flat[start : start + p.numel()], p)
            start += p.numel()
        return cls(buffer=flat, views=views, capacity=capacity)

    @property
    def flat(self) -> Tensor:
        """The whole sum as one vector."""
        self._settle()
        return self.buffer

    @property
    def gradients(self) -> dict[str, Tensor]:
        """The sum by parameter name."""
        self._settle()
        return self.views

    def claim(self, name: str) -> tuple[Tensor, bool]:
        """A parameter's gradient, and whether it must be overwritten; from now on it counts."""
        outdated = name in self._outdated
        self._outdated.discard(name)
        return self.views[name], outdated

    def _settle(self) -> None:
        for name in self._outdated:
            self.views[name].zero_()
        self._outdated.clear()

    @property
    def norms_unprotected(self) -> Tensor:
        """Every example's gradient norm before clipping (float64), in order of arrival."""
        return torch.cat(self.norms) if self.norms else torch.zeros(0, dtype=torch.float64)

    def reset(self) -> ClippedSum:
        """Empty the sum for the next step, keeping its memory."""
        self._outdated = set(self.views)
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
        if self._given.keys() != mine.keys():
            self._together = self._room_for(mine)
        if self._together is not None:
            divided_into(self.buffer, divisor, self._together)
        for name, p in mine.items():
            p.grad = self._given[name].detach()  # who gives it other memory has not changed ours
            if self._together is None:
                divided_into(gradients[name], divisor, local_of(p.grad))

    def _room_for(self, parameters: Mapping[str, Tensor]) -> Tensor | None:
        """Make room for gradients: together if they can lie as in the sum, and by parameter."""
        together = parameters.keys() == self.views.keys() and all(
            p.dtype == torch.float32 and p.device == self.buffer.device and not is_spread(p)
            for p in parameters.values()
        )
        if not together:
            self._given = {
                n: torch.empty_like(p, requires_grad=False) for n, p in parameters.items()
            }
            return None
        flat = torch.empty_like(self.buffer, dtype=torch.float32)
        self._given = {
            name: flat.as_strided(v.shape, v.stride(), v.storage_offset())
            for name, v in self.views.items()
        }
        return flat


def _like(flat: Tensor, parameter: Tensor) -> Tensor:
    """A view of `flat` with the parameter's shape, and its strides where they are dense."""
    dense = torch.empty_like(parameter, device="meta", memory_format=torch.preserve_format)
    return flat.as_strided(parameter.shape, dense.stride(), flat.storage_offset())
