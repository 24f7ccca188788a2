"""How much of each example's gradient is kept: flat, per-layer and automatic clipping.

A clipping turns squared norms into weights. With g_i the gradient of example i (restricted to a
layer for per-layer clipping) and w_i its weight, the sum over examples of w_i g_i has an L2
sensitivity (add-remove) of `sensitivity`, because ||w_i g_i|| <= bound for every i.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import final

import torch
from torch import Tensor

from privet import _check
from privet.errors import InvalidArgument

SLACK = 2e-6
"""Relative room left under every bound for the rounding of float32 norms."""


@dataclass(frozen=True, kw_only=True)
class Clipping(ABC):
    """A rule that bounds every example's contribution."""

    @abstractmethod
    def weights(self, squared_norms: Tensor, layers: Sequence[str]) -> Tensor:
        """Weights of the same shape (layers, examples) as the squared norms (float64)."""

    @abstractmethod
    def sensitivity(self, layers: Sequence[str]) -> float:
        """The largest L2 norm that one example can add to the sum."""


@final
@dataclass(frozen=True, kw_only=True)
class FlatClipping(Clipping):
    """Scale the whole gradient of an example to norm at most C: w = min(1, C / ||g||).

    **Guarantee**: ||w g|| <= bound, with a relative room of `SLACK` for rounding.

    >>> FlatClipping(bound=1.0).weights(torch.tensor([[4.0]], dtype=torch.float64), ["a"]).item()
    0.499999
    """

    bound: float

    def __post_init__(self) -> None:
        _check.positive("bound", self.bound)

    def weights(self, squared_norms: Tensor, layers: Sequence[str]) -> Tensor:
        norms = squared_norms.sum(0, keepdim=True).sqrt()
        return _scale(self.bound, norms).expand_as(squared_norms)

    def sensitivity(self, layers: Sequence[str]) -> float:
        return self.bound


@final
@dataclass(frozen=True, kw_only=True)
class PerLayerClipping(Clipping):
    """Clip every layer by itself: to C / sqrt(number of layers), or to a bound of its own.

    `bounds` maps layer names (see `PerExampleGradients.layers`) to bounds; a layer without an entry
    takes an equal share of `bound`. The sensitivity is the root of the sum of squared bounds.

    >>> round(PerLayerClipping(bound=1.0).sensitivity(["a", "b"]), 12)
    1.0
    """

    bound: float
    bounds: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))

    def __post_init__(self) -> None:
        _check.positive("bound", self.bound)
        for name, value in self.bounds.items():
            _check.positive(f"bounds[{name!r}]", value)

    def _each(self, layers: Sequence[str]) -> list[float]:
        unknown = sorted(set(self.bounds) - set(layers))
        if unknown:
            raise InvalidArgument("bounds", unknown, f"keyed by layer names among {list(layers)}")
        share = self.bound / math.sqrt(max(1, len(layers)))
        return [self.bounds.get(name, share) for name in layers]

    def weights(self, squared_norms: Tensor, layers: Sequence[str]) -> Tensor:
        each = torch.tensor(self._each(layers), dtype=squared_norms.dtype)
        each = each.unsqueeze(1).to(squared_norms.device)
        return _scale(each, squared_norms.sqrt())

    def sensitivity(self, layers: Sequence[str]) -> float:
        return math.sqrt(sum(bound * bound for bound in self._each(layers)))


@final
@dataclass(frozen=True, kw_only=True)
class AutomaticClipping(Clipping):
    """Normalise instead of clipping: w = C / (||g|| + gamma), so every example weighs alike.

    Bu, Wang, Zha, Karypis: *Automatic Clipping* (2022); gamma keeps small gradients small.

    **Guarantee**: ||w g|| < bound.

    >>> w = AutomaticClipping(bound=2.0, gamma=1.0).weights(torch.tensor([[9.0]]).double(), ["a"])
    >>> round(w.item(), 4)
    0.5
    """

    bound: float
    gamma: float = 0.01

    def __post_init__(self) -> None:
        _check.positive("bound", self.bound)
        _check.positive("gamma", self.gamma)

    def weights(self, squared_norms: Tensor, layers: Sequence[str]) -> Tensor:
        norms = squared_norms.sum(0, keepdim=True).sqrt()
        return (self.bound * (1.0 - SLACK) / (norms + self.gamma)).expand_as(squared_norms)

    def sensitivity(self, layers: Sequence[str]) -> float:
        return self.bound


def _scale(bound: float | Tensor, norms: Tensor) -> Tensor:
    """min(1, C (1 - slack) / norm), which is 1 for a norm of zero."""
    return (bound * (1.0 - SLACK) / norms).clamp(max=1.0)
