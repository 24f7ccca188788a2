"""Mislabelled canaries: records that stand out, each put in by a fair coin."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from privet import _check
from privet.errors import InvalidArgument
from privet.guarantee import Adjacency, Protects
from privet.noise import Source


@final
@dataclass(frozen=True, kw_only=True)
class Canaries:
    """Records that stand out: a copy of a record with a wrong label, each in by a fair coin.

    `x`, `y` are the canaries, `otherwise` their labels when the coin says "out" and neighbours are
    by replacement, `included` the coins; `records` are trained on in any case.
    """

    x: NDArray[Any]
    y: NDArray[np.int64]
    otherwise: NDArray[np.int64]
    included: NDArray[np.bool_]
    records: tuple[NDArray[Any], NDArray[np.int64]]

    @classmethod
    def with_wrong_labels(
        cls, x: NDArray[Any], y: NDArray[np.int64], *, classes: int, count: int, rng: Source
    ) -> Canaries:
        """The last `count` records, each with a label drawn from the wrong ones."""
        m = _check.count("count", count)
        if m >= len(x):
            raise InvalidArgument("count", m, f"fewer than the {len(x)} records")
        u = rng.child("labels").uniform(m)
        shift = 1 + np.minimum((u * (classes - 1)).astype(np.int64), classes - 2)
        coins = rng.child("coins").uniform(m) < 0.5
        wrong = (y[-m:] + shift) % classes
        return cls(x=x[-m:], y=wrong, otherwise=y[-m:], included=coins, records=(x[:-m], y[:-m]))

    def training_set(
        self, adjacency: Adjacency, protects: Protects = Protects.RECORD
    ) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """The records, and each canary if its coin says "in".

        A coin that says "out" leaves the canary out (add-remove), or puts the record with its own
        label in the same place (replace-one), or zeros with the canary's label (replace-one, where
        only features are protected): one coin makes one neighbour of the promise.
        """
        x, y = self.records
        inside = self.included
        if adjacency is Adjacency.REPLACE_ONE and protects is Protects.FEATURES:
            shown = np.where(inside.reshape(-1, *[1] * (self.x.ndim - 1)), self.x, 0)
            return np.concatenate([x, shown.astype(self.x.dtype)]), np.concatenate([y, self.y])
        if adjacency is Adjacency.REPLACE_ONE:
            labels = np.where(inside, self.y, self.otherwise)
            return np.concatenate([x, self.x]), np.concatenate([y, labels])
        return np.concatenate([x, self.x[inside]]), np.concatenate([y, self.y[inside]])

    def scores(self, answer: Callable[[NDArray[Any]], Any]) -> NDArray[np.float64]:
        """The log probability that a model gives to each canary's label."""
        p = np.asarray(answer(self.x), dtype=np.float64)[np.arange(len(self.y)), self.y]
        return np.log(np.maximum(p, 1e-300))
