"""What is run under every processor: a small function that checks a claim and returns numbers."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Result = NDArray[Any]


@dataclass(frozen=True, kw_only=True)
class Case:
    """One claim.

    `run` gets a folder for public artefacts, the same for all processors. It asserts what holds on
    each processor and returns what it computed. `same_bits` says that the result is claimed to be
    the same everywhere; without it only the assertions count.
    """

    name: str
    run: Callable[[Path], Result]
    same_bits: bool = True


def digest(value: Result) -> str:
    """A name for an array's type, shape and every bit."""
    value = np.ascontiguousarray(value)
    head = f"{value.dtype} {value.shape}".encode()
    return hashlib.sha256(head + value.tobytes()).hexdigest()[:24]


def same_alone(compute: Callable[[Result], Result], records: Result) -> Result:
    """compute(records), having checked that each row is its own record's, to the last bit.

    Every record is computed alone, at shifted places, behind others and among copies of itself.
    """
    rows = compute(records)
    for kept in _parts(len(records)):
        assert np.array_equal(compute(records[kept]), rows[kept]), f"rows {kept} moved"
    for record, row in ((records[0], rows[0]), (records[-1], rows[-1])):
        copies = compute(np.broadcast_to(record, (71, *record.shape)).copy())
        assert (copies == row).all(), "copies of one record differ by place"
    return rows


def _parts(n: int) -> Iterator[slice]:
    yield from (slice(k, k + 1) for k in range(0, n, max(1, n // 5)))
    yield from (slice(k, None) for k in (1, 2, 3, 5))
    yield from (slice(n - k) for k in (1, 2, 6))
    yield slice(None, None, -1)
    yield slice(None, None, 3)
