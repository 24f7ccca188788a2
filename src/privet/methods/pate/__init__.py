"""PATE for high-dimensional targets: reducers, exact aggregation, teachers and a student."""

from privet.methods.pate.aggregate import (
    Aggregator,
    NoisyAnswers,
    shard_ledger,
    unit_noise,
)
from privet.methods.pate.answers import AnswerFile, Answers, RefusedAnswers
from privet.methods.pate.asking import TeacherFailed
from privet.methods.pate.autoencoder import AutoencoderReducer
from privet.methods.pate.data_dependent import DataDependentCost, confident_cost, gnmax_cost
from privet.methods.pate.distributed import DistributedAggregator
from privet.methods.pate.files import Labels, read_reducer, write_reducer
from privet.methods.pate.learners import (
    EstimatorLearner,
    FunctionLearner,
    Learner,
    ModuleLearner,
)
from privet.methods.pate.mean import MeanPATE
from privet.methods.pate.method import PATE, Student
from privet.methods.pate.pca import ErrorCurve, PCAReducer
from privet.methods.pate.reducers import IdentityReducer, Reducer
from privet.methods.pate.targets import CentredLogits, ClassProbabilities, TargetSpace, UnitBox
from privet.methods.pate.votes import VotingPATE
from privet.methods.pate.voting import ConfidentGNMax, Election, GNMax, count_votes

__all__ = [
    "PATE",
    "Aggregator",
    "AnswerFile",
    "Answers",
    "AutoencoderReducer",
    "CentredLogits",
    "ClassProbabilities",
    "ConfidentGNMax",
    "DataDependentCost",
    "DistributedAggregator",
    "Election",
    "ErrorCurve",
    "EstimatorLearner",
    "FunctionLearner",
    "GNMax",
    "IdentityReducer",
    "Labels",
    "Learner",
    "MeanPATE",
    "ModuleLearner",
    "NoisyAnswers",
    "PCAReducer",
    "Reducer",
    "RefusedAnswers",
    "Student",
    "TargetSpace",
    "TeacherFailed",
    "UnitBox",
    "VotingPATE",
    "confident_cost",
    "count_votes",
    "gnmax_cost",
    "read_reducer",
    "shard_ledger",
    "unit_noise",
    "write_reducer",
]
