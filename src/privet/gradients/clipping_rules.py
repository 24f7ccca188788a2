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

# Relative room left under every bound: weights are rounded to float32, and so is what they weigh,
# by 2 u = 1.2e-7 together (docs/theory/summation.md); this is more than ten times that.
SLACK = 2e-6
# No weight may be larger: float32 ends at 2^128, and what is weighed is below 2^40 (rounding.py).
LARGEST_WEIGHT = 2.0**80


@dataclass(frozen=True, kw_only=True)
class Clipping(ABC):
    """A rule that bounds every example's contribution.

    A rule of your own is asked about one example at a time, and held to the sensitivity that it
    states (see `weigh_examples`).
    """

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
        _check.clipping_bound("bound", self.bound)

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
        _check.clipping_bound("bound", self.bound)
        for name, value in self.bounds.items():
            _check.clipping_bound(f"bounds[{name!r}]", value)

    def _each(self, layers: Sequence[str]) -> list[float]:
        unknown = sorted(set(self.bounds) - set(layers))
        if unknown:
            raise InvalidArgument("bounds", unknown, f"keyed by layer names among {list(layers)}")
        share = self.bound / math.sqrt(max(1, len(layers)))
        if set(layers) - set(self.bounds):
            _check.clipping_bound(f"bound / sqrt({len(layers)} layers)", share)
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
        _check.clipping_bound("bound", self.bound)
        _check.between("gamma", self.gamma, self.bound / LARGEST_WEIGHT, math.inf)

    def weights(self, squared_norms: Tensor, layers: Sequence[str]) -> Tensor:
        norms = squared_norms.sum(0, keepdim=True).sqrt()
        return (self.bound * (1.0 - SLACK) / (norms + self.gamma)).expand_as(squared_norms)

    def sensitivity(self, layers: Sequence[str]) -> float:
        return self.bound


def _scale(bound: float | Tensor, norms: Tensor) -> Tensor:
    """min(1, C (1 - slack) / norm), which is 1 for a norm of zero."""
    return (bound * (1.0 - SLACK) / norms).clamp(max=1.0)


def is_builtin_clipping(rule: Clipping) -> bool:
    """Whether a rule is one of ours, of which it is proved that ||w g|| <= sensitivity."""
    return type(rule) in (FlatClipping, PerLayerClipping, AutomaticClipping)


def weigh_examples(
    rule: Clipping, squared_norms: Tensor, layers: Sequence[str]
) -> tuple[Tensor, int]:
    """Weigh each example by itself, within the sensitivity that the rule states.

    A rule of somebody's own sees a copy of one example's squared norms at a time, so that it cannot
    weigh one by another. What then exceeds its sensitivity by no more than rounding is shortened to
    leave room for ours; an example that exceeds it by more, or has a weight that is not a number,
    counts as nothing: its weights are zero. How many do is the second answer, which is exact and
    must not be published.

    **Guarantee**: ||w_i g_i|| <= sensitivity for every example i with finite norms.

    Cost: that of the rule; for a rule of somebody's own, one call an example.

    >>> class Ones(Clipping):
    ...     def weights(self, squared_norms, layers):
    ...         return torch.ones_like(squared_norms)
    ...     def sensitivity(self, layers):
    ...         return 1.0
    >>> norms = torch.tensor([[0.25, 9.0]], dtype=torch.float64)
    >>> weights, over = weigh_examples(Ones(), norms, ["a"])
    >>> weights.tolist(), over
    ([[1.0, 0.0]], 1)
    """
    if is_builtin_clipping(rule):
        return rule.weights(squared_norms, layers), 0
    bound = _check.clipping_bound("sensitivity", rule.sensitivity(layers))
    weights = torch.zeros_like(squared_norms)
    for i in range(squared_norms.shape[1]):
        if bool(squared_norms[:, i].isfinite().all()):
            weights[:, i : i + 1] = _ask(rule, squared_norms[:, i : i + 1].clone(), layers)
    lengths = (weights.square() * squared_norms.nan_to_num(0.0, 0.0)).sum(0).sqrt()
    room = bound * (1.0 - SLACK)
    within = (lengths <= bound * (1.0 + SLACK)) & (weights.abs() <= LARGEST_WEIGHT).all(0)
    weights = torch.where(lengths > room, weights * (room / lengths), weights)
    return torch.where(within, weights, torch.zeros_like(weights)), int((~within).sum())


def _ask(rule: Clipping, squared_norms: Tensor, layers: Sequence[str]) -> Tensor:
    shape = tuple(squared_norms.shape)
    weights = torch.as_tensor(rule.weights(squared_norms, layers)).detach()
    if tuple(weights.shape) != shape:
        raise InvalidArgument(
            f"the weights of {type(rule).__name__}", tuple(weights.shape),
            f"of shape {shape}, (layers, examples): it is asked about one example at a time",
        )  # fmt: skip
    return weights.to(squared_norms)
