"""Adaptive Laplace Mechanism: accuracy against epsilon and epochs, relevance, and the audit.

Figures 4a-c (MNIST), 5a-c (CIFAR-10), 1 and 3 of the paper, and what can be proved beside them.
"""

from privet.papers.adaptive_laplace.audit import audit_record
from privet.papers.adaptive_laplace.cells import Bench, cell
from privet.papers.adaptive_laplace.estimators import PublishedAdLM, PublishedILM, ReleasedAdLM
from privet.papers.adaptive_laplace.features import sound_rows
from privet.papers.adaptive_laplace.run import reproduce, summary
from privet.papers.adaptive_laplace.settings import (
    CHOICES,
    METHODS,
    PAPER,
    PAPER_CIFAR10,
    PROVED,
    QUICK,
    QUICK_CIFAR10,
    Settings,
)

__all__ = [
    "CHOICES",
    "METHODS",
    "PAPER",
    "PAPER_CIFAR10",
    "PROVED",
    "QUICK",
    "QUICK_CIFAR10",
    "Bench",
    "PublishedAdLM",
    "PublishedILM",
    "ReleasedAdLM",
    "Settings",
    "audit_record",
    "cell",
    "reproduce",
    "sound_rows",
    "summary",
]
