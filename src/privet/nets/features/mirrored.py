"""Pictures and their mirror images: one row for both."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from privet.nets.features.base import Around, Array, Features, images


class Mirrored(Around):
    """The mean of an extractor's features of a picture and of its mirror image.

    A picture and its mirror image then have the same features: what a private learner need not
    learn costs it nothing. (Averaging a model over both, at no price in noise.)

    **Guarantee**: that of `Features`: one record, one row of the unit ball. **Assumes** that left
    and right do not matter: right for photographs, wrong for digits.

    >>> import numpy as np
    >>> from privet.nets.features import Scattering
    >>> front = Mirrored(Scattering(shape=(8, 8)), shape=(8, 8))
    >>> x = np.random.default_rng(0).random((2, 8, 8))
    >>> bool(np.allclose(front.transform(x), front.transform(x[:, :, ::-1]), atol=1e-6))
    True
    """

    def __init__(self, inner: Features, *, shape: tuple[int, ...]) -> None:
        super().__init__(inner)
        self.shape = shape

    def _raw(self, x: NDArray[Any]) -> Array:
        pictures = images(x, self.shape)
        out = self.inner.transform(pictures)
        out += self.inner.transform(np.ascontiguousarray(pictures[:, :, ::-1]))
        return out

    @property
    def recipe(self) -> str:
        """The inner recipe, mirrored."""
        return f"mirrored-1 {self.shape} ({self.inner.recipe})"
