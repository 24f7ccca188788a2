"""Public front ends that go well with a private linear head."""

from __future__ import annotations

import os

from privet import tuned_defaults
from privet.errors import InvalidArgument
from privet.features.combined_extractors import MirrorInvariant, SideBySide
from privet.features.extractor import Features
from privet.features.patch_filters import PatchFilters
from privet.features.scattering import Scattering
from privet.features.scene_basis import SceneBasis
from privet.features.stroke_basis import StrokeBasis
from privet.features.stroke_network import StrokeNet

NAMES = ("auto", "plain", "scattering", "strokes", "scenes")
SMALLEST_PICTURE = 16
"""Pixels of the shorter side from which "auto" makes features: two octaves leave 4 x 4 places."""


def features_by_name(name: str, shape: tuple[int, ...]) -> Features | None:
    """A public extractor for records of this shape by its name; None for plain rows.

    "auto" is "scenes" for pictures of 16 pixels or more, grey or in three colours, "scattering"
    where there are other channels, and plain for everything else.

    >>> features_by_name("auto", (30,)) is None, features_by_name("auto", (8, 8)) is None
    (True, True)
    """
    if name not in NAMES:
        raise InvalidArgument("features", name, f"one of {', '.join(NAMES)}")
    drawn = len(shape) >= 2
    if name == "auto":
        large = drawn and min(shape[:2]) >= SMALLEST_PICTURE
        seen = "scenes" if shape[2:] in ((), (3,)) else "scattering"
        name = seen if large else "plain"
    if name == "plain":
        return None
    if not drawn:
        raise InvalidArgument("features", name, "plain for data that are not pictures")
    if name == "strokes" and shape != (28, 28):
        raise InvalidArgument("features", name, "for pictures of 28x28 grey pixels")
    if name == "strokes":
        return handwriting()
    if name == "scattering":
        return pictures(shape)
    return grey_pictures(shape) if len(shape) == 2 else photographs(shape)


def pictures(shape: tuple[int, ...]) -> Features:
    """Scattering coefficients: no prior beyond that the data are pictures."""
    return Scattering(shape=shape)


def photographs(
    shape: tuple[int, ...], *, folder: str | os.PathLike[str] | None = None
) -> Features:
    """Filters and a basis learned from drawn scenes, which a mirror image shares.

    The prior is that the data are pictures of things in colour, and that left and right do not
    matter. No photograph is read. The first use draws the scenes (about a minute), and what was
    learned from them is then kept in the cache folder.
    """
    filters = PatchFilters(shape=shape, folder=folder)
    return _in_scenes(MirrorInvariant(filters, shape=shape), shape, folder)


def grey_pictures(
    shape: tuple[int, ...], *, folder: str | os.PathLike[str] | None = None
) -> Features:
    """Scattering and filters of drawn scenes, each in a basis of such scenes.

    The prior is that the data are pictures; nothing is said of left and right. No photograph is
    read. The first use draws the scenes, as in `photographs`.
    """
    fronts = Scattering(shape=shape), PatchFilters(shape=shape, folder=folder)
    return SideBySide(*(_in_scenes(front, shape, folder) for front in fronts))


def _in_scenes(
    front: Features, shape: tuple[int, ...], folder: str | os.PathLike[str] | None
) -> SceneBasis:
    columns = min(tuned_defaults.SCENE_COLUMNS, front.n_features)
    ridge = tuned_defaults.SCENE_RIDGE if shape[2:] else tuned_defaults.SCENE_RIDGE_GREY
    return SceneBasis(front, shape=shape, n_features=columns, ridge=ridge, folder=folder)


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
