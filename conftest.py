"""What every test and doctest shares."""

from __future__ import annotations

import atexit
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

# One thread a worker: pytest-xdist already uses every core.
for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")
os.environ.setdefault("MPLBACKEND", "Agg")
# The key that names data is the person's own: tests have one of theirs, also in subprocesses.
os.environ["PRIVET_CURATOR_KEY"] = f"{tempfile.gettempdir()}/privet-tests-{os.getpid()}.key"
Path(os.environ["PRIVET_CURATOR_KEY"]).write_text("ab" * 32)
atexit.register(Path(os.environ["PRIVET_CURATOR_KEY"]).unlink, missing_ok=True)

# Times vary on shared machines, so no deadline; the same examples in every run.
settings.register_profile(
    "privet", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("privet")

# Without doctests, and importing their frameworks for nothing takes seconds.
collect_ignore = [
    "src/privet/methods/dpsgd/lightning.py",
    "src/privet/methods/dpsgd/transformers_trainer.py",
]

SLOW_DOCTESTS = {
    "privet.methods.moments.relevance_shaped_training.RelevanceShapedTraining",
    "privet.methods.pate.classification_pate.MeanPATE",
    "privet.networks.architectures.VolumeStudent",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Doctests that train a network cannot say so themselves."""
    for item in items:
        if item.name in SLOW_DOCTESTS or item.name.startswith("privet.networks.segmentation."):
            item.add_marker(pytest.mark.slow)


@pytest.hookimpl(wrapper=True)
def pytest_collect_file(file_path: Path) -> Iterator[Any]:
    """Tests have no doctests (`test_architecture.py` holds that); looking takes seconds."""
    found = yield
    if "tests" not in file_path.parts:
        return found
    return [collector for collector in found if type(collector) is pytest.Module]


@pytest.fixture
def one_thread() -> Iterator[None]:
    """torch on one thread: the same sums in the same order."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def repeatable(one_thread: None) -> None:
    """The same, and torch's global generator at seed 0."""
    import torch

    torch.manual_seed(0)
