"""Noise rounded to the grid has exactly the law of rounded real draws.

What the proof in docs/theory/noise.md needs of the code, piece by piece: the stacks cover their
curves; wherever arrays decide, every continuation of the digits drawn so far would decide so too;
the rest is decided in whole numbers.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from fractions import Fraction
from typing import Any

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from privet.noise import lazy_reals, rounded_noise, seeded
from privet.noise.k_norm_noise import k_norm
from privet.noise.lazy_reals import LazyReal
from privet.noise.ziggurat import EXPONENTIAL, LAYERS, NORMAL, ONE, DensityCurve, layers
from tests.noise.test_source import Scripted

ALARM = 1e-6
CURVES = [NORMAL, EXPONENTIAL]
RATIOS = [Fraction(2**26), Fraction(2**27 - 1, 1), Fraction(1.99) * 2**26, Fraction(1, 3)]


def height(curve: DensityCurve, x: Any) -> Any:
    """f(x) in fifty digits."""
    return mp.exp(-x * x / 2 if curve is NORMAL else -x)


def real(x: Fraction) -> Any:
    return mp.mpf(x.numerator) / x.denominator


@pytest.mark.parametrize("curve", CURVES)
def test_the_layers_cover_the_curve(curve: DensityCurve) -> None:
    with mp.workdps(50):
        stack = layers(curve)
        widths = [real(stack.width(i)) for i in range(LAYERS)]
        lows = [mp.mpf(y) / ONE for y in stack.low]
        tops = [mp.mpf(y + room) / ONE for y, room in zip(stack.low, stack.room, strict=True)]
        assert all(height(curve, widths[i]) <= lows[i] for i in range(1, LAYERS))
        assert lows[1:] == tops[:-1] and lows[0] == 0 and tops[-1] >= 1
        # the tail's envelope begins above the curve and falls no faster
        left = mp.mpf(curve.area - curve.end * stack.room[0]) / ONE
        assert curve.rate * left >= height(curve, mp.mpf(curve.end)) and stack.room[0] > 0
        for x in (curve.end, curve.end + 1, 2 * curve.end):
            line = curve.power(Fraction(curve.end)) + curve.rate * (x - curve.end)
            assert curve.power(Fraction(x)) >= line
        # a place below `inside` is under the curve at the top of its layer, all of its cell
        for i, place in enumerate(stack.inside.tolist()):
            if place:
                assert height(curve, mp.mpf(place) / 2**53 * widths[i]) >= tops[i]
        assert mp.mpf(stack.beyond) / 2**53 * widths[0] < curve.end
        for i in range(LAYERS):
            assert abs(float(widths[i] / 2**53 / mp.mpf(stack.widths[i]) - 1)) <= 2.0**-52


@pytest.mark.slow
@pytest.mark.parametrize("curve", CURVES)
def test_the_error_of_heights_is_far_below_the_doubt(curve: DensityCurve) -> None:
    """All of it: the cell of a place, its float64 product, the curve and the uniform height."""
    stack, rng = layers(curve), np.random.default_rng(0)
    layer = np.concatenate([np.arange(LAYERS), rng.integers(0, LAYERS, 1500)])
    low = stack.inside[layer] / 2.0**53
    place = ((low + (1 - low) * rng.random(len(layer))) * 2.0**53).astype(np.int64) | 1
    word = rng.integers(0, 2**63, len(layer)).astype(np.uint64) * 2 + 1
    seen = stack.lows[layer] + word.astype(np.float64) * 2.0**-64 * stack.rooms[layer]
    seen -= rounded_noise.height_at(place * stack.widths[layer], curve)
    with mp.workdps(50):
        for i in range(len(layer)):
            room = mp.mpf(stack.room[layer[i]]) / ONE
            y = [
                mp.mpf(stack.low[layer[i]]) / ONE + mp.mpf(int(word[i]) + e) / 2**64 * room
                for e in (0, 1)
            ]
            x = [mp.mpf(int(place[i]) + e) / 2**53 * real(stack.width(layer[i])) for e in (-1, 1)]
            least, most = y[0] - height(curve, x[0]), y[1] - height(curve, x[1])
            assert max(abs(least - seen[i]), abs(most - seen[i])) < rounded_noise.DOUBT / 4


@pytest.mark.slow
@pytest.mark.parametrize("curve", CURVES)
@pytest.mark.parametrize("ratio", RATIOS)
def test_a_cell_that_arrays_name_is_that_of_every_continuation(
    curve: DensityCurve, ratio: Fraction
) -> None:
    """Random words, and words whose cell straddles a boundary or nearly does."""
    stack, rng = layers(curve), np.random.default_rng(1)
    words = [int(w) for w in rng.integers(0, 2**64 - 1, 2000, dtype=np.uint64)]
    for layer in rng.integers(0, LAYERS, 600):
        edge = int(ratio * stack.width(layer) * Fraction(float(rng.random()))) + Fraction(1, 2)
        place = int(edge / ratio / stack.width(layer) * 2**53)
        offsets = (0, int(rng.integers(-8, 9)), int(rng.integers(-(2**7), 2**7)))
        near = [place + off | 1 for off in offsets if 0 <= place + off < 2**53]
        words.extend((at << 10 | int(layer)) & (2**64 - 1) for at in near)
    table = np.array(words, dtype=np.uint64)
    layer, place = rounded_noise.split_words(table)
    y = place * (stack.widths * float(ratio))[layer] + 0.5
    units = np.floor(y)
    y -= units
    doubtful = (y < rounded_noise.MARGIN) | (y > 1.0 - rounded_noise.MARGIN)
    for i, word in enumerate(words):
        low, high = rounded_noise.at_word(word, stack, lambda: 0).bounds()
        cells = {(ratio * x + Fraction(1, 2)).__floor__() for x in (low, high)}
        assert doubtful[i] or cells == {abs(int(units[i]))}
    assert np.count_nonzero(doubtful) > 50 or ratio < 1


@pytest.mark.parametrize("curve", CURVES)
def test_a_draw_on_a_boundary_is_settled_by_further_digits(curve: DensityCurve) -> None:
    """The digits to come decide which of two cells it is: all zeros the lower, all ones the upper."""
    stack, ratio = layers(curve), Fraction(2**26)
    found = 0
    for k in range(1, 20_000_000, 999_983):
        place = int((k + Fraction(1, 2)) / ratio / stack.width(700) * 2**53)
        word = ((place | 1) << 10) | 700
        x = rounded_noise.at_word(word, stack, lambda: 0)
        low, high = x.bounds()
        if place >= stack.inside[700] or not low * ratio < k + Fraction(1, 2) < high * ratio:
            continue
        found += 1
        draw = rounded_noise.gaussian if curve is NORMAL else rounded_noise.laplace
        assert draw(Scripted(word, 0), 1, ratio)[0] == k
        assert draw(Scripted(word, 2**64 - 1), 1, ratio)[0] == k + 1
        negative = (-(place | 1) << 10 | 700) % 2**64
        assert draw(Scripted(negative, 2**64 - 1), 1, ratio)[0] == -k - 1
    assert found > 3


def test_a_height_on_the_curve_is_settled_by_further_digits() -> None:
    stack, curve = layers(NORMAL), NORMAL
    place = (int(stack.inside[700]) + 2**53) // 2 | 1
    word = place << 10 | 700
    with mp.workdps(60):
        x = mp.mpf(place) / 2**53 * real(stack.width(700))
        limit = (height(curve, x) * ONE - stack.low[700]) / stack.room[700] * ONE
    for near, kept in ((-(2**40), True), (2**40, False)):
        left = Scripted(word, int(limit) + near, 1 << 10 | 500, *[2**63] * 8)
        units = rounded_noise.gaussian(left, 1, Fraction(2**20))[0]
        assert (units > 1000) == kept
    assert rounded_noise.settle_attempt(word, int(limit) - 2**40, stack, lambda: 2**63) is not None
    assert rounded_noise.settle_attempt(word, int(limit) + 2**40, stack, lambda: 2**63) is None
    # nearer than the cells' own width: more digits are drawn, for place and height in turn
    calls: list[int] = []

    def count() -> int:
        calls.append(0)
        return 2**63

    rounded_noise.settle_attempt(word, int(limit), stack, count)
    assert len(calls) >= 2


@pytest.mark.slow
@pytest.mark.parametrize("curve", CURVES)
def test_the_tail_has_its_law(curve: DensityCurve) -> None:
    """2,000 attempts: the share that is kept is that of the areas, and the law is the curve's."""
    stack, draw = layers(curve), rounded_noise.drawer(seeded(11).stream)
    kept = [x for x in (rounded_noise.tail(stack, draw) for _ in range(2000)) if x is not None]
    x = np.array([float(one.bounds()[0]) for one in kept])
    assert x.min() > curve.end
    if curve is NORMAL:
        assert stats.kstest(stats.norm.sf(x) / stats.norm.sf(curve.end), "uniform").pvalue > ALARM
        area = stats.norm.sf(curve.end) * np.sqrt(2 * np.pi)
    else:
        assert stats.kstest(x - curve.end, "expon").pvalue > ALARM
        area = np.exp(-curve.end)
    share = area / ((curve.area - curve.end * stack.room[0]) / ONE)
    assert stats.binomtest(len(kept), 2000, share).pvalue > ALARM


def test_beyond_the_end_the_tail_is_drawn() -> None:
    """The outermost place of the lowest layer is the tail, in the array path as well."""
    stream = seeded(3).stream
    far = (2**53 - 1) << 10
    more = [int(w) for w in stream.words(200)]
    units = rounded_noise.gaussian(Scripted(far, 5, 1 << 10 | 500, *more), 1, Fraction(2**20))
    assert abs(int(units[0])) > 6 * 2**20


@pytest.mark.slow
@given(st.integers(0, 2**70), st.integers(1, 2**60), st.integers(2, 60))
@settings(max_examples=200, deadline=None)
def test_exp_bounds_hold_the_exponential(above: int, below: int, digits: int) -> None:
    power = Fraction(above, below) % 60
    low, high = lazy_reals.exp_bounds(power, digits=digits)
    with mp.workdps(90):
        true = mp.exp(-real(power))
        assert real(low) <= true <= real(high)
        assert real(high - low) <= mp.mpf(10) ** -digits


@pytest.mark.slow
def test_lazy_numbers() -> None:
    """Order and cell of numbers that agree in their first digits."""
    first = LazyReal(iter([7, 1, 5]).__next__, digits=3, bits=2)
    second = LazyReal(iter([7, 2, 5]).__next__, digits=3, bits=2)
    assert first.below(second) and not second.below(first)
    draw = rounded_noise.drawer(seeded(2).stream)
    draws = np.array([float(lazy_reals.exponential(draw).bounds()[0]) for _ in range(4000)])
    assert stats.kstest(draws, "expon").pvalue > ALARM
    half = LazyReal(iter([2**63, 0, 0]).__next__)
    assert half.rounded(Fraction(1)) in (0, 1) and half.bits >= 64


@pytest.mark.parametrize("ratio", [Fraction(1, 3), Fraction(5, 2), Fraction(2**26)])
def test_laws_in_brief(ratio: Fraction) -> None:
    """Chi-square against the probabilities of cells, 200,000 draws of each."""
    n, r = 200_000, float(ratio)
    for draw, law in ((rounded_noise.laplace, stats.laplace), (rounded_noise.gaussian, stats.norm)):
        k = draw(seeded(5).stream, n, ratio)
        if r > 100:
            assert stats.kstest(k / r, law.cdf).pvalue > ALARM
            continue
        cells = np.arange(-60, 61)
        p = law.cdf((cells + 0.5) / r) - law.cdf((cells - 0.5) / r)
        keep = p * n > 20
        seen = np.array([np.count_nonzero(k == c) for c in cells[keep]])
        rest = max(1.0 - p[keep].sum(), 1e-12)
        pair = np.append(seen, n - seen.sum()), np.append(p[keep], rest) * n
        if pair[1][-1] < 20:
            pair = pair[0][:-1], pair[1][:-1] * pair[0][:-1].sum() / pair[1][:-1].sum()
        assert stats.chisquare(*pair).pvalue > ALARM


@pytest.mark.slow
def test_k_norm_in_brief() -> None:
    """Radius, direction, one dimension; and whole vectors again with more digits give the same."""
    stream, ratio = seeded(6).stream, Fraction(2**26)
    x = np.array([k_norm(stream, 3, ratio) for _ in range(1500)]) / 2.0**26
    radius = np.linalg.norm(x, axis=1)
    assert stats.kstest(radius, stats.gamma(3).cdf).pvalue > ALARM
    assert stats.kstest(x[:, 1] / radius, "uniform", (-1, 2)).pvalue > ALARM
    one = np.array([k_norm(stream, 1, ratio)[0] for _ in range(1500)]) / 2.0**26
    assert stats.kstest(one, "laplace").pvalue > ALARM
    assert k_norm(stream, 0, ratio).shape == (0,)


def test_k_norm_of_many_agrees_with_its_parts() -> None:
    """The same draws, in fifty digits of mpmath."""
    n, ratio = 40, Fraction(1.99) * 2**26
    found = k_norm(seeded(8).stream, n, ratio)
    stream = seeded(8).stream
    parts = []
    for curve in CURVES:
        words, rare = rounded_noise.settled_words(stream, n, layers(curve))
        assert not rare
        parts.append((curve, *rounded_noise.split_words(words)))
    extra = [stream.words(n) for _ in range(4)]
    with mp.workdps(60):
        x, r = [], mp.mpf(0)
        for part, (curve, layer, place) in enumerate(parts):
            for i in range(n):
                digits = (abs(int(place[i])) >> 1) << 128 | int(extra[2 * part][i]) << 64
                digits |= int(extra[2 * part + 1][i])
                value = mp.mpf(digits) / mp.mpf(2) ** 180 * real(layers(curve).width(layer[i]))
                if part:
                    r += value
                else:
                    x.append(value * (1 if place[i] > 0 else -1))
        norm = mp.sqrt(sum(v * v for v in x))
        expected = [int(mp.nint(real(ratio) * r * v / norm)) for v in x]
    assert found.tolist() == expected


@pytest.mark.slow
@pytest.mark.parametrize("without", ["", "AVX512F AVX512CD AVX512_SKX", "AVX512F AVX2 FMA3"])
def test_the_same_draws_on_every_processor(without: str) -> None:
    code = (
        "import hashlib; from privet.noise import seeded; s = seeded(4);"
        "a = [s.laplace_on_grid(30000, 1.99), s.gaussian_on_grid(30000, .3), s.k_norm_on_grid(50, 2.)];"
        "print(hashlib.sha256(b''.join(x.tobytes() for x in a)).hexdigest())"
    )
    env = {**os.environ, "NPY_DISABLE_CPU_FEATURES": without}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        env=env,
        capture_output=True,
        text=True,
        check=True,
    )
    s = seeded(4)
    arrays = [s.laplace_on_grid(30000, 1.99), s.gaussian_on_grid(30000, 0.3)]
    arrays.append(s.k_norm_on_grid(50, 2.0))
    assert done.stdout.strip() == hashlib.sha256(b"".join(x.tobytes() for x in arrays)).hexdigest()
