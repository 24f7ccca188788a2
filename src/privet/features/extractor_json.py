"""Extractors as JSON and back, so that a saved model finds the features it was trained on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from privet.errors import InvalidArgument
from privet.features.combined_extractors import FeaturePipeline, MirrorInvariant, SideBySide
from privet.features.disk_cache import CachedFeatures
from privet.features.extractor import Features
from privet.features.patch_filters import PatchFilters
from privet.features.random_features import RandomConvolutions, RandomProjection
from privet.features.scattering import Scattering
from privet.features.scene_basis import SceneBasis
from privet.features.stroke_basis import StrokeBasis
from privet.features.stroke_network import StrokeNet

_BASIS = ("n_features", "whitening", "ridge", "side", "glyphs", "views", "screened", "seed")
_KINDS: dict[str, tuple[type[Features], tuple[str, ...], tuple[str, ...]]] = {
    # its name in files, which stays; extractors inside it, by position; then settings, by name
    "Composed": (FeaturePipeline, ("first", "second"), ()),
    "Mirrored": (MirrorInvariant, ("inner",), ("shape",)),
    "PatchFilters": (
        PatchFilters,
        (),
        ("shape", "filters", "patch", "grid", "threshold", "seed"),
    ),
    "RandomConvolutions": (
        RandomConvolutions,
        (),
        ("shape", "filters", "patch", "grid", "threshold", "seed"),
    ),
    "RandomProjection": (RandomProjection, (), ("n_inputs", "n_features", "seed")),
    "Scattering": (Scattering, (), ("shape", "scales", "angles", "groups")),
    "SceneBasis": (
        SceneBasis,
        ("inner",),
        ("shape", "n_features", "whitening", "ridge", "scenes", "seed"),
    ),
    "StrokeBasis": (StrokeBasis, ("inner",), _BASIS),
    "StrokeNet": (StrokeNet, (), ("side", "width", "steps", "batch", "seed")),
}


def features_to_dict(features: Features) -> dict[str, Any] | None:
    """A description that `features_from_dict` reads; None for an extractor of the user's own.

    >>> features_to_dict(RandomProjection(n_inputs=4, n_features=2))
    {'name': 'RandomProjection', 'n_inputs': 4, 'n_features': 2, 'seed': 0}
    """
    if isinstance(features, CachedFeatures):
        return features_to_dict(features.inner)
    if isinstance(features, SideBySide):
        parts = [features_to_dict(part) for part in features.parts]
        return None if None in parts else {"name": "SideBySide", "parts": parts}
    name_in_files = {kind: name for name, (kind, _, _) in _KINDS.items()}.get(type(features))
    if name_in_files is None:
        return None
    _, inner, settings = _KINDS[name_in_files]
    found: dict[str, Any] = {"name": name_in_files}
    for name in inner:
        if (part := features_to_dict(getattr(features, name))) is None:
            return None
        found[name] = part
    for name in settings:
        value = getattr(features, name)
        found[name] = list(value) if isinstance(value, tuple) else value
    return found


def features_from_dict(d: Mapping[str, Any]) -> Features:
    """The extractor of a description.

    >>> features_from_dict({"name": "RandomProjection", "n_inputs": 4, "n_features": 2}).n_features
    2
    """
    if d["name"] == "SideBySide":
        return SideBySide(*(features_from_dict(part) for part in d["parts"]))
    if d["name"] not in _KINDS:
        raise InvalidArgument("features", d["name"], "an extractor of privet.features")
    kind, inner, names = _KINDS[d["name"]]
    settings = {k: tuple(d[k]) if isinstance(d[k], list) else d[k] for k in names if k in d}
    return kind(*(features_from_dict(d[name]) for name in inner), **settings)
