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

from privet.estimators import PrivateClassifier
from privet.experiments.compare.bench import Bench, View
from privet.methods.models import LinearModel, NetworkModel
from privet.nets.networks import ShapedNetwork
from privet.nets.relevance import of_unit_length, relevance

Relevance = Callable[[PrivateClassifier, Bench], dict[str, Any] | None]
MOST = 1000
"""Public records that are looked at."""


def of_rule(model: PrivateClassifier, bench: Bench) -> dict[str, Any] | None:
    """Of a linear rule on columns; None where it stands on features, which nobody can look at."""
    if bench.shape is not None:
        return None
    rule, rows = model.model_, bench.public(View.COLUMNS)[:MOST]
    assert isinstance(rule, LinearModel)
    columns, classes = rule.weights.shape
    layer = nn.Linear(columns, classes, bias=False)
    with torch.no_grad():  # each class against the mean of all
        weights = rule.weights - rule.weights.mean(axis=1, keepdims=True)
        layer.weight.copy_(torch.from_numpy(weights.T))
    fed = model.domain_.rows(rows).directions()
    return _by_class(bench, layer, torch.from_numpy(fed - fed.mean(axis=0)), model.predict(rows))


def of_network(model: PrivateClassifier, bench: Bench) -> dict[str, Any] | None:
    """Of a network trained with shaped noise, for what it is fed: 2 D (x - m)."""
    rule = model.model_
    assert isinstance(rule, NetworkModel) and isinstance(rule.network, ShapedNetwork)
    shaped = rule.network
    rows = torch.from_numpy(bench.public(View.COLUMNS)[:MOST])
    with torch.no_grad():
        fed = shaped.shaped(rows)
    return _by_class(bench, shaped.network, fed, model.predict(rows.numpy()))


def _by_class(
    bench: Bench, network: nn.Module, fed: Tensor, said: NDArray[np.int64]
) -> dict[str, Any]:
    """The mean relevance of every column for the records that are called class k."""
    each = of_unit_length(relevance(network, fed, torch.from_numpy(said))).numpy()
    maps = [
        each[said == k].mean(axis=0) if (said == k).any() else np.zeros(each.shape[1])
        for k in bench.classes
    ]
    return {
        "maps": [[float(f"{v:.3g}") for v in row] for row in maps],
        "records": [int((said == k).sum()) for k in bench.classes],
    }
