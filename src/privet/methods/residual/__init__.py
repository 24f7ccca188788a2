"""Residual perturbation: noisy inputs under a proof, and models that are asked within a budget."""

from privet.methods.residual.budgets import NoisyInputBudget, QueryBudget
from privet.methods.residual.ensemble import Ensemble
from privet.methods.residual.estimator import ResidualPerturbationClassifier
from privet.methods.residual.noisy_inputs import Labels, NoisyInputs
from privet.methods.residual.served import QueriesSpent, QueryNet, ServedModel
from privet.methods.residual.training import Training, probabilities

__all__ = [
    "Ensemble",
    "Labels",
    "NoisyInputBudget",
    "NoisyInputs",
    "QueriesSpent",
    "QueryBudget",
    "QueryNet",
    "ResidualPerturbationClassifier",
    "ServedModel",
    "Training",
    "probabilities",
]
