"""The private records as the loop sees them: rows that can be picked by number."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset, default_collate, default_convert

from privet.errors import InvalidArgument
from privet.ledger import fingerprint
from privet.methods.dpsgd import generator_states
from privet.methods.dpsgd.prefetch import Ask, rows_ahead
from privet.noise import Source

Augment = Callable[[Tensor, torch.Generator], Tensor]
"""Takes one row, of shape (1, ...), and a generator of its own; gives that row, changed."""


@final
@dataclass(frozen=True, kw_only=True)
class Batch:
    """Some of the records of one step. `last` says that the step is complete after this one.

    `x, y = batch` gives the columns; where they have names it is a mapping, as in `model(**batch)`.
    """

    tensors: tuple[Tensor, ...]
    step: int
    last: bool
    names: tuple[str, ...] = ()
    """The columns of a data set that has names: `batch["labels"]`."""
    weights: Tensor | None = None
    """How much each row counts in its user's mean, where users have several; else None."""

    def keys(self) -> tuple[str, ...]:
        """The names of the columns."""
        return self.names

    def items(self) -> Iterator[tuple[str, Tensor]]:
        """The columns, each with its name."""
        return zip(self.names, self.tensors, strict=True)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.names or self.tensors)

    def __getitem__(self, column: str | int) -> Tensor:
        known = self.names or range(len(self.tensors))
        if column not in known:
            raise InvalidArgument("the column of a batch", column, f"one of {list(known)}")
        return self.tensors[known.index(column)]  # type: ignore[arg-type]

    @property
    def columns(self) -> tuple[Tensor, ...]:
        """All that there is of the rows, as `DatasetRows.batch` takes it."""
        return self.tensors if self.weights is None else (*self.tensors, self.weights)

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


class DatasetRows(ABC):
    """Rows by number; `names` are those of the columns, if they have any."""

    names: tuple[str, ...] = ()
    has_several_owners: bool = False
    """Whether records may have several owners."""
    rows_per_unit: int = 1
    """Rows that a record, or a user, has in a step."""

    @abstractmethod
    def __len__(self) -> int: ...

    def batch(self, tensors: tuple[Tensor, ...], *, step: int, last: bool) -> Batch:
        """Rows of these records as a batch."""
        return Batch(tensors=tensors, step=step, last=last, names=self.names)

    @abstractmethod
    def take(self, indices: NDArray[np.int64]) -> tuple[Tensor, ...]:
        """The rows with these ascending numbers; none of them gives tensors of no rows."""

    def draw(self, indices: NDArray[np.int64], source: Source) -> tuple[Tensor, ...]:
        """The rows of a step; `source` is for what is drawn among them."""
        return self.take(indices)

    def holds(self, t: Tensor) -> bool:
        """Whether a tensor lies in the memory of these records."""
        return False

    def rows_ahead(self) -> Ask | None:
        """What asks for rows ahead of their use, where reading them ahead helps."""
        return None

    @abstractmethod
    def fingerprint(self, key: bytes) -> str:
        """A keyed digest of the content, to notice that a run goes on with other data."""


@final
class TensorRows(DatasetRows):
    """Tensors (or arrays) of equal length; files mapped into memory are read where they lie.

    Batches are copies: what a loop writes into one must not change a record, the less so as only
    neighbours that are drawn together would lie in one piece of memory.
    """

    def __init__(self, tensors: Sequence[Any], names: tuple[str, ...] = ()) -> None:
        self.tensors = tuple(as_tensor(t) for t in tensors)
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
            return tuple(t[first : last + 1].clone() for t in self.tensors)
        rows = torch.from_numpy(indices)
        return tuple(t.index_select(0, rows.to(t.device)) for t in self.tensors)

    def holds(self, t: Tensor) -> bool:
        where = t.untyped_storage().data_ptr()
        return where != 0 and any(where == own.untyped_storage().data_ptr() for own in self.tensors)

    def rows_ahead(self) -> Ask | None:
        return rows_ahead(self._given)

    def fingerprint(self, key: bytes) -> str:
        return fingerprint(*(t.detach().cpu().numpy() for t in self.tensors), key=key)


@final
class MapStyleRows(DatasetRows):
    """Rows by `dataset[i]`: a map-style torch data set, or a table whose rows are dicts."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset
        self._length = len(dataset)
        with generator_states.kept():
            first = dataset[0] if self._length else None
        self.names = tuple(first) if isinstance(first, Mapping) else ()

    def __len__(self) -> int:
        return self._length

    def take(self, indices: NDArray[np.int64]) -> tuple[Tensor, ...]:
        with generator_states.kept():
            rows = [self.dataset[int(i)] for i in (indices if len(indices) else [0])]
        return tuple(t[: len(indices)] for t in self._collate(rows))

    def draw(self, indices: NDArray[np.int64], source: Source) -> tuple[Tensor, ...]:
        """The rows of a step; what the data set draws for a row is drawn by coins of that row."""
        if len(indices) == 0:
            return self.take(indices)
        rows = []
        with generator_states.kept():
            for i in map(int, indices):
                generator_states.seed_all(
                    generator_states.HOST, int(source.child(i).uint64(1)[0] >> np.uint64(1))
                )
                rows.append(self.dataset[i])
        return self._collate(rows)

    def _collate(self, rows: list[Any]) -> tuple[Tensor, ...]:
        try:
            parts = collate(rows)
        except (RuntimeError, ValueError) as error:
            raise InvalidArgument(
                "rows of the data set", str(error).splitlines()[0], "of one shape and type",
                "pad or cut every record to one public length beforehand",
            ) from error  # fmt: skip
        if isinstance(parts, Mapping):
            parts = [parts[name] for name in self.names]
        columns = (parts,) if isinstance(parts, Tensor) else tuple(parts)
        for k, column in enumerate(columns):
            if not isinstance(column, Tensor):
                name = repr(self.names[k]) if self.names else f"number {k}"
                raise InvalidArgument(
                    "dataset", f"another kind of value in column {name}",
                    "numbers, tensors or arrays in every column",
                    "leave text and nested values out of what dataset[i] gives",
                )  # fmt: skip
        return columns

    def fingerprint(self, key: bytes) -> str:
        # reading every row could take as long as training
        return fingerprint(np.array(self._length), key=key)


def collate(rows: list[Any]) -> Any:
    """Rows as one batch; lists of numbers within a row are taken for vectors.

    All must be of one type and shape. A batch has one type: a record of another would change that
    of everybody in it, and what a loss makes of them.
    """
    kinds = set(map(_kind_of_row, rows))
    if len(kinds) > 1:
        one, other = sorted(map(str, kinds))[:2]
        raise InvalidArgument(
            "dataset", f"a row of {one} and a row of {other}", "rows of one type and shape",
            "a batch has one type, and a record must not change everybody's: cast each by itself",
        )  # fmt: skip
    if isinstance(rows[0], Mapping):
        return {name: collate([row[name] for row in rows]) for name in rows[0]}
    if isinstance(rows[0], tuple):
        return [collate(list(column)) for column in zip(*rows, strict=True)]
    if isinstance(rows[0], list):
        return torch.tensor(rows)
    return default_collate(rows)


def _kind_of_row(row: Any) -> Any:
    """What is the same of all rows that can share a batch without changing it."""
    if isinstance(row, Tensor | np.ndarray | np.generic):
        return str(row.dtype), tuple(row.shape)
    if isinstance(row, Mapping):
        return frozenset((name, _kind_of_row(value)) for name, value in row.items())
    if isinstance(row, list):  # of numbers, or of lists of them
        return "list", len(row), frozenset(map(_kind_of_row, row))
    if isinstance(row, tuple):
        return tuple(map(_kind_of_row, row))
    return type(row).__name__


def as_tensor(values: Any) -> Tensor:
    """A tensor of the same memory, without a copy."""
    if isinstance(values, Tensor):
        return values
    if isinstance(values, list | tuple):
        raise InvalidArgument(
            "dataset", f"a {type(values).__name__} of {len(values)}", "tensors or arrays",
            "one number type is read off all records: say it, torch.tensor(rows, dtype=...)",
        )  # fmt: skip
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # of memory that must not be written to
            return torch.from_numpy(np.asarray(values))
    except TypeError as error:
        raise InvalidArgument("dataset", type(values).__name__, "numbers", str(error)) from None


def as_rows(dataset: Any) -> DatasetRows:
    """Tensors, arrays, columns by name, or whatever gives rows by number, as `DatasetRows`.

    Of a `DataLoader` only its data set is taken, and its `collate_fn` for one record at a time.

    >>> len(as_rows((torch.zeros(3, 2), torch.zeros(3))))
    3
    >>> as_rows({"x": torch.zeros(3, 2), "labels": torch.zeros(3)}).names
    ('x', 'labels')
    """
    if isinstance(dataset, DatasetRows):
        return dataset
    if isinstance(dataset, DataLoader):
        return _rows_of_loader(dataset)
    if isinstance(dataset, TensorDataset):
        return TensorRows(dataset.tensors)
    if isinstance(dataset, Tensor | np.ndarray):
        return TensorRows([dataset])
    if isinstance(dataset, Mapping) and dataset:
        return TensorRows(list(dataset.values()), names=tuple(dataset))
    if isinstance(dataset, list) and dataset and isinstance(dataset[0], tuple):
        return MapStyleRows(dataset)
    if isinstance(dataset, tuple | list) and dataset and not isinstance(dataset[0], Mapping):
        return TensorRows(dataset)
    kind = type(dataset)
    if kind.__name__ in ("DataFrame", "Series"):
        raise InvalidArgument(
            "dataset", f"a {kind.__name__}", "tensors or arrays of equal length",
            "say which columns: frame[columns].to_numpy(dtype='float32'), frame[label].to_numpy()",
        )  # fmt: skip
    by_number = all(callable(getattr(kind, name, None)) for name in ("__len__", "__getitem__"))
    if by_number and len(dataset):
        return MapStyleRows(dataset)
    raise InvalidArgument(
        "dataset", kind.__name__, "tensors or arrays of equal length, or rows by number"
    )


def _rows_of_loader(loader: DataLoader[Any]) -> DatasetRows:
    """The data set of a `DataLoader`, whose batches a private step cannot use."""
    warnings.warn(
        "of the DataLoader only the data set is taken: batch_size, shuffle, sampler and drop_last "
        "are not used, for sample_rate of the schedule says who takes part in a step",
        UserWarning,
        stacklevel=4,
    )
    if loader.collate_fn in (default_collate, default_convert):
        return as_rows(loader.dataset)
    return MapStyleRows(CollatedRows(loader.dataset, loader.collate_fn))


@final
class CollatedRows:
    """The rows of a data set, each of which is a batch of one that `collate_fn` made.

    A batch of several would be padded to its longest record, which tells of the others.
    """

    def __init__(self, dataset: Any, collate_fn: Callable[[list[Any]], Any]) -> None:
        self.dataset, self.collate_fn = dataset, collate_fn

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, i: int) -> Any:
        made = self.collate_fn([self.dataset[i]])
        if isinstance(made, Mapping):
            return {name: as_tensor(column)[0] for name, column in made.items()}
        columns = made if isinstance(made, tuple | list) else [made]
        return tuple(as_tensor(column)[0] for column in columns)


def make_views(
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
    with generator_states.kept():
        for row, word in zip(tensors[0].split(1), source.uint64(len(tensors[0])), strict=True):
            seed = int(word >> np.uint64(1))
            # for those that do not use the generator
            generator_states.seed_all(generator_states.HOST, seed)
            changed = augment(row, generator.manual_seed(seed))
            if len(changed) != 1:
                given = f"{len(changed)} rows"
                raise InvalidArgument("augment", given, "one row for the one it got")
            out.append(changed)
    return (torch.cat(out), *tensors[1:])


# People instead of rows: users are drawn, and each has one gradient, whatever the rows they have. A
# user's gradient is the mean over at most k of their rows, k public, clipped once. The engine takes
# k rows of each user as the views of one example; users with fewer have rows that weigh nothing.
# All that a user brings to a step is a function of their own rows and of coins of their own, so
# taking a user away moves the sum by what one example can.
