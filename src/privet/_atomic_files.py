"""Files written whole or not at all: beside their place, flushed to disk, then renamed."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO


@contextmanager
def replacing(path: Path, *, mode: int = 0o666) -> Iterator[BinaryIO]:
    """A file to fill that takes the place of `path` at the end, or is gone after an error.

    `mode` is narrowed by the user's umask; 0o600 is for what no other user should read.

    >>> import tempfile
    >>> place = Path(tempfile.mkdtemp()) / "new" / "a"
    >>> with replacing(place) as file:
    ...     n = file.write(b"x")
    >>> place.read_bytes(), [p.name for p in place.parent.iterdir()]
    (b'x', ['a'])
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:  # from before it is there: a signal may come between any two lines
        handle = os.open(beside, os.O_RDWR | os.O_CREAT | os.O_EXCL, mode)
        with os.fdopen(handle, "w+b") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def write_whole(path: Path, content: str | bytes) -> None:
    """Write a file so that a crash leaves the old one or the new one, never a part.

    >>> import tempfile
    >>> place = Path(tempfile.mkdtemp()) / "a"
    >>> write_whole(place, "x")
    >>> place.read_text()
    'x'
    """
    with replacing(path) as file:
        file.write(content.encode() if isinstance(content, str) else content)


def write_json(path: Path, value: Any) -> None:
    """Write a value as JSON that people can read, whole or not at all; NaN is refused."""
    write_whole(path, json.dumps(value, indent=2, allow_nan=False) + "\n")
