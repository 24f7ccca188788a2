"""Every method at one budget or several, on one split: trained, attacked, audited."""

from privet.compare.comparison import compare
from privet.compare.comparison_data import ComparisonData, View
from privet.compare.epsilon_sweep import curves, sweep
from privet.compare.participants import (
    LIMIT,
    Participant,
    catalogue_participants,
    method_participant,
)
from privet.compare.table_export import export

__all__ = [
    "LIMIT",
    "ComparisonData",
    "Participant",
    "View",
    "catalogue_participants",
    "compare",
    "curves",
    "export",
    "method_participant",
    "sweep",
]
