"""PCA of public targets: how many components are worth their noise, known before asking."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Self, final

import numpy as np
from numpy.typing import NDArray

from privet import _check
from privet.errors import InvalidArgument
from privet.methods.pate.reducers import Array, Codes, Reducer
from privet.methods.pate.target_spaces import TargetSpace, UnitBox


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class ErrorCurve:
    """The predicted squared error of an answer for every number of components l = 0, 1, ...

    lost(l) = sum_{j > l} lambda_j is what is cut off, noise(l) = l sigma_l^2 what is added;
    sigma_l is the noise of codes with l numbers, proportional to their radius. lambda_j is measured
    on public targets that were held out when the components were found, or (folds=0) by the
    variances of the fit itself, which promise too much when there are few targets.
    """

    lost: NDArray[np.float64]
    radius: NDArray[np.float64]
    noise_per_radius: float

    @property
    def components(self) -> NDArray[np.int64]:
        """The numbers of components that the curve is over: 0, 1, 2, ..."""
        return np.arange(len(self.lost))

    @property
    def noise(self) -> NDArray[np.float64]:
        """The error that noise adds with so many components: l sigma_l^2."""
        return np.asarray(self.components * (self.noise_per_radius * self.radius) ** 2)

    @property
    def predicted(self) -> NDArray[np.float64]:
        """The error predicted for each number of components: what is lost, and noise."""
        return self.lost + self.noise

    @property
    def best(self) -> int:
        """The number of components, at least 1, with the least predicted error."""
        return int(np.argmin(self.predicted[1:])) + 1

    def to_dict(self) -> dict[str, Any]:
        """The curve as columns, JSON-ready."""
        return {
            "components": self.components.tolist(),
            "lost": self.lost.tolist(),
            "noise": self.noise.tolist(),
            "predicted": self.predicted.tolist(),
            "best": self.best,
        }


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class PCAReducer(Reducer):
    """Principal components of public targets; a code is A_l (y - mean).

    With sigma the noise of a code, the expected squared error of a noisy answer is
    sum_{j > l} lambda_j + l sigma^2, least for l* = #{j : lambda_j > sigma^2} when the radius, and
    with it sigma, is the same for all l. The curve is public and known before anyone is asked.

    The paper calls the variance of the fit an unbiased estimate of the variance of an unseen target
    along a component. It is not: components are fitted to these very targets, and with 30 of them
    the curve was a sixth of the truth. So the curve is measured by cross-validation.

    The paper's radius is sqrt(d)/2, half the diagonal of [0, 1]^d: nothing is ever clipped, and for
    d in the thousands no component is worth its noise. By default we take the longest code of a
    public target, for each l, and clip what is longer: `curve` then weighs both.

    Codes with noise are shrunk by lambda_j / (lambda_j + sigma^2) (the best linear estimate) before
    they are put back, which is post-processing; `decode(codes)` without noise is the paper's.

    **Assumes** that targets are public.

    >>> rng = np.random.default_rng(0)
    >>> y = np.clip(0.5 + rng.normal(size=(200, 3)) @ rng.normal(scale=0.1, size=(3, 50)), 0, 1)
    >>> reducer = PCAReducer.fit(y, noise=0.1)
    >>> reducer.dimension, reducer.encode(y).shape
    (3, (200, 3))

    Fay, Sjoelund and Oechtering (2020), algorithm 1, eqs. 6 and 7.
    """

    shape: tuple[int, ...]
    space: TargetSpace
    mean: NDArray[np.float64] = field(repr=False)
    basis: NDArray[np.float64] = field(repr=False)
    """l rows of length 1."""
    variances: NDArray[np.float64] = field(repr=False)
    """lambda_1, ..., lambda_l."""
    length: float
    curve: ErrorCurve | None = field(default=None, repr=False)
    """How l was chosen; None for a reducer that was read from a file."""

    @classmethod
    def fit(
        cls,
        public_targets: Array,
        *,
        noise: float,
        components: int | None = None,
        radius: float | None = None,
        space: TargetSpace | None = None,
        folds: int = 20,  # l within 5% of the best measured: docs/methods/pate.md
    ) -> Self:
        """Fit on public targets (targets, *target_shape).

        - `noise`: the noise of a code in radii, from `unit_noise`;
        - `components`: l; None takes the best of the curve;
        - `radius`: None takes the longest public code; `space.radius(shape)` is the paper's;
        - `folds`: parts of the targets that are held out in turn to measure what is cut off; 0
          takes the variances of the fit, as the paper does.
        """
        noise = _check.positive("noise", noise)
        space = UnitBox() if space is None else space
        targets = np.asarray(public_targets)
        if targets.ndim < 2 or len(targets) < 3:
            raise InvalidArgument(
                "public_targets", targets.shape, "at least three targets, one a row"
            )
        y = space.to_coordinates(targets).reshape(len(targets), -1)
        mean = y.mean(axis=0)
        codes, basis, variances = principal_components(y - mean)
        curve = ErrorCurve(
            lost=_held_out(y, len(variances), folds) if folds else _cut_off(variances),
            radius=_lengths(codes, radius),
            noise_per_radius=noise,
        )
        most = len(variances)
        size = curve.best if components is None else _check.count("components", components)
        if size > most:
            raise InvalidArgument(
                "components", size, f"at most {most}, what {len(y)} targets of {y.shape[1]} allow"
            )
        return cls(
            shape=targets.shape[1:],
            space=space,
            mean=mean,
            basis=basis[:size],
            variances=variances[:size],
            length=float(curve.radius[size]),
            curve=curve,
        )

    @property
    def target_shape(self) -> tuple[int, ...]:
        return self.shape

    @property
    def dimension(self) -> int:
        return len(self.basis)

    @property
    def radius(self) -> float:
        return self.length

    def _encode(self, answers: Array) -> Codes:
        y = self.space.to_coordinates(answers).reshape(len(answers), -1)
        return np.asarray((y - self.mean) @ self.basis.T)

    def _decode(self, codes: Codes, noise: float) -> Array:
        shrunk = codes * (self.variances / (self.variances + noise**2))
        values = shrunk @ self.basis + self.mean
        return self.space.from_coordinates(values.reshape(len(codes), *self.shape))

    def tensors(self) -> dict[str, Array]:
        return {"mean": self.mean, "basis": self.basis, "variances": self.variances}

    def settings(self) -> dict[str, Any]:
        return {"shape": list(self.shape), "length": self.length, "space": self.space.to_dict()}


def principal_components(
    centred: NDArray[np.float64],
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Codes, components (one a row) and variances of centred rows, largest variance first.

    By the smaller of the two Gram matrices, so a thousand maps of a million voxels are no problem.
    The sign of a component is the one that makes its largest entry positive.
    """
    n, d = centred.shape
    if d <= n:
        eigenvalues, vectors = np.linalg.eigh(centred.T @ centred)
        basis = vectors.T[::-1]
    else:
        eigenvalues, vectors = np.linalg.eigh(centred @ centred.T)
        basis = vectors.T[::-1] @ centred
    order = eigenvalues[::-1] / (n - 1)
    keep = order > order[0] * 1e-10  # smaller ones are rounding of the Gram matrix
    keep[n - 1 :] = False  # the mean took one degree of freedom
    basis = basis[keep]
    basis = basis / np.linalg.norm(basis, axis=1, keepdims=True)
    signs = np.sign(np.take_along_axis(basis, np.abs(basis).argmax(axis=1)[:, None], axis=1))
    basis = basis * signs
    return centred @ basis.T, basis, order[keep]


def _cut_off(variances: NDArray[np.float64]) -> NDArray[np.float64]:
    """sum_{j > l} lambda_j for l = 0, 1, ..., by the variances themselves."""
    return np.concatenate([np.cumsum(variances[::-1])[::-1], [0.0]])


def _held_out(y: NDArray[np.float64], most: int, folds: int) -> NDArray[np.float64]:
    """The same, measured on each part of the targets with the components of the others.

    Beyond the number of components that a part's complement has, the last value goes on.
    """
    n = len(y)
    part = np.random.default_rng(0).permutation(n) % min(_check.count("folds", folds, minimum=2), n)
    lost = np.zeros(most + 1)
    for k in range(part.max() + 1):
        rest, fold = y[part != k], y[part == k]
        mean = rest.mean(axis=0)
        _, basis, _ = principal_components(rest - mean)
        centred = fold - mean
        explained = np.cumsum(np.square(centred @ basis.T).sum(axis=0))[:most]
        left = np.square(centred).sum() - np.concatenate([[0.0], explained])
        lost[: len(left)] += left
        lost[len(left) :] += left[-1]
    return np.maximum(lost / n, 0.0)


def _lengths(codes: NDArray[np.float64], radius: float | None) -> NDArray[np.float64]:
    """The radius of codes with l = 0, 1, ... numbers."""
    if radius is not None:
        return np.full(codes.shape[1] + 1, _check.positive("radius", radius))
    return np.concatenate([[0.0], np.sqrt(np.cumsum(codes**2, axis=1).max(axis=0))])
