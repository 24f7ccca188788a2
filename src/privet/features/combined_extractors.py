"""Extractors made of others: in a row, side by side, or averaged over mirror images."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privet.errors import InvalidArgument
from privet.features.extractor import Array, Features, images, transform_in_blocks
from privet.guarantee import Backing, Premise

_PROGRESS_BLOCK = 128  # records between two reports: few, so that a slow extractor reports often


class FeaturePipeline(Features):
    """One extractor after another; the unit ball of the first is the domain of the second.

    >>> import numpy as np
    >>> from privet.features import RandomProjection
    >>> first = RandomProjection(n_inputs=64, n_features=32)
    >>> both = first.then(RandomProjection(n_inputs=32, n_features=8))
    >>> both.transform(np.ones((3, 64))).shape
    (3, 8)
    """

    def __init__(self, first: Features, second: Features) -> None:
        self.first, self.second = first, second
        self.n_features = second.n_features

    def transform(self, x: NDArray[Any]) -> Array:
        """The second extractor's features of the first one's."""
        return self.second.transform(self.first.transform(x))

    def _raw(self, x: NDArray[Any]) -> Array:
        return self.second._raw(self.first.transform(x))

    @property
    def sees_number_type(self) -> bool:
        """Whether the first does: the second is given its rows."""
        return self.first.sees_number_type

    @property
    def premise(self) -> Premise:
        """The weaker of the premises of the two."""
        return weakest_premise(self.first, self.second)

    @property
    def recipe(self) -> str:
        """The recipes of both, in order."""
        return f"{self.first.recipe} | {self.second.recipe}"


class SideBySide(Features):
    """The features of several extractors in one row, each given an equal share of the norm.

    >>> import numpy as np
    >>> from privet.features import RandomProjection
    >>> two = SideBySide(*(RandomProjection(n_inputs=9, n_features=4, seed=k) for k in range(2)))
    >>> two.transform(np.eye(9)).shape
    (9, 8)
    """

    def __init__(self, *parts: Features) -> None:
        if not parts:
            raise InvalidArgument("parts", parts, "at least one extractor")
        self.parts = parts
        self.n_features = sum(part.n_features for part in parts)

    def _raw(self, x: NDArray[Any]) -> Array:
        return np.hstack([part.transform(x) for part in self.parts])

    @property
    def sees_number_type(self) -> bool:
        """Whether one of the parts does."""
        return any(part.sees_number_type for part in self.parts)

    @property
    def premise(self) -> Premise:
        """The weakest of the parts' premises."""
        return weakest_premise(*self.parts)

    @property
    def recipe(self) -> str:
        """The recipes of the parts."""
        return "(" + " & ".join(part.recipe for part in self.parts) + ")"


class FeaturesWrapper(Features):
    """An extractor around another one, with the same map unless it says otherwise."""

    def __init__(self, inner: Features) -> None:
        self.inner = inner
        self.n_features = inner.n_features

    def _raw(self, x: NDArray[Any]) -> Array:
        return self.transform(x)

    @property
    def sees_number_type(self) -> bool:
        """Whether the inner extractor does."""
        return self.inner.sees_number_type

    @property
    def premise(self) -> Premise:
        """That of the inner extractor."""
        return self.inner.premise

    @property
    def recipe(self) -> str:
        """The inner recipe, where the map is the same."""
        return self.inner.recipe


class FeaturesWithProgress(FeaturesWrapper):
    """An extractor that works in blocks and reports its progress in hundredths, not in records."""

    def __init__(self, inner: Features, progress: Callable[[str, int, int], None]) -> None:
        super().__init__(inner)
        self.progress = progress

    def transform(self, x: NDArray[Any]) -> Array:
        """The inner extractor's features."""

        def done(count: int) -> None:
            self.progress("public features", 100 * count // max(1, len(x)), 100)

        return transform_in_blocks(
            x, self.n_features, self.inner.transform, size=_PROGRESS_BLOCK, done=done
        )


class ZeroFeatures(FeaturesWrapper):
    """Zero rows in place of an extractor's: for a plan, which may look at shapes alone."""

    def transform(self, x: NDArray[Any]) -> Array:
        """Zeros, which take memory only where somebody writes."""
        return np.zeros((len(x), self.n_features), dtype=np.float32)


class MirrorInvariant(FeaturesWrapper):
    """The mean of an extractor's features of a picture and of its mirror image.

    A picture and its mirror image then have the same features: what a private learner need not
    learn costs it nothing. (Averaging a model over both, at no price in noise.)

    **Guarantee**: that of `Features`: one record, one row of the unit ball. **Assumes** that left
    and right do not matter: right for photographs, wrong for digits.

    >>> import numpy as np
    >>> from privet.features import Scattering
    >>> front = MirrorInvariant(Scattering(shape=(8, 8)), shape=(8, 8))
    >>> x = np.random.default_rng(0).random((2, 8, 8))
    >>> bool(np.allclose(front.transform(x), front.transform(x[:, :, ::-1]), atol=1e-6))
    True
    """

    def __init__(self, inner: Features, *, shape: tuple[int, ...]) -> None:
        super().__init__(inner)
        self.shape = shape

    @property
    def sees_number_type(self) -> bool:
        """Yes: it makes pictures of bytes itself."""
        return True

    def _raw(self, x: NDArray[Any]) -> Array:
        pictures = images(x, self.shape)
        out = self.inner.transform(pictures)
        out += self.inner.transform(np.ascontiguousarray(pictures[:, :, ::-1]))
        return out

    @property
    def recipe(self) -> str:
        """The inner recipe, mirrored."""
        return f"mirrored-1 {self.shape} ({self.inner.recipe})"


def weakest_premise(*parts: Features) -> Premise:
    """Of these extractors' premises about rows, the one that asks most of the reader."""
    order = (Backing.ASSUMED, Backing.TESTED, Backing.ENFORCED)
    return min((part.premise for part in parts), key=lambda premise: order.index(premise.backing))
