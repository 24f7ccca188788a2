"""Relevance: which input features an output comes from, exactly or as a private average."""

from privet.nets.relevance.layers import Add, Residual
from privet.nets.relevance.private import (
    Origin,
    PaidModel,
    PrivateModel,
    PrivateRelevance,
    PublicModel,
    bounded_average_relevance,
    budget_ratios,
    private_average_relevance,
)
from privet.nets.relevance.propagate import (
    Accounted,
    accounted_relevance,
    average_relevance,
    between_extremes,
    in_batches,
    of_unit_length,
    relevance,
)
from privet.nets.relevance.rules import StabiliserRule

__all__ = [
    "Accounted",
    "Add",
    "Origin",
    "PaidModel",
    "PrivateModel",
    "PrivateRelevance",
    "PublicModel",
    "Residual",
    "StabiliserRule",
    "accounted_relevance",
    "average_relevance",
    "between_extremes",
    "bounded_average_relevance",
    "budget_ratios",
    "in_batches",
    "of_unit_length",
    "private_average_relevance",
    "relevance",
]
