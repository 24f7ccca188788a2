"""Second moments as a bounded sum: the coefficients of every loss of order two.

A record with features h and target y, ||h||_2 <= 1 and ||y||_2 <= 1, contributes

    phi(h, y) = ( a h_i h_i,  a r h_i h_j for i < j,  b h_i y_k ),        r = 181/128 <= sqrt(2),

so that ||phi||_2^2 <= a^2 ||h||^4 + b^2 ||h||^2 ||y||^2: with r near sqrt(2) each pair i < j, which
stands for two entries of h h^T, has the weight of two, and noise of one scale on phi is noise of
one scale on the matrix, whatever the basis.

Sums are made without rounding. Each row is brought into the unit ball and cut towards zero to
multiples of 2^-bits (`clip_to_unit_ball`). Products are then multiples of 4^-bits and a
block's sums stay below 2^53 of them, so a float64 matrix product makes no rounding error in
whatever order it adds. Blocks are added up as 64-bit whole numbers, and a, a r, b are multiples of
2^-7.

Symbols: d features, K outputs, a `second`, b `cross`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import blas

from privet import _check, premises
from privet.errors import InvalidArgument
from privet.guarantee import Unit
from privet.noise.grid import ROUND_UP
from privet.rowwise_arithmetic import row_norms
from privet.sensitivity.bounded_value import BoundedValue, Sensitivity
from privet.sensitivity.clipping import rounding_room
from privet.sensitivity.user_weights import UserShares, UserWeights

Array = NDArray[np.float64]

_FRACTION = 128.0  # weights are multiples of 1/128: 8 bits, and sums of 2^45 stay below 2^53
_BLOCK = 2048  # rows of a block: 2^11 products of at most 4^18 are far below 2^53
_CACHE_ROWS = 128  # rows cut at a time: they fit the cache


@final
@dataclass(frozen=True, kw_only=True)
class Moments:
    """Which moments are summed, with which weights; knows their sensitivity and their packing.

    `second` = 0 leaves h h^T out, `pairs` = False keeps its diagonal only, `outputs` = 0 leaves
    h y^T out. Weights are rounded down to
    multiples of 1/128. `one_hot` says that targets are class numbers (||y||_1 <= 1). `share` is
    how many records' worth of influence one unit has: 1 for records; for users any number, and the
    sum holds them to it (see `user_weights`).

    **Guarantee** (`add_remove`, `replace_one`) of the packed sum:

    - add-remove, L2: sqrt(a^2 + b^2), reached at h = e_1;
    - add-remove, L1: a (1 + (d-1) r/2) + b sqrt(d m), m = 1 for one-hot targets and K for others,
      reached where all |h_i| are equal;
    - replace-one, L2: with same label and h' at an angle, sqrt(2 a^2 + 2 b^2 + b^4/(2 a^2)) if b^2
      <= 2 a^2, else 2 b; reached for d >= 2;
    - replace-one, L1: at most twice add-remove and at most a sqrt(2 d + d (d-1) r^2 / 2)
      + 2 b sqrt(d m): the entrywise L1 norm of h h^T - h' h'^T is the largest <S, .> over sign
      matrices S, no more than the spread of the eigenvalues of the weighted S, no more than sqrt(2)
      times its Frobenius norm (Mirsky 1956). An upper bound, exact for d = 2 and b = 0.

    Without pairs: add-remove as above without the term in d - 1; replace-one, L2, at most the
    largest of 2 a^2 (1 - x^2/d) + 2 b^2 (1 + x) over x in [0, 1] (by Cauchy's inequality, sum h_i^2
    h'_i^2 >= <h, h'>^2 / d), squared; L1 at most twice add-remove.

    >>> round(Moments(features=3, outputs=2).add_remove.l2 ** 2, 6)
    2.0
    """

    features: int
    outputs: int = 0
    second: float = 1.0
    cross: float = 1.0
    pairs: bool = True
    one_hot: bool = True
    share: float = 1.0
    bits: int = 12

    def __post_init__(self) -> None:
        _check.count("features", self.features)
        _check.count("outputs", self.outputs, minimum=0)
        _check.positive("share", self.share)
        # below 4 a row is cut to next to nothing; above 18 a block's sums leave float64 (`_BLOCK`)
        if not 4 <= _check.count("bits", self.bits) <= 18:
            raise InvalidArgument("bits", self.bits, "between 4 and 18")
        for name in ("second", "cross"):
            x = _check.non_negative(name, getattr(self, name))
            if x > 2.0 or 0.0 < x < 1.0 / _FRACTION:
                raise InvalidArgument(name, x, "0, or between 1/128 and 2")
            object.__setattr__(self, name, math.floor(x * _FRACTION) / _FRACTION)
        if self.second == 0.0 and (self.outputs == 0 or self.cross == 0.0):
            raise InvalidArgument("moments", self, "second moments, targets or both")

    @property
    def pair(self) -> float:
        """a r, the weight of h_i h_j for i < j: at most sqrt(2) a; 0 without pairs."""
        if not self.pairs:
            return 0.0
        return math.floor(self.second * math.sqrt(2.0) * _FRACTION) / _FRACTION

    @property
    def dimension(self) -> int:
        """Length of the packed sum."""
        return self._squares + (self.features * self.outputs if self._b else 0)

    @property
    def _squares(self) -> int:
        d = self.features
        if self.second == 0.0:
            return 0
        return d * (d + 1) // 2 if self.pairs else d

    @property
    def _b(self) -> float:
        return self.cross if self.outputs else 0.0

    @property
    def add_remove(self) -> Sensitivity:
        """The most that one unit can add to the sum."""
        a, b, d = self.second, self._b, self.features
        targets = 1 if self.one_hot else self.outputs
        l1 = a + (d - 1) * self.pair / 2.0 + b * math.sqrt(d * targets)
        return Sensitivity(l1=l1 * ROUND_UP, l2=math.hypot(a, b) * ROUND_UP).scaled(self.share)

    @property
    def replace_one(self) -> Sensitivity:
        """The most that the sum can move when one unit is exchanged for another."""
        a, b, d = self.second, self._b, self.features
        targets = 1 if self.one_hot else self.outputs
        # with pairs, 2 a^2 (1 - x^2) + 2 b^2 (1 + x), x = -<h, h'>; without, x^2 / d
        spread = 1.0 if self.pairs else float(d)
        x = 1.0 if 2.0 * a * a <= b * b * spread else b * b * spread / (2.0 * a * a)
        l2 = math.sqrt(2.0 * a * a * (1.0 - x * x / spread) + 2.0 * b * b * (1.0 + x))
        frobenius = math.sqrt(2.0 * d * a * a + d * (d - 1) * self.pair**2 / 2.0)
        l1 = frobenius + 2.0 * b * math.sqrt(d * targets)
        both = Sensitivity(l1=l1 * ROUND_UP, l2=l2 * ROUND_UP).scaled(self.share)
        return Sensitivity(l1=min(both.l1, 2.0 * self.add_remove.l1), l2=both.l2)

    def pack(self, gram: Array, cross: Array) -> Array:
        """The sums as one vector, weighted; only the upper triangle of `gram` is read."""
        parts = []
        if self.second and self.pairs:
            upper = np.where(np.eye(self.features, dtype=bool), self.second, self.pair) * gram
            parts.append(upper[np.triu_indices(self.features)])
        elif self.second:
            parts.append(self.second * np.diag(gram))
        if self._b:
            parts.append((self._b * cross).ravel())
        return np.concatenate(parts)

    def unpack(self, packed: ArrayLike) -> tuple[Array, Array]:
        """(sum h h^T, sum h y^T) from a packed, perhaps noisy, sum; zeros for what was left out."""
        v, d, k = np.asarray(packed, dtype=np.float64), self.features, self.outputs
        if v.shape != (self.dimension,):
            raise InvalidArgument("packed", v.shape, f"a vector of length {self.dimension}")
        gram, cross = np.zeros((d, d)), np.zeros((d, k))
        if self.second and not self.pairs:
            gram = np.diag(v[:d] / self.second)
        elif self.second:
            upper = np.zeros((d, d))
            upper[np.triu_indices(d)] = v[: self._squares]
            gram = (upper + np.triu(upper, 1).T) / np.where(
                np.eye(d, dtype=bool), self.second, self.pair
            )
        if self._b:
            cross = v[v.size - d * k :].reshape(d, k) / self._b
        return gram, cross

    def sum(self) -> MomentSum:
        """An empty sum; give it batches with `add`."""
        return MomentSum(self)


@final
class MomentSum:
    """A running sum of moments: batches go in, a `BoundedValue` value comes out.

    Memory is that of one matrix of d x d, whatever the number of records.

    **Guarantee** for any input: rows longer than 1 are shortened, rows with a NaN or an infinity
    count as zero, a label that is not a class number counts as no label, and a unit's weights are
    held to the `share` of the moments. The unit is a user if weights of `user_weights` are given,
    else each row is a unit of its own; a share other than 1 needs users. Sums beyond 2^(45 - 2
    bits) (2 million records at 12 bits) are held there.

    >>> total = Moments(features=2, outputs=2).sum()
    >>> total.add([[1.0, 0.0], [0.0, 9.0]], [0, 1])
    >>> gram, cross = total.moments.unpack(total.bounded().value)
    >>> gram.round(3).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """

    def __init__(self, moments: Moments) -> None:
        self.moments = moments
        d = moments.features
        self._gram = np.zeros((d, d) if moments.pairs else (d,), dtype=np.int64)
        self._cross = np.zeros((d, moments.outputs), dtype=np.int64)
        self._shares = UserShares(moments.share)
        self._unit: Unit | None = Unit.USER if moments.share != 1.0 else None
        self._rows = 0
        self.invalid = 0

    def add(
        self,
        rows: ArrayLike,
        targets: ArrayLike | None = None,
        weights: UserWeights | ArrayLike | None = None,
    ) -> None:
        """Add records: rows of features, class numbers or rows of targets, and their weights.

        Weights multiply the contribution phi(h, y): those of `user_weights`, or plain numbers in
        [0, 1] where the unit is a record. Costs n d (d/2 + K) multiplications.
        """
        m = self.moments
        x = _check.numbers("rows", rows)
        if x.ndim != 2 or x.shape[1] != m.features:
            raise InvalidArgument("rows", x.shape, f"records with {m.features} features")
        y = self._targets(targets, len(x))
        root = self._roots(weights, len(x))
        self._rows += len(x)
        if self._rows > 2 ** (62 - 2 * m.bits):  # sums of products of 2 bits each stay in int64
            raise InvalidArgument("bits", m.bits, f"fewer for more than {self._rows - 1} records")
        for start in range(0, len(x), _BLOCK):
            part = slice(start, start + _BLOCK)
            scale = None if root is None else root[part]
            h, bad = clip_to_unit_ball(x[part], m.bits, scale)
            self.invalid += bad
            if m.second and m.pairs:
                self._gram += blas.dsyrk(1.0, h.T).astype(np.int64)
            elif m.second:
                self._gram += np.einsum("ij,ij->j", h, h).astype(np.int64)
            if m.outputs:
                self._cross += (h.T @ self._one_hot(y[part], scale)).astype(np.int64)

    def bounded(self) -> BoundedValue:
        """The packed sum with its sensitivity."""
        m = self.moments
        most, unit = 2**45, 4.0**-m.bits  # with weights of 8 bits still below 2^53
        held = (np.clip(z, -most, most).astype(np.float64) for z in (self._gram, self._cross))
        gram, cross = (np.asarray(z * unit) for z in held)
        text = "features and targets of each record are held in the unit ball, in exact arithmetic"
        if self._unit is Unit.USER:
            text += f"; a user weighs at most {m.share:g} records"
        return BoundedValue(
            value=m.pack(gram if m.pairs else np.diag(gram), cross),
            add_remove=m.add_remove,
            replace_one=m.replace_one,
            premise=premises.bound(text),
            spacing=2.0 ** (-2 * m.bits - 7),  # of products, and of weights over 128
            unit=self._unit or Unit.RECORD,
            invalid=self.invalid,
        )

    def _roots(self, weights: UserWeights | ArrayLike | None, n: int) -> Array | None:
        """The square roots of the weights that are granted; None where all are 1."""
        unit = Unit.USER if isinstance(weights, UserWeights) else Unit.RECORD
        if unit is not (self._unit or unit):
            raise InvalidArgument(
                "weights",
                "not given" if weights is None else type(weights).__name__,
                ("those of user_weights" if self._unit is Unit.USER else "numbers")
                + " in every batch",
            )
        self._unit = unit
        if weights is None:
            return None
        w = np.asarray(weights, dtype=np.float64)
        if w.shape != (n,):
            raise InvalidArgument("weights", w.shape, f"one number for each of {n} records")
        if isinstance(weights, UserWeights):
            w = self._shares.take(weights)
        w = np.clip(np.nan_to_num(w, nan=0.0), 0.0, 1.0)
        return np.asarray(np.sqrt(w) * (1.0 - 2.0**-50))  # its square is no more than w

    def _targets(self, targets: ArrayLike | None, n: int) -> NDArray[np.generic]:
        m = self.moments
        if m.outputs == 0:
            return np.empty(0)
        y = _check.numbers("targets", targets)
        if y.shape != ((n,) if m.one_hot else (n, m.outputs)):
            expected = "class numbers" if m.one_hot else f"rows of {m.outputs} numbers"
            raise InvalidArgument("targets", y.shape, f"{expected}, one for each of {n} records")
        return y

    def _one_hot(self, y: NDArray[np.generic], root: Array | None) -> Array:
        """Bring targets to units of 2^-bits: classes one-hot, others into the unit ball."""
        unit = 2.0**self.moments.bits
        if not self.moments.one_hot:
            return clip_to_unit_ball(y, self.moments.bits, root)[0]
        classes = np.arange(self.moments.outputs)
        out: Array = np.equal(np.asarray(y)[:, None], classes[None, :]).astype(np.float64)
        out *= unit if root is None else np.floor(root * unit)[:, None]
        return out


def moments(
    rows: ArrayLike,
    targets: ArrayLike | None = None,
    *,
    of: Moments,
    weights: UserWeights | ArrayLike | None = None,
) -> BoundedValue:
    """The moments of one batch, as a bounded value.

    >>> moments([[0.6, 0.8]], of=Moments(features=2)).add_remove.l2 >= 1.0
    True
    """
    total = of.sum()
    total.add(rows, targets, weights)
    return total.bounded()


def clip_to_unit_ball(
    rows: NDArray[np.generic], bits: int, scale: Array | None = None
) -> tuple[Array, int]:
    """Rows of length at most 1, cut towards zero, in units of 2^-bits; how many were not finite.

    Rows longer than 1 - `rounding_room(d)` are scaled down to that; cutting only shortens. `scale`,
    in [0, 1], multiplies them first.

    >>> clip_to_unit_ball(np.array([[3.0, 4.0]]), 12)[0].tolist()
    [[2457.0, 3276.0]]
    """
    x = np.array(rows, dtype=np.float64, order="C")
    bad = 0
    for start in range(0, len(x), _CACHE_ROWS):
        part = slice(start, start + _CACHE_ROWS)
        bad += _cut(x[part], bits, None if scale is None else scale[part])
    return x, bad


def _cut(x: Array, bits: int, scale: Array | None) -> int:
    """Cut rows in place, as `clip_to_unit_ball` says; how many were not finite."""
    with np.errstate(over="ignore", invalid="ignore"):
        norms = row_norms(x)
    finite, bad = np.isfinite(norms), 0
    if not finite.all():  # overflow of a finite row, or a row that is not finite
        good = np.isfinite(x).all(axis=1)
        bad = int((~good).sum())
        x[~good] = 0.0
        largest = np.abs(x[~finite]).max(axis=1, keepdims=True, initial=0.0)
        x[~finite] /= np.maximum(largest, 1.0)
        norms = row_norms(x)
    safe = 1.0 - rounding_room(x.shape[1])
    factor = safe / np.maximum(norms, safe)
    if scale is not None:
        factor = factor * scale
    x *= (factor * 2.0**bits)[:, None]
    np.trunc(x, out=x)
    return bad
