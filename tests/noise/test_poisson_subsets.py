"""Members among very many: exact chances, exact ties, and the law, which planted bugs break."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from privet.noise import poisson_subsets as rare
from privet.noise import seeded
from tests.noise.test_source import Scripted

ALARM = 1e-6
"""A right sampler fails a test of its law with this probability; the seeds are fixed."""
RATES = [Fraction(2, 3), Fraction(1, 2), Fraction(1, 3), Fraction(0.013), Fraction(1e-4)]


def exact_chances(p: Fraction, digits: int) -> list[Fraction]:
    """Of every digit, and of a skip beyond them all, in fractions."""
    powers = [(1 - p) ** (2**j) for j in range(digits + 1)]
    return [x / (1 + x) for x in powers[:-1]] + [powers[-1]]


@given(
    st.fractions(min_value=Fraction(1, 10**6), max_value=Fraction(1, 2), max_denominator=10**6)
    | st.floats(min_value=1e-12, max_value=0.5).map(Fraction),
    st.integers(1, 6),
    st.sampled_from([64, 128, 256]),
)
def test_chances_are_exact_to_every_bit(p: Fraction, digits: int, bits: int) -> None:
    found = rare._probabilities(p, digits, bits)
    assert list(found) == [(x * 2**bits).__floor__() for x in exact_chances(p, digits)]


@pytest.mark.parametrize("p", RATES)
def test_chances_whose_digits_end(p: Fraction) -> None:
    """2/3 has the chance 1/4 in digit 0; powers of 1/2 end too."""
    for bits in (64, 128, 192):
        found = rare._probabilities(p, 5, bits)
        assert list(found) == [(x * 2**bits).__floor__() for x in exact_chances(p, 5)]


@pytest.mark.parametrize("p", RATES)
def test_independent_digits_make_a_geometric_number(p: Fraction) -> None:
    """The theorem behind `_skips`, in fractions: P[G = g] = q^g p for every g."""
    digits = 5
    *chances, beyond = exact_chances(p, digits)
    for g in range(2**digits):
        product = 1 - beyond
        for j, chance in enumerate(chances):
            product *= chance if g >> j & 1 else 1 - chance
        assert product == (1 - p) ** g * p


@pytest.mark.parametrize(("more", "last"), [((0,), 1), ((2**64 - 1,), 0)])
def test_a_tie_goes_on_to_the_next_digits(more: tuple[int, ...], last: int) -> None:
    p, digits = Fraction(0.01), 3
    limits = rare._probabilities(p, digits, 64)
    high = 2**64 - 1
    stream = Scripted(high, limits[1], high, high, *more)
    skips, beyond = rare._skips(stream, 1, p, digits)
    assert skips.tolist() == [2 * last] and not beyond[0] and stream.left == []


def test_a_tie_in_128_digits() -> None:
    p, digits = Fraction(0.01), 3
    second, third = (rare._probabilities(p, digits, bits)[2] % 2**64 for bits in (128, 192))
    assert rare._next_digits(Scripted(second, third - 1), p, digits, 2)
    assert not rare._next_digits(Scripted(second, third + 1), p, digits, 2)


def law_holds(n: int, p: Fraction, rounds: int, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Every number as often as it should be, batches that vary as they should, skips as well."""
    monkeypatch.setattr(rare, "_SKIPS", 16)  # several goes a round
    stream, counts, sizes, skips = seeded(5).stream, np.zeros(n), np.zeros(rounds), []
    for i in range(rounds):
        found = rare._by_skips(stream, n, p)
        assert found.dtype == np.int64 and np.all(np.diff(found) > 0)
        assert not len(found) or 0 <= found[0] <= found[-1] < n
        counts[found] += 1
        sizes[i] = len(found)
        skips.append(np.diff(found))
    q = float(p)
    each = np.sum((counts - rounds * q) ** 2) / (rounds * q * (1 - q))
    spread = np.sum((sizes - n * q) ** 2) / (n * q * (1 - q))
    total = stats.binomtest(int(sizes.sum()), n * rounds, q).pvalue
    # pairs of neighbours: (n - 1) of them in a round, each with probability p^2
    close = int(sum((s == 1).sum() for s in skips))
    pairs = stats.poisson(rounds * (n - 1) * q * q)
    tails = [
        stats.chi2.cdf(each, n),
        stats.chi2.sf(each, n),
        stats.chi2.cdf(spread, rounds),
        stats.chi2.sf(spread, rounds),
        total,
        pairs.cdf(close),
        pairs.sf(close - 1),
    ]
    return min(tails) > ALARM


@pytest.mark.parametrize("p", [Fraction(1, 7), Fraction(0.013), Fraction(2.0**-9)])
@pytest.mark.parametrize(
    "n", [100, *(pytest.param(n, marks=pytest.mark.slow) for n in (512, 1023))]
)
def test_the_law(n: int, p: Fraction, monkeypatch: pytest.MonkeyPatch) -> None:
    assert law_holds(n, p, 1500, monkeypatch)


def without_the_odds(p: Fraction, digits: int, bits: int) -> tuple[int, ...]:
    """q^(2^j) in place of q^(2^j) / (1 + q^(2^j))."""
    powers = [(1 - p) ** (2**j) for j in range(digits + 1)]
    return tuple(min((x * 2**bits).__floor__(), 2**bits - 1) for x in powers)


def never_beyond(p: Fraction, digits: int, bits: int) -> tuple[int, ...]:
    """A skip always ends among the numbers that its digits can tell."""
    return (*RIGHT(p, digits, bits)[:-1], 0)


def a_digit_too_few(p: Fraction, digits: int, bits: int) -> tuple[int, ...]:
    """The highest digit is never 1."""
    return (*RIGHT(p, digits, bits)[:-2], 0, RIGHT(p, digits, bits)[-1])


def of_a_larger_rate(p: Fraction, digits: int, bits: int) -> tuple[int, ...]:
    return RIGHT(p * Fraction(6, 5), digits, bits)


RIGHT = rare._probabilities


@pytest.mark.parametrize("bug", [without_the_odds, never_beyond, a_digit_too_few, of_a_larger_rate])
def test_planted_bugs_break_the_law(bug, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr(rare, "_probabilities", bug)
    assert not law_holds(100, Fraction(0.013), 1500, monkeypatch)


def test_skips_off_by_one_break_the_law(monkeypatch: pytest.MonkeyPatch) -> None:
    own = rare._skips

    def shifted(*args):  # type: ignore[no-untyped-def]
        skips, beyond = own(*args)
        return skips + 1, beyond

    monkeypatch.setattr(rare, "_skips", shifted)
    assert not law_holds(512, Fraction(0.013), 1500, monkeypatch)


@pytest.mark.parametrize("n", [0, 1, 2, 3, 64, 10**7])
@pytest.mark.parametrize("p", [0.0, 1e-9, 1e-4, 0.2, 0.5, 0.7, 1.0])
def test_edges(n: int, p: float) -> None:
    if n * p > 10**6:
        return
    found = seeded(1).poisson_subset(n, p)
    assert found.dtype == np.int64 and np.all(np.diff(found) > 0)
    assert len(found) == (n if p == 1.0 else len(found)) and (p > 0 or not len(found))
    assert not len(found) or 0 <= found[0] <= found[-1] < n
    assert np.array_equal(found, seeded(1).poisson_subset(n, p))
