"""Residual perturbation as published, its theorems, and its experiment."""

from privet.papers.residual.generalisation import TheoremThree
from privet.papers.residual.published import PublishedResidual
from privet.papers.residual.theorems import TheoremOne, TheoremTwo

__all__ = ["PublishedResidual", "TheoremOne", "TheoremThree", "TheoremTwo"]
