"""The compile_on_first_use loops: draw by draw what exact arithmetic makes of the same bits."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numba
import numpy as np
import pytest

from privet.noise import torch_noise
from privet.noise.key_stream import Words
from privet.noise.rounded_noise import at_word, settle_attempt, split_words
from privet.noise.torch_noise import compile_on_first_use
from privet.noise.ziggurat import NORMAL, layers

STACK = layers(NORMAL)
SAFE = 1 << 10 | 500
"""A word for layer 500, place 1: a draw next to 0 that is never open."""


class Script:
    """A key stream that says what it is told, then goes on with other words."""

    def __init__(self, *words: int) -> None:
        self.left, self.then = list(words), np.random.default_rng(0)

    def next(self) -> int:
        return self.left.pop(0) if self.left else int(self.then.integers(0, 2**63))

    def fill(self, out: Words) -> None:
        for i in range(len(out)):
            out[i] = self.next()


def exact_draw(word: int, spare: Iterator[int], draw: Any, ratio: Fraction) -> int:
    """One draw, every decision in whole numbers: the method as docs/theory/noise.md has it."""
    while True:
        layer, place = (int(part[0]) for part in split_words(np.array([word], dtype=np.uint64)))
        x = at_word(word, STACK, draw)
        if abs(place) >= STACK.inside[layer]:
            height, other = next(spare), next(spare)
            found = settle_attempt(word, height, STACK, draw)
            if found is None:
                word = other
                continue
            x = found
        return x.rounded(ratio) * (1 if place > 0 else -1)


def filled(words: list[int], spare: list[int], ratio: float, bulk: Any) -> np.ndarray:
    """What the loops make of these words, eight at a time."""
    table = np.array([*words, *[SAFE] * (-len(words) % 8)], dtype=np.uint64)
    out, open_ = np.empty(len(table)), np.empty(len(table), dtype=np.bool_)
    torch_noise.fill(table, np.array(spare, dtype=np.uint64), out, open_, ratio=ratio, bulk=bulk)
    assert not open_.any()
    return out[: len(words)]


@pytest.mark.slow
@pytest.mark.parametrize("ratio", [2.0**26, 1.99 * 2.0**26, 2.0**27 - 1])
def test_every_draw_is_the_exact_one(ratio: float) -> None:
    """Random words: 3,000, and 600 outside the part that needs no height."""
    rng = np.random.default_rng(0)
    words = [int(w) for w in rng.integers(0, 2**63, 3000)]
    for layer in rng.integers(0, 1024, 600):
        low = int(STACK.inside[layer])
        place = int(low + (2**53 - low) * rng.random()) | 1
        words.append((int(rng.choice([-1, 1])) * place << 10 | int(layer)) % 2**64)
    spare = [int(w) for w in rng.integers(0, 2**63, 6000)]
    out = filled(words, spare, ratio, Script())
    wanted, left = Script(), iter(spare)
    assert out.tolist() == [exact_draw(w, left, wanted.next, Fraction(ratio)) for w in words]


@pytest.mark.parametrize("layer", [3, 500, 1000])
def test_cells_that_float64_cannot_tell(layer: int) -> None:
    """A draw on the boundary of two cells goes to the one that its further digits say."""
    ratio, found = 2.0**26, 0
    for k in range(1, int(ratio * STACK.width(layer) * Fraction(9, 10)), 3_999_971):
        place = int((k + Fraction(1, 2)) / Fraction(ratio) / STACK.width(layer) * 2**53) | 1
        word = place << 10 | layer
        low, high = at_word(word, STACK, lambda: 0).bounds()
        if place >= STACK.inside[layer] or not low < (k + Fraction(1, 2)) / 2**26 < high:
            continue
        found += 1
        for digits, unit in ((0, k), (2**64 - 1, k + 1)):
            assert filled([word], [], ratio, Script(digits, 0))[0] == unit
            negative = (-place << 10 | layer) % 2**64
            assert filled([negative], [], ratio, Script(digits, 0))[0] == -unit
    assert found > 1


def test_heights_on_the_curve_and_the_tail_are_asked_for() -> None:
    """What the loop hands over, by scripted bits: a doubtful height, and what is beyond the end."""
    far = (2**53 - 1) << 10
    rng = np.random.default_rng(4)
    for seed in range(5):
        script = [int(w) for w in rng.integers(0, 2**63, 40)]
        spare = [5 + seed, SAFE, *script[:20]]
        wanted, left = Script(*script), iter(spare)
        due = exact_draw(far, left, lambda w=wanted: (w.next(), w.next())[0], Fraction(2**26))
        assert filled([far], spare, 2.0**26, Script(*script))[0] == due
        assert abs(due) > 6 * 2**26 or abs(due) < 2**20  # the tail, or refused and SAFE instead
    place = (int(STACK.inside[700]) + 2**53) // 2 | 1
    word = place << 10 | 700
    low, high = 0, 2**64 - 1
    while high - low > 1:  # the height at which the answer turns
        middle = (low + high) // 2
        kept = settle_attempt(word, middle, STACK, lambda: 2**63) is not None
        low, high = (middle, high) if kept else (low, middle)
    for height in (low - 2**12, low, high, high + 2**12):
        script = [2**63] * 40
        wanted = Script(*script)
        spare = [height, SAFE, 7, 7]
        due = exact_draw(
            word, iter(spare), lambda w=wanted: (w.next(), w.next())[0], Fraction(2**26)
        )
        assert filled([word], spare, 2.0**26, Script(*script))[0] == due


def test_words_that_run_out_are_asked_for_again() -> None:
    """Two spare words at a time give what all of them at once give."""
    rng = np.random.default_rng(5)
    words = [int(w) for w in rng.integers(0, 2**63, 8000)]
    spare = [int(w) for w in rng.integers(0, 2**63, 400)]
    whole = filled(words, spare, 2.0**26, Script())
    assert np.array_equal(whole, filled(words, spare[:2], 2.0**26, Script(*spare[2:])))


def test_where_nothing_can_be_kept_on_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    real = numba.njit

    def njit(**options: Any) -> Any:
        if options.get("cache"):
            raise RuntimeError("cannot cache function: no locator available")
        return real(**options)

    monkeypatch.setattr(numba, "njit", njit)
    assert compile_on_first_use(lambda x: x + 1)(2) == 3
