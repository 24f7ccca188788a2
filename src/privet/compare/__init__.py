"""Every method at one budget, on one split: trained, attacked, audited."""

from privet.compare.bench import Bench, View
from privet.compare.entrants import LIMIT, Entrant, method_entrant, own_entrants
from privet.compare.run import compare

__all__ = ["LIMIT", "Bench", "Entrant", "View", "compare", "method_entrant", "own_entrants"]
