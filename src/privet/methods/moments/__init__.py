"""The Adaptive Laplace Mechanism under a proof: one-shot moments, shaped training, local noise."""

from privet.methods.adaptive_laplace.local import LocalPlan, LocalRecords, shuffled_epsilon
from privet.methods.adaptive_laplace.moments import MomentPlan, OneShotMoments
from privet.methods.adaptive_laplace.shaped_training import RelevanceShapedTraining, ShapedPlan
from privet.methods.adaptive_laplace.solve import Objective, Solver

__all__ = [
    "LocalPlan",
    "LocalRecords",
    "MomentPlan",
    "Objective",
    "OneShotMoments",
    "RelevanceShapedTraining",
    "ShapedPlan",
    "Solver",
    "shuffled_epsilon",
]
