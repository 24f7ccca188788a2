"""Reading ahead: rows of the next parts are fetched while the model works, by worker processes or,
from files mapped into memory, by a thread.

Which records make up a part is drawn by the sampler in the run's own process, as without them,
and parts come back in order: a seeded run has the same batches, the same coins and the same model.
Reading is no release: what is read ahead of a budget that ends is thrown away.

A page of a mapped file that is touched before it was read makes the process wait for the disk, row
after row. So the system is asked for all pages of the coming rows at once, by the thread that will
then read them.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
import mmap
import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

Columns = tuple[Tensor, ...]
Ask = Callable[[NDArray[np.int64]], None]
"""Asks the system for rows ahead of their use."""


@final
@dataclass(frozen=True, kw_only=True)
class StepPart:
    """Some of the records of a step, by number: part `k` of step `step`."""

    step: int
    k: int
    indices: NDArray[np.int64]
    last: bool


@final
@dataclass(frozen=True, kw_only=True)
class Reader:
    """How parts are read: by `num_workers` processes, each `prefetch` parts ahead.

    With 0 of them, rows of mapped files are read by a thread, `prefetch` parts ahead; others by the
    run itself.
    """

    num_workers: int = 0
    prefetch: int = 2

    def read(
        self,
        parts: Iterator[StepPart],
        rows_of: Callable[[StepPart], Columns],
        settled: Callable[[], bool],
        ask: Ask | None = None,
    ) -> Iterator[tuple[StepPart, Callable[[], Columns]]]:
        """Each part, and what gives its rows; none ahead before their size is `settled`.

        `ask`, if there is one, is called with the rows that a thread is going to read.

        >>> import torch
        >>> parts = [StepPart(step=0, k=k, indices=np.arange(k), last=False) for k in range(3)]
        >>> read = Reader().read(iter(parts), lambda p: (torch.zeros(p.k),), lambda: True)
        >>> [len(rows()[0]) for _, rows in read]
        [0, 1, 2]
        """
        for part in parts:
            yield part, functools.partial(rows_of, part)
            if (self.num_workers or ask) and settled():
                break
        if ask and not self.num_workers:
            yield from self._by_a_thread(parts, rows_of, ask)
        if self.num_workers:
            ahead: Iterator[tuple[StepPart, Columns]] = iter(
                DataLoader(
                    _Parts(rows_of),
                    batch_sampler=parts,  # type: ignore[arg-type]
                    num_workers=self.num_workers,
                    prefetch_factor=self.prefetch,
                    collate_fn=_as_it_is,
                )
            )
            for part, rows in ahead:
                yield part, functools.partial(_as_it_is, rows)

    def _by_a_thread(
        self, parts: Iterator[StepPart], rows_of: Callable[[StepPart], Columns], ask: Ask
    ) -> Iterator[tuple[StepPart, Callable[[], Columns]]]:
        def read(part: StepPart) -> Columns:
            ask(part.indices)
            return rows_of(part)

        thread = ThreadPoolExecutor(1, thread_name_prefix="privet-reading")
        ahead: deque[tuple[StepPart, Future[Columns]]] = deque()
        try:
            while True:
                for part in itertools.islice(parts, self.prefetch + 1 - len(ahead)):
                    ahead.append((part, thread.submit(read, part)))
                if not ahead:
                    return
                part, rows = ahead.popleft()
                yield part, functools.partial(_as_it_is, rows.result())
        finally:
            thread.shutdown(cancel_futures=True)


class _Parts(Dataset[Any]):
    """What a worker process asks for rows."""

    def __init__(self, rows_of: Callable[[StepPart], Columns]) -> None:
        self._rows_of = rows_of

    def __getitems__(self, part: StepPart) -> tuple[StepPart, Columns]:
        return part, self._rows_of(part)


def _as_it_is(read: Any) -> Any:
    return read


# Files mapped into memory

_WILL_NEED = getattr(mmap, "MADV_WILLNEED", None)  # not on every system
_LIBRARY = None if _WILL_NEED is None else ctypes.CDLL(None)
_ONE_BY_ONE = getattr(_LIBRARY, "madvise", None)
_TOGETHER = getattr(_LIBRARY, "process_madvise", None)  # Linux, glibc 2.36
_AT_ONCE = 1024
"""Ranges that one call may name."""


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


def rows_ahead(arrays: Sequence[Any]) -> Ask | None:
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
