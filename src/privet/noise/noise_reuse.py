"""Watching which random words are handed out, to see that none is handed out twice.

Children of a seeded source are named by their labels: whoever asks twice for one label draws the
same noise twice, and what was hidden by it appears in the difference of two releases. A secure
source cannot do this, so no release shows it; a test of a seeded run does.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import final

from privet.errors import PrivetError


class NoiseReuse(PrivetError, TypeError):
    """Something would have made two holders of one secret key, who would draw the same noise."""


@final
@dataclass
class DrawLog:
    """Every stream that was drawn from while `log_draws` was open.

    `blocks` says how many blocks of 16 bytes each path gave; `repeats` names the paths of which
    some block was given twice, in the order in which it happened.
    """

    blocks: dict[str, int] = field(default_factory=dict)
    repeats: list[str] = field(default_factory=list)
    _reached: dict[bytes, int] = field(default_factory=dict, repr=False)
    _paths: dict[bytes, str] = field(default_factory=dict, repr=False)

    def add_stream(self, parent: bytes, key: bytes, label: str) -> None:
        """Note a new stream: its path is its parent's and the label."""
        above = self._paths.get(_fingerprint(parent), "")
        self._paths[_fingerprint(key)] = f"{above}/{label}"

    def add_draw(self, key: bytes, start: int, blocks: int) -> None:
        """Note that blocks of a key stream were handed out, from this counter on."""
        mark = _fingerprint(key)
        path = self._paths.get(mark, "") or "/"
        reached = self._reached.get(mark, 0)
        if start < reached and blocks:
            self.repeats.append(path)
        self._reached[mark] = max(reached, start + blocks)
        self.blocks[path] = self.blocks.get(path, 0) + blocks


def _fingerprint(key: bytes) -> bytes:
    """A short hash of a key: a log does not hold keys."""
    return hashlib.blake2b(key, digest_size=16, person=b"privet.record").digest()


active_log: DrawLog | None = None
"""Where draws are noted; None, and nothing is noted, but in tests."""


@contextmanager
def log_draws() -> Iterator[DrawLog]:
    """Log all draws of this process until the block ends, from whatever source.

    >>> from privet.noise import seeded
    >>> with log_draws() as log:
    ...     rng = seeded(1)
    ...     _ = rng.child("step", 1).uniform(3), rng.child("step", 2).uniform(3)
    ...     _ = rng.child("step", 1).uniform(3)
    >>> log.repeats
    ["/('step', 1)"]
    """
    global active_log
    log, before = DrawLog(), active_log
    active_log = log
    try:
        yield log
    finally:
        active_log = before
