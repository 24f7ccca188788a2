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

from privet.experiments.compare.bench import Bench, View
from privet.methods.adaptive_laplace import AdaptiveLaplaceClassifier
from privet.methods.adaptive_laplace.network_rule import NetworkRule
from privet.methods.adaptive_laplace.rows import public_rows
from privet.methods.adaptive_laplace.shaped_training import ShapedNetwork
from privet.methods.adaptive_laplace.solve import LinearRule
from privet.nets.relevance import of_unit_length, relevance

Relevance = Callable[[AdaptiveLaplaceClassifier, Bench], dict[str, Any] | None]
MOST = 1000
"""Public records that are looked at."""


def of_rule(model: AdaptiveLaplaceClassifier, bench: Bench) -> dict[str, Any] | None:
    """Of a linear rule on columns; None where it stands on features, which nobody can look at."""
    if bench.shape is not None:
        return None
    rule, rows = model.model_, bench.public(View.COLUMNS)[:MOST]
    assert isinstance(rule, LinearRule)
    columns, classes = rule.weights.shape
    layer = nn.Linear(columns, classes, bias=False)
    with torch.no_grad():  # each class against the mean of all
        weights = rule.weights - rule.weights.mean(axis=1, keepdims=True)
        layer.weight.copy_(torch.from_numpy(weights.T))
    fed = public_rows(rows, features=None, bounds=bench.feature_bounds)
    return _by_class(bench, layer, torch.from_numpy(fed - fed.mean(axis=0)), model.predict(rows))


def of_network(model: AdaptiveLaplaceClassifier, bench: Bench) -> dict[str, Any] | None:
    """Of a network trained with shaped noise, for what it is fed: 2 D (x - m)."""
    rule = model.model_
    assert isinstance(rule, NetworkRule) and isinstance(rule.network, ShapedNetwork)
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
