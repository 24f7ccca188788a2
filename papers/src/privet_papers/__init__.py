"""The five papers to the letter, one folder each.

Published algorithm, its baselines, its experiment, its figures and what breaks its claim. Papers
use the library as an outsider would, and nothing in the library imports them. A published epsilon
is a claim; what is proved instead stands beside it.
"""

from __future__ import annotations

import importlib
from typing import Any

EXPERIMENTS = {
    "adaptive-laplace": "adaptive_laplace.experiment.AdaptiveLaplaceExperiment",
    "autoencoder": "autoencoder.experiment.AutoencoderExperiment",
    "pate": "pate.experiment.PATEExperiment",
    "tight-privacy-cost": "tight_privacy_cost.experiment.TightPrivacyCostExperiment",
    "residual": "residual.experiment.ResidualExperiment",
}
"""Where the experiment of each paper is, by its word on the command line."""


def experiment_named(name: str) -> Any:
    """The experiment of a paper, loaded now: a subclass of `privet_papers.experiment.Experiment`.

    >>> experiment_named("adaptive-laplace").name
    'adaptive-laplace'
    """
    module, _, kind = EXPERIMENTS[name].rpartition(".")
    return getattr(importlib.import_module(f"privet_papers.{module}"), kind)
