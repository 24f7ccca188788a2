"""Residual perturbation: the paper's tables and figures, and what stronger attacks find."""

from privet.papers.residual.published import PublishedResidual
from privet.papers.residual.run import reproduce
from privet.papers.residual.settings import QUICK, Settings, paper_settings

__all__ = ["QUICK", "PublishedResidual", "Settings", "paper_settings", "reproduce"]
