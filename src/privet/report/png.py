"""Small pictures of numbers as PNG data that a page carries inside itself; numpy and zlib only."""

from __future__ import annotations

import base64
import struct
import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

FOR, AGAINST = (209, 73, 91), (47, 127, 193)
"""Red and blue, both readable on white and on black."""


def data_uri(pixels: NDArray[np.uint8]) -> str:
    """An array (height, width, 4) of red, green, blue and opacity as a data: address.

    >>> data_uri(np.zeros((1, 1, 4), dtype=np.uint8))[:22]
    'data:image/png;base64,'
    """
    height, width, _ = pixels.shape
    lines = b"".join(b"\0" + np.ascontiguousarray(row).tobytes() for row in pixels)
    parts = (
        (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 6, 0, 0, 0)),
        (b"IDAT", zlib.compress(lines, 9)),
        (b"IEND", b""),
    )
    body = b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in parts
    )
    return "data:image/png;base64," + base64.b64encode(b"\x89PNG\r\n\x1a\n" + body).decode()


def signed(values: NDArray[Any]) -> NDArray[np.uint8]:
    """Values in [-1, 1] as pixels: red above 0, blue below, transparent at 0.

    >>> signed(np.array([[1.0, 0.0, -0.5]]))[0].tolist()
    [[209, 73, 91, 255], [47, 127, 193, 0], [47, 127, 193, 128]]
    """
    v = np.clip(np.asarray(values, dtype=np.float64), -1.0, 1.0)
    colour = np.where((v > 0.0)[..., None], FOR, AGAINST)
    return np.concatenate([colour, np.round(255.0 * np.abs(v))[..., None]], axis=-1).astype(
        np.uint8
    )
