"""Residual perturbation as published, its theorems, and its experiment."""

from privet_papers.residual.published import PublishedResidual
from privet_papers.residual.theorems import TheoremOne, TheoremThree, TheoremTwo

__all__ = ["PublishedResidual", "TheoremOne", "TheoremThree", "TheoremTwo"]
