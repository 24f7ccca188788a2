"""Attacks on our own promises: lower bounds of epsilon, each with a control and a ceiling."""

from privet.audit.all_releases_audit import audit_releases
from privet.audit.epsilon_lower_bounds import (
    all_thresholds_bound,
    bootstrap_interval,
    clopper_pearson,
    epsilon_bound,
    gaussian_bound,
)
from privet.audit.finding import Finding, Verdict
from privet.audit.gaussian_score_audit import (
    NormalShiftAudit,
    normal_shift_bound,
    shift_one_run_bound,
)
from privet.audit.many_runs_audit import ManyRunsAudit, group_epsilon
from privet.audit.mislabelled_canaries import Canaries
from privet.audit.one_run_audit import (
    OneRunAudit,
    gaussian_one_run_bound,
    one_run_bound,
    trade_off_one_run_bound,
)
from privet.audit.per_step_audit import PerStepAudit
from privet.audit.single_release_audit import OneShotAudit, gaussian_score, laplace_score

__all__ = [
    "Canaries",
    "Finding",
    "ManyRunsAudit",
    "NormalShiftAudit",
    "OneRunAudit",
    "OneShotAudit",
    "PerStepAudit",
    "Verdict",
    "all_thresholds_bound",
    "audit_releases",
    "bootstrap_interval",
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
