"""Attacks on our own promises: lower bounds of epsilon, each with a control and a ceiling."""

from privet.audit.finding import Finding, Verdict
from privet.audit.likelihood_ratio import (
    OneShotAudit,
    clopper_pearson,
    epsilon_bound,
    gaussian_bound,
    gaussian_score,
    laplace_score,
)
from privet.audit.many_runs import ManyRunsAudit, group_epsilon
from privet.audit.normal_shift import (
    NormalShiftAudit,
    normal_shift_bound,
    shift_one_run_bound,
)
from privet.audit.one_run import Canaries, OneRunAudit, one_run_bound
from privet.audit.per_step import PerStepAudit
from privet.audit.released import audit_releases
from privet.audit.trade_off_one_run import gaussian_one_run_bound, trade_off_one_run_bound

__all__ = [
    "Canaries",
    "Finding",
    "ManyRunsAudit",
    "NormalShiftAudit",
    "OneRunAudit",
    "OneShotAudit",
    "PerStepAudit",
    "Verdict",
    "audit_releases",
    "clopper_pearson",
    "epsilon_bound",
    "gaussian_bound",
    "gaussian_one_run_bound",
    "gaussian_score",
    "group_epsilon",
    "laplace_score",
    "normal_shift_bound",
    "one_run_bound",
    "shift_one_run_bound",
    "trade_off_one_run_bound",
]
