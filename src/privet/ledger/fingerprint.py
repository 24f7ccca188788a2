"""A short name for the content of a data set."""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from privet.errors import InvalidArgument, MissingFile

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

_CHUNK = 1 << 20
"""Bytes that are hashed at a time: enough to be quick, and no burden on memory."""


class _Hash(Protocol):
    def update(self, data: bytes | memoryview, /) -> None: ...
    def hexdigest(self) -> str: ...


def fingerprint(
    *parts: ArrayLike | bytes | str | os.PathLike[str], key: bytes | None = None
) -> str:
    """SHA-256 over dtype, shape and content of arrays, or over bytes, files and folders.

    Arrays are hashed in little-endian C order, so the answer does not depend on machine or layout.
    A string is a path. Every part is preceded by its kind and length: no two lists of parts give
    the same byte stream.

    **Guarantee**: none. A fingerprint is a function of the private data without noise: whoever has
    it and can guess all of the data but one record can confirm that record. Keep it where the data
    are, or pass a secret `key` (HMAC-SHA-256), without which it tells nothing.

    **Assumes**: the data do not change while they are read.

    >>> import numpy as np
    >>> x = np.arange(6.0).reshape(2, 3)
    >>> fingerprint(x) == fingerprint(np.asfortranarray(x)) != fingerprint(x.reshape(3, 2))
    True
    >>> fingerprint(b"abc")[:15], fingerprint(b"abc", key=b"secret")[:12]
    ('sha256:3816f429', 'hmac-sha256:')
    """
    if not parts:
        raise InvalidArgument("parts", parts, "at least one array, bytes or path")
    if key is not None and not key:
        raise InvalidArgument("key", key, "at least one byte")
    h: _Hash = hashlib.sha256() if key is None else hmac.new(key, digestmod=hashlib.sha256)
    for part in parts:
        _feed(h, part)
    return ("sha256:" if key is None else "hmac-sha256:") + h.hexdigest()


def _feed(h: _Hash, part: Any) -> None:
    if isinstance(part, bytes | bytearray | memoryview):
        data = bytes(part)
        _header(h, "bytes", len(data))
        h.update(data)
    elif isinstance(part, str | os.PathLike):
        _feed_path(h, Path(part))
    else:
        _feed_array(h, part)


def _header(h: _Hash, *words: object) -> None:
    text = "\0".join(str(w) for w in words).encode()
    h.update(len(text).to_bytes(8, "little") + text)


def _feed_array(h: _Hash, value: Any) -> None:
    import numpy as np

    a = np.asarray(value)
    if a.dtype.hasobject:
        raise InvalidArgument(
            "parts", value, "numbers, bytes or paths", "object arrays have no bytes"
        )
    a = np.ascontiguousarray(a, dtype=a.dtype.newbyteorder("<"))
    _header(h, "array", a.dtype.str, np.shape(value), a.nbytes)
    if a.nbytes:
        h.update(a.reshape(-1).view(np.uint8).data)  # where it lies: it may be large


def _feed_path(h: _Hash, path: Path) -> None:
    files: Iterable[Path]
    if path.is_dir():
        files = sorted(p for p in path.rglob("*") if p.is_file())
        _header(h, "folder", len(list(files)))
        for p in files:
            _header(h, "name", p.relative_to(path).as_posix())
            _feed_file(h, p)
    else:
        _feed_file(h, path)


def _feed_file(h: _Hash, path: Path) -> None:
    try:
        with path.open("rb") as f:
            _header(h, "file", os.fstat(f.fileno()).st_size)
            while chunk := f.read(_CHUNK):
                h.update(chunk)
    except FileNotFoundError:
        raise MissingFile(path, "a string is taken as a path; pass bytes to hash text") from None
