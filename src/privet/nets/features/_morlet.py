"""Morlet wavelets and Gaussian low-passes on a torus, in the conventions of kymatio.

A Gabor function is an elliptic Gaussian of width sigma and slant s, turned by theta, times a wave,
    g(u) = exp(-(a^2 + s^2 b^2) / (2 sigma^2) + i xi a) / (2 pi sigma^2 / s),
with a and b the coordinates of u along and across theta, summed over its periodic images; the
Morlet wavelet psi = g - K |g| has mean zero. Bruna and Mallat, "Invariant scattering convolution
networks", 2013; the constants (sigma = .8 * 2^j, xi = 3 pi / 4 * 2^-j, slant 4 / L) are those of
kymatio, so that a test can hold the two against each other.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_WRAPS = range(-2, 3)  # periodic images summed on each side
_PI = 3.1415  # the normalising constant as kymatio writes it


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
