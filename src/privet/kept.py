"""Results that outlive a crash: each is a file, written whole or not at all."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privet._files import replacing, write_json, write_whole
from privet.guarantee import number_to_json

__all__ = [
    "Arrays", "kept", "kept_arrays", "number_to_json", "path_of", "write_json", "write_whole",
]  # fmt: skip

Arrays = dict[str, NDArray[Any]]


def path_of(folder: Path, key: Any, ending: str = "json") -> Path:
    """Where the result of these settings lies; `key` is anything that JSON can write."""
    text = json.dumps(key, sort_keys=True, allow_nan=False)
    return folder / f"{hashlib.sha256(text.encode()).hexdigest()[:16]}.{ending}"


def kept(folder: Path, key: Any, run: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """The result from its file, or run and written.

    >>> import tempfile
    >>> place = Path(tempfile.mkdtemp())
    >>> kept(place, ["dpsgd", 1.0], lambda: {"accuracy": 0.9})
    {'accuracy': 0.9}
    >>> kept(place, ["dpsgd", 1.0], lambda: {"accuracy": 0.1})
    {'accuracy': 0.9}
    """
    path = path_of(folder, key)
    if path.exists():
        found: dict[str, Any] = json.loads(path.read_text())
        return found
    value = run()
    write_whole(path, json.dumps(value, allow_nan=False))
    return value


def kept_arrays(folder: Path, key: Any, run: Callable[[], Arrays]) -> Arrays:
    """The same for arrays by name.

    >>> import tempfile
    >>> place = Path(tempfile.mkdtemp())
    >>> kept_arrays(place, "squares", lambda: {"x": np.arange(3) ** 2})["x"].tolist()
    [0, 1, 4]
    >>> kept_arrays(place, "squares", lambda: {})["x"].tolist()
    [0, 1, 4]
    """
    path = path_of(folder, key, "npz")
    if not path.exists():
        found = run()
        with replacing(path) as file:
            np.savez(file, **found)  # type: ignore[arg-type]
    with np.load(path, allow_pickle=False) as arrays:
        return dict(arrays)
