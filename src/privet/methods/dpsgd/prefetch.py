"""Reading ahead: rows of the next parts are fetched while the model works, by worker processes or,
from files mapped into memory, by a thread.

Which records make up a part is drawn by the sampler in the run's own process, as without them,
and parts come back in order: a seeded run has the same batches, the same coins and the same model.
Reading is no release: what is read ahead of a budget that ends is thrown away.
"""

from __future__ import annotations

import functools
import itertools
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from privet.methods.dpsgd.mapped import Ask

Rows = tuple[Tensor, ...]


@final
@dataclass(frozen=True, kw_only=True)
class Part:
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
        parts: Iterator[Part],
        rows_of: Callable[[Part], Rows],
        settled: Callable[[], bool],
        ask: Ask | None = None,
    ) -> Iterator[tuple[Part, Callable[[], Rows]]]:
        """Each part, and what gives its rows; none ahead before their size is `settled`.

        `ask`, if there is one, is told of the rows that a thread is going to read.

        >>> import torch
        >>> parts = [Part(step=0, k=k, indices=np.arange(k), last=False) for k in range(3)]
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
            ahead: Iterator[tuple[Part, Rows]] = iter(
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
        self, parts: Iterator[Part], rows_of: Callable[[Part], Rows], ask: Ask
    ) -> Iterator[tuple[Part, Callable[[], Rows]]]:
        def read(part: Part) -> Rows:
            ask(part.indices)
            return rows_of(part)

        thread = ThreadPoolExecutor(1, thread_name_prefix="privet-reading")
        ahead: deque[tuple[Part, Future[Rows]]] = deque()
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

    def __init__(self, rows_of: Callable[[Part], Rows]) -> None:
        self._rows_of = rows_of

    def __getitems__(self, part: Part) -> tuple[Part, Rows]:
        return part, self._rows_of(part)


def _as_it_is(read: Any) -> Any:
    return read
