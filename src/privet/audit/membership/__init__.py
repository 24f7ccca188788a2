"""Membership attacks on any model that answers with probabilities, ours or not.

Each attack gives scores, higher for members; `evaluate` compares them with the truth. Reference
models come from `train_references`.
"""

from privet.audit.membership.attack import attack
from privet.audit.membership.lira_bavaria_rmia import (
    RMIA,
    BaVarIA,
    LiRA,
    OfflineLiRA,
    OfflineRMIA,
    ReferenceAttack,
)
from privet.audit.membership.logit_confidence import confidence, confidence_of_logits
from privet.audit.membership.loss_and_label import (
    gap,
    gaussian_perturbation,
    label_only,
    yeom,
    yeom_threshold,
)
from privet.audit.membership.membership_finding import (
    AtThreshold,
    Estimate,
    MembershipFinding,
    evaluate,
)
from privet.audit.membership.model_confidence import confidence_of_model
from privet.audit.membership.quantile_regression import by_regression
from privet.audit.membership.reference_models import References, random_halves, train_references
from privet.audit.membership.shadow_attack import FittedShadowAttack, ShadowAttack, Splits

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
    "confidence_of_model",
    "evaluate",
    "gap",
    "gaussian_perturbation",
    "label_only",
    "random_halves",
    "train_references",
    "yeom",
    "yeom_threshold",
]
