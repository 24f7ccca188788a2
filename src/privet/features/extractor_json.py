"""Extractors as JSON and back, so that a saved model finds the features it was trained on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from privet.errors import InvalidArgument
from privet.nets.features.base import Cached, Composed, Features, SideBySide
from privet.nets.features.mirrored import Mirrored
from privet.nets.features.random import RandomConvolutions, RandomProjection
from privet.nets.features.scattering import Scattering
from privet.nets.features.stroke_basis import StrokeBasis
from privet.nets.features.stroke_net import StrokeNet

_BASIS = ("n_features", "whitening", "ridge", "side", "glyphs", "views", "screened", "seed")
_KINDS: dict[type[Features], tuple[tuple[str, ...], tuple[str, ...]]] = {
    # extractors inside it, by position; then settings, by name
    Composed: (("first", "second"), ()),
    Mirrored: (("inner",), ("shape",)),
    RandomConvolutions: ((), ("shape", "filters", "patch", "grid", "threshold", "seed")),
    RandomProjection: ((), ("n_inputs", "n_features", "seed")),
    Scattering: ((), ("shape", "scales", "angles", "groups")),
    StrokeBasis: (("inner",), _BASIS),
    StrokeNet: ((), ("side", "width", "steps", "batch", "seed")),
}


def features_to_dict(features: Features) -> dict[str, Any] | None:
    """A description that `features_from_dict` reads; None for an extractor of the user's own.

    >>> features_to_dict(RandomProjection(n_inputs=4, n_features=2))
    {'name': 'RandomProjection', 'n_inputs': 4, 'n_features': 2, 'seed': 0}
    """
    if isinstance(features, Cached):
        return features_to_dict(features.inner)
    if isinstance(features, SideBySide):
        parts = [features_to_dict(part) for part in features.parts]
        return None if None in parts else {"name": "SideBySide", "parts": parts}
    if type(features) not in _KINDS:
        return None
    inner, settings = _KINDS[type(features)]
    found: dict[str, Any] = {"name": type(features).__name__}
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
    for kind, (inner, settings) in _KINDS.items():
        if kind.__name__ == d["name"]:
            given = {k: tuple(d[k]) if isinstance(d[k], list) else d[k] for k in settings if k in d}
            return kind(*(features_from_dict(d[name]) for name in inner), **given)
    raise InvalidArgument("features", d["name"], "an extractor of privet.nets.features")
