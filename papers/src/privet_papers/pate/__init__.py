"""PATE for high-dimensional targets as published, and its experiment on volumes."""

from privet_papers.pate.published import PublishedPATE

__all__ = ["PublishedPATE"]
