"""The generators of random numbers that everybody's code shares: torch's, numpy's and Python's.

What a user hands in (a data set, an augmentation, a loss) draws from them. Left to themselves they
are known to everybody (a script seeds them, and torch does where it does not), and how far they are
is a function of how many rows were read: without one record, everybody after it would draw what
their neighbour drew. So they are seeded from the run's own source, for one row or one part of a
step, and given back as they were.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from privet.gradients import device

States = tuple[Any, ...]
HOST = torch.device("cpu")


def seed_all(where: torch.device, value: int) -> None:
    """Seed every generator that a function can reach without making one."""
    device.seed(where, value)
    np.random.seed(value & 0xFFFFFFFF)  # noqa: NPY002  (it takes 32 bits)
    random.seed(value)


def states() -> States:
    """How far the generators of the host are."""
    return torch.get_rng_state(), np.random.get_state(), random.getstate()  # noqa: NPY002


def put_back(before: States) -> None:
    """The generators of the host as they were."""
    torch.set_rng_state(before[0])
    np.random.set_state(before[1])  # noqa: NPY002
    random.setstate(before[2])


def place() -> tuple[object, ...]:
    """How far the generators of the host are, to be compared."""
    torchs, numpys, pythons = states()
    return torchs.numpy().tobytes(), numpys[1].tobytes(), numpys[2:], pythons


@contextmanager
def kept() -> Iterator[None]:
    """Inside, generators may be seeded; afterwards they are as they were, whatever happened."""
    before = states()
    try:
        yield
    finally:
        put_back(before)
