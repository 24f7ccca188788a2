"""The ziggurat's table, each of its branches by the bits, and what happens when words run out."""

from __future__ import annotations

import math
from typing import Any

import mpmath as mp
import numba
import numpy as np
import pytest

from privet.noise import seeded
from privet.noise.ziggurat import LAYERS, R, candidates, compiled, layers, settle

X = layers()
INSIDE = 500 + (1 << 10)
"""A word for layer 500, place 1: a draw next to 0 that is never open."""


def word(layer: int, place: int) -> int:
    """The word of an odd place of a layer."""
    return (place << 10 | layer) % 2**64


def settled(words: list[int], spare: list[int]) -> tuple[np.ndarray, int]:
    """Draws made of these words (eight at a time), and where the spare ones ran out."""
    w = np.array([*words, *[INSIDE] * (-len(words) % 8)], dtype=np.uint64)
    out, open_ = np.empty(len(w)), np.empty(len(w), dtype=np.bool_)
    candidates(w, out, open_)
    reached = settle(w, np.array(spare, dtype=np.uint64), out, open_, 0)
    return out[: len(words)], reached


def test_the_table_in_forty_digits() -> None:
    """Layers of one area to 1e-12 (docs/theory/noise.md), which close at height 1 for this R."""
    mp.mp.dps = 40

    def top(r: Any) -> tuple[Any, list[Any]]:
        height = mp.exp(-r * r / 2)
        area = r * height + mp.sqrt(mp.pi / 2) * mp.erfc(r / mp.sqrt(2))
        x = [area / height, r]
        for _ in range(LAYERS - 2):
            height += area / x[-1]
            x.append(mp.sqrt(-2 * mp.log(height)))
        return height + area / x[-1] - 1, x

    root = mp.findroot(lambda r: top(r)[0], mp.mpf(R))
    assert float(root) == R
    exact = [float(x) for x in top(root)[1]]
    assert np.allclose(X[1:], exact[::-1], rtol=2e-13, atol=0)
    heights = np.exp(-0.5 * X * X)
    areas = X[1:-1] * (heights[:-2] - heights[1:-1])
    assert np.allclose(areas, X[-1] * heights[-2], rtol=1e-12, atol=0)


@pytest.mark.parametrize("place", [1, -1, 12345, -(2**53) + 1])
def test_left_of_the_next_layer(place: int) -> None:
    """No spare word is needed or used; places are symmetric, and zero is not among them."""
    layer = 1022 if abs(place) < 2**52 else 0
    x, reached = settled([word(layer, place)], [])
    if layer:
        assert x[0] == place * 2.0**-53 * X[layer + 1] and reached == 8
    else:
        assert reached == 0  # the top layer has nothing that is inside for sure


def test_under_the_curve_or_not() -> None:
    """In the wedge of layer 700 a low height keeps the place, a high one takes the other word."""
    place = round(2**53 * (X[700] + 0.5 * (X[701] - X[700])) / X[701]) | 1
    edge = word(700, -place)
    x, reached = settled([edge], [0, INSIDE])
    assert x[0] == -place * 2.0**-53 * X[701] and reached == 8
    x, reached = settled([edge], [2**64 - 1, INSIDE, 7, 7])
    assert x[0] == 2.0**-53 * X[501] and reached == 8
    low, high, here = (math.exp(-0.5 * t * t) for t in (X[701], X[700], place * 2.0**-53 * X[701]))
    limit = (here - low) / (high - low)
    for factor, kept in ((1 - 1e-9, True), (1 + 1e-9, False)):
        x, _ = settled([edge], [int(limit * factor * 2**64), INSIDE, 7, 7])
        assert (x[0] < 0) == kept


@pytest.mark.parametrize("sign", [1, -1])
def test_the_tail_by_its_bits(sign: int) -> None:
    """-ln u / R beyond R, if another exponential draw allows it; the far end is at 15."""
    far = word(1023, sign * (2**53 - 1))
    half = 2**63
    x, _ = settled([far], [half, half])
    assert x[0] == pytest.approx(sign * (R + math.log(2.0) / R), rel=1e-15)
    x, _ = settled([far], [0, 2**64 - 1, half, half])  # refused, then as before
    assert x[0] == pytest.approx(sign * (R + math.log(2.0) / R), rel=1e-15)
    longest = math.sqrt(2.0 * 65.0 * math.log(2.0))
    x, _ = settled([far], [int(math.exp(-longest * 0.999 * R) * 2**64), 0])
    assert abs(x[0]) > R + 0.99 * longest > 13.0


def test_words_that_run_out_are_asked_for_again() -> None:
    """Two spare words at a time give what all of them at once give."""
    source = seeded(5).stream
    words, spare = source.words(80_000), source.words(4000)

    def run(parts: list[np.ndarray]) -> np.ndarray:
        w, out = words.copy(), np.empty(len(words))
        open_, reached = np.empty(len(words), dtype=np.bool_), 0
        candidates(w, out, open_)
        for part in parts:
            reached = settle(w, part, out, open_, reached)
        assert reached == len(words) and not open_.any()
        return out

    assert np.array_equal(run([spare]), run(list(spare.reshape(-1, 2))))


def test_where_nothing_can_be_kept_on_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    real = numba.njit

    def njit(**options: Any) -> Any:
        if options.get("cache"):
            raise RuntimeError("cannot cache function: no locator available")
        return real(**options)

    monkeypatch.setattr(numba, "njit", njit)
    assert compiled(lambda x: x + 1)(2) == 3
