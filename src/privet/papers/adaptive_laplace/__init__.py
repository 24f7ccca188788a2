"""The Adaptive Laplace Mechanism as published, its audit, and its experiment."""

from privet.papers.adaptive_laplace.audit import audit_record, audit_shared
from privet.papers.adaptive_laplace.estimators import PublishedAdLM, PublishedILM, ReleasedAdLM

__all__ = ["PublishedAdLM", "PublishedILM", "ReleasedAdLM", "audit_record", "audit_shared"]
