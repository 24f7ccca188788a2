"""The scattering transform: two layers of wavelet moduli, a public front end for images.

Its Morlet wavelets and Gaussian low-passes on a torus follow the conventions of kymatio.
A Gabor function is an elliptic Gaussian of width sigma and slant s, turned by theta, times a wave,
    g(u) = exp(-(a^2 + s^2 b^2) / (2 sigma^2) + i xi a) / (2 pi sigma^2 / s),
with a and b the coordinates of u along and across theta, summed over its periodic images; the
Morlet wavelet psi = g - K |g| has mean zero. Bruna and Mallat, "Invariant scattering convolution
networks", 2013; the constants (sigma = .8 * 2^j, xi = 3 pi / 4 * 2^-j, slant 4 / L) are those of
kymatio, so that a test can hold the two against each other.
"""

from __future__ import annotations

import math
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from privet import _check, premises
from privet.errors import InvalidArgument
from privet.features.extractor import Array, Features, group_normalise, images
from privet.guarantee import Premise
from privet.rowwise_arithmetic import Product, scale_by_power_of_two

Maps = NDArray[np.float64]

_CHUNK = 4  # images at a time: the second layer of so many stays in the processor's cache
_WRAPS = range(-2, 3)  # periodic images summed on each side, as kymatio does
_PI = 3.1415  # the normalising constant as kymatio writes it
_WAVE_BITS = 21  # of cosines and sines; what is left of 53 goes to the maps


class Scattering(Features):
    """Second-order scattering (J = `scales`, L = `angles`), group-normalised, on the unit ball.

    With wavelets psi_{j,l} and a low-pass phi at scale 2^J, the coefficients of an image x are
        S0 = x * phi,   S1 = |x * psi_{j,l}| * phi,   S2 = ||x * psi_{j,l}| * psi_{j',l'}| * phi,
        j < j',
    sampled every 2^J pixels: 1 + JL + L^2 J(J-1)/2 channels for each colour (81 for J = 2, L = 8).
    Group normalisation then gives each group of channels mean 0 and variance 1 *within its own
    image*, so it needs no statistics of the data; at last each row is scaled to the unit ball.

    The same numbers as kymatio to float32 rounding (a test holds them together). Fourier transforms
    and low-pass are exact matrix products (`_exact`), so that a picture's coefficients are the same
    bits whatever pictures are computed beside it.

    **Guarantee**: that of `Features`. Nothing is learned: the map depends on its arguments only.

    Bruna and Mallat 2013; as a front end for private learning: Tramer and Boneh, ICLR 2021.

    >>> import numpy as np
    >>> front = Scattering(shape=(8, 8), groups=27)
    >>> front.transform(np.eye(64)).shape, front.n_features
    ((64, 324), 324)
    """

    premise: ClassVar[Premise] = premises.EXACT_ROWS

    def __init__(
        self,
        *,
        shape: tuple[int, ...],
        scales: int = 2,
        angles: int = 8,
        groups: int | None = 27,
        threads: int = 1,
    ) -> None:
        self.shape = tuple(_check.count("shape", side) for side in shape)
        self.scales = _check.count("scales", scales)
        self.angles = _check.count("angles", angles)
        self.threads = _check.count("threads", threads)
        if len(shape) not in (2, 3):
            raise InvalidArgument("shape", shape, "(height, width) or (height, width, colours)")
        if min(self.shape[:2]) < 2**self.scales:
            raise InvalidArgument("shape", shape, f"at least {2**self.scales} pixels on each side")
        per_colour = 1 + scales * angles + angles**2 * scales * (scales - 1) // 2
        self.channels = per_colour * (self.shape[2] if len(self.shape) == 3 else 1)
        self.groups = None if groups is None else _check.count("groups", groups)
        if self.groups is not None and self.channels % self.groups:
            raise InvalidArgument(
                "groups", groups, f"None or a divisor of the {self.channels} channels"
            )
        self.grid = tuple(side // 2**self.scales for side in self.shape[:2])
        self.n_features = int(self.channels * self.grid[0] * self.grid[1])

    @property
    def recipe(self) -> str:
        """The arguments, without the number of threads."""
        return f"scattering-2 {self.shape} J={self.scales} L={self.angles} groups={self.groups}"

    def coefficients(self, x: NDArray[Any]) -> Array:
        """Scattering coefficients before any normalisation: (records, channels, rows, columns)."""
        pictures = images(x, self.shape)
        if pictures.ndim == 4:
            pictures = np.ascontiguousarray(pictures.transpose(0, 3, 1, 2))
        count = len(pictures)
        pictures = pictures.reshape(-1, *self.shape[:2])
        per_image = self.channels * count // max(len(pictures), 1)
        out = np.empty((len(pictures), per_image, *self.grid), dtype=np.float32)
        plan = self._plan

        def run(start: int) -> None:
            out[start : start + _CHUNK] = plan(pictures[start : start + _CHUNK])

        starts = range(0, len(pictures), _CHUNK)
        if self.threads == 1:
            for start in starts:
                run(start)
        else:
            with ThreadPoolExecutor(self.threads) as pool:
                list(pool.map(run, starts))
        return out.reshape(count, self.channels, *self.grid)

    def _raw(self, x: NDArray[Any]) -> Array:
        rows = self.coefficients(x).reshape(len(x), -1)
        return rows if self.groups is None else group_normalise(rows, self.groups)

    @cached_property
    def _plan(self) -> _Plan:
        return _Plan(self.shape[:2], self.scales, self.angles)


class _Plan:
    """Filters for one image size, and the transform of a chunk of images.

    Maps are kept as (rows, images, channels, columns), real and imaginary parts side by side in the
    columns, so that a transform along rows or columns of all images is one matrix product. Fourier
    transforms are such products too: a fast one would round by the library's order.

    Every product is exact (`Product`), by a bound on the length of what it is given. Entries of an
    image are at most 1, so that its length is at most sqrt(PQ) on P x Q pixels; wavelets, whose
    Fourier transforms are at most c, make a map at most c times as long, and so does the next layer
    (Parseval; folding and the modulus shorten). The constant 1.01 covers the cuts in between.
    """

    def __init__(self, shape: tuple[int, ...], scales: int, angles: int) -> None:
        self.scales = scales
        self.space = _Space()
        step = 2**scales
        padded = tuple(((side + step) // step + 1) * step for side in shape)
        (top, left) = ((p - s) // 2 for p, s in zip(padded, shape, strict=True))
        (bottom, right) = ((p - s + 1) // 2 for p, s in zip(padded, shape, strict=True))
        self.padding = ((0, 0), (top, bottom), (left, right))
        bank = [wavelets((padded[0], padded[1]), j, angles) for j in range(scales)]
        # psi[j][i]: wavelets of scale j at resolution 2^-i, in the pieces that folding to 2^-j adds
        # up
        self.psi = [
            [_pieces(_coarsened(bank[j], i), 2 ** (j - i)) for i in range(j + 1)]
            for j in range(scales)
        ]
        # 1.01, here and below: the cuts of factors to their grids make maps a little longer
        gain = 1.01 * max(1.0, *(float(np.abs(w).max()) for w in bank))
        length = math.sqrt(padded[0] * padded[1])
        sizes = [(padded[0] >> j, padded[1] >> j) for j in range(scales)]
        self.forward = [_FourierTransform(size, gain * length) for size in sizes]
        self.modulus = [_InverseModulus(size, gain * gain * length) for size in sizes]
        crop = slice(1, -1)  # the padding is one output pixel on each side
        self.low = [
            _Both(
                *(low_pass_rows(side, scales, j, crop) for side in padded),
                length=gain * gain * length,
            )
            for j in range(scales)
        ]

    def __call__(self, pictures: Array) -> Array:
        """Scattering coefficients of images: (images, channels, rows, columns).

        Costs about 4 (P + Q) P Q multiplications a map of P x Q pixels: dense Fourier transforms.
        """
        part, size = scale_by_power_of_two(pictures)
        x = np.pad(part, self.padding, mode="reflect").transpose(1, 0, 2)[:, :, None]
        x = np.ascontiguousarray(x)
        space = self.space
        spectrum = self.forward[0](x.copy(), space).copy()
        first, second = [], []
        for j in range(self.scales):
            u = self.modulus[j](_filter_and_fold(spectrum, self.psi[j][0], space), space)
            first.append(self.low[j](u))
            if j + 1 == self.scales:
                break
            angles = u.shape[2]
            spectra = self.forward[j](u, space).copy()
            layer = []
            for k in range(j + 1, self.scales):
                v = self.modulus[k](_filter_and_fold(spectra, self.psi[k][j], space), space)
                out = self.low[k](v)
                layer.append(out.reshape(*out.shape[:2], angles, -1, out.shape[3]))
            both = np.concatenate(layer, axis=3)
            second.append(both.reshape(*both.shape[:2], -1, both.shape[4]))
        out = np.concatenate([self.low[0](x), *first, *second], axis=2).transpose(1, 2, 0, 3)
        return (out * size[..., None]).astype(np.float32)


class _Both:
    """u -> A u B^T for small matrices: the low-pass of every map."""

    def __init__(self, rows: Maps, columns: Maps, *, length: float) -> None:
        self.columns = Product(columns.T, reach=length, bits=_WAVE_BITS)
        # |u B^T| is at most as long as u times the largest singular value of B
        gain = 1.01 * float(np.linalg.norm(columns, 2))
        self.rows = Product(rows.T, reach=length * gain, bits=_WAVE_BITS)

    def __call__(self, u: Maps) -> Maps:
        return self.rows.along_first(self.columns.along_last(u.copy()))


class _FourierTransform:
    """The Fourier transform of real maps, of length at most `length`; overwrites its argument."""

    def __init__(self, size: tuple[int, int], length: float) -> None:
        (c, s), (c2, s2) = _waves(size[0]), _waves(size[1])
        self.columns = Product(np.hstack([c2, -s2]), reach=length, bits=_WAVE_BITS)
        reach = 1.01 * length * math.sqrt(size[1])
        self.rows = Product(np.hstack([c, s]), reach=reach, bits=_WAVE_BITS)

    def __call__(self, u: Maps, space: _Space) -> Maps:
        (p, n, m, q) = u.shape
        half = self.columns.along_last(u, out=space("half", p * n * m, 2 * q))
        both = self.rows.along_first(half, out=space("both", 2 * p, n * m * 2 * q))
        out = both[:p]
        out[..., :q] += both[p:, ..., q:]
        out[..., q:] -= both[p:, ..., :q]
        return out


class _InverseModulus:
    """|inverse Fourier transform| of PQ times the given spectra, which are overwritten.

    `length` bounds that of the maps, so that the spectra given are at most length / sqrt(PQ) long.
    """

    def __init__(self, size: tuple[int, int], length: float) -> None:
        (c, s), (c2, s2) = _waves(size[0]), _waves(size[1])
        reach = 1.01 * length / math.sqrt(size[0] * size[1])
        self.columns = Product(np.block([[c2, s2], [-s2, c2]]), reach=reach, bits=_WAVE_BITS)
        reach *= 1.01 * math.sqrt(size[1])
        self.rows = Product(np.hstack([c, s]), reach=reach, bits=_WAVE_BITS)

    def __call__(self, spectra: Maps, space: _Space) -> Maps:
        (p, n, m, q) = spectra.shape
        half = self.columns.along_last(spectra, out=space("half", p * n * m, q))
        both = self.rows.along_first(half, out=space("both", 2 * p, n * m * q))
        q //= 2
        real, imaginary = both[:p, ..., :q], both[:p, ..., q:]
        real -= both[p:, ..., q:]
        imaginary += both[p:, ..., :q]
        real *= real
        imaginary *= imaginary
        real += imaginary
        return np.sqrt(real, out=space("modulus", p, n, m, q))


class _Space(threading.local):
    """Memory of a thread, used again for every chunk: fresh pages cost as much as arithmetic."""

    def __init__(self) -> None:
        self.kept: dict[str, Maps] = {}

    def __call__(self, name: str, *shape: int) -> Maps:
        count = math.prod(shape)
        if name not in self.kept or len(self.kept[name]) < count:
            self.kept[name] = np.empty(count)
        return self.kept[name][:count].reshape(shape)


def _waves(size: int) -> tuple[Maps, Maps]:
    """Cosines and sines of 2 pi j k / size."""
    angle = 2.0 * np.pi / size * (np.arange(size)[:, None] * np.arange(size) % size)
    return np.cos(angle), np.sin(angle)


def _coarsened(bank: Maps, resolution: int) -> Maps:
    """Wavelets for signals sampled every 2^resolution pixels: upper band dropped, rest folded."""
    if resolution == 0:
        return bank
    factor = 2**resolution
    bank = bank.copy()
    for axis in (1, 2):
        size = bank.shape[axis]
        start, length = size // (2 * factor), int(size * (1 - 1 / factor))
        index: list[slice] = [slice(None)] * 3
        index[axis] = slice(start, start + length)
        bank[tuple(index)] = 0.0
    angles, rows, columns = bank.shape
    tiles = bank.reshape(angles, factor, rows // factor, factor, columns // factor)
    return np.ascontiguousarray(tiles.sum(axis=(1, 3)))


def _pieces(bank: Maps, factor: int) -> list[tuple[slice, slice, Maps]]:
    """The factor^2 tiles of the filters, each with its place, divided by the number of pixels.

    A tile is (rows, 1, 1, angles, 1, columns): times all images, channels and both parts. Dividing
    by all pixels does the division of the folding and that of the inverse transform.
    """
    rows, columns = bank.shape[1] // factor, bank.shape[2] // factor
    pixels = bank.shape[1] * bank.shape[2]
    out = []
    for a in range(factor):
        for b in range(factor):
            place = slice(a * rows, (a + 1) * rows), slice(b * columns, (b + 1) * columns)
            tile = np.ascontiguousarray(bank[:, place[0], place[1]].transpose(1, 0, 2)) / pixels
            out.append((*place, tile[:, None, None, :, None]))
    return out


def _filter_and_fold(
    spectrum: Maps, pieces: list[tuple[slice, slice, Maps]], space: _Space
) -> Maps:
    """The spectrum of the filtered signal after subsampling: the tiles of the product, added up."""
    whole = spectrum.reshape(*spectrum.shape[:3], 1, 2, -1)
    rows, columns, tile = pieces[0]
    (n, m), (p, angles, q) = spectrum.shape[1:3], (len(tile), *tile.shape[3::2])
    out = space("folded", p, n, m, angles, 2, q)
    np.multiply(whole[rows, ..., columns], tile, out=out)
    for rows, columns, tile in pieces[1:]:
        term = np.multiply(whole[rows, ..., columns], tile, out=space("term", *out.shape))
        out += term
    return out.reshape(p, n, m * angles, 2 * q)


def _gabor(
    shape: tuple[int, int], sigma: float, theta: float, xi: float, slant: float
) -> NDArray[np.complex128]:
    rows, columns = shape
    c, s = np.cos(theta), np.sin(theta)
    out = np.zeros(shape, dtype=np.complex128)
    for wrap_x in _WRAPS:
        for wrap_y in _WRAPS:
            x = np.arange(rows)[:, None] + wrap_x * rows
            y = np.arange(columns)[None, :] + wrap_y * columns
            along, across = c * x + s * y, -s * x + c * y
            envelope = -(along**2 + (slant * across) ** 2) / (2 * sigma**2)
            out += np.exp(envelope + 1j * xi * along)
    return out / (2 * _PI * sigma**2 / slant)


def wavelets(shape: tuple[int, int], scale: int, angles: int) -> NDArray[np.float64]:
    """Fourier transforms (real) of the Morlet wavelets of a scale: (angles, rows, columns)."""
    sigma, xi, slant = 0.8 * 2**scale, 0.75 * np.pi / 2**scale, 4.0 / angles
    bank = []
    for index in range(angles):
        theta = (int(angles - angles / 2 - 1) - index) * np.pi / angles
        wave = _gabor(shape, sigma, theta, xi, slant)
        envelope = _gabor(shape, sigma, theta, 0.0, slant)
        wave -= wave.sum() / envelope.sum() * envelope
        bank.append(np.fft.fft2(wave).real)
    return _single(np.stack(bank))


def low_pass_rows(size: int, scales: int, resolution: int, keep: slice) -> NDArray[np.float64]:
    """The 1-D operator A with S = A U A^T: Gaussian low-pass, subsampling to 2^-scales, crop.

    The Gaussian low-pass phi of width .8 * 2^(scales - 1) is a product of two 1-D Gaussians, so
    low-pass, subsampling and cropping of an image sampled every 2^resolution pixels are one small
    matrix on each side.
    """
    u = np.arange(size)
    sigma = 0.8 * 2 ** (scales - 1)
    line = sum(np.exp(-((u + wrap * size) ** 2) / (2 * sigma**2)) for wrap in _WRAPS)
    spectrum = np.fft.fft(line / np.sqrt(2 * _PI * sigma**2)).real
    coarse = size // 2**resolution
    if resolution:  # kymatio drops the upper band before it folds the spectrum
        start, length = int(size * 2 ** (-resolution - 1)), int(size * (1 - 2.0**-resolution))
        spectrum[start : start + length] = 0.0
        spectrum = spectrum.reshape(2**resolution, coarse).sum(axis=0)
    response = np.fft.ifft(spectrum).real  # impulse response on the coarse grid
    step = 2 ** (scales - resolution)
    positions = np.arange(0, coarse, step)[keep]
    lag = (positions[:, None] - np.arange(coarse)[None, :]) % coarse
    return _single(response[lag])


def _single(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Rounded to float32, which hides the last bits of this machine's exponential function."""
    return values.astype(np.float32).astype(np.float64)
