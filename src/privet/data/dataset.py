"""A data set with the public facts a private method may use: bounds, classes and shapes."""

from __future__ import annotations

import dataclasses
import hashlib
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privet import _check
from privet.data.table_columns import TableColumns
from privet.errors import InvalidArgument

FIXED_SPLIT = "which records are kept for tests is public"
"""What a promise rests on where one record more or less could move others to the test part."""
TRAINED_ON = "which records are trained on, and which are kept for tests, is public"
"""The same where only the first records are used, or only those with a label."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Dataset:
    """Training and test records with their labels, and what is publicly known about them.

    `low` and `high` bound each feature. They are declared (by the format, the documentation or the
    user), never computed from the records, so using them costs no privacy. The number of training
    records is taken as public, as everywhere in privet.

    >>> data = Dataset(
    ...     name="two", about="two records", classes=("no", "yes"), low=0.0, high=10.0,
    ...     x_train=[[1.0], [20.0]], y_train=[0, 1], x_test=[[5.0]], y_test=[1])
    >>> data.n_classes, data.n_features, data.train_rows().tolist()
    (2, 1, [[0.10000000149011612], [1.0]])
    """

    name: str
    about: str
    x_train: NDArray[Any]
    y_train: NDArray[Any]
    x_test: NDArray[Any]
    y_test: NDArray[Any]
    classes: tuple[str, ...]
    low: NDArray[Any]
    high: NDArray[Any]
    feature_names: tuple[str, ...] = ()
    target_bounds: tuple[float, float] | None = None
    """The declared range of a number to predict; None where classes are predicted."""
    split_assumes: str = FIXED_SPLIT
    """What must be public about the split; empty where each record goes its way by itself."""
    groups: NDArray[Any] | None = field(default=None, repr=False)
    """Whose each training record is, where people have several."""
    user: str | None = None
    """The column that said so."""
    columns: TableColumns | None = field(default=None, repr=False)
    """How a person's table becomes records, where it was one."""
    notes: tuple[str, ...] = ()
    """What its owner should hear about how it was read."""
    drops_unlabelled: bool = False
    """Whether records without a label were left out."""
    fingerprint: str = field(init=False)

    def __post_init__(self) -> None:
        for part in ("train", "test"):
            x, y = _own(getattr(self, f"x_{part}")), np.array(getattr(self, f"y_{part}"))
            if x.ndim < 2:
                raise InvalidArgument(f"x_{part}", x.shape, "an array of records, one row each")
            maps = y.ndim > 2 and y.shape[1:] == x.shape[1 - y.ndim :] and len(y) == len(x)
            if y.shape != (len(x),) and not maps:
                raise InvalidArgument(
                    f"y_{part}", y.shape, f"one label for each of {len(x)} records, or of voxels"
                )
            y = self._checked_labels(f"y_{part}", y)
            x.flags.writeable = y.flags.writeable = False
            object.__setattr__(self, f"x_{part}", x)
            object.__setattr__(self, f"y_{part}", y)
        if self.x_train.shape[1:] != self.x_test.shape[1:]:
            expected = f"records of shape {self.x_train.shape[1:]} as in training"
            raise InvalidArgument("x_test", self.x_test.shape[1:], expected)
        self._set_bounds()
        object.__setattr__(self, "fingerprint", self._digest())

    def _checked_labels(self, name: str, y: NDArray[Any]) -> NDArray[Any]:
        """Class numbers, or finite numbers where `target_bounds` are declared."""
        if self.target_bounds is not None:
            if not np.issubdtype(y.dtype, np.number) or not np.isfinite(y).all():
                raise InvalidArgument(name, y.dtype, "finite numbers")
            return y.astype(np.float64)
        if len(y) and not (np.issubdtype(y.dtype, np.integer) and 0 <= y.min() <= y.max()):
            raise InvalidArgument(name, y.dtype, "whole numbers from 0")
        if len(y) and y.max() >= len(self.classes):
            expected = f"labels below {len(self.classes)}, the number of declared classes"
            raise InvalidArgument(name, int(y.max()), expected)
        return y.astype(np.int64)

    def _set_bounds(self) -> None:
        for side in ("low", "high"):
            try:
                value = np.broadcast_to(
                    np.asarray(getattr(self, side), dtype=np.float64), self.shape
                ).copy()
            except (TypeError, ValueError):
                expected = f"a number, or one for each feature of shape {self.shape}"
                raise InvalidArgument(side, getattr(self, side), expected) from None
            value.flags.writeable = False
            object.__setattr__(self, side, value)
        if not (np.isfinite(self.low) & np.isfinite(self.high) & (self.low < self.high)).all():
            raise InvalidArgument(
                "bounds", (self.low, self.high), "finite, each low below its high"
            )

    def _digest(self) -> str:
        digest = hashlib.sha256()
        for array in (self.x_train, self.y_train, self.x_test, self.y_test, self.low, self.high):
            digest.update(f"{array.dtype.str} {array.shape}\n".encode())
            digest.update(np.ascontiguousarray(array).data)
        digest.update("\n".join(self.classes).encode())
        if self.target_bounds is not None:
            digest.update(repr(self.target_bounds).encode())
        return digest.hexdigest()

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one record."""
        return self.x_train.shape[1:]

    @property
    def n_classes(self) -> int:
        """Number of declared classes."""
        return len(self.classes)

    @property
    def n_features(self) -> int:
        """Number of features of a record, counted flat."""
        return int(np.prod(self.shape))

    def train_rows(self) -> NDArray[np.float32]:
        """Training records as flat rows, scaled (and clipped) to [0, 1] by the public bounds."""
        return self._rows(self.x_train)

    def test_rows(self) -> NDArray[np.float32]:
        """Test records likewise."""
        return self._rows(self.x_test)

    def _rows(self, x: NDArray[Any]) -> NDArray[np.float32]:
        low, width = self.low.astype(np.float32), (self.high - self.low).astype(np.float32)
        with np.errstate(over="ignore"):  # clipped to the bound
            values = _check.numbers("x", x).astype(np.float32)
        rows: NDArray[np.float32] = ((values - low) / width).reshape(len(x), self.n_features)
        return np.clip(rows, 0.0, 1.0, out=rows)

    def subset(self, n: int) -> Dataset:
        """The first `n` training records (all test records): for quick runs."""
        n = _check.count("n", n)
        if n > len(self.x_train):
            raise InvalidArgument("n", n, f"at most the {len(self.x_train)} training records")
        return dataclasses.replace(
            self,
            name=f"{self.name}[:{n}]",
            x_train=self.x_train[:n],
            y_train=self.y_train[:n],
            split_assumes=TRAINED_ON,
            groups=None if self.groups is None else self.groups[:n],
            user=self.user,
        )

    def __repr__(self) -> str:
        return (
            f"Dataset({self.name!r}: {len(self.x_train)} + {len(self.x_test)} records "
            f"of shape {self.shape}, "
            f"{self.n_classes or 'no'} classes, {self.fingerprint[:12]})"
        )


def _own(x: Any) -> NDArray[Any]:
    """A copy that nobody else writes to; an array of its own that is sealed already is kept."""
    sealed = isinstance(x, np.ndarray) and x.base is None and not x.flags.writeable
    return x if sealed else np.array(x)
