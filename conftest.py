"""What every test and doctest shares."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings

# One thread a worker: pytest-xdist already uses every core.
for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")
os.environ.setdefault("MPLBACKEND", "Agg")

# Times vary on shared machines, so no deadline; the same examples in every run.
settings.register_profile(
    "privet", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("privet")

# Without doctests, and importing their frameworks for nothing takes seconds.
collect_ignore = [
    "src/privet/methods/dpsgd/lightning.py",
    "src/privet/methods/dpsgd/trainer.py",
]

SLOW_DOCTESTS = {
    "privet.methods.adaptive_laplace.shaped_training.RelevanceShapedTraining",
    "privet.methods.pate.mean.MeanPATE",
    "privet.nets.students.VolumeStudent",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Doctests that train a network cannot say so themselves."""
    for item in items:
        if item.name in SLOW_DOCTESTS or item.name.startswith("privet.nets.segmentation."):
            item.add_marker(pytest.mark.slow)
