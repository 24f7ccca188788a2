"""The estimator's way to the paper's own algorithm: a claim, and what can be proved beside it."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field, replace
from typing import Any, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from privet.errors import InvalidArgument
from privet.ledger import Ledger
from privet.methods.adaptive_laplace.published import Published, PublishedPlan, Reading
from privet.methods.adaptive_laplace.published_nets import PublishedNet
from privet.methods.adaptive_laplace.rows import Bounds, boxed_rows
from privet.methods.base import PublicFacts, Release
from privet.noise import Source

Array = NDArray[Any]

READINGS = {"published": Reading.PAPER, "released": Reading.RELEASED}


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
    """Columns scaled to [0, 1] by public bounds, flat, as Algorithm 1 takes them."""
    if not isinstance(bounds, tuple | list):
        raise InvalidArgument(
            "bounds", bounds, "a pair (low, high) for a network", "it is fed columns in [0, 1]"
        )
    return boxed_rows(x, bounds)


def fit_published(
    rows: Array,
    labels: Array,
    facts: PublicFacts,
    *,
    network: PublishedNet | None,
    reading: str,
    adaptive: bool,
    epochs: int | None,
    ledger: Ledger | None,
    rng: Source,
) -> tuple[PublishedPlan, Release[NetworkRule]]:
    """Algorithm 1, or the authors' release, on a copy of `network` (default: a small dense one)."""
    own = PublishedNet((facts.features,), classes=facts.outputs, maps=())
    method = Published(
        network=own if network is None else copy.deepcopy(network),
        adaptive=adaptive,
        reading=READINGS[reading],
        epochs=10 if epochs is None else epochs,
    )
    plan = method.plan(facts)
    found = method.fit(rows, labels, plan, ledger=ledger, rng=rng)
    return plan, as_rule(found)
