"""Files mapped into memory: the rows that come next are read while the model works on those before.

A page that is touched before it was read makes the process wait for the disk, row after row. So the
system is asked for all of them together, and a thread of its own waits for them; the run's thread
finds them in memory. Nothing is drawn, released or changed by this.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

_WILL_NEED = getattr(mmap, "MADV_WILLNEED", None)  # not on every system

Ask = Callable[[NDArray[np.int64]], None]


@final
@dataclass(frozen=True, kw_only=True)
class MappedRows:
    """The rows of a mapped array, and where they lie."""

    rows: Tensor
    address: int
    each: int

    def read(self, indices: NDArray[np.int64]) -> None:
        """Have the pages of these rows read, and wait for them."""
        first = self.address + indices * self.each
        page = first // mmap.PAGESIZE * mmap.PAGESIZE
        madvise = ctypes.CDLL(None).madvise  # unlike mmap's own it lets other threads run
        for start, length in zip(page.tolist(), (first + self.each - page).tolist(), strict=True):
            madvise(ctypes.c_void_p(start), ctypes.c_size_t(length), _WILL_NEED)
        self.rows.index_select(0, torch.from_numpy(indices))


def asking(arrays: Sequence[Any], tensors: Sequence[Tensor]) -> Ask | None:
    """What has rows read ahead, if some of the arrays are files; else None."""
    found = []
    for array, rows in zip(arrays, tensors, strict=True):
        file = getattr(array, "_mmap", None)
        if isinstance(file, mmap.mmap) and array.flags.c_contiguous and _WILL_NEED is not None:
            file.madvise(mmap.MADV_RANDOM)  # else every page brings thirty neighbours
            each = array.nbytes // max(1, len(array))
            found.append(MappedRows(rows=rows, address=array.ctypes.data, each=each))
    if not found:
        return None
    thread = ThreadPoolExecutor(1, thread_name_prefix="privet-reading")

    def ask(indices: NDArray[np.int64]) -> None:
        for rows in found:
            thread.submit(rows.read, indices)

    return ask
