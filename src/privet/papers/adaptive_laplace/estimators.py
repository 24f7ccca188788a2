"""The estimator's way to the paper's own algorithm: a claim, and what can be proved beside it."""

from __future__ import annotations

import copy
from typing import Any

from numpy.typing import NDArray

from privet.ledger import Ledger
from privet.methods.adaptive_laplace.network_rule import NetworkRule, as_rule
from privet.methods.base import PublicFacts, Release
from privet.noise import Source
from privet.papers.adaptive_laplace.networks import PublishedNet
from privet.papers.adaptive_laplace.published import Published, PublishedPlan, Reading

Array = NDArray[Any]

READINGS = {"published": Reading.PAPER, "released": Reading.RELEASED}


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
