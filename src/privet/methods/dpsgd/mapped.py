"""Files mapped into memory: the pages of rows that come next are asked for all together.

A page that is touched before it was read makes the process wait for the disk, row after row. So the
system is asked for all of them at once, by the thread that will then read them (see `reading`).
Nothing is drawn, released or changed by this.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

_WILL_NEED = getattr(mmap, "MADV_WILLNEED", None)  # not on every system
_LIBRARY = None if _WILL_NEED is None else ctypes.CDLL(None)
_ONE_BY_ONE = getattr(_LIBRARY, "madvise", None)
_TOGETHER = getattr(_LIBRARY, "process_madvise", None)  # Linux, glibc 2.36
_AT_ONCE = 1024
"""Ranges that one call may name."""

Ask = Callable[[NDArray[np.int64]], None]


@final
@dataclass(frozen=True, kw_only=True)
class MappedRows:
    """Where the rows of a mapped array lie."""

    address: int
    each: int

    def ask(self, indices: NDArray[np.int64]) -> None:
        """Ask for the pages of these rows, without waiting for them.

        In one call where the system has such a one, since a thread that makes hundreds of short
        calls keeps the interpreter from the others in between.
        """
        first = self.address + indices * self.each
        page = first // mmap.PAGESIZE * mmap.PAGESIZE
        ranges = np.stack([page, first + self.each - page], axis=1)
        if not _ask_together(ranges) and _ONE_BY_ONE is not None:
            for start, length in ranges.tolist():
                _ONE_BY_ONE(ctypes.c_void_p(start), ctypes.c_size_t(length), _WILL_NEED)


def _ask_together(ranges: NDArray[np.int64]) -> bool:
    """Name all (start, length) in one call; false where the system has none, or forbids it."""
    if _TOGETHER is None or ranges.itemsize != ctypes.sizeof(ctypes.c_size_t):
        return False
    myself = os.pidfd_open(os.getpid())
    try:
        for some in np.split(ranges, range(_AT_ONCE, len(ranges), _AT_ONCE)):
            where, count = ctypes.c_void_p(some.ctypes.data), ctypes.c_size_t(len(some))
            if _TOGETHER(myself, where, count, _WILL_NEED, 0) < 0:
                return False
    finally:
        os.close(myself)
    return True


def asking(arrays: Sequence[Any]) -> Ask | None:
    """What asks for rows ahead, if some of the arrays are files; else None."""
    found = []
    for array in arrays:
        file = getattr(array, "_mmap", None)
        if isinstance(file, mmap.mmap) and array.flags.c_contiguous and _ONE_BY_ONE is not None:
            file.madvise(mmap.MADV_RANDOM)  # else every page brings thirty neighbours
            each = array.nbytes // max(1, len(array))
            found.append(MappedRows(address=array.ctypes.data, each=each))
    if not found:
        return None

    def ask(indices: NDArray[np.int64]) -> None:
        for rows in found:
            rows.ask(indices)

    return ask
