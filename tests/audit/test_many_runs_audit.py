"""Groups of copies, and bounds from the scores of many runs."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from privet.audit import ManyRunsAudit, Verdict, group_epsilon
from privet.errors import InvalidArgument


@pytest.mark.parametrize("copies", [1, 2, 5])
def test_group_epsilon_inverts_group_privacy(copies: int) -> None:
    epsilon, delta, p0 = 0.7, 1e-3, 0.01
    p1 = math.exp(copies * epsilon) * p0 + delta * math.expm1(copies * epsilon) / math.expm1(
        epsilon
    )
    assert group_epsilon(p1, p0, copies=copies, delta=delta) == pytest.approx(epsilon, rel=1e-8)
    assert group_epsilon(0.01, 0.01, copies=copies, delta=delta) == 0.0
    assert group_epsilon(0.5, 0.0, copies=copies, delta=0.0) == math.inf


@pytest.mark.parametrize("gaussian", [False, True])
def test_copies_are_paid_for(gaussian: bool) -> None:
    """Scores of k copies are k times as far apart; the bound is for one of them."""
    rng, k, mu = np.random.default_rng(2), 3, 0.5
    inside, outside = rng.normal(size=2000) + k * mu, rng.normal(size=2000)
    one = ManyRunsAudit(gaussian=gaussian)
    bound = ManyRunsAudit(copies=k, gaussian=gaussian).epsilon(inside, outside)
    assert 0.0 < bound < one.epsilon(inside, outside)
    assert bound <= 1.99  # epsilon of mu = .5 at delta 1e-5


@pytest.mark.slow
@pytest.mark.parametrize(("copies", "gaussian"), [(1, False), (1, True), (2, False)])
def test_level_at_the_truth(copies: int, gaussian: bool) -> None:
    """Normal scores of known mu, 300 audits at 90% (a sound auditor fails with .0015 at most)."""
    rng, mu, truth = np.random.default_rng(3), 1.0, 4.377
    audit = ManyRunsAudit(copies=copies, gaussian=gaussian, confidence=0.9)
    above = sum(
        audit.epsilon(rng.normal(size=60) + copies * mu, rng.normal(size=60)) > truth
        for _ in range(300)
    )
    assert above <= stats.binom.ppf(0.9985, 300, 0.1)


def test_finding_and_refusals() -> None:
    a, b = np.ones(200), np.zeros(200)
    found = ManyRunsAudit().run(a, b, what="no noise", proved=math.inf, claimed=1.0, control=(a, b))
    assert found.verdict is Verdict.FALSIFIED and found.audited == found.ceiling == found.control
    assert "200 runs with 1 copies" in found.method and not found.parametric
    with pytest.raises(InvalidArgument, match="equally many"):
        ManyRunsAudit().epsilon(a, b[:10])
    with pytest.raises(InvalidArgument, match="NaN"):
        ManyRunsAudit().epsilon(a * np.nan, b)
