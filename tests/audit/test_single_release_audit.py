"""The auditor audited: false alarms on null data, power on releases whose epsilon is known."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from privet.accounting import Gaussian
from privet.audit import (
    Finding,
    OneShotAudit,
    Verdict,
    clopper_pearson,
    epsilon_bound,
    gaussian_bound,
    gaussian_score,
    laplace_score,
)
from privet.errors import InvalidArgument
from privet.noise import Source, seeded


def laplace_draw(shift: float, scale: float, noise: float = 1.0):
    def draw(n: int, rng: Source) -> np.ndarray:
        out = shift + noise * rng.laplace((n, 1), scale)
        return laplace_score(out, present=1.0, absent=0.0, scale=scale)

    return draw


def gaussian_draw(shift: float, sigma: float):
    def draw(n: int, rng: Source) -> np.ndarray:
        out = shift + rng.gaussian((n, 1), sigma)
        return gaussian_score(out, present=1.0, absent=0.0, scale=sigma)

    return draw


WITHOUT_NOISE = (laplace_draw(1.0, 1.0, 0.0), laplace_draw(0.0, 1.0, 0.0))


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 2.0, 4.0])
def test_power_on_laplace(epsilon):
    """At least 90% of the truth with 10^5 draws, and not above it (wrong once in 20 at most)."""
    audit = OneShotAudit(trials=100_000)
    found = audit.run(
        what="Laplace", with_record=laplace_draw(1.0, 1 / epsilon), without_record=laplace_draw(0.0, 1 / epsilon),
        claimed=None, proved=epsilon, rng=seeded(11), control=WITHOUT_NOISE,
    )  # fmt: skip
    assert 0.9 * epsilon <= found.audited <= epsilon
    assert found.verdict is Verdict.CONSISTENT and not found.parametric


@pytest.mark.slow
@pytest.mark.parametrize("mu", [0.2681, 0.9, 1.666])
def test_power_on_gaussian_with_the_parametric_bound(mu):
    audit = OneShotAudit(trials=100_000, delta=1e-5, bound=gaussian_bound)
    truth = Gaussian(mu=mu).epsilon(1e-5)
    found = audit.run(
        what="Gaussian", with_record=gaussian_draw(1.0, 1 / mu), without_record=gaussian_draw(0.0, 1 / mu),
        claimed=None, proved=truth, rng=seeded(12), control=WITHOUT_NOISE,
    )  # fmt: skip
    assert 0.9 * truth <= found.audited <= truth
    assert found.parametric and "normal" in found.method
    plain = replace(audit, bound=epsilon_bound).run(
        what="Gaussian", with_record=gaussian_draw(1.0, 1 / mu), without_record=gaussian_draw(0.0, 1 / mu),
        claimed=None, proved=truth, rng=seeded(12), control=WITHOUT_NOISE,
    )  # fmt: skip
    assert plain.audited < found.audited


@pytest.mark.slow
@pytest.mark.parametrize("bound", [epsilon_bound, gaussian_bound])
def test_false_alarms_on_null_data(bound):
    """The record makes no difference; 400 audits at 90% must not report more than 10% + chance."""
    audit = OneShotAudit(trials=500, pilot=500, confidence=0.9, bound=bound, delta=1e-6)
    alarms = sum(
        audit.epsilon(gaussian_draw(0.0, 1.0), gaussian_draw(0.0, 1.0), seeded(1000 + i)) > 0.0
        for i in range(400)
    )
    # P[Bin(400, .1) > 58] = .0015: the chance that a sound auditor fails here
    assert alarms <= stats.binom.ppf(0.9985, 400, 0.1)


@pytest.mark.slow
def test_bounds_hold_at_the_true_epsilon():
    """A bound above the truth is a false alarm too: Laplace at its worst event, 300 audits."""
    audit = OneShotAudit(trials=2_000, pilot=500, confidence=0.9)
    above = sum(
        audit.epsilon(laplace_draw(1.0, 1.0), laplace_draw(0.0, 1.0), seeded(5000 + i)) > 1.0
        for i in range(300)
    )
    assert above <= stats.binom.ppf(0.9985, 300, 0.1)


def test_limits_cover_as_they_say():
    for n, p in ((50, 0.03), (200, 0.5)):
        k = np.arange(n + 1)
        chance = stats.binom.pmf(k, n, p)
        limits = np.array([clopper_pearson(int(i), n, 0.05) for i in k])
        assert chance[limits[:, 0] > p].sum() <= 0.05
        assert chance[limits[:, 1] < p].sum() <= 0.05
    assert clopper_pearson(10, 10, 0.05)[1] == 1.0
    with pytest.raises(InvalidArgument, match="at most 10"):
        clopper_pearson(11, 10, 0.05)


def test_both_directions_of_an_event_count():
    # S always happens with the record and half the time without: the complement tells more
    assert epsilon_bound(10_000, 5_000, 10_000, delta=0.0, alpha=0.05) > 6 > math.log(2)
    assert epsilon_bound(5_000, 5_000, 10_000, delta=0.0, alpha=0.05) == 0.0
    assert epsilon_bound(10, 0, 10_000, delta=0.01, alpha=0.05) == 0.0


def test_a_claim_that_is_too_small_is_falsified():
    found = OneShotAudit(trials=20_000).run(
        what="half the noise", with_record=laplace_draw(1.0, 0.5), without_record=laplace_draw(0.0, 0.5),
        claimed=1.0, proved=2.0, rng=seeded(3), control=WITHOUT_NOISE,
    )  # fmt: skip
    assert found.verdict is Verdict.FALSIFIED and found.audited > 1.8
    assert found.control == found.ceiling > found.audited


def test_what_could_not_have_been_reached_is_uninformative():
    few = OneShotAudit(trials=50, pilot=50)
    found = few.run(
        what="few trials", with_record=laplace_draw(1.0, 0.2), without_record=laplace_draw(0.0, 0.2),
        claimed=5.0, proved=5.0, rng=seeded(3), control=WITHOUT_NOISE,
    )  # fmt: skip
    assert found.ceiling < 5.0 and found.verdict is Verdict.UNINFORMATIVE
    blind = OneShotAudit(trials=5_000).run(
        what="a score that sees nothing", with_record=gaussian_draw(0.0, 1.0), without_record=gaussian_draw(0.0, 1.0),
        claimed=1.0, proved=1.0, rng=seeded(3), control=(gaussian_draw(0.0, 1.0), gaussian_draw(0.0, 1.0)),
    )  # fmt: skip
    assert blind.control < 1.0 and blind.verdict is Verdict.UNINFORMATIVE


@pytest.mark.parametrize(
    ("claimed", "proved", "audited", "verdict"),
    [
        (1.0, 0.74, 0.9, Verdict.FALSIFIED),  # below the claim, but the proof is refuted
        (1.0, 0.74, 0.66, Verdict.CONSISTENT),
        (1.0, math.inf, 1.1, Verdict.FALSIFIED),
        (1.0, math.inf, 0.9, Verdict.CONSISTENT),
        (None, 1.0, 1.1, Verdict.FALSIFIED),
        (5.0, 4.0, 0.9, Verdict.UNINFORMATIVE),
    ],
)
def test_the_verdict_is_on_the_smaller_of_claim_and_proof(claimed, proved, audited, verdict):
    finding = Finding(
        what="x", claimed=claimed, proved=proved, audited=audited, ceiling=3.0, control=3.0,
        delta=0.0, confidence=0.95, trials=10, method="m", parametric=False, seconds=0.1,
    )  # fmt: skip
    assert finding.verdict is verdict


def test_finding_is_json_with_the_keys_scripts_rely_on():
    finding = Finding(
        what="x", claimed=None, proved=math.inf, audited=0.5, ceiling=3.0, control=3.0, delta=0.0,
        confidence=0.95, trials=10, method="m", parametric=False, seconds=0.1,
    )  # fmt: skip
    written = json.loads(json.dumps(finding.to_dict(), allow_nan=False))
    assert {"claimed", "proved", "audited", "ceiling", "verdict"} <= set(written)
    assert written["proved"] == "inf" and written["claimed"] is None
    assert written["verdict"] == "uninformative"


def test_scores_that_are_wrong_are_refused():
    with pytest.raises(InvalidArgument, match="scores"):
        OneShotAudit(trials=10, pilot=10).epsilon(
            lambda n, rng: np.full(n, np.nan), lambda n, rng: np.zeros(n), seeded(0)
        )


@pytest.mark.slow
def test_auditing_does_not_need_torch():
    code = "import privet.audit, sys; sys.exit('torch' in sys.modules or 'sklearn' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
