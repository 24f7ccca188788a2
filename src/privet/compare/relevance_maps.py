"""What a released model looks at, class by class: layer-wise relevance of public records.

The model was paid for and the records are public, so nothing of this costs anything.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from privet.compare.bench import Bench, View
from privet.methods.models import LinearModel, NetworkModel
from privet.nets.relevance import of_unit_length, relevance

Relevance = Callable[[Any, Bench], dict[str, Any] | None]
MOST = 1000
"""Public records that are looked at."""


def relevance_of(model: Any, bench: Bench) -> dict[str, Any] | None:
    """Of a linear rule or a network on columns; None for features, which nobody can look at."""
    released = model.model_
    if isinstance(released, LinearModel) and bench.shape is None:
        return _of_rule(model, released, bench)
    if isinstance(released, NetworkModel):
        return _of_network(model, released, bench)
    return None


def _of_rule(model: Any, rule: LinearModel, bench: Bench) -> dict[str, Any]:
    rows = bench.public(View.COLUMNS)[:MOST]
    columns, classes = rule.weights.shape
    layer = nn.Linear(columns, classes, bias=False)
    with torch.no_grad():  # each class against the mean of all
        weights = rule.weights - rule.weights.mean(axis=1, keepdims=True)
        layer.weight.copy_(torch.from_numpy(weights.T))
    fed = getattr(model.domain_.rows(rows), rule.view)()
    return _by_class(bench, layer, torch.from_numpy(fed - fed.mean(axis=0)), model.predict(rows))


def _of_network(model: Any, released: NetworkModel, bench: Bench) -> dict[str, Any]:
    """For what the layers are fed: a network that shapes its inputs says what that is."""
    rows = bench.public(View.RECORDS)[:MOST]
    fed = torch.from_numpy(np.ascontiguousarray(getattr(model.domain_.rows(rows), released.view)()))
    network: Any = released.network
    if hasattr(network, "shaped"):
        with torch.no_grad():
            fed = network.shaped(fed)
        network = network.network
    return _by_class(bench, network, fed, model.predict(rows))


def _by_class(
    bench: Bench, network: nn.Module, fed: Tensor, said: NDArray[np.int64]
) -> dict[str, Any]:
    """The mean relevance of every column for the records that are called class k."""
    each = of_unit_length(relevance(network, fed, torch.from_numpy(said))).flatten(1).numpy()
    maps = [
        each[said == k].mean(axis=0) if (said == k).any() else np.zeros(each.shape[1])
        for k in bench.classes
    ]
    return {
        "maps": [[float(f"{v:.3g}") for v in row] for row in maps],
        "records": [int((said == k).sum()) for k in bench.classes],
    }
