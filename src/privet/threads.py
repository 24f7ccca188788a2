"""How many threads arithmetic takes: one where there is little to do, so that others can work too.

Threads that wait for each other on small arrays made trainings 3 times slower on a busy machine.
How many there are changes no result that a guarantee speaks of: sums are exact in any order.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from privet import _check

SMALL = 5_000_000
"""Numbers in all rows: below, one thread does it."""


@contextmanager
def threads(count: int | None, *, numbers: int) -> Iterator[None]:
    """So many threads inside; None takes one for small work, and all that there are for other.

    >>> with threads(None, numbers=1000):
    ...     pass
    """
    if count is None and numbers >= SMALL:
        yield
        return
    n = 1 if count is None else _check.count("threads", count)
    from threadpoolctl import threadpool_limits

    torch = sys.modules.get("torch")
    before = None if torch is None else torch.get_num_threads()
    try:
        if torch is not None:
            torch.set_num_threads(n)
        with threadpool_limits(limits=n, user_api="blas"):
            yield
    finally:
        if torch is not None and before is not None:
            torch.set_num_threads(before)
