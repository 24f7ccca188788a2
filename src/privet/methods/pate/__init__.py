"""PATE for high-dimensional targets: reducers, exact aggregation, teachers and a student."""

from privet.methods.pate.answer_files import (
    AnswerFile,
    Answers,
    RefusedAnswers,
    encode_predictions,
    hash_inputs,
)
from privet.methods.pate.autoencoder_reducer import AutoencoderReducer
from privet.methods.pate.classification_pate import MeanPATE, VotingPATE
from privet.methods.pate.data_dependent_cost import DataDependentCost, confident_cost, gnmax_cost
from privet.methods.pate.distributed_noise import DistributedAggregator
from privet.methods.pate.gnmax_voting import ConfidentGNMax, GNMax, count_votes
from privet.methods.pate.learner_adapters import (
    EstimatorLearner,
    FunctionLearner,
    Learner,
    ModuleLearner,
    as_learner,
)
from privet.methods.pate.mean_aggregation import Aggregator, NoisyAnswers, NoisyLabels, unit_noise
from privet.methods.pate.pca_reducer import ErrorCurve, PCAReducer
from privet.methods.pate.pipeline import PATE, PATEResult, Student
from privet.methods.pate.published_noise import published_claim
from privet.methods.pate.reducer_and_label_files import LabelFile, read_reducer, write_reducer
from privet.methods.pate.reducers import IdentityReducer, Reducer
from privet.methods.pate.shard_charges import shard_ledger
from privet.methods.pate.target_spaces import (
    CentredLogits,
    ClassProbabilities,
    TargetSpace,
    UnitBox,
)
from privet.methods.pate.teachers import TeacherFailed
from privet.methods.pate.volume_pate import VolumePATE

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
    "ErrorCurve",
    "EstimatorLearner",
    "FunctionLearner",
    "GNMax",
    "IdentityReducer",
    "LabelFile",
    "Learner",
    "MeanPATE",
    "ModuleLearner",
    "NoisyAnswers",
    "NoisyLabels",
    "PATEResult",
    "PCAReducer",
    "Reducer",
    "RefusedAnswers",
    "Student",
    "TargetSpace",
    "TeacherFailed",
    "UnitBox",
    "VolumePATE",
    "VotingPATE",
    "as_learner",
    "confident_cost",
    "count_votes",
    "encode_predictions",
    "gnmax_cost",
    "hash_inputs",
    "published_claim",
    "read_reducer",
    "shard_ledger",
    "unit_noise",
    "write_reducer",
]
