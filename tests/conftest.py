"""Fixtures that several folders use."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest


@pytest.hookimpl(wrapper=True)
def pytest_collect_file() -> Iterator[Any]:
    """Tests have no doctests (`test_architecture.py` holds that); looking for them takes seconds."""
    found = yield
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
