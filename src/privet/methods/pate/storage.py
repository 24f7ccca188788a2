"""safetensors files with a JSON note: written whole or not at all, nothing run on reading."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privet._files import write_whole

Array = NDArray[Any]


class Unreadable(ValueError):
    """The file is no safetensors file with a note of ours."""


def write(path: str | Path, tensors: dict[str, Array], note: dict[str, Any]) -> Path:
    """Write the file, in place of the one that may be there."""
    from safetensors.numpy import save

    path = Path(path)
    plain = {k: np.ascontiguousarray(v) for k, v in tensors.items()}
    if not plain:  # safetensors needs something to hold
        plain = {"nothing": np.zeros(1)}
    write_whole(path, save(plain, metadata={"privet": json.dumps(note, allow_nan=False)}))
    return path


def opened(path: Path) -> tuple[Any, dict[str, Any]]:
    """A handle that reads tensors as they are asked for, and the note."""
    import safetensors

    open_file: Any = safetensors.safe_open
    try:
        file = open_file(path, framework="numpy")
        note = json.loads((file.metadata() or {})["privet"])
    except (safetensors.SafetensorError, KeyError, TypeError, ValueError, OSError) as e:
        raise Unreadable(str(e)) from None
    if not isinstance(note, dict):
        raise Unreadable("its note is no mapping")
    return file, note
