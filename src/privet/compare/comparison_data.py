"""What all methods of a comparison share: records, a budget, and who may see what."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from enum import Enum
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

import numpy as np
from numpy.typing import NDArray

from privet import tuned_defaults
from privet.data.records import PublicFacts

if TYPE_CHECKING:
    from privet.data import Dataset
    from privet.features import Features

FloatRows = NDArray[np.float32]
FEW = 12
"""Columns of those methods whose noise grows with every column."""
_BLOCK = 4096
"""Records whose features are made at once: bounds memory, and is long enough to be fast."""


class View(Enum):
    """How a method sees records; each is a public map of a record by itself."""

    COLUMNS = "columns"
    """The columns, in [0, 1] by their declared bounds."""
    RECORDS = "records"
    """The same, pictures in their own shape."""
    FEATURES = "features"
    """Pictures: scattering coefficients, randomly projected, of length 1. Tables: the columns."""
    FEW = "few"
    """A random projection of the features on `FEW` columns, held to [-1, 1]."""


@lru_cache(maxsize=2)
def _front(shape: tuple[int, ...]) -> Features:
    """The public features, made once a process: the random matrix takes a second for colour."""
    from privet.features import RandomProjection, Scattering

    scattering = Scattering(shape=shape)
    return scattering.then(
        RandomProjection(
            n_inputs=scattering.n_features, n_features=tuned_defaults.PROJECTED_COLUMNS
        )
    )


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class ComparisonData:
    """A data set cut in three: private records, public unlabelled ones, and a test set.

    The public part is a third of the test set without its labels: PATE's student needs inputs, the
    other methods do not look at it. Split 0 is the data set's own; every other one deals all its
    records anew into parts of the same sizes.
    """

    dataset: Dataset
    epsilon: float
    delta: float
    split: int = 0
    features_folder: Path | None = None
    """Where features are kept for other processes; None: made anew whenever they are asked for."""

    @property
    def classes(self) -> list[int]:
        """The declared classes, by number."""
        return list(range(self.dataset.n_classes))

    @property
    def records(self) -> int:
        """The number of private records, which is public."""
        return len(self.dataset.y_train)

    @property
    def shape(self) -> tuple[int, ...] | None:
        """The shape of a record, if it is a picture large enough for features; None otherwise."""
        shape = self.dataset.shape
        return shape if len(shape) >= 2 and min(shape[:2]) >= 16 else None

    @property
    def front(self) -> Features | None:
        """The map to public features of pictures; None for tables."""
        return None if self.shape is None else _front(self.shape)

    def bounds(self, view: View) -> float | tuple[float, float]:
        """What is declared: the length of pictures' features, or the range of a column."""
        return (0.0, 1.0) if self.shape is None or view is not View.FEATURES else 1.0

    @property
    def facts(self) -> PublicFacts:
        """The public facts of the private records, as columns."""
        return PublicFacts(
            records=self.records,
            features=self.dataset.n_features,
            outputs=self.dataset.n_classes,
            epsilon=self.epsilon,
            delta=self.delta,
            shape=self.shape or (self.dataset.n_features,),
        )

    @property
    def cut(self) -> int:
        """How many of the test records are used as public, unlabelled ones."""
        return len(self.dataset.y_test) // 3

    @cached_property
    def _order(self) -> NDArray[np.int64]:
        """Which of all records, training records first, stands where in this split.

        By a keyed hash of what each one holds, so that copies of a record stand side by side.
        """
        data, key = self.dataset, self.split.to_bytes(8, "little")
        if self.split == 0:
            return np.arange(len(data.y_train) + len(data.y_test))
        places = [
            hashlib.blake2b(row.tobytes(), digest_size=8, key=key).digest()
            for part in (data.x_train, data.x_test)
            for row in part
        ]
        return np.argsort(np.array([int.from_bytes(p, "big") for p in places], dtype=np.uint64))

    @property
    def tested(self) -> NDArray[np.int64]:
        """The numbers of the records on which accuracy is measured, among all of them."""
        return self._order[self.records + self.cut :]

    @property
    def tested_labels(self) -> NDArray[np.int64]:
        """Their classes."""
        labels: NDArray[np.int64] = np.concatenate([self.dataset.y_train, self.dataset.y_test])
        return labels[self.tested]

    def train(self, view: View) -> tuple[FloatRows, NDArray[np.int64]]:
        """The private records."""
        return self._side(view, private=True)

    def public(self, view: View) -> FloatRows:
        """Unlabelled records that anybody may see."""
        return self._side(view, private=False)[0][: self.cut]

    def test(self, view: View) -> tuple[FloatRows, NDArray[np.int64]]:
        """The test records and their classes, on which accuracy is measured."""
        rows, labels = self._side(view, private=False)
        return rows[self.cut :], labels[self.cut :]

    def _side(self, view: View, *, private: bool) -> tuple[FloatRows, NDArray[np.int64]]:
        """The private records of this split, or all others; features are made once for all."""
        data = self.dataset
        if self.split == 0:
            rows = data.train_rows() if private else data.test_rows()
            return self._rows(rows, view), data.y_train if private else data.y_test
        both = [self._rows(rows, view) for rows in (data.train_rows(), data.test_rows())]
        wanted = self._order[: self.records] if private else self._order[self.records :]
        return np.concatenate(both)[wanted], np.concatenate([data.y_train, data.y_test])[wanted]

    def prepare(self) -> None:
        """Make the public features now, so that workers find them."""
        self._features(self.dataset.train_rows())
        self._features(self.dataset.test_rows())

    def _rows(self, rows: FloatRows, view: View) -> FloatRows:
        if view is View.COLUMNS:
            return rows
        if view is View.RECORDS:
            return rows if self.shape is None else rows.reshape(len(rows), *self.shape)
        rows = self._features(rows)
        return rows if view is View.FEATURES else self._project(rows)

    def _features(self, rows: FloatRows) -> FloatRows:
        """The public features, read from their folder if they are there, or made block by block."""
        from privet.features.disk_cache import content_key, load_or_compute

        front = self.front
        if front is None:
            return rows

        def make() -> FloatRows:
            blocks = range(0, len(rows), _BLOCK)
            return np.concatenate([front.transform(rows[i : i + _BLOCK]) for i in blocks])

        if self.features_folder is None:
            return make()
        return load_or_compute(
            self.features_folder / f"{content_key(front.recipe, rows)}.npy", make
        )

    def _project(self, rows: FloatRows) -> FloatRows:
        from privet.features import RandomProjection

        centred = 2.0 * rows - 1.0 if self.shape is None else rows  # from [0, 1], or within [-1, 1]
        columns = rows.shape[1]
        if columns <= FEW:
            return np.asarray(centred, dtype=np.float32)
        shorter = RandomProjection(n_inputs=columns, n_features=FEW).transform(centred)
        return np.asarray(np.clip(2.0 * shorter, -1.0, 1.0))

    def describe(self) -> dict[str, Any]:
        """The public facts of the data, as the report shows them."""
        data = self.dataset
        return {
            "name": data.name,
            "about": data.about,
            "fingerprint": data.fingerprint,
            "records": self.records,
            "features": data.n_features,
            "shape": list(data.shape),
            "columns": list(data.feature_names),
            "classes": list(data.classes),
            "public_unlabelled": self.cut,
            "tested_on": len(data.y_test) - self.cut,
        }
