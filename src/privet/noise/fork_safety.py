"""Fork safety of secret noise: a forked or copied process must not draw what its parent draws.

A key stream remembers the process that it was keyed in (`this_process`), and a secret one draws a
new key where that is no longer the present one.
"""

from __future__ import annotations

import os
import sys
import threading
from typing import NoReturn

from privet.noise.noise_reuse import NoiseReuse

_rekeying, _forks = threading.Lock(), 0
"""Held while a stream is given its key after a fork, and how many forks led to this process."""


def _after_fork() -> None:
    global _rekeying, _forks
    _rekeying, _forks = threading.Lock(), _forks + 1


if sys.platform != "win32":  # where there is no fork
    os.register_at_fork(after_in_child=_after_fork)


def this_process() -> tuple[int, int]:
    """This process and no other: its id alone could be that of a forebear who has died."""
    return os.getpid(), _forks


def rekeying_lock() -> threading.Lock:
    """The lock to hold while a stream is given a new key; a forked process has one of its own."""
    return _rekeying


def refuse_copy() -> NoReturn:
    """Refuse to pickle or copy a secret stream."""
    raise NoiseReuse(
        "a secure noise source cannot be pickled or copied, since the copy would repeat its noise; "
        "call privet.noise.secure() in the other process"
    )
