"""The deep private auto-encoder as published, the models it is compared to, and its experiment."""

from privet_papers.autoencoder.published import PublishedDPA

__all__ = ["PublishedDPA"]
