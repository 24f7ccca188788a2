"""Fixtures that several folders use."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


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
