"""Audits of everything that is released: tight on sound runs, falsified without noise."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

from privet import accounting as losses
from privet.audit import Verdict
from privet.audit.all_releases_audit import Run, audit_releases
from privet.audit.missing_or_shared_noise import hidden_shift
from privet.audit.noise_scale_audit import composed_epsilon, normal_spread
from privet.guarantee import Adjacency
from privet.mechanisms import GaussianMechanism, LaplaceMechanism, release_transcript
from privet.methods import neighbour_replay
from privet.methods.catalogue import method_names, method_type
from privet.noise import Source, seeded
from privet.premises import bound
from privet.sensitivity import BoundedValue, Sensitivity

METHODS = [name for name in method_names() if name != "nearest-mean"]


def counted(mechanism: GaussianMechanism | LaplaceMechanism, *, moved: float = 1.0) -> Run:
    """One count, of a record or of none."""

    def run(inside: bool, rng: Source) -> None:
        one = Sensitivity(l1=1.0, l2=1.0)
        value = BoundedValue(
            value=np.array([moved if inside else 0.0, 3.0]),
            add_remove=one,
            replace_one=one.scaled(2.0),
            premise=bound("a record counts once"),
        )
        mechanism.release(value, rng=rng)

    return run


def found(run: Run, quiet: Run, *, proved: float, trials: int = 150, delta: float = 1e-5):
    return audit_releases(
        run, without_noise=quiet, what="a count", claimed=None, proved=proved, delta=delta,
        adjacency=Adjacency.ADD_REMOVE, trials=trials, rng=seeded(5),
    )  # fmt: skip


@pytest.mark.slow
def test_normal_noise_is_bounded_tightly_and_half_of_it_is_seen() -> None:
    scale = 4.0
    proved = GaussianMechanism(scale=scale).loss(1.0).epsilon(1e-5)
    quiet = counted(GaussianMechanism(scale=1e-3 * scale))
    sound = found(counted(GaussianMechanism(scale=scale)), quiet, proved=proved)
    assert sound.verdict is Verdict.CONSISTENT
    assert sound.audited > 0.75 * proved
    assert sound.parametric
    half = found(counted(GaussianMechanism(scale=0.5 * scale)), quiet, proved=proved)
    assert half.verdict is Verdict.FALSIFIED
    twice = found(counted(GaussianMechanism(scale=scale), moved=2.0), quiet, proved=proved)
    assert twice.verdict is Verdict.FALSIFIED  # a wrong divisor: moved by more than was stated


@pytest.mark.slow
def test_noise_that_two_of_many_releases_share_is_seen() -> None:
    """Many releases need few runs for their width; a pair needs some to be found in."""

    def log_ratio(out, first, second) -> float:
        return float((np.square(out - second).sum() - np.square(out - first).sum()) / 800.0)

    def run(inside: bool, rng: Source) -> None:
        for k in range(60):
            exact = np.array([(-1.0) ** k if inside else 0.0])
            noise = 20.0 * rng.child("release", 3 if k == 40 else k).gaussian(1)
            release_transcript.record_release(
                "normal", exact, exact + noise, sensitivity=1.0, log_ratio=log_ratio
            )

    proved = losses.Gaussian(mu=math.sqrt(60.0) / 20.0).epsilon(1e-5)
    shared = found(run, run, proved=proved, trials=neighbour_replay.TRIALS)
    assert shared.verdict is Verdict.FALSIFIED
    assert shared.trials == 10  # as many as were run, not as many as were asked for


def _noted(spoil, *, size: int = 50, twice: bool = False, rate: float = 1.0) -> Run:
    """One release (or two, moved to opposite sides) whose noise is spoiled; all numbers move."""

    def log_ratio(out, first, second) -> float:
        return float((np.square(out - second).sum() - np.square(out - first).sum()) / 32.0)

    def run(inside: bool, rng: Source) -> None:
        for k in range(1 + twice):
            exact = np.full(size, (1.0 if inside else 0.0) / math.sqrt(size)) * (-1.0) ** k
            source = rng if spoil == "drawn twice" else rng.child("release", k)
            noise = 4.0 * source.child("noise").gaussian(size)
            if spoil == "none in one":
                noise[7] = 0.0
            if spoil == "one minus another":
                noise[7] = -noise[8]
            release_transcript.record_release("normal", exact, exact + noise, sensitivity=1.0, log_ratio=log_ratio,
                            rate=rate)  # fmt: skip

    return run


@pytest.mark.slow
@pytest.mark.parametrize(
    ("spoil", "twice", "rate", "verdict"),
    [
        ("nothing", False, 1.0, Verdict.CONSISTENT),
        ("nothing", True, 1.0, Verdict.CONSISTENT),
        ("none in one", False, 1.0, Verdict.FALSIFIED),
        ("one minus another", False, 1.0, Verdict.FALSIFIED),
        ("drawn twice", True, 1.0, Verdict.FALSIFIED),
        ("none in one", False, 0.5, Verdict.FALSIFIED),
    ],
)
def test_noise_that_is_missing_or_shared_is_seen(spoil, twice, rate, verdict) -> None:
    """Attack: as wide as stated along the line that is audited, and yet an exact value is out."""
    proved = losses.Gaussian(mu=math.sqrt(1.0 + twice) / 4.0).epsilon(1e-5)
    audited = found(
        _noted(spoil, twice=twice, rate=rate), _noted("none in one", twice=twice), proved=proved,
        trials=100,
    )  # fmt: skip
    assert audited.verdict is verdict
    assert math.isinf(audited.audited) is (verdict is Verdict.FALSIFIED)


@pytest.mark.slow
def test_single_numbers_raise_no_false_alarms() -> None:
    """400 sound sets of 40 runs of 30 numbers: 1% is stated; 15 or more would be 5 sigma."""
    draws = seeded(2).gaussian((400, 40, 30))
    moved = np.ones((40, 30))
    assert sum(hidden_shift(u, moved, alpha=0.01) > math.sqrt(30.0) for u in draws) == 0
    one = np.zeros((40, 30))
    one[:, 0] = 1.0
    assert sum(hidden_shift(u, one, alpha=0.01) > 1.0 for u in draws) < 15


def test_laplace_noise_at_no_delta() -> None:
    sound = found(
        counted(LaplaceMechanism(scale=2.0)),
        counted(LaplaceMechanism(scale=1e-3)),
        proved=0.5,
        delta=0.0,
    )
    assert 0.4 < sound.audited <= 0.5
    assert sound.control > 100.0


@pytest.mark.slow
def test_false_alarms_are_as_rare_as_stated() -> None:
    """10,000 sound sets of 40 runs: 1% is stated; more than 1.5% would be a 5-sigma surprise."""
    draws = seeded(1).gaussian((10_000, 40))
    below = [normal_spread(u, alpha=0.01) < 1.0 for u in draws]
    assert 0.005 < np.mean(below) < 0.015


def test_answers_beside_a_normal_release_are_composed_exactly() -> None:
    """Against delta by integration over both outcomes."""
    p, q = np.array([0.7, 0.3]), np.array([0.5, 0.5])
    mu, delta = 0.8, 1e-3
    e = composed_epsilon(mu, [(p, q)], delta)
    x = np.linspace(-12.0, 12.0, 200_001)
    width = x[1] - x[0]

    def density(at: float) -> np.ndarray:
        return np.exp(-0.5 * (x - at) ** 2) / math.sqrt(2.0 * math.pi)

    def hockey(a: np.ndarray, b: np.ndarray, first: float, second: float) -> float:
        return sum(
            float(np.maximum(u * density(first) - math.exp(e) * v * density(second), 0.0).sum())
            for u, v in zip(a, b, strict=True)
        ) * float(width)

    assert max(hockey(p, q, mu, 0.0), hockey(q, p, 0.0, mu)) == pytest.approx(delta, rel=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("name", METHODS)
def test_every_method_is_audited_with_power_and_falsified_without_noise(name: str) -> None:
    """As the command does, seeded; what a run without noise shows must falsify the promise."""
    method = method_type(name).for_audit()
    facts = neighbour_replay.small_facts(method)
    sound = neighbour_replay.audit_method(method, facts, rng=seeded(7))
    assert sound.verdict is Verdict.CONSISTENT
    assert sound.audited >= 0.6 * sound.proved
    silent = dataclasses.replace(sound, audited=sound.control)
    assert silent.verdict is Verdict.FALSIFIED
