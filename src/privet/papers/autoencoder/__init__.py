"""dPAH against the models it is compared to: Figures 2 and 3 of the paper, and its orderings."""

from privet.papers.autoencoder.published import PublishedDPA
from privet.papers.autoencoder.run import reproduce, tables
from privet.papers.autoencoder.settings import DATA, MODELS, QUICK, Settings

__all__ = ["DATA", "MODELS", "QUICK", "PublishedDPA", "Settings", "reproduce", "tables"]
