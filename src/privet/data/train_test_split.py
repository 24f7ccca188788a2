"""Which records are kept for tests: each by itself, so that none moves another."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import NDArray

from privet import _check

BY_CONTENT = ""
"""What must be assumed public about such a split: nothing."""


def select_test_records(
    contents: Iterable[bytes], *, share: float, seed: int = 0
) -> NDArray[np.bool_]:
    """True for the records whose keyed hash falls into the first `share` of all hashes.

    The key is public. The side of a record depends on its own content alone: one record more or
    less, anywhere in a file, changes one of the two parts by that record and the other not at all.
    Copies of a record are on the same side. The size of either part is left to chance.

    >>> people = [str(k).encode() for k in range(1000)]
    >>> tests = select_test_records(people, share=0.2)
    >>> int(tests.sum()), bool((select_test_records(people[1:], share=0.2) == tests[1:]).all())
    (199, True)
    """
    is_test = split_rule(share=share, seed=seed)
    return np.array([is_test(c) for c in contents], dtype=bool)


def split_rule(*, share: float, seed: int = 0) -> Callable[[bytes], bool]:
    """The rule of `select_test_records`, for one record at a time."""
    key = _check.count("seed", seed, minimum=0).to_bytes(8, "little")
    limit = round(_check.open_unit("share", share) * 2**64)

    def is_test(content: bytes) -> bool:
        digest = hashlib.blake2b(content, digest_size=8, key=key).digest()
        return int.from_bytes(digest, "little") < limit

    return is_test
