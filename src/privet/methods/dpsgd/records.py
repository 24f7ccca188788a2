"""The private records as the loop sees them: rows that can be picked by number."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset, TensorDataset, default_collate

from privet.errors import InvalidArgument
from privet.ledger import fingerprint
from privet.noise import Source

Augment = Callable[[Tensor, torch.Generator], Tensor]
"""Takes one row, of shape (1, ...), and a generator of its own; gives that row, changed."""


@final
@dataclass(frozen=True, kw_only=True)
class Batch:
    """Some of the records of one step. `last` says that the step is complete after this one."""

    tensors: tuple[Tensor, ...]
    step: int
    last: bool
    made_up: bool = False
    """Rows that nobody owns, given before the first step to see whether examples mix."""

    @property
    def x(self) -> Tensor:
        """The first tensor of the data set: inputs."""
        return self.tensors[0]

    @property
    def y(self) -> Tensor:
        """The second tensor of the data set: targets."""
        return self.tensors[1]

    def __len__(self) -> int:
        return len(self.tensors[0])


class Records(ABC):
    """Rows by number."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def take(self, indices: NDArray[np.int64]) -> tuple[Tensor, ...]:
        """The rows with these ascending numbers; none of them gives tensors of no rows."""

    @abstractmethod
    def fingerprint(self, key: bytes) -> str:
        """A keyed digest of the content, to notice that a run goes on with other data."""


@final
class TensorRecords(Records):
    """Tensors (or arrays) of equal length; full batches are views, not copies."""

    def __init__(self, tensors: Sequence[Any]) -> None:
        self.tensors = tuple(tensor_of(t) for t in tensors)
        lengths = {len(t) for t in self.tensors}
        if len(lengths) != 1:
            raise InvalidArgument(
                "dataset", sorted(lengths), "tensors with the same number of rows"
            )

    def __len__(self) -> int:
        return len(self.tensors[0])

    def take(self, indices: NDArray[np.int64]) -> tuple[Tensor, ...]:
        count = len(indices)
        if count == 0:
            return tuple(t[:0] for t in self.tensors)
        first, last = int(indices[0]), int(indices[-1])
        if last - first + 1 == count:
            return tuple(t[first : last + 1] for t in self.tensors)
        rows = torch.from_numpy(indices)
        return tuple(t.index_select(0, rows) for t in self.tensors)

    def fingerprint(self, key: bytes) -> str:
        return fingerprint(*(t.detach().numpy() for t in self.tensors), key=key)


@final
class DatasetRecords(Records):
    """A map-style torch data set, collated row by row."""

    def __init__(self, dataset: Dataset[Any]) -> None:
        self.dataset = dataset
        self._length = len(dataset)  # type: ignore[arg-type]

    def __len__(self) -> int:
        return self._length

    def take(self, indices: NDArray[np.int64]) -> tuple[Tensor, ...]:
        if len(indices) == 0:
            return tuple(t[:0] for t in self._collate([self.dataset[0]]))
        return self._collate([self.dataset[int(i)] for i in indices])

    @staticmethod
    def _collate(rows: list[Any]) -> tuple[Tensor, ...]:
        parts = default_collate(rows)
        return (parts,) if isinstance(parts, Tensor) else tuple(parts)

    def fingerprint(self, key: bytes) -> str:
        # reading every row could take as long as training
        return fingerprint(np.array(self._length), key=key)


def tensor_of(values: Any) -> Tensor:
    """A tensor of the same memory where that may be written to, else of a copy."""
    if isinstance(values, Tensor):
        return values
    array = np.asarray(values)
    return torch.from_numpy(array if array.flags.writeable else array.copy())


def records_of(dataset: Any) -> Records:
    """Tensors, arrays or a torch data set as `Records`.

    >>> len(records_of((torch.zeros(3, 2), torch.zeros(3))))
    3
    """
    if isinstance(dataset, Records):
        return dataset
    if isinstance(dataset, TensorDataset):
        return TensorRecords(dataset.tensors)
    if isinstance(dataset, Dataset):
        return DatasetRecords(dataset)
    if isinstance(dataset, Tensor | np.ndarray):
        return TensorRecords([dataset])
    if isinstance(dataset, tuple | list) and dataset:
        return TensorRecords(dataset)
    raise InvalidArgument(
        "dataset", type(dataset).__name__, "tensors or arrays of equal length, or a torch Dataset"
    )


def views_of(
    tensors: tuple[Tensor, ...], views: int, augment: Augment | None, source: Source
) -> tuple[Tensor, ...]:
    """K views of every row, one after the other: rows iK ... iK+K-1 belong to example i.

    `augment` sees one row at a time, with coins of its own, so that it cannot mix examples.
    """
    if views > 1:
        tensors = tuple(t.repeat_interleave(views, dim=0) for t in tensors)
    if augment is None or len(tensors[0]) == 0:
        return tensors
    generator, out = torch.Generator(), []
    for row, seed in zip(tensors[0].split(1), source.uint64(len(tensors[0])), strict=True):
        changed = augment(row, generator.manual_seed(int(seed >> np.uint64(1))))
        if len(changed) != 1:
            raise InvalidArgument("augment", f"{len(changed)} rows", "one row for the one it got")
        out.append(changed)
    return (torch.cat(out), *tensors[1:])
