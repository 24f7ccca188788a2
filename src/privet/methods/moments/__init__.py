"""The Adaptive Laplace Mechanism under a proof: one-shot moments, shaped training, local noise."""

from privet.accounting.shuffle_amplification import shuffled_epsilon
from privet.methods.moments.classifier_from_moments import Objective, Solver
from privet.methods.moments.local_privacy import LocalPlan, LocalRecords
from privet.methods.moments.one_shot_moments import OneShotMoments, OneShotPlan
from privet.methods.moments.relevance_shaped_training import RelevanceShapedTraining, ShapedPlan

__all__ = [
    "LocalPlan",
    "LocalRecords",
    "Objective",
    "OneShotMoments",
    "OneShotPlan",
    "RelevanceShapedTraining",
    "ShapedPlan",
    "Solver",
    "shuffled_epsilon",
]
