"""Residual perturbation: noisy inputs under a proof, and models that are asked within a budget."""

from privet.methods.residual.budgets import NoisyInputBudget, QueryBudget
from privet.methods.residual.noisy_inputs import InputPlan, Labels, NoisyInputs
from privet.methods.residual.served import QueriesSpent, QueryNet, ServedModel
from privet.methods.residual.training import Training, probabilities

__all__ = [
    "InputPlan",
    "Labels",
    "NoisyInputBudget",
    "NoisyInputs",
    "QueriesSpent",
    "QueryBudget",
    "QueryNet",
    "ServedModel",
    "Training",
    "probabilities",
]
