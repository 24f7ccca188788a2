"""The private records as the loop sees them: rows that can be picked by number."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import TensorDataset, default_collate

from privet.errors import InvalidArgument
from privet.ledger import fingerprint
from privet.methods.dpsgd.mapped import Ask, asking
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
    names: tuple[str, ...] = ()
    """The columns of a data set that has names: `batch["labels"]`, `model(**batch)`."""
    weights: Tensor | None = None
    """How much each row counts in its user's mean, where users have several; else None."""

    def keys(self) -> tuple[str, ...]:
        """The names of the columns."""
        return self.names

    def __getitem__(self, name: str) -> Tensor:
        if name not in self.names:
            raise InvalidArgument("the column of a batch", name, f"one of {list(self.names)}")
        return self.tensors[self.names.index(name)]

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
    """Rows by number; `names` are those of the columns, if they have any."""

    names: tuple[str, ...] = ()
    several: bool = False
    """Whether records may have several owners."""

    @abstractmethod
    def __len__(self) -> int: ...

    def batch(
        self, tensors: tuple[Tensor, ...], *, step: int, last: bool, made_up: bool = False
    ) -> Batch:
        """Rows of these records as a batch."""
        return Batch(tensors=tensors, step=step, last=last, made_up=made_up, names=self.names)

    @abstractmethod
    def take(self, indices: NDArray[np.int64]) -> tuple[Tensor, ...]:
        """The rows with these ascending numbers; none of them gives tensors of no rows."""

    def drawn(self, indices: NDArray[np.int64], source: Source) -> tuple[Tensor, ...]:
        """The rows of a step; `source` is for what is drawn among them."""
        return self.take(indices)

    def asking(self) -> Ask | None:
        """What asks for rows ahead of their use, where reading them ahead helps."""
        return None

    @abstractmethod
    def fingerprint(self, key: bytes) -> str:
        """A keyed digest of the content, to notice that a run goes on with other data."""


@final
class TensorRecords(Records):
    """Tensors (or arrays) of equal length; full batches are views, not copies.

    Arrays that must not be written to, such as files mapped into memory, are read where they lie;
    their batches are always copies.
    """

    def __init__(self, tensors: Sequence[Any], names: tuple[str, ...] = ()) -> None:
        self.tensors = tuple(tensor_of(t) for t in tensors)
        self._fixed = [isinstance(t, np.ndarray) and not t.flags.writeable for t in tensors]
        self._given = tuple(tensors)
        self.names = names
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
            parts = [t[first : last + 1] for t in self.tensors]
            pairs = zip(parts, self._fixed, strict=True)
            return tuple(t.clone() if fixed else t for t, fixed in pairs)
        rows = torch.from_numpy(indices)
        return tuple(t.index_select(0, rows.to(t.device)) for t in self.tensors)

    def asking(self) -> Ask | None:
        return asking(self._given)

    def fingerprint(self, key: bytes) -> str:
        return fingerprint(*(t.detach().cpu().numpy() for t in self.tensors), key=key)


@final
class DatasetRecords(Records):
    """Rows by `dataset[i]`: a map-style torch data set, or a table whose rows are dicts."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset
        self._length = len(dataset)
        first = dataset[0] if self._length else None
        self.names = tuple(first) if isinstance(first, Mapping) else ()

    def __len__(self) -> int:
        return self._length

    def take(self, indices: NDArray[np.int64]) -> tuple[Tensor, ...]:
        if len(indices) == 0:
            return tuple(t[:0] for t in self._collate([self.dataset[0]]))
        return self._collate([self.dataset[int(i)] for i in indices])

    def _collate(self, rows: list[Any]) -> tuple[Tensor, ...]:
        parts = collated(rows)
        if isinstance(parts, Mapping):
            return tuple(parts[name] for name in self.names)
        return (parts,) if isinstance(parts, Tensor) else tuple(parts)

    def fingerprint(self, key: bytes) -> str:
        # reading every row could take as long as training
        return fingerprint(np.array(self._length), key=key)


def collated(rows: list[Any]) -> Any:
    """Rows as one batch; lists of numbers within a row are taken for vectors."""
    if isinstance(rows[0], Mapping):
        return {name: collated([row[name] for row in rows]) for name in rows[0]}
    if isinstance(rows[0], list):
        return torch.tensor(rows)
    return default_collate(rows)


def tensor_of(values: Any) -> Tensor:
    """A tensor of the same memory, without a copy."""
    if isinstance(values, Tensor):
        return values
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of memory that must not be written to
        return torch.from_numpy(np.asarray(values))


def records_of(dataset: Any) -> Records:
    """Tensors, arrays, columns by name, or whatever gives rows by number, as `Records`.

    >>> len(records_of((torch.zeros(3, 2), torch.zeros(3))))
    3
    >>> records_of({"x": torch.zeros(3, 2), "labels": torch.zeros(3)}).names
    ('x', 'labels')
    """
    if isinstance(dataset, Records):
        return dataset
    if isinstance(dataset, TensorDataset):
        return TensorRecords(dataset.tensors)
    if isinstance(dataset, Tensor | np.ndarray):
        return TensorRecords([dataset])
    if isinstance(dataset, Mapping) and dataset:
        return TensorRecords(list(dataset.values()), names=tuple(dataset))
    if isinstance(dataset, tuple | list) and dataset and not isinstance(dataset[0], Mapping):
        return TensorRecords(dataset)
    kind = type(dataset)
    if all(callable(getattr(kind, name, None)) for name in ("__len__", "__getitem__")) and dataset:
        return DatasetRecords(dataset)
    raise InvalidArgument(
        "dataset", kind.__name__, "tensors or arrays of equal length, or rows by number"
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
