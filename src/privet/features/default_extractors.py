"""Public front ends that go well with a private linear head."""

from __future__ import annotations

import os

from privet.errors import InvalidArgument
from privet.nets.features.base import Features, SideBySide
from privet.nets.features.mirrored import Mirrored
from privet.nets.features.scattering import Scattering
from privet.nets.features.stroke_basis import StrokeBasis
from privet.nets.features.stroke_net import StrokeNet


def pictures(shape: tuple[int, ...]) -> Features:
    """Scattering coefficients: no prior beyond that the data are pictures."""
    return Scattering(shape=shape)


def photographs(shape: tuple[int, ...]) -> Features:
    """Scattering coefficients that a mirror image shares. Prior: left and right do not matter."""
    return Mirrored(Scattering(shape=shape), shape=shape)


def handwriting(
    shape: tuple[int, ...] = (28, 28), *, folder: str | os.PathLike[str] | None = None
) -> Features:
    """Scattering and a network taught on drawn pen strokes, each in the basis of those strokes.

    The prior is that the data are line drawings; no data set is read. The first use draws the
    strokes and teaches the network (some minutes), which are then kept in the cache folder.
    """
    if shape != (28, 28):
        raise InvalidArgument("shape", shape, "(28, 28): grey pictures like MNIST's")
    return SideBySide(
        StrokeBasis(Scattering(shape=shape), n_features=300, folder=folder),
        StrokeBasis(StrokeNet(folder=folder), n_features=300, folder=folder),
    )
