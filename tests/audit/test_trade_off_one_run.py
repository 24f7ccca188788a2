"""One-run bounds against whole curves: exact small cases, validity, and beside Steinke's bound."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from privet.accounting import Gaussian
from privet.audit import OneRunAudit, gaussian_one_run_bound, one_run_bound, trade_off_one_run_bound
from privet.audit.one_run_audit import refutes
from privet.errors import InvalidArgument

RULES = [one_run_bound, trade_off_one_run_bound, gaussian_one_run_bound]


def test_one_guess_by_hand() -> None:
    """One canary, one guess, right: refuted at level alpha iff P[right] <= F(1 - P[right]) < alpha.

    Under epsilon-privacy P[right] is at most q = 1 / (1 + e^-eps), so a level above q refutes.
    """
    q = 1 / (1 + math.exp(-1.0))
    inverse = lambda x: math.exp(-1.0) * x  # noqa: E731
    assert refutes(inverse, 1, 1, 1, q + 1e-9)
    assert not refutes(inverse, 1, 1, 1, q - 1e-9)


@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_never_claims_more_than_the_exact_binomial_tail(epsilon: float) -> None:
    """Independent randomised responses are epsilon-private, so their own tail is a least p-value."""
    q = 1 / (1 + math.exp(-epsilon))
    inverse = lambda x: math.exp(-epsilon) * x  # noqa: E731
    for r, v in itertools.product((5, 20, 60), (0.5, 0.7, 0.9, 1.0)):
        right = round(v * r)
        tail = float(stats.binom.sf(right - 1, r, q))
        if tail < 1.0:
            assert not refutes(inverse, right, r, r, tail * (1 - 1e-9))


def test_sharper_than_one_run_bound_where_delta_counts() -> None:
    for v in (150, 180, 200):
        old = one_run_bound(v, 200, 20_000, delta=1e-5, alpha=0.05)
        assert trade_off_one_run_bound(v, 200, 20_000, delta=1e-5, alpha=0.05) > old
    # without delta Steinke's tail is exact and this one a little below
    free = [r(190, 200, 5000, delta=0.0, alpha=0.05) for r in RULES[:2]]
    assert free[0] * 0.99 < free[1] <= free[0]


@pytest.mark.parametrize("rule", RULES)
def test_more_right_guesses_never_lower_the_bound(rule) -> None:
    bounds = [rule(v, 60, 600, delta=1e-5, alpha=0.05) for v in range(0, 61, 4)]
    assert all(a <= b for a, b in itertools.pairwise(bounds)) and bounds[0] == 0.0 < bounds[-1]
    with pytest.raises(InvalidArgument, match="right <= guesses"):
        rule(5, 4, 10, delta=0.0, alpha=0.05)


@pytest.mark.slow
@pytest.mark.parametrize("rule", RULES)
def test_bounds_hold_at_the_true_epsilon(rule) -> None:
    """Normal scores of known mu, 300 audits at 90%: above the truth at most 10% and chance.

    A sound auditor fails here with probability .0015 at most.
    """
    rng, mu, m = np.random.default_rng(5), 1.0, 400
    truth = Gaussian(mu=mu).epsilon(1e-4)
    audit = OneRunAudit(guesses=m // 2, delta=1e-4, confidence=0.9, rule=rule)
    above, cached = 0, {}
    for _ in range(300):
        coins = rng.random(m) < 0.5
        order = np.argsort(-(rng.normal(size=m) + mu * coins))
        right = int(coins[order[:100]].sum() + (~coins[order[-100:]]).sum())
        if right not in cached:
            cached[right] = audit._bound(right, m)
        above += cached[right] > truth
    assert above <= stats.binom.ppf(0.9985, 300, 0.1)


def test_only_in_guesses() -> None:
    """Under sampling a few scores speak for "in" and none for "out"."""
    coins = np.arange(1000) % 2 == 0
    scores = np.where(coins & (np.arange(1000) < 200), 1.0, 0.0)
    audit = OneRunAudit(guesses=100, guesses_in=100)
    assert audit.bound(scores, coins) == audit.ceiling(1000)
    assert OneRunAudit(guesses=100).bound(scores, coins) < audit.ceiling(1000)
    found = audit.run(scores, coins, what="x", proved=1.0, control=scores)
    assert "100 guessed in, 0 out" in found.method
    with pytest.raises(InvalidArgument, match="at most 100"):
        OneRunAudit(guesses=100, guesses_in=101)


@pytest.mark.parametrize("together", [False, True])
def test_delta_where_it_hurts(together: bool) -> None:
    """(epsilon, delta)-private trainings whose exact tails are known: never refuted below them.

    With probability delta a coin is shown, each by itself or all at once; the others answer by
    randomised response. The auditor guesses what was shown first. m delta = 2, r = 12.
    """
    m, r, delta, epsilon = 2000, 12, 1e-3, 1.0
    q = 1 / (1 + math.exp(-epsilon))
    shown = np.arange(r + 1)
    if together:
        chance = np.where(shown == r, delta, 0.0)
        chance[0] = 1.0 - delta
    else:
        chance = stats.binom.pmf(shown, m, delta)
        chance[r] = stats.binom.sf(r - 1, m, delta)
    for right in range(1, r + 1):
        tail = float((chance * stats.binom.sf(right - 1 - shown, r - shown, q)).sum())
        inverse = lambda x: math.exp(-epsilon) * (x - delta)  # noqa: E731
        assert not refutes(inverse, right, r, m, tail * (1 - 1e-9))
