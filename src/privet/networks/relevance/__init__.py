"""Relevance: which input features an output comes from, exactly or as a private average."""

from privet.networks.relevance.layer_rules import Add, Residual, StabiliserRule
from privet.networks.relevance.private_relevance import (
    LedgerModel,
    Origin,
    PrivateModel,
    PrivateRelevance,
    PublicModel,
    bounded_average_relevance,
    budget_ratios,
    private_average_relevance,
)
from privet.networks.relevance.propagation import (
    RelevanceAccount,
    accounted_relevance,
    average_relevance,
    relevance,
    relevance_in_batches,
    scale_to_unit_interval,
    scale_to_unit_l1,
)

__all__ = [
    "Add",
    "LedgerModel",
    "Origin",
    "PrivateModel",
    "PrivateRelevance",
    "PublicModel",
    "RelevanceAccount",
    "Residual",
    "StabiliserRule",
    "accounted_relevance",
    "average_relevance",
    "bounded_average_relevance",
    "budget_ratios",
    "private_average_relevance",
    "relevance",
    "relevance_in_batches",
    "scale_to_unit_interval",
    "scale_to_unit_l1",
]
