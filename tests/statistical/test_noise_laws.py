"""The laws of all samplers with many draws, their tails, and the precision attack.

Seeds are fixed, so a run never fails by chance; with fresh seeds each test below would fail a right
sampler with probability at most 1e-6 (stated as ALARM), unless its docstring says otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch
from scipy import stats

from privet.guarantee import Backing, Premise
from privet.mechanisms import GaussianMechanism, LaplaceMechanism
from privet.noise import Source, grid, secure, seeded
from privet.noise.float64_noise import BLOCK, uniform_from_words
from privet.noise.torch_noise import add_gaussian_, fill, gaussian_
from privet.noise.ziggurat import LAYERS, NORMAL, layers
from privet.sensitivity import BoundedValue, Sensitivity

pytestmark = pytest.mark.slow
ALARM = 1e-6


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Threads that wait for each other on a busy machine take longer than the work."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def torch_normal(rng: Source, n: int) -> np.ndarray:
    return gaussian_(torch.empty(n, dtype=torch.float64), 1.0, rng).numpy()


def torch_normal32(rng: Source, n: int) -> np.ndarray:
    return gaussian_(torch.empty(n, dtype=torch.float32), 1.0, rng).numpy().astype(np.float64)


def numpy_normal(rng: Source, n: int) -> np.ndarray:
    return rng.gaussian(n)


def kolmogorov(x: np.ndarray, cdf: Callable[[np.ndarray], np.ndarray]) -> float:
    """p-value of the Kolmogorov-Smirnov test, asymptotic (the draws are many)."""
    x = np.sort(x)
    n = len(x)
    f = cdf(x)
    i = np.arange(n)
    distance = max(float(np.max((i + 1) / n - f)), float(np.max(f - i / n)))
    return float(stats.kstwobign.sf(distance * math.sqrt(n)))


def on_grid_normal(rng: Source, n: int) -> np.ndarray:
    return rng.gaussian_on_grid(n, 1.5) / 1.5 * grid.spacing(1.5)


@pytest.mark.parametrize("draw", [torch_normal, torch_normal32, numpy_normal, on_grid_normal])
def test_gaussian_law(draw: Callable[[Source, int], np.ndarray]) -> None:
    """10 million draws: Kolmogorov-Smirnov, moments 1 to 6, lagged products at 5 errors."""
    n = 10_000_000
    x = draw(seeded(101), n)
    assert kolmogorov(x, stats.norm.cdf) > ALARM
    powers = {1: (0, 1), 2: (1, 2), 3: (0, 15), 4: (3, 96), 5: (0, 945), 6: (15, 10170)}
    for k, (mean, variance) in powers.items():
        assert abs(np.mean(x**k) - mean) < 5 * math.sqrt(variance / n)
    for lag in (1, BLOCK // 2, 7):  # also between the two of a Box-Muller pair
        r = np.mean(x[:-lag] * x[lag:])
        assert abs(r) < 5 / math.sqrt(n)
        assert abs(np.mean(x[:-lag] ** 2 * x[lag:] ** 2) - 1.0) < 5 * math.sqrt(8 / n)


def test_numpy_laplace_and_uniform_laws() -> None:
    """3 million draws each, Kolmogorov-Smirnov."""
    assert kolmogorov(seeded(103).laplace(3_000_000), stats.laplace.cdf) > ALARM
    on_grid = seeded(103).laplace_on_grid(3_000_000, 1.99) * grid.spacing(1.99) / 1.99
    assert kolmogorov(on_grid, stats.laplace.cdf) > ALARM
    assert kolmogorov(seeded(104).uniform(3_000_000), lambda u: u) > ALARM


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_released_noise_law(dtype: torch.dtype) -> None:
    """10 million releases of 0.3 on the grid: the law, and the two sides and pieces of the tail."""
    n, value, scale = 10_000_000, 0.3, 0.7
    o = add_gaussian_(torch.full((n,), value, dtype=dtype), scale, seeded(112)).double().numpy()
    x = (o - value) / scale
    assert kolmogorov(x, stats.norm.cdf) > ALARM
    edges = [-np.inf, -4.5, -4.04, -4, -3.5, -3.2, -2, -0.1, 0, 0.1, 2, 3.2, 3.5, 4, 4.04, 4.5]
    edges = np.array([*edges, np.inf])
    seen = np.histogram(x, edges)[0]
    assert stats.chisquare(seen, np.diff(stats.norm.cdf(edges)) * n).pvalue > ALARM


def test_each_wedge_of_the_ziggurat() -> None:
    """4 million places between `inside` and the end of their layer: in every fifth of every wedge
    the share that is kept is the share of it that lies under the curve (chi-square, both sides).

    A refused place takes the next spare word instead, here one that means a draw next to 0.
    """
    stack, n, rng = layers(NORMAL), 4_000_000, seeded(113)
    layer = 1 + rng.integers(LAYERS - 1, n)
    right = stack.widths[layer] * 2.0**53
    left = stack.inside[layer] * stack.widths[layer]
    place = ((left + (right - left) * rng.uniform(n)) / right * 2.0**53).astype(np.int64) | 1
    words = ((place << 10) | layer).view(np.uint64)
    spare = rng.uint64(2 * n)
    spare[1::2] = 500 + (1 << 10)
    out, open_ = np.empty(n), np.empty(n, dtype=np.bool_)
    fill(words, spare, out, open_, ratio=2.0**26, bulk=rng.stream.bulk())
    at, kept = place * 2.0**-53 * right, out > 1000.0
    low, room = stack.lows[layer], stack.rooms[layer]
    chance = np.clip((np.exp(-0.5 * at**2) - low) / room, 0.0, 1.0)
    cell = layer * 5 + np.minimum((at - left) / (right - left) * 5, 4).astype(np.int64)
    seen, due = np.bincount(cell, kept), np.bincount(cell, chance)
    spread = np.bincount(cell, chance * (1.0 - chance))
    some = spread > 0
    square = np.sum((seen - due)[some] ** 2 / spread[some])
    assert ALARM < stats.chi2.sf(square, np.count_nonzero(some)) < 1.0 - ALARM


def test_gaussian_tail_rates() -> None:
    """200 million draws: exceedances of 4, 5 and 5.5 are Poisson with the normal rates.

    P[|x| > 5.5] = 3.8e-8, so that 7.6 are expected; float32 `randn` stops at 5.77.
    """
    n, block = 200_000_000, 4_000_000
    rng, x = seeded(105), torch.empty(block, dtype=torch.float64)
    seen = dict.fromkeys((4.0, 5.0, 5.5), 0)
    for _ in range(n // block):
        size = gaussian_(x, 1.0, rng).abs_()
        large = size[size > 4.0]
        for t in seen:
            seen[t] += int((large > t).sum())
    for t, k in seen.items():
        expected = 2 * stats.norm.sf(t) * n
        assert stats.poisson.cdf(k, expected) > ALARM
        assert stats.poisson.sf(k - 1, expected) > ALARM


def test_the_far_tail_by_importance() -> None:
    """Where the first 26 digits of u are zero, u is uniform below 2^-26 and the radius beyond 6.

    Words with those digits set to zero go through the code under test; the exceedances must follow
    exp(-r^2/2) there.
    """

    stream = seeded(106).stream
    words = stream.words(2_000_000) & np.uint64(2**37 - 1)  # u uniform in (0, 2^-26)
    u = uniform_from_words(stream, words)
    assert kolmogorov(u * 2.0**26, lambda v: v) > ALARM
    r = np.sqrt(-2.0 * np.log(u))
    assert r.min() > 6.0 and r.max() > 7.5
    for t in (6.5, 7.0, 7.5):
        expected = math.exp(-t * t / 2) * 2.0**26 * len(u)
        assert abs(np.count_nonzero(r > t) - expected) < 5.5 * math.sqrt(expected) + 5


def test_laplace_tail_rates() -> None:
    """P[|x| > t] = e^-t, 20 million draws."""
    x = np.abs(seeded(107).laplace(20_000_000))
    for t in (5.0, 10.0, 14.0):
        expected = math.exp(-t) * len(x)
        k = np.count_nonzero(x > t)
        assert stats.poisson.cdf(k, expected) > ALARM
        assert stats.poisson.sf(k - 1, expected) > ALARM


@pytest.mark.parametrize("p", [0.5, 0.01, 1e-5, 0.999])
def test_coins(p: float) -> None:
    n = 20_000_000
    k = int(np.count_nonzero(seeded(108).bernoulli(n, p)))
    assert stats.binom.cdf(k, n, p) > ALARM and stats.binom.sf(k - 1, n, p) > ALARM


def pooled_chi_square(x: np.ndarray, weight: Callable[[np.ndarray], np.ndarray]) -> float:
    k = np.arange(-400, 401)
    p = weight(k)
    p = p / p.sum()
    keep = p * len(x) >= 20
    seen = np.bincount(x[np.abs(x) <= 400] + 400, minlength=801)[keep]
    seen = np.append(seen, len(x) - seen.sum())
    wanted = np.append(p[keep], 1 - p[keep].sum()) * len(x)
    return float(stats.chisquare(seen, wanted).pvalue)


@pytest.mark.parametrize("scale", [0.5, 3, 20])
def test_discrete_laws(scale: float) -> None:
    """Half a million draws each, chi-square against the exact probabilities, and the variance."""
    n = 500_000
    x = seeded(109).discrete_laplace(n, scale)
    y = seeded(110).discrete_gaussian(n, scale)
    assert pooled_chi_square(x, lambda k: np.exp(-np.abs(k) / scale)) > ALARM
    assert pooled_chi_square(y, lambda k: np.exp(-(k**2) / (2 * scale**2))) > ALARM
    e = math.exp(1 / scale)
    assert np.var(x) == pytest.approx(2 * e / (e - 1) ** 2, rel=0.03)
    k = np.arange(-300, 301)
    p = np.exp(-(k**2) / (2 * scale**2))
    assert np.var(y) == pytest.approx(float(np.sum(p * k * k) / np.sum(p)), rel=0.02)


def test_children_are_uncorrelated() -> None:
    """Correlation of 30 child streams with each other: 435 pairs at 5.5 standard errors."""
    n = 200_000
    x = np.array([seeded(111).child("step", i).gaussian(n) for i in range(30)])
    r = (x @ x.T) / n
    off = r[np.triu_indices(30, 1)]
    assert np.max(np.abs(off)) < 5.5 / math.sqrt(n)


def bounded(value: float, n: int) -> BoundedValue:
    one = Sensitivity(l1=1.0, l2=1.0)
    why = Premise(about="bound", text="n separate releases of one number", backing=Backing.TESTED)
    return BoundedValue(value=np.full(n, value), add_remove=one, replace_one=one, premise=why)


def hits(o: np.ndarray) -> int:
    one = o.dtype.type(1)
    return int(np.count_nonzero((o - one) + one != o))


@pytest.mark.parametrize("value", [0.0, 1.0])
@pytest.mark.parametrize("kind", [LaplaceMechanism, GaussianMechanism])
def test_precision_attack(kind: type, value: float) -> None:
    """2 million releases each, secure noise: never told apart."""
    o = kind(scale=1.0).release(bounded(value, 2_000_000), rng=secure())
    assert hits(o) == 0


@pytest.mark.parametrize("value", [0.0, 1.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_precision_attack_on_tensors(value: float, dtype: torch.dtype) -> None:
    """The same for 2 million releases of the torch path."""
    assert (
        hits(add_gaussian_(torch.full((2_000_000,), value, dtype=dtype), 1.0, secure()).numpy())
        == 0
    )


def test_the_attack_works_on_the_naive_sum() -> None:
    """The control: 43% of naive float64 releases of 0 are certified not to be of 1."""
    noise = secure().gaussian(2_000_000)
    assert hits(0.0 + noise) / 2_000_000 == pytest.approx(0.43, abs=0.02)
    assert hits(1.0 + noise) == 0
