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

from privet.noise import stream


@final
@dataclass
class Record:
    """Every stream that was drawn from while `recorded` was open.

    `drawn` tells how many words of 16 bytes each path gave; `repeated` names the paths of which
    some word was given twice, in the order in which it happened.
    """

    drawn: dict[str, int] = field(default_factory=dict)
    repeated: list[str] = field(default_factory=list)
    _reached: dict[bytes, int] = field(default_factory=dict, repr=False)
    _paths: dict[bytes, str] = field(default_factory=dict, repr=False)

    def named(self, parent: bytes, key: bytes, label: str) -> None:
        """A stream was made: its path is its parent's and the label."""
        above = self._paths.get(_fingerprint(parent), "")
        self._paths[_fingerprint(key)] = f"{above}/{label}"

    def given(self, key: bytes, start: int, blocks: int) -> None:
        """Words of a key stream were handed out, from this counter on."""
        mark = _fingerprint(key)
        path = self._paths.get(mark, "") or "/"
        reached = self._reached.get(mark, 0)
        if start < reached and blocks:
            self.repeated.append(path)
        self._reached[mark] = max(reached, start + blocks)
        self.drawn[path] = self.drawn.get(path, 0) + blocks


def _fingerprint(key: bytes) -> bytes:
    """A record does not hold keys."""
    return hashlib.blake2b(key, digest_size=16, person=b"privet.record").digest()


@contextmanager
def recorded() -> Iterator[Record]:
    """Record all draws of this process until the block ends, from whatever source.

    >>> from privet.noise import seeded
    >>> with recorded() as seen:
    ...     rng = seeded(1)
    ...     _ = rng.child("step", 1).uniform(3), rng.child("step", 2).uniform(3)
    ...     _ = rng.child("step", 1).uniform(3)
    >>> seen.repeated
    ["/('step', 1)"]
    """
    record, before = Record(), stream.watcher
    stream.watcher = record
    try:
        yield record
    finally:
        stream.watcher = before
