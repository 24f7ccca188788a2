"""Attacks on our own promises: lower bounds of epsilon, each with a control and a ceiling."""

from privet.audit.likelihood_ratio import (
    Finding,
    OneShotAudit,
    Verdict,
    clopper_pearson,
    epsilon_bound,
    gaussian_bound,
    gaussian_score,
    laplace_score,
)
from privet.audit.one_run import Canaries, OneRunAudit, one_run_bound

__all__ = [
    "Canaries",
    "Finding",
    "OneRunAudit",
    "OneShotAudit",
    "Verdict",
    "clopper_pearson",
    "epsilon_bound",
    "gaussian_bound",
    "gaussian_score",
    "laplace_score",
    "one_run_bound",
]
