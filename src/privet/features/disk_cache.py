"""Results of extractors on disk, found again by the content of what they were made from."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privet._atomic_files import replacing
from privet.features.combined_extractors import FeaturesWrapper
from privet.features.extractor import Array, Features


def cache_folder(folder: str | os.PathLike[str] | None = None) -> Path:
    """Where what can be computed again is kept: the argument, `$PRIVET_CACHE`, ~/.cache/privet."""
    if folder is not None:
        return Path(folder)
    return Path(os.environ.get("PRIVET_CACHE") or Path.home() / ".cache" / "privet")


def content_key(recipe: str, x: NDArray[Any]) -> str:
    """A name for the result of `recipe` on `x`: SHA-256 of the recipe, dtype, shape and bytes."""
    digest = hashlib.sha256(f"{recipe}\n{x.dtype}\n{x.shape}\n".encode())
    digest.update(np.ascontiguousarray(x).data)
    return digest.hexdigest()[:32]


def load_or_compute(path: Path, compute: Callable[[], Array]) -> Array:
    """Read an array from `path`, or compute it and write it there, whole or not at all."""
    if path.exists():
        kept: Array = np.load(path, allow_pickle=False)
        return kept
    value = compute()
    with replacing(path, mode=0o600) as file:  # features of private records
        np.save(file, value, allow_pickle=False)
    return value


class CachedFeatures(FeaturesWrapper):
    """An extractor that keeps its results on disk, keyed by its recipe and its input's content.

    **Caution**: features of private records are private. They are written only because you asked
    for this wrapper, unprotected except by file permissions (readable by the owner alone).
    """

    def __init__(self, inner: Features, folder: str | os.PathLike[str] | None = None) -> None:
        super().__init__(inner)
        self.folder = cache_folder(folder) / "features"

    def transform(self, x: NDArray[Any]) -> Array:
        """The inner extractor's features, from disk where they are already there."""
        key = content_key(self.inner.recipe, x)
        return load_or_compute(self.folder / f"{key}.npy", lambda: self.inner.transform(x))
