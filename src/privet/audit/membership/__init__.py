"""Membership attacks on any model that answers with probabilities, ours or not.

Each attack gives scores, higher for members; `evaluate` compares them with the truth. Reference
models come from `train_references`.
"""

from privet.audit.membership.by_reference import (
    RMIA,
    BaVarIA,
    LiRA,
    OfflineLiRA,
    OfflineRMIA,
    ReferenceAttack,
)
from privet.audit.membership.confidence import confidence, confidence_of_logits
from privet.audit.membership.finding import AtThreshold, MembershipFinding, evaluate
from privet.audit.membership.intervals import Estimate
from privet.audit.membership.quantile import by_regression
from privet.audit.membership.references import References, halves, train_references
from privet.audit.membership.shadow import FittedShadowAttack, ShadowAttack, Splits
from privet.audit.membership.simple import (
    gap,
    gaussian_perturbation,
    label_only,
    yeom,
    yeom_threshold,
)
from privet.audit.membership.together import attack

__all__ = [
    "RMIA",
    "AtThreshold",
    "BaVarIA",
    "Estimate",
    "FittedShadowAttack",
    "LiRA",
    "MembershipFinding",
    "OfflineLiRA",
    "OfflineRMIA",
    "ReferenceAttack",
    "References",
    "ShadowAttack",
    "Splits",
    "attack",
    "by_regression",
    "confidence",
    "confidence_of_logits",
    "evaluate",
    "gap",
    "gaussian_perturbation",
    "halves",
    "label_only",
    "train_references",
    "yeom",
    "yeom_threshold",
]
