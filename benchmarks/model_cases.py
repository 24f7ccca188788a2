"""A case of `benchmarks.models`: a model, its data, and one loss a row."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from torch import Tensor, nn


class Problem(NamedTuple):
    """A model that was just made, records in tensors, and `losses(model, batch)`."""

    model: nn.Module
    tensors: tuple[Tensor, ...]
    losses: Callable[[nn.Module, Any], Tensor]


class Case(NamedTuple):
    """A name of the form library/kind/variant, and what makes the problem."""

    name: str
    make: Callable[[], Problem]
