"""Public front ends that go well with a private linear head."""

from __future__ import annotations

import os

from privet.errors import InvalidArgument
from privet.features.combined_extractors import MirrorInvariant, SideBySide
from privet.features.extractor import Features
from privet.features.scattering import Scattering
from privet.features.stroke_basis import StrokeBasis
from privet.features.stroke_network import StrokeNet

NAMES = ("auto", "plain", "scattering", "strokes")
SMALLEST_PICTURE = 16
"""Pixels of the shorter side from which "auto" scatters: two octaves of it leave 4 x 4 places."""


def features_by_name(name: str, shape: tuple[int, ...]) -> Features | None:
    """A public extractor for records of this shape by its name; None for plain rows.

    "auto" is scattering for pictures of 16 pixels or more, and plain for everything else.

    >>> features_by_name("auto", (30,)) is None, features_by_name("auto", (8, 8)) is None
    (True, True)
    """
    if name not in NAMES:
        raise InvalidArgument("features", name, f"one of {', '.join(NAMES)}")
    drawn = len(shape) >= 2
    if name == "auto":
        large = drawn and min(shape[:2]) >= SMALLEST_PICTURE
        name = "scattering" if large else "plain"
    if name == "plain":
        return None
    if not drawn:
        raise InvalidArgument("features", name, "plain for data that are not pictures")
    if name == "strokes" and shape != (28, 28):
        raise InvalidArgument("features", name, "for pictures of 28x28 grey pixels")
    return handwriting() if name == "strokes" else pictures(shape)


def pictures(shape: tuple[int, ...]) -> Features:
    """Scattering coefficients: no prior beyond that the data are pictures."""
    return Scattering(shape=shape)


def photographs(shape: tuple[int, ...]) -> Features:
    """Scattering coefficients that a mirror image shares. Prior: left and right do not matter."""
    return MirrorInvariant(Scattering(shape=shape), shape=shape)


def handwriting(
    shape: tuple[int, ...] = (28, 28), *, folder: str | os.PathLike[str] | None = None
) -> Features:
    """Scattering and a network taught on drawn pen strokes, each in the basis of those strokes.

    The prior is that the data are line drawings; no data set is read. The first use draws the
    strokes and teaches the network (some minutes), which are then kept in the cache folder.
    """
    if shape != (28, 28):
        raise InvalidArgument("shape", shape, "(28, 28): grey pictures like MNIST's")
    # 300 columns of each: methods that want fewer take the leading ones (`tuned_defaults`)
    return SideBySide(
        StrokeBasis(Scattering(shape=shape), n_features=300, folder=folder),
        StrokeBasis(StrokeNet(folder=folder), n_features=300, folder=folder),
    )
