"""The Adaptive Laplace Mechanism as published, its audit, and its experiment."""

from privet_papers.adaptive_laplace.authors_code import AuthorsAdLM
from privet_papers.adaptive_laplace.counter_example import audit_record, audit_shared
from privet_papers.adaptive_laplace.published import PublishedAdLM, PublishedILM

__all__ = ["AuthorsAdLM", "PublishedAdLM", "PublishedILM", "audit_record", "audit_shared"]
