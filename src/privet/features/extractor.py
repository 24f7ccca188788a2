"""What every public feature extractor is: a fixed map of a record into the unit ball."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from privet.errors import InvalidArgument
from privet.guarantee import Premise
from privet.rowwise_arithmetic import row_blocks, row_norms, row_sums

Array = NDArray[np.float32]

MARGIN = 1e-6
"""Rows are scaled to norm 1 - MARGIN: float32 rounding adds less, so no norm exceeds 1."""
_BLOCK = 2048  # records transformed at a time: their raw features are held once more


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

    @property
    def sees_number_type(self) -> bool:
        """Whether an array's number type can matter to the map, as where bytes are divided by 255.

        A `Domain` then takes bytes, or whatever its bounds bring to [0, 1], and nothing else: the
        type of an array is that of all its records together.
        """
        return True

    def transform(self, x: NDArray[Any]) -> Array:
        """Rows of features, float32, each in the unit ball.

        The type of the array declares its scale: bytes are pictures of 0 to 255, floats are taken
        as they are. So it is yours to choose, not what a list of records happens to become.
        """
        with np.errstate(over="ignore", invalid="ignore"):  # such records become zero rows
            return transform_in_blocks(x, self.n_features, lambda part: unit_rows(self._raw(part)))

    @property
    @abstractmethod
    def premise(self) -> Premise:
        """How it is known that a row depends on its own record alone, rounding included."""

    def then(self, other: Features) -> Features:
        """This extractor followed by another."""
        from privet.features.combined_extractors import FeaturePipeline

        return FeaturePipeline(self, other)

    @abstractmethod
    def _raw(self, x: NDArray[Any]) -> Array:
        """Features before they are scaled to the unit ball: one row for each record."""

    @property
    @abstractmethod
    def recipe(self) -> str:
        """Everything that determines the map, as text: one recipe, one map."""


def transform_in_blocks(
    x: NDArray[Any],
    n_features: int,
    make: Callable[[NDArray[Any]], Array],
    *,
    size: int = _BLOCK,
    done: Callable[[int], None] = lambda start: None,
) -> Array:
    """Rows that `make` makes of some records at a time: they are long, and are held once."""
    out = np.empty((len(x), n_features), dtype=np.float32)
    for start in range(0, len(x), size):
        into, rows = out[start : start + size], make(x[start : start + size])
        if rows.shape != into.shape:  # numpy would repeat a single column, or row
            raise InvalidArgument("features", rows.shape, f"{into.shape}, as it says itself")
        into[:] = rows
        done(start + len(into))
    return out


def unit_rows(rows: NDArray[Any]) -> Array:
    """Scale each row to norm 1 - MARGIN; zero rows and rows that are not finite become zero.

    >>> import numpy as np
    >>> unit_rows(np.array([[3.0, 4.0], [np.nan, 1.0], [0.0, 0.0]])).round(3).tolist()
    [[0.6000000238418579, 0.800000011920929], [0.0, 0.0], [0.0, 0.0]]
    """
    out = np.array(rows, dtype=np.float32)  # a copy: the caller's rows stay as they are
    for block in row_blocks(*out.shape):  # to bound the float64 temporaries
        part = out[block]
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
    for block in row_blocks(*rows.shape):
        parts = rows[block].reshape(-1, groups, rows.shape[1] // groups)
        count = parts.shape[2]
        centred = parts - (row_sums(parts) / count)[..., None]
        variance = row_sums(centred * centred) / count
        centred /= np.sqrt(variance + 1e-5)[..., None]  # as torch's GroupNorm has it
        out[block] = centred.reshape(-1, rows.shape[1])
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
    if not isinstance(x, np.ndarray) or not (x.dtype == np.uint8 or x.dtype.kind == "f"):
        raise InvalidArgument(
            "x", getattr(x, "dtype", type(x)), "an array of bytes (0 to 255) or of floats",
            "its type declares the scale: divide other numbers by their public largest value",
        )  # fmt: skip
    if x.ndim < 2 or int(np.prod(x.shape[1:])) != int(np.prod(shape)):
        raise InvalidArgument(
            "x", x.shape, f"an array of records of shape {shape}, or flat rows of it"
        )
    pictures: Array = x.reshape(-1, *shape).astype(np.float32)
    return pictures / np.float32(255) if x.dtype == np.uint8 else pictures
