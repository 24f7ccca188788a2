"""The Adaptive Laplace Mechanism: one-shot moments under a proof, locally, and as published."""

from privet.methods.adaptive_laplace.estimator import AdaptiveLaplaceClassifier
from privet.methods.adaptive_laplace.local import LocalPlan, LocalRecords, shuffled_epsilon
from privet.methods.adaptive_laplace.moments import MomentPlan, OneShotMoments
from privet.methods.adaptive_laplace.shaped_training import (
    RelevanceShapedTraining,
    ShapedNetwork,
    ShapedPlan,
)
from privet.methods.adaptive_laplace.shaping import RelevanceScaling, private_relevance
from privet.methods.adaptive_laplace.solve import LinearRule, Objective, Solver

__all__ = [
    "AdaptiveLaplaceClassifier",
    "LinearRule",
    "LocalPlan",
    "LocalRecords",
    "MomentPlan",
    "Objective",
    "OneShotMoments",
    "RelevanceScaling",
    "RelevanceShapedTraining",
    "ShapedNetwork",
    "ShapedPlan",
    "Solver",
    "private_relevance",
    "shuffled_epsilon",
]
