"""A trained network as a rule of the estimator, and the rows it is fed."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from privet.errors import InvalidArgument
from privet.methods.adaptive_laplace.rows import Bounds, boxed_rows
from privet.methods.base import Release

Array = NDArray[Any]


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class NetworkRule:
    """A trained network as a rule: logits of rows in [0, 1]."""

    network: nn.Module = field(repr=False)

    @torch.no_grad()
    def logits(self, rows: Array) -> NDArray[np.float64]:
        """One logit a class for each row."""
        parts = [
            self.network(torch.from_numpy(p)) for p in np.array_split(rows, 1 + len(rows) // 512)
        ]
        return np.asarray(torch.cat(parts).double().numpy())


def as_rule(release: Release[Any]) -> Release[NetworkRule]:
    """The release of a network as that of a rule."""
    return replace(release, model=NetworkRule(network=release.model.eval()))


def rows_for_network(x: Array, bounds: Bounds) -> Array:
    """Columns scaled to [0, 1] by public bounds, flat."""
    if not isinstance(bounds, tuple | list):
        raise InvalidArgument(
            "bounds", bounds, "a pair (low, high) for a network", "it is fed columns in [0, 1]"
        )
    return boxed_rows(x, bounds)
