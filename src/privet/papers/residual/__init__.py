"""Residual perturbation: the paper's tables and figures, and what stronger attacks find."""

from privet.papers.residual.run import reproduce
from privet.papers.residual.settings import QUICK, Settings, paper_settings

__all__ = ["QUICK", "Settings", "paper_settings", "reproduce"]
