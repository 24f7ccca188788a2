"""Every method at one budget or several, on one split: trained, attacked, audited."""

from privet.compare.bench import Bench, View
from privet.compare.entrants import LIMIT, Entrant, method_entrant, own_entrants
from privet.compare.run import compare
from privet.compare.sweep import curves, export, sweep

__all__ = [
    "LIMIT",
    "Bench",
    "Entrant",
    "View",
    "compare",
    "curves",
    "export",
    "method_entrant",
    "own_entrants",
    "sweep",
]
