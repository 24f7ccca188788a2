"""Public feature extractors to put in front of a private method.

Each maps one record to one row of the unit ball and reads nothing of the data it is given, so it
costs no privacy. What it *assumes* about the world is a prior, and its docstring says which.
"""

from privet.nets.features.base import (
    Cached,
    Composed,
    Features,
    SideBySide,
    unit_rows,
)
from privet.nets.features.fronts import handwriting, photographs, pictures
from privet.nets.features.mirrored import Mirrored
from privet.nets.features.module import FromModule
from privet.nets.features.random import RandomConvolutions, RandomProjection
from privet.nets.features.scattering import Scattering
from privet.nets.features.stroke_basis import StrokeBasis
from privet.nets.features.stroke_net import StrokeNet
from privet.nets.features.strokes import draw_glyphs

__all__ = [
    "Cached",
    "Composed",
    "Features",
    "FromModule",
    "Mirrored",
    "RandomConvolutions",
    "RandomProjection",
    "Scattering",
    "SideBySide",
    "StrokeBasis",
    "StrokeNet",
    "draw_glyphs",
    "handwriting",
    "photographs",
    "pictures",
    "unit_rows",
]
