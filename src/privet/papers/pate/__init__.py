"""PATE for high-dimensional targets on hippocampus volumes: the paper's table, with its control."""

from privet.papers.pate.published import PublishedPATE
from privet.papers.pate.run import reproduce, table
from privet.papers.pate.settings import GENERATED, QUICK, Settings, settings_for

__all__ = ["GENERATED", "QUICK", "PublishedPATE", "Settings", "reproduce", "settings_for", "table"]
