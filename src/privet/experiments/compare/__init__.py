"""Every method at one budget, on one split: trained, attacked, audited."""

from privet.experiments.compare.entrants import ENTRANTS, Entrant
from privet.experiments.compare.run import compare

__all__ = ["ENTRANTS", "Entrant", "compare"]
