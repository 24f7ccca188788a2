"""Residual perturbation: noisy inputs under a proof, noisy blocks as published, and budgets."""

from privet.methods.residual.budgets import (
    NoisyInputBudget,
    QueryBudget,
    TheoremOne,
    TheoremTwo,
)
from privet.methods.residual.ensemble import Ensemble
from privet.methods.residual.estimator import ResidualPerturbationClassifier
from privet.methods.residual.generalisation import TheoremThree
from privet.methods.residual.noisy_inputs import Labels, NoisyInputs, PublishedInputs
from privet.methods.residual.served import QueriesSpent, QueryNet, ServedModel
from privet.methods.residual.training import Training, probabilities

__all__ = [
    "Ensemble",
    "Labels",
    "NoisyInputBudget",
    "NoisyInputs",
    "PublishedInputs",
    "QueriesSpent",
    "QueryBudget",
    "QueryNet",
    "ResidualPerturbationClassifier",
    "ServedModel",
    "TheoremOne",
    "TheoremThree",
    "TheoremTwo",
    "Training",
    "probabilities",
]
