"""What every public feature extractor is: a fixed map of a record into the unit ball."""

from __future__ import annotations

import hashlib
import os
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from privet._exact import row_norms, row_sums
from privet._files import replacing
from privet.errors import InvalidArgument
from privet.guarantee import Backing, Premise

Array = NDArray[np.float32]

MARGIN = 1e-6
"""Rows are scaled to norm 1 - MARGIN: float32 rounding adds less, so no norm exceeds 1."""


_BLOCK, _WATCHED = 2048, 128


class Features(ABC):
    """A public map from records to rows of L2 norm at most 1, one record at a time.

    **Guarantee**: a row is a function of its own record, to the last bit, as far as `premise` says;
    it has L2 norm at most `bound`. A record of non-finite features becomes the zero row of its
    stage. So a record changes one row, and a sum over rows has add-remove sensitivity `bound`.

    **Assumes**: whatever the extractor was built from (a seed, drawn strokes, a user's module) is
    public.
    """

    bound: ClassVar[float] = 1.0
    n_features: int
    """Number of columns that `transform` returns."""

    def transform(self, x: NDArray[Any]) -> Array:
        """Rows of features, float32, each in the unit ball."""
        with np.errstate(over="ignore", invalid="ignore"):  # such records become zero rows
            return self._in_blocks(x, _BLOCK, lambda part: unit_rows(self._raw(part)))

    def _in_blocks(
        self,
        x: NDArray[Any],
        size: int,
        make: Callable[[NDArray[Any]], Array],
        done: Callable[[int], None] = lambda start: None,
    ) -> Array:
        """Rows that `make` makes of some records at a time: they are long, and are held once."""
        out = np.empty((len(x), self.n_features), dtype=np.float32)
        for start in range(0, len(x), size):
            into, rows = out[start : start + size], make(x[start : start + size])
            if rows.shape != into.shape:  # numpy would repeat a single column, or row
                raise InvalidArgument("features", rows.shape, f"{into.shape}, as it says itself")
            into[:] = rows
            done(start + len(into))
        return out

    @property
    @abstractmethod
    def premise(self) -> Premise:
        """How it is known that a row depends on its own record alone, rounding included."""

    def then(self, other: Features) -> Composed:
        """This extractor followed by another."""
        return Composed(self, other)

    @abstractmethod
    def _raw(self, x: NDArray[Any]) -> Array:
        """Features before they are scaled to the unit ball: one row for each record."""

    @property
    @abstractmethod
    def recipe(self) -> str:
        """Everything that determines the map, as text: one recipe, one map."""


class Composed(Features):
    """One extractor after another; the unit ball of the first is the domain of the second.

    >>> import numpy as np
    >>> from privet.nets.features import RandomProjection
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
    def premise(self) -> Premise:
        """The weaker of the two."""
        return weakest(self.first, self.second)

    @property
    def recipe(self) -> str:
        """Both recipes in order."""
        return f"{self.first.recipe} | {self.second.recipe}"


class SideBySide(Features):
    """The features of several extractors in one row, each given an equal share of the norm.

    >>> import numpy as np
    >>> from privet.nets.features import RandomProjection
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
    def premise(self) -> Premise:
        """The weakest of the parts'."""
        return weakest(*self.parts)

    @property
    def recipe(self) -> str:
        """The recipes of the parts."""
        return "(" + " & ".join(part.recipe for part in self.parts) + ")"


class Around(Features):
    """An extractor around another one: exact in what it adds, and with the same map unless told."""

    def __init__(self, inner: Features) -> None:
        self.inner = inner
        self.n_features = inner.n_features

    def _raw(self, x: NDArray[Any]) -> Array:
        return self.transform(x)

    @property
    def premise(self) -> Premise:
        """That of the inner extractor."""
        return self.inner.premise

    @property
    def recipe(self) -> str:
        """The inner recipe, where the map is the same."""
        return self.inner.recipe


class Cached(Around):
    """An extractor that keeps its results on disk, keyed by its recipe and its input's content.

    **Caution**: features of private records are private. They are written only because you asked
    for this wrapper, unprotected except by file permissions (readable by the owner alone).
    """

    def __init__(self, inner: Features, folder: str | os.PathLike[str] | None = None) -> None:
        super().__init__(inner)
        self.folder = cache_folder(folder) / "features"

    def transform(self, x: NDArray[Any]) -> Array:
        """The inner extractor's features, from disk where they are already there."""
        key = content_key(self.inner.recipe, x)
        return stored(self.folder / f"{key}.npy", lambda: self.inner.transform(x))


class Watched(Around):
    """An extractor that works in blocks and tells how far it is, in hundredths: no count."""

    def __init__(self, inner: Features, progress: Callable[[str, int, int], None]) -> None:
        super().__init__(inner)
        self.progress = progress

    def transform(self, x: NDArray[Any]) -> Array:
        """The inner extractor's features."""

        def done(count: int) -> None:
            self.progress("public features", 100 * count // max(1, len(x)), 100)

        return self._in_blocks(x, _WATCHED, self.inner.transform, done)


class Unmade(Around):
    """Zero rows in place of an extractor's: for a plan, which may look at shapes alone."""

    def transform(self, x: NDArray[Any]) -> Array:
        """Zeros, which take memory only where somebody writes."""
        return np.zeros((len(x), self.n_features), dtype=np.float32)


def weakest(*parts: Features) -> Premise:
    """Of these extractors' premises about rows, the one that asks most of the reader."""
    order = (Backing.ASSUMED, Backing.TESTED, Backing.ENFORCED)
    return min((part.premise for part in parts), key=lambda premise: order.index(premise.backing))


def unit_rows(rows: NDArray[Any]) -> Array:
    """Scale each row to norm 1 - MARGIN; zero rows and rows that are not finite become zero.

    >>> import numpy as np
    >>> unit_rows(np.array([[3.0, 4.0], [np.nan, 1.0], [0.0, 0.0]])).round(3).tolist()
    [[0.6000000238418579, 0.800000011920929], [0.0, 0.0], [0.0, 0.0]]
    """
    out = np.array(rows, dtype=np.float32)  # a copy: the caller's rows stay as they are
    many = max(1, 2**20 // max(out.shape[1], 1))
    for start in range(0, len(out), many):  # in pieces, to bound the float64 temporaries
        part = out[start : start + many]
        largest = np.abs(part).max(axis=1, keepdims=True, initial=0.0)
        usable = np.isfinite(largest) & (largest > 0)
        part /= np.where(usable, largest, 1.0)  # by the largest entry first: squares stay finite
        norms = row_norms(part)[:, None]
        part *= ((1.0 - MARGIN) / np.where(usable, norms, 1.0)).astype(np.float32)
        part[~usable[:, 0]] = 0.0
    return out


def group_normalise(rows: Array, groups: int) -> Array:
    """Mean 0 and variance 1 within each of `groups` equal runs of columns of each row."""
    out = np.empty(rows.shape, dtype=np.float32)
    many = max(1, 2**20 // max(rows.shape[1], 1))
    for start in range(0, len(rows), many):
        parts = rows[start : start + many].reshape(-1, groups, rows.shape[1] // groups)
        count = parts.shape[2]
        centred = parts - (row_sums(parts) / count)[..., None]
        variance = row_sums(centred * centred) / count
        centred /= np.sqrt(variance + 1e-5)[..., None]
        out[start : start + many] = centred.reshape(-1, rows.shape[1])
    return out


def patches(maps: NDArray[Any], side: int, *, stride: int = 1) -> NDArray[Any]:
    """Every side x side window of maps (records, rows, columns, channels), one row a window.

    A row holds rows, columns, channels of its window, in this order.

    >>> patches(np.arange(9.0).reshape(1, 3, 3, 1), 2)[0, 0].tolist()
    [[0.0, 1.0, 3.0, 4.0], [1.0, 2.0, 4.0, 5.0]]
    """
    windows = np.lib.stride_tricks.sliding_window_view(maps, (side, side), axis=(1, 2))
    windows = windows[:, ::stride, ::stride].transpose(0, 1, 2, 4, 5, 3)
    return windows.reshape(*windows.shape[:3], -1)


def images(x: NDArray[Any], shape: tuple[int, ...]) -> Array:
    """Records as float32 images of `shape`: flat rows are reshaped, bytes are divided by 255."""
    x = np.asarray(x)
    if x.ndim < 2 or int(np.prod(x.shape[1:])) != int(np.prod(shape)):
        raise InvalidArgument(
            "x", x.shape, f"an array of records of shape {shape}, or flat rows of it"
        )
    pictures: Array = x.reshape(-1, *shape).astype(np.float32)
    return pictures / np.float32(255) if x.dtype == np.uint8 else pictures


def cache_folder(folder: str | os.PathLike[str] | None = None) -> Path:
    """Where what can be computed again is kept: the argument, `$PRIVET_CACHE`, ~/.cache/privet."""
    if folder is not None:
        return Path(folder)
    return Path(os.environ.get("PRIVET_CACHE") or Path.home() / ".cache" / "privet")


def content_key(recipe: str, x: NDArray[Any]) -> str:
    """A name for the result of `recipe` on `x`: SHA-256 of the recipe, dtype, shape and bytes."""
    digest = hashlib.sha256(f"{recipe}\n{x.dtype}\n{x.shape}\n".encode())
    digest.update(np.ascontiguousarray(x).data)
    return digest.hexdigest()[:32]


def stored(path: Path, compute: Callable[[], Array]) -> Array:
    """Read an array from `path`, or compute it and write it there, whole or not at all."""
    if path.exists():
        kept: Array = np.load(path, allow_pickle=False)
        return kept
    value = compute()
    with replacing(path, mode=0o600) as file:  # features of private records
        np.save(file, value, allow_pickle=False)
    return value
