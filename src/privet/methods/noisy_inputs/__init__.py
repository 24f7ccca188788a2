"""Residual perturbation: noisy inputs under a proof, and models that are asked within a budget."""

from privet.methods.noisy_inputs.bounded_query_network import QueryCost, QueryNet
from privet.methods.noisy_inputs.noisy_inputs import (
    InputPlan,
    LabelPrivacy,
    NoisyInputCost,
    NoisyInputs,
)
from privet.methods.noisy_inputs.plain_training import PlainTraining, mean_probabilities
from privet.methods.noisy_inputs.public_slots import noisy_rows
from privet.methods.noisy_inputs.served_model import QueryBudgetExceeded, ServedModel

__all__ = [
    "InputPlan",
    "LabelPrivacy",
    "NoisyInputCost",
    "NoisyInputs",
    "PlainTraining",
    "QueryBudgetExceeded",
    "QueryCost",
    "QueryNet",
    "ServedModel",
    "mean_probabilities",
    "noisy_rows",
]
