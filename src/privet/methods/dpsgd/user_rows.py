"""Users with many rows: each takes part as a whole, with k of their rows and weights."""

from __future__ import annotations

from typing import Any, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from privet import _check
from privet.errors import InvalidArgument
from privet.ledger import fingerprint
from privet.methods.dpsgd.dataset_rows import Batch, DatasetRows
from privet.noise import Source
from privet.sensitivity.user_ids import number_users
from privet.sensitivity.user_weights import assign_owners

_LISTS = (list, tuple, set, frozenset)


@final
class UserRows(DatasetRows):
    """Users by number; taking one gives k of their rows, and a last column of weights.

    >>> from privet.noise import seeded
    >>> from privet.methods.dpsgd.dataset_rows import as_rows
    >>> users = UserRows(as_rows(torch.arange(5.0)), list("abaaa"), max_rows_per_user=2)
    >>> rows, weights = users.draw(np.array([1]), seeded(0))  # b has one row
    >>> len(users), rows.tolist(), weights.tolist()
    (2, [1.0, 1.0], [2.0, 0.0])
    """

    def __init__(self, rows: DatasetRows, groups: Any, *, max_rows_per_user: int) -> None:
        self.has_several_owners = len(groups) > 0 and isinstance(next(iter(groups)), _LISTS)
        number = (
            assign_owners(groups)
            if self.has_several_owners
            else number_users(groups, records=len(rows))
        )
        if len(number) != len(rows):
            raise InvalidArgument("groups", len(number), f"owners of each of {len(rows)} rows")
        self.rows, self.rows_per_unit = rows, _check.count("max_rows_per_user", max_rows_per_user)
        self.names = rows.names
        self._owners = number
        nobody = int((number < 0).sum())  # records that are left out come first
        self._order = np.argsort(number, kind="stable")[nobody:].astype(np.int64)
        self._ends = np.cumsum(np.bincount(number[number >= 0])).astype(np.int64)

    def __len__(self) -> int:
        return len(self._ends)

    def draw(self, indices: NDArray[np.int64], source: Source) -> tuple[Tensor, ...]:
        """Rows and weights of these users; who has more than k rows draws k of them."""
        k, places = self.rows_per_unit, []
        weights = np.zeros((len(indices), k), dtype=np.float32)
        for i, user in enumerate(indices):
            start = self._ends[user - 1] if user else 0
            own = self._order[start : self._ends[user]]
            if len(own) > k:
                own = own[source.child(int(user)).sample(len(own), k)]
            weights[i, : len(own)] = k / len(own)
            places.append(np.resize(own, k))  # what is repeated weighs nothing
        flat = np.concatenate(places) if places else np.zeros(0, dtype=np.int64)
        unique, back = np.unique(flat, return_inverse=True)
        tensors = self.rows.draw(unique, source.child("rows"))
        if len(flat):
            again = torch.from_numpy(back)
            tensors = tuple(t.index_select(0, again.to(t.device)) for t in tensors)
        scale = torch.from_numpy(weights.reshape(-1))
        return (*tensors, scale.to(tensors[0].device))

    def take(self, indices: NDArray[np.int64]) -> tuple[Tensor, ...]:
        if len(indices):
            raise InvalidArgument("indices", len(indices), "none: rows of users are drawn")
        nothing = self.rows.take(indices)
        return (*nothing, torch.zeros(0, device=nothing[0].device))

    def holds(self, t: Tensor) -> bool:
        return self.rows.holds(t)

    def batch(self, tensors: tuple[Tensor, ...], *, step: int, last: bool) -> Batch:
        *rows, weights = tensors
        return Batch(tensors=tuple(rows), step=step, last=last, names=self.names, weights=weights)

    def fingerprint(self, key: bytes) -> str:
        return self.rows.fingerprint(key) + fingerprint(self._owners, key=key)
