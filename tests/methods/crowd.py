"""Neighbours that are harder than a lone record: an outlier in a crowd."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from privet.data.domain import Domain
from privet.data.records import Records
from privet.guarantee import Adjacency
from privet.methods.neighbouring_pairs import NeighbouringPair


def neighbours_in_a_crowd(
    adjacency: Adjacency,
    *,
    declared: bool,
    users: bool = False,
    ball: bool = False,
    n: int = 40,
    d: int = 4,
) -> NeighbouringPair:
    """An outlier in the last places of random records, and the same data without it.

    Its row is beyond all others in every column, as it is and scaled to length 1, and it is the only
    one of its class. `ball`: rows have length 1 already, and are taken as they are.
    """
    rng = np.random.default_rng(0)
    many = 3 if users else 1
    x = rng.uniform(0.3, 0.6, size=(n + many, d))
    y = rng.integers(2, size=n + many)
    groups = np.concatenate([np.arange(n) // 2, np.full(many, n)]) if users else None
    x[n:], y[n:] = np.arange(d) % 2, 2
    other = x.copy()
    labels = y.copy()
    if adjacency is Adjacency.REPLACE_ONE:
        other[n:], labels[n:] = [1.0] + [0.0] * (d - 1), 0
    elif not declared:
        other[n:] = np.nan
    keep = slice(None, n if declared and adjacency is not Adjacency.REPLACE_ONE else None)

    def records(x: np.ndarray, y: np.ndarray, groups) -> Records:
        domain = Domain(shape=(d,), bounds=1.0 if ball else (0.0, 1.0))
        if ball:
            x = x / np.linalg.norm(x, axis=1, keepdims=True)
        return Records.with_classes(
            x, y, domain=domain, classes=np.arange(3),
            groups=groups, n_public=n if declared else None,
        )  # fmt: skip

    absent = records(other[keep], labels[keep], None if groups is None else groups[keep])
    present = records(x, y, groups)
    assert absent.outputs == present.outputs
    return NeighbouringPair(present=present, absent=replace(absent, premises=present.premises))
