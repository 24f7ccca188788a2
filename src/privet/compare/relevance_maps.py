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

from privet.compare.comparison_data import ComparisonData, View
from privet.methods.released_models import LinearModel, NetworkModel
from privet.networks.relevance import relevance, scale_to_unit_l1

Relevance = Callable[[Any, ComparisonData], dict[str, Any] | None]
MOST = 1000
"""Public records that are looked at."""


def relevance_of(model: Any, data: ComparisonData) -> dict[str, Any] | None:
    """Relevance maps of a linear rule or a network on columns; None for one on features."""
    released = model.model_
    if isinstance(released, LinearModel) and data.shape is None:
        return _of_rule(model, released, data)
    if isinstance(released, NetworkModel):
        return _of_network(model, released, data)
    return None


def _of_rule(model: Any, rule: LinearModel, data: ComparisonData) -> dict[str, Any]:
    rows = data.public(View.COLUMNS)[:MOST]
    columns, classes = rule.weights.shape
    layer = nn.Linear(columns, classes, bias=False)
    with torch.no_grad():  # each class against the mean of all
        weights = rule.weights - rule.weights.mean(axis=1, keepdims=True)
        layer.weight.copy_(torch.from_numpy(weights.T))
    fed = getattr(model.domain_.rows(rows), rule.view)()
    return _by_class(data, layer, torch.from_numpy(fed - fed.mean(axis=0)), model.predict(rows))


def _of_network(model: Any, trained_model: NetworkModel, data: ComparisonData) -> dict[str, Any]:
    """Relevance of a network for its inputs, after the shaping that it may do itself."""
    rows = data.public(View.RECORDS)[:MOST]
    inputs = torch.from_numpy(
        np.ascontiguousarray(getattr(model.domain_.rows(rows), trained_model.view)())
    )
    network: Any = trained_model.network
    if hasattr(network, "shaped"):
        with torch.no_grad():
            inputs = network.scale(inputs)
        network = network.network
    return _by_class(data, network, inputs, model.predict(rows))


def _by_class(
    data: ComparisonData, network: nn.Module, inputs: Tensor, predicted: NDArray[np.int64]
) -> dict[str, Any]:
    """The mean relevance of every column for the records that are called class k."""
    each = (
        scale_to_unit_l1(relevance(network, inputs, torch.from_numpy(predicted))).flatten(1).numpy()
    )
    maps = [
        each[predicted == k].mean(axis=0) if (predicted == k).any() else np.zeros(each.shape[1])
        for k in data.classes
    ]
    return {
        "maps": [[float(f"{v:.3g}") for v in row] for row in maps],
        "records": [int((predicted == k).sum()) for k in data.classes],
    }
