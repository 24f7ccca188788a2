"""Every sampler: the map from bits, the law in brief (the long tests are in tests/statistical)."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from privet.errors import InvalidArgument
from privet.noise import discrete_noise, float64_noise, seeded
from privet.noise.key_stream import KeyStream, Words


class Scripted(KeyStream):
    """A stream that says what it is told, to test the map from bits to numbers."""

    def __init__(self, *words: int) -> None:
        super().__init__(b"scripted", secret=False)
        self.left = list(words)

    def fill(self, out: Words) -> None:
        for i in range(len(out)):
            out[i] = self.left.pop(0)

    def words(self, n: int) -> Words:
        return np.array([self.left.pop(0) for _ in range(n)], dtype=np.uint64)


TOP = 2**63
ALARM = 1e-6
"""A right sampler fails such a test with this probability; the seeds are fixed, so it does not."""


@pytest.mark.parametrize(
    ("words", "u"),
    [
        ((TOP - 1,), 1.0),  # rounds up: the interval is (0, 1]
        ((TOP + TOP // 2,), 0.5),  # the top bit is left for the sign
        ((TOP // 4,), 0.25),
        ((1, 2**63), 1.5 * 2.0**-63),  # few bits: 64 more are drawn
        ((2**52, 1), (2.0**52 + 2.0**-64) * 2.0**-63),
        ((0, 1), 2.0**-127),
        ((0, 0, 3), 3 * 2.0**-191),
        ((0, 0, 0, 0, 5), 5 * 2.0**-319),
    ],
)
def test_uniform_from_bits(words: tuple[int, ...], u: float) -> None:
    stream = Scripted(*words)
    assert float64_noise.uniform_from_words(stream, stream.words(1))[0] == u
    assert stream.left == []


def test_uniform_is_open() -> None:
    assert float64_noise.uniform(Scripted(TOP - 1), 1)[0] == 1.0 - 2.0**-53
    assert float64_noise.uniform(Scripted(*[0] * 40, 1), 1)[0] > 0.0


@pytest.mark.parametrize(("extra", "sigmas"), [((0, 1), 13.2), ((0, *[0] * 14, 1), 37.0)])
def test_the_gaussian_tail_does_not_stop(extra: tuple[int, ...], sigmas: float) -> None:
    """The radius is sqrt(-2 ln u) for any u that float64 can hold, far past 5.77 (or 9.4)."""
    first, *more = extra
    pair = float64_noise.gaussian(Scripted(first, 0, *more), 2)  # angle 0: all in the cosine
    assert pair[0] > sigmas
    assert pair[1] == 0.0


def test_laplace_from_bits() -> None:
    x = float64_noise.laplace(Scripted(TOP // 2, TOP + TOP // 2), 2)
    assert x.tolist() == [math.log(2.0), -math.log(2.0)]


def test_coins_look_at_further_digits_only_on_a_tie() -> None:
    p = Fraction(1, 3)
    digits = 2**64 // 3
    assert discrete_noise.bernoulli(Scripted(digits - 1), 1, p)[0]
    assert not discrete_noise.bernoulli(Scripted(digits + 1), 1, p)[0]
    assert discrete_noise.bernoulli(Scripted(digits, digits - 1), 1, p)[0]
    assert not discrete_noise.bernoulli(Scripted(digits, digits, digits + 1), 1, p)[0]
    index = np.zeros(1, dtype=np.intp)
    assert discrete_noise._coins(Scripted(digits, digits - 1), index, [1], 3)[0]
    assert not discrete_noise._coins(Scripted(digits, digits + 1), index, [1], 3)[0]


def test_coins_at_the_ends() -> None:
    rng = seeded(0)
    assert not rng.bernoulli(1000, 0.0).any()
    assert rng.bernoulli(1000, 1.0).all()
    assert not rng.bernoulli(1000, 5e-324).any()


def test_integers_reject_the_ragged_end() -> None:
    limit = (2**64 // 3) * 3
    assert discrete_noise.uniform_below(Scripted(2**64 - 1, 7), 1, 3)[0] == 1
    assert discrete_noise.uniform_below(Scripted(limit - 1), 1, 3)[0] == 2


@pytest.mark.parametrize(
    ("draw", "law"),
    [
        (lambda r, n: r.uniform(n), stats.uniform),
        (lambda r, n: r.gaussian(n, 3.0), stats.norm(scale=3.0)),
        (lambda r, n: r.laplace(n, 3.0), stats.laplace(scale=3.0)),
    ],
)
def test_continuous_laws(draw: object, law: object) -> None:
    """Kolmogorov-Smirnov at 50,000 draws; false alarm 1e-6."""
    x = draw(seeded(11), 50_000)  # type: ignore[operator]
    assert stats.kstest(x, law.cdf).pvalue > ALARM  # type: ignore[attr-defined]


def chi_square(x: np.ndarray, log_weight: object) -> float:
    """p-value of integer draws against weights exp(log_weight(k)); rare values are pooled."""
    k = np.arange(-(10**3), 10**3 + 1)
    p = np.exp(log_weight(k))  # type: ignore[operator]
    p /= p.sum()
    keep = p * len(x) >= 10
    seen = np.array([np.count_nonzero(x == v) for v in k[keep]])
    seen = np.append(seen, len(x) - seen.sum())
    wanted = np.append(p[keep], 1.0 - p[keep].sum()) * len(x)
    if wanted[-1] < 1:
        assert seen[-1] < 20
        seen, wanted = seen[:-1], wanted[:-1] * seen[:-1].sum() / wanted[:-1].sum()
    return float(stats.chisquare(seen, wanted).pvalue)


@pytest.mark.slow
@pytest.mark.parametrize("scale", [0.3, 1, 0.7, 5, Fraction(22, 7)])
def test_discrete_laplace(scale: float) -> None:
    """Chi-square against the exact probabilities; false alarm 1e-6."""
    x = seeded(5).discrete_laplace(20_000, scale)
    assert chi_square(x, lambda k: -np.abs(k) / float(scale)) > ALARM


@pytest.mark.slow
@pytest.mark.parametrize("sigma", [0.4, 1, 2.5, 10, Fraction(1, 3)])
def test_discrete_gaussian(sigma: float) -> None:
    """Chi-square against the exact probabilities; false alarm 1e-6."""
    x = seeded(6).discrete_gaussian(20_000, sigma)
    assert chi_square(x, lambda k: -(k**2) / (2 * float(sigma) ** 2)) > ALARM


@pytest.mark.parametrize("scale", [2.0**-40, 2.0**40, 123456.789])
def test_discrete_extremes(scale: float) -> None:
    x = seeded(7).discrete_laplace(200, scale)
    y = seeded(7).discrete_gaussian(200, scale)
    if scale < 1:
        assert not x.any() and not y.any()
    else:
        assert 0.5 < np.abs(x).mean() / scale < 1.6
        assert 0.7 < y.std() / scale < 1.4


def test_permutations_and_subsets_are_uniform() -> None:
    """Chi-square over the 24 orders of 4 and the 10 pairs of 5; false alarm 1e-6."""
    rng = seeded(8)
    orders = [tuple(rng.permutation(4)) for _ in range(4800)]
    pairs = [tuple(rng.sample(5, 2)) for _ in range(4000)]
    for seen, kinds in ((orders, 24), (pairs, 10)):
        counts = [seen.count(k) for k in set(seen)]
        assert len(counts) == kinds
        assert stats.chisquare(counts).pvalue > ALARM
    assert sorted(rng.permutation(1000)) == list(range(1000))
    assert rng.sample(3, 3).tolist() == [0, 1, 2]
    assert rng.sample(3, 0).size == rng.permutation(0).size == 0


def test_integers_are_uniform() -> None:
    x = seeded(9).integers(7, (100, 200))
    assert x.shape == (100, 200)
    assert stats.chisquare(np.bincount(x.ravel(), minlength=7)).pvalue > ALARM


def test_shapes() -> None:
    rng = seeded(1)
    assert rng.gaussian(()).shape == ()
    assert rng.gaussian((2, 3)).shape == (2, 3)
    assert rng.laplace((0, 3)).shape == (0, 3)
    assert rng.discrete_gaussian((2, 2), 1.0).dtype == np.int64
    assert rng.gaussian(3).dtype == np.float64


@pytest.mark.parametrize("scale", [0.0, -1.0, math.nan, math.inf, "x", None])
@pytest.mark.parametrize("name", ["gaussian", "laplace", "discrete_laplace", "discrete_gaussian"])
def test_bad_scales(name: str, scale: object) -> None:
    with pytest.raises(InvalidArgument, match="must be a finite number above 0"):
        getattr(seeded(0), name)(3, scale)


@pytest.mark.parametrize("shape", [-1, 1.5, "3", (2, -1), [2], True])
def test_bad_shapes(shape: object) -> None:
    with pytest.raises(InvalidArgument, match="shape must be"):
        seeded(0).gaussian(shape if shape is not True else (True,))  # type: ignore[arg-type]


def test_other_bad_input() -> None:
    rng = seeded(0)
    for p in (-0.1, 1.1, math.nan):
        with pytest.raises(InvalidArgument, match="p must be"):
            rng.bernoulli(3, p)
    for high in (0, -3, 1.5, 2**63):
        with pytest.raises(InvalidArgument, match="high must be"):
            rng.integers(high, 3)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="size must be at most n = 3"):
        rng.sample(3, 4)
    with pytest.raises(InvalidArgument, match="between"):
        rng.discrete_gaussian(3, 1e30)
