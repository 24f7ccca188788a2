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

__all__ = [
    "Finding",
    "OneShotAudit",
    "Verdict",
    "clopper_pearson",
    "epsilon_bound",
    "gaussian_bound",
    "gaussian_score",
    "laplace_score",
]
