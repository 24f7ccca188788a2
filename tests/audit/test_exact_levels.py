"""How often auditors raise a false alarm, summed exactly and not simulated, where epsilon is 0."""

import math

import numpy as np
import pytest
from scipy import stats

from privet.audit import (
    epsilon_bound,
    gaussian_bound,
    gaussian_one_run_bound,
    normal_shift_bound,
    one_run_bound,
    trade_off_one_run_bound,
)

ALPHA = 0.05


@pytest.mark.slow
@pytest.mark.parametrize(("guesses", "canaries"), [(20, 20), (100, 1000), (200, 20_000)])
@pytest.mark.parametrize("rule", [one_run_bound, trade_off_one_run_bound, gaussian_one_run_bound])
def test_one_run(rule, guesses: int, canaries: int) -> None:
    """Scores that know nothing make v ~ Bin(r, 1/2), whichever guesses are "in"."""
    v = np.arange(guesses + 1)
    chance = stats.binom.pmf(v, guesses, 0.5)
    alarm = [rule(int(k), guesses, canaries, delta=1e-5, alpha=ALPHA) > 0.0 for k in v]
    rate = chance[alarm].sum()
    print(f"{rule.__name__}, {guesses} of {canaries}: {rate:.2%}")
    assert 0.02 < rate <= ALPHA


@pytest.mark.slow
@pytest.mark.parametrize("rate", [0.02, 0.3, 0.5])
@pytest.mark.parametrize("bound", [epsilon_bound, gaussian_bound])
def test_counts_of_one_event(bound, rate: float) -> None:
    """Two limits at alpha/2 each are far on the safe side: both must be wrong at once."""
    n = 30
    chance = stats.binom.pmf(np.arange(n + 1), n, rate)
    alarms = math.fsum(
        chance[i] * chance[j]
        for i in range(n + 1)
        for j in range(n + 1)
        if bound(i, j, n, delta=1e-5, alpha=ALPHA) > 0.0
    )
    assert alarms < ALPHA / 10


def test_the_shift_of_normal_scores_has_its_level_exactly() -> None:
    """It speaks just where Student's test does, and for normal scores that is in 5% of sets."""
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=200), rng.normal(size=150)
    pooled = math.sqrt((199 * a.var(ddof=1) + 149 * b.var(ddof=1)) / 348)
    at_the_limit = stats.t.isf(ALPHA, 348) * pooled * math.sqrt(1 / 200 + 1 / 150)
    a = a - a.mean() + b.mean() + at_the_limit
    assert normal_shift_bound(a + 1e-6, b, alpha=ALPHA) > 0.0
    assert normal_shift_bound(a - 1e-6, b, alpha=ALPHA) == 0.0
