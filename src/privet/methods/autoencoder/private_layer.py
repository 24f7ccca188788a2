"""One private auto-encoder: a frozen encoder, released moments, a solved decoder, a new encoder.

    frozen     h = (P^T x, c) / sqrt(1 + c^2), P public: the identity, or a random projection
    released   A = sum h h^T and B = sum h x^T, with noise, once (the identity needs no B)
    decoder    D = (A' + ridge)^-1 B', ' without what the constant explains: x ~ m + D^T h
    encoder    V, the leading principal directions of the reconstructions D^T h, so that the
               decoder's weights, tied, encode: a = g V^T (x - m)
    code       z = a / sqrt(radius^2 + ||a||^2), or tanh(a) / sqrt(units): a fixed range

Everything after the release is post-processing. A code has length below 1 for any input, so the
next layer, or the output layer, starts from a bound that no record can move (the paper's min-max
layer, eq. 13, reads the data).

Symbols: d inputs, b units, m `mean`, V `basis`, g `gain`, c CONSTANT.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, final

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from privet import _check, tuned_defaults
from privet.data.unit_ball import squash, unsquash
from privet.errors import InvalidArgument
from privet.mechanisms import Coefficients
from privet.rowwise_arithmetic import Product, tanh
from privet.sensitivity import Moments
from privet.singular_vectors import canonical_signs

Array = NDArray[Any]

CONSTANT = 0.3
"""The constant feature beside the others; it carries means and the number of records. A larger one
is less noise on both, and leaves less of the unit ball to the row."""
LENGTH = math.hypot(1.0, CONSTANT)
_END = 0.999999
"""Where codes are held before arctanh, which is 7.3 there and infinite at 1."""
WIDEST = 1024
"""The most inputs for which a second moment of all of them is released, 8 MB of float64; beyond, a
projection."""


class Activation(Enum):
    """The fixed range that a layer's units have."""

    RADIAL = "radial"
    """a / sqrt(radius^2 + ||a||^2): keeps directions, uses nearly all of the unit ball."""
    SIGMOID = "sigmoid"
    """(2 sigma(2 a) - 1) / sqrt(b), the paper's units, moved and scaled into the unit ball."""


@final
@dataclass(frozen=True, kw_only=True)
class PublicEncoder:
    """The public encoder that moments are taken behind: the identity, or a random projection.

    >>> PublicEncoder.for_inputs(784, units=200).projection is None
    True
    """

    inputs: int
    projection: NDArray[np.float32] | None = field(default=None, repr=False)

    @classmethod
    def for_inputs(cls, inputs: int, *, units: int) -> PublicEncoder:
        """The identity up to WIDEST inputs, else as many random directions as twice the units."""
        if inputs <= WIDEST:
            return cls(inputs=inputs)
        width = min(max(2 * units, 64), inputs)
        draws = np.random.default_rng(0).standard_normal((inputs, width))  # public: a seed
        return cls(inputs=inputs, projection=np.linalg.qr(draws)[0].astype(np.float32))

    @property
    def width(self) -> int:
        """Features of h besides the constant."""
        return self.inputs if self.projection is None else int(self.projection.shape[1])

    def moments(self, share: float) -> Moments:
        """What is released: h h^T and, behind a projection, h x^T."""
        if self.projection is None:
            return Moments(features=self.width + 1, share=share)
        return Moments(features=self.width + 1, outputs=self.inputs, one_hot=False, share=share)

    def encode(self, x: Array) -> Array:
        """h, a row of the unit ball for each row x of the unit ball."""
        if self.projection is None:
            return with_constant(x)
        return with_constant(Product(self.projection)(x).astype(x.dtype))

    def cross_moments(self, found: Coefficients) -> NDArray[np.float64]:
        """The released sum of h x^T."""
        if self.projection is None:
            return np.asarray(found.gram[:, :-1] * LENGTH)
        return found.cross


def with_constant(h: Array) -> Array:
    """(h, c) / sqrt(1 + c^2): in the unit ball when h is.

    >>> with_constant(np.array([[1.0, 0.0]])).round(3).tolist()
    [[0.958, 0.0, 0.287]]
    """
    constant = np.full((len(h), 1), CONSTANT, dtype=h.dtype)
    return np.asarray(np.hstack([h, constant]) / h.dtype.type(LENGTH))


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Layer:
    """A learned layer: `encode` and, tied, `decode`.

    >>> layer = Layer(mean=np.zeros(2), basis=np.eye(2), gain=np.ones(2), radius=0.5)
    >>> layer.decode(layer.encode(np.array([[0.3, -0.4]]))).round(6).tolist()
    [[0.3, -0.4]]
    """

    mean: Array = field(repr=False)
    basis: Array = field(repr=False)
    gain: Array = field(repr=False)
    radius: float = 0.1
    activation: Activation = Activation.RADIAL

    @property
    def units(self) -> int:
        """How many units the layer has, b."""
        return int(self.basis.shape[1])

    def encode(self, x: Array) -> NDArray[np.float32]:
        """Codes of length below 1."""
        a = Product(self.basis * self.gain)(x - self.mean)
        if self.activation is Activation.RADIAL:
            return squash(a, self.radius).astype(np.float32)
        return np.asarray(tanh(a) / math.sqrt(self.units), dtype=np.float32)

    def decode(self, z: Array) -> NDArray[np.float64]:
        """Inputs of the layer from codes."""
        if self.activation is Activation.RADIAL:
            a = unsquash(z, self.radius)
        else:
            a = np.arctanh(np.clip(np.asarray(z, float) * math.sqrt(self.units), -_END, _END))
        return np.asarray(self.mean + (a / self.gain) @ self.basis.T)


@final
@dataclass(frozen=True, kw_only=True)
class LayerLearner:
    """How released moments become a layer; nothing here touches the records.

    `ridge` multiplies the size that noise gives an eigenvalue (`Coefficients.ridge`). `whitening` w
    gives unit j the gain (v_j + noise)^(-w/2), v_j the variance of its input. `looseness` is
    radius^2 over the mean ||a||^2.
    """

    units: int
    activation: Activation = Activation.RADIAL
    ridge: float = tuned_defaults.LAYER_RIDGE
    whitening: float = tuned_defaults.LAYER_WHITENING
    looseness: float = tuned_defaults.LAYER_LOOSENESS

    def __post_init__(self) -> None:
        _check.count("units", self.units)
        _check.non_negative("ridge", self.ridge)
        _check.unit("whitening", self.whitening)
        _check.positive("looseness", self.looseness)

    def learn(self, encoder: PublicEncoder, found: Coefficients) -> Layer:
        """The decoder by ridge regression, and the encoder that it becomes."""
        if self.units > encoder.width:
            raise InvalidArgument("layers", self.units, f"at most {encoder.width} units here")
        # c^2 n / (1 + c^2); here and below 1e-9 and 1e-30 keep quotients finite without any records
        total = max(float(found.gram[-1, -1]), found.gram_noise, 1e-9)
        cross = encoder.cross_moments(found)
        mean = cross[-1] / total * (CONSTANT / LENGTH)
        beside = found.gram[:-1, -1]
        gram = found.gram[:-1, :-1] - np.outer(beside, beside) / total
        values, vectors = np.linalg.eigh((gram + gram.T) / 2.0)
        values = np.maximum(values, 0.0)
        ridge = self.ridge * found.ridge + 1e-9
        cross = cross[:-1] - np.outer(beside, cross[-1]) / total
        decoder = (vectors.T @ cross) / (values + ridge)[:, None]  # in the eigenbasis of A'
        sizes, right = _right_vectors(np.sqrt(values)[:, None] * decoder)
        records = total * (LENGTH / CONSTANT) ** 2
        variance = np.square(sizes[: self.units]) / records
        noise = ridge * LENGTH**2 / records
        gain = (variance + noise) ** (-self.whitening / 2.0)
        spread = float((variance * gain**2).sum()) + 1e-30
        if self.activation is Activation.SIGMOID:
            gain, spread = gain / math.sqrt(spread / self.units), float(self.units)
        return Layer(
            mean=mean,
            basis=right[: self.units].T,
            gain=gain,
            radius=math.sqrt(self.looseness * spread),
            activation=self.activation,
        )


def _right_vectors(a: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Singular values and right vectors; where LAPACK's fast way gives up, by the slow one."""
    try:
        _, sizes, right = np.linalg.svd(a, full_matrices=False)
    except np.linalg.LinAlgError:  # gesdd fails on some finite matrices, and the budget is spent
        _, sizes, right = linalg.svd(a, full_matrices=False, lapack_driver="gesvd")
    return sizes, canonical_signs(right)
