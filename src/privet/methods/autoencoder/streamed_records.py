"""Records that are read in passes, block by block: memory maps, or a stream that reopens."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from privet import _check, premises
from privet.data.domain import Domain, Rows, finite_records
from privet.data.records import PublicFacts, Records, class_numbers
from privet.errors import InvalidArgument
from privet.guarantee import Unit
from privet.sensitivity import UserWeights, user_weights

Array = NDArray[Any]

BLOCK = 2048  # rows in memory at once: enough that products of matrices take the time


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Block:
    """Some records: their rows, class numbers (-1: none) and, if users count, their weights."""

    rows: Rows
    targets: Array
    users: UserWeights | None = None


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Stream:
    """Records that come in chunks: `open()` begins a new pass and yields rows, or (rows, labels).

    `columns` is how many features a row has. Each pass must yield the same records.

    >>> stream = Stream(open=lambda: iter([np.ones((3, 2)), np.zeros((1, 2))]), columns=2)
    >>> [len(rows) for rows, labels in stream.chunks()]
    [3, 1]
    """

    open: Callable[[], Iterable[Any]]
    columns: int

    def __post_init__(self) -> None:
        _check.count("columns", self.columns)

    @classmethod
    def of(cls, x: Array) -> Stream:
        """The slices of an array, or of a memory map on disk."""
        flat = x.reshape(len(x), -1)
        return cls(
            open=lambda: (flat[i : i + BLOCK] for i in range(0, len(flat), BLOCK)),
            columns=flat.shape[1],
        )

    def chunks(self) -> Iterator[tuple[Array, Array | None]]:
        """One pass, in blocks: chunks are cut where they are long."""
        for chunk in self.open():
            rows, labels = chunk if isinstance(chunk, tuple) else (chunk, None)
            rows = np.asarray(rows)
            rows = rows.reshape(len(rows), -1)
            if rows.shape[1] != self.columns:
                raise InvalidArgument("stream", rows.shape, f"chunks with {self.columns} columns")
            labels = None if labels is None else np.asarray(labels)
            if labels is not None and labels.shape != (len(rows),):
                raise InvalidArgument("stream", labels.shape, f"{len(rows)} labels in this chunk")
            for start in range(0, len(rows), BLOCK):
                part = slice(start, start + BLOCK)
                yield rows[part], None if labels is None else labels[part]


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class StreamedRecords:
    """What `privet.data.records.Records` is for records that do not fit in memory.

    `classes` None: there is nothing to predict. `records`: how many there are, if that was counted;
    otherwise `n_public` is needed.
    """

    stream: Stream
    domain: Domain
    classes: Array | None = None
    groups: Array | None = field(default=None, repr=False)
    records: int | None = None
    n_public: int | None = None

    def facts(self, *, epsilon: float, delta: float) -> PublicFacts:
        """What may be known of them before anything is paid."""
        n = self.records if self.n_public is None else _check.count("n_public", self.n_public)
        if n is None:
            raise InvalidArgument("n_public", None, "given with a stream, whose length is unknown")
        size = premises.counted_size if self.n_public is None else premises.declared_size
        one = self.groups is None
        people = premises.ONE_RECORD_EACH if one else premises.one_group_each("groups")
        said = () if self.classes is None else (premises.DECLARED_CLASSES,)
        return PublicFacts(
            records=_check.count("records", n),
            features=int(np.prod(self.domain.row_shape)),
            outputs=0 if self.classes is None else len(self.classes),
            epsilon=_check.positive("epsilon", epsilon),
            delta=_check.delta_or_zero("delta", delta),
            shape=self.domain.row_shape,
            declared=self.n_public is not None,
            unit=Unit.RECORD if one else Unit.USER,
            premises=(size(n), self.domain.premise, *said, people),
        )

    def blocks(self, share: float) -> Iterator[Block]:
        """One pass over all records."""
        users = None if self.groups is None else user_weights(self.groups, share=share)
        at = 0
        for x, labels in self.stream.chunks():
            rows, numbers = self.domain.rows(x), np.full(len(x), -1)
            if self.classes is not None:
                if labels is None:
                    raise InvalidArgument("stream", "rows alone", "(rows, labels) for a classifier")
                numbers = class_numbers(labels, self.classes)
                numbers = np.where(finite_records(x), numbers, -1)
                rows = rows.without(numbers < 0)
            own = None if users is None else users[slice(at, at + len(x))]
            at += len(x)
            yield Block(rows=rows, targets=numbers, users=own)


def iterate_blocks(records: Records | StreamedRecords, share: float) -> Iterator[Block]:
    """One pass over records, held or streamed."""
    if isinstance(records, StreamedRecords):
        yield from records.blocks(share)
        return
    users = records.user_weights(share)
    for start in range(0, len(records), BLOCK):
        part = slice(start, start + BLOCK)
        yield Block(
            rows=records.rows.part(part),
            targets=records.targets[part],
            users=None if users is None else users[part],
        )
