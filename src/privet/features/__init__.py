"""Public feature extractors to put in front of a private method.

Each maps one record to one row of the unit ball and reads nothing of the data it is given, so it
costs no privacy. What it *assumes* about the world is a prior, and its docstring says which.
"""

from privet.features.combined_extractors import FeaturePipeline, MirrorInvariant, SideBySide
from privet.features.default_extractors import (
    features_by_name,
    grey_pictures,
    handwriting,
    photographs,
    pictures,
)
from privet.features.disk_cache import CachedFeatures
from privet.features.extractor import Features, unit_rows
from privet.features.patch_filters import PatchFilters
from privet.features.random_features import RandomConvolutions, RandomProjection
from privet.features.scattering import Scattering
from privet.features.scene_basis import SceneBasis
from privet.features.stroke_basis import StrokeBasis
from privet.features.stroke_network import StrokeNet
from privet.features.synthetic_scenes import draw_scenes
from privet.features.synthetic_strokes import draw_glyphs
from privet.features.torch_extractor import FromModule

__all__ = [
    "CachedFeatures",
    "FeaturePipeline",
    "Features",
    "FromModule",
    "MirrorInvariant",
    "PatchFilters",
    "RandomConvolutions",
    "RandomProjection",
    "Scattering",
    "SceneBasis",
    "SideBySide",
    "StrokeBasis",
    "StrokeNet",
    "draw_glyphs",
    "draw_scenes",
    "features_by_name",
    "grey_pictures",
    "handwriting",
    "photographs",
    "pictures",
    "unit_rows",
]
