"""What all methods of a comparison share: records, a budget, and who may see what."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from privet.data import Dataset
    from privet.nets.features import Features


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Bench:
    """A data set cut in three: private records, public unlabelled ones, and a test set.

    Rows are in [0, 1] by the declared bounds. The public part is a third of the test set without
    its labels: PATE's student needs inputs, the other methods do not look at it.
    """

    dataset: Dataset
    epsilon: float
    delta: float

    @property
    def classes(self) -> list[int]:
        """The declared classes, by number."""
        return list(range(self.dataset.n_classes))

    @property
    def shape(self) -> tuple[int, ...] | None:
        """Of pictures that are large enough to be looked at as such."""
        shape = self.dataset.shape
        return shape if len(shape) >= 2 and min(shape[:2]) >= 16 else None

    @property
    def front(self) -> Features | None:
        """Public features of pictures: scattering, kept on disk; None for tables."""
        if self.shape is None:
            return None
        from privet.nets.features import Cached, Scattering

        return Cached(Scattering(shape=self.shape))

    @property
    def cut(self) -> int:
        """So many of the test records are public and unlabelled."""
        return len(self.dataset.y_test) // 3

    def train(self) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """The private records."""
        return self.dataset.train_rows(), self.dataset.y_train

    def public(self) -> NDArray[Any]:
        """Unlabelled records that anybody may see."""
        return self.dataset.test_rows()[: self.cut]

    def test(self) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """What accuracy is measured on."""
        return self.dataset.test_rows()[self.cut :], self.dataset.y_test[self.cut :]
