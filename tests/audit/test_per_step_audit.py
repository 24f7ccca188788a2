"""One step's noise bounded, then accounted."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from privet.accounting import SampledGaussian
from privet.audit import PerStepAudit, Verdict
from privet.errors import InvalidArgument


def account(z: float) -> float:
    return SampledGaussian(sample_rate=0.1, noise_multiplier=z, steps=10).epsilon(1e-5)


def test_power_and_verdict() -> None:
    rng = np.random.default_rng(0)
    inside, outside = 1.0 + rng.normal(size=20_000), rng.normal(size=20_000)
    found = PerStepAudit().run(
        inside, outside, what="z=1", account=account, proved=account(1.0), control=(np.ones(20_000), np.zeros(20_000)),
    )  # fmt: skip
    assert 0.9 * found.proved < found.audited <= found.proved
    assert found.verdict is Verdict.CONSISTENT and found.parametric
    assert found.ceiling == found.control > found.proved
    half = PerStepAudit().run(
        1.0 + 0.5 * rng.normal(size=2_000), 0.5 * rng.normal(size=2_000), what="half the noise", account=account,
        proved=account(1.0), control=(np.ones(2_000), np.zeros(2_000)),
    )  # fmt: skip
    assert half.verdict is Verdict.FALSIFIED


def test_level() -> None:
    """300 audits of true z = 1 at 90%: z bounded below 1 at most 10% + chance (.0015)."""
    rng, audit = np.random.default_rng(1), PerStepAudit(confidence=0.9)
    wrong = sum(
        audit.noise_multiplier(1 + rng.normal(size=100), rng.normal(size=900)) < 1.0 for _ in range(300)
    )  # fmt: skip
    assert wrong <= stats.binom.ppf(0.9985, 300, 0.1)


def test_nothing_told_apart_is_epsilon_zero() -> None:
    x = np.random.default_rng(2).normal(size=50)
    assert PerStepAudit().noise_multiplier(x, x) == math.inf
    found = PerStepAudit().run(x, x, what="blind", account=account, proved=1.0, control=(x, x))
    assert found.audited == 0.0 and found.verdict is Verdict.UNINFORMATIVE
    with pytest.raises(InvalidArgument, match="NaN"):
        PerStepAudit().noise_multiplier([math.nan, 1.0], [0.0, 1.0])
