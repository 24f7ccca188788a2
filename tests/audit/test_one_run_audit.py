"""The one-run audit: its bound against enumeration, its level on null scores, its power."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from privet.audit import Canaries, OneRunAudit, Verdict, one_run_bound
from privet.audit.one_run_audit import p_value
from privet.errors import InvalidArgument
from privet.guarantee import Adjacency, Protects
from privet.noise import seeded


def test_p_value_by_enumeration() -> None:
    r, v, m, delta, epsilon = 12, 9, 40, 1e-3, 0.7
    q = 1 / (1 + math.exp(-epsilon))
    pmf = [math.comb(r, k) * q**k * (1 - q) ** (r - k) for k in range(r + 1)]
    lift = max(sum(pmf[v - i : v]) / i for i in range(1, v + 1))
    expected = sum(pmf[v:]) + 2 * m * delta * lift
    assert p_value(epsilon, v, r, m, delta) == pytest.approx(expected, rel=1e-12)
    assert p_value(epsilon, 0, r, m, 0.0) == 1.0


def test_p_value_grows_with_epsilon_and_falls_with_right_guesses() -> None:
    values = [p_value(e, 80, 100, 1000, 1e-5) for e in np.linspace(0, 6, 30)]
    assert all(a <= b + 1e-15 for a, b in itertools.pairwise(values))
    bounds = [one_run_bound(v, 100, 1000, delta=1e-5, alpha=0.05) for v in range(101)]
    assert all(a <= b for a, b in itertools.pairwise(bounds))


@pytest.mark.parametrize(("r", "ceiling"), [(30, 2.2), (100, 3.5), (300, 4.6), (1000, 5.8)])
def test_ceilings_of_the_notes(r: int, ceiling: float) -> None:
    assert OneRunAudit(guesses=r).ceiling(r) == pytest.approx(ceiling, abs=0.06)


def test_null_scores_rarely_give_a_positive_bound() -> None:
    """Nominal 5%, exact level below it: 400 null audits pass 0.05 + 3 standard errors never in
    10^4 seeds of a binomial with that rate (false alarm < 1e-3)."""
    rng = np.random.default_rng(3)
    audit = OneRunAudit(guesses=100, delta=0.0)
    hits = sum(audit.bound(rng.normal(size=1000), rng.random(1000) < 0.5) > 0 for _ in range(400))
    assert hits / 400 <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / 400)


@pytest.mark.slow
def test_randomised_response_is_never_overtaken_by_much_and_nearly_reached() -> None:
    """Guesses right with probability exactly q: the bound is below epsilon in all but 5%."""
    rng, epsilon, above, found = np.random.default_rng(4), 1.5, 0, []
    q = 1 / (1 + math.exp(-epsilon))
    for _ in range(100):
        coins = rng.random(600) < 0.5
        told = np.where(rng.random(600) < q, coins, ~coins)
        found.append(OneRunAudit(guesses=600, delta=0.0).bound(told.astype(float), coins))
        above += found[-1] > epsilon
    assert above <= 5 + 3 * math.sqrt(100 * 0.05 * 0.95)
    assert np.mean(found) > 0.8 * epsilon


def test_mislabelled_canaries_unmask_a_model_that_remembers() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(600, 5)), rng.integers(0, 3, 600)
    canaries = Canaries.with_wrong_labels(x, y, classes=3, count=200, rng=seeded(1))
    assert np.all(canaries.y != y[-200:])
    assert 60 < canaries.included.sum() < 140

    def memory(known_x, known_y):
        table = {row.tobytes(): int(c) for row, c in zip(known_x, known_y, strict=True)}
        return lambda asked: np.array([np.eye(3)[table[r.tobytes()]] * 0.9 + 0.03 if r.tobytes() in table else np.full(3, 1 / 3) for r in asked])  # fmt: skip

    scores = canaries.scores(memory(*canaries.training_set(Adjacency.ADD_REMOVE)))
    found = OneRunAudit(guesses=60).run(
        scores, canaries.included, what="a table", proved=math.inf, claimed=1.0, control=scores
    )
    assert found.verdict is Verdict.FALSIFIED
    assert found.audited == found.ceiling == found.control


def test_bad_input() -> None:
    with pytest.raises(InvalidArgument, match="even"):
        OneRunAudit(guesses=7)
    with pytest.raises(InvalidArgument, match="none of them NaN"):
        OneRunAudit(guesses=2).bound([math.nan, 1.0], np.array([True, False]))
    with pytest.raises(InvalidArgument, match="at most 2"):
        OneRunAudit(guesses=4).bound([0.0, 1.0], np.array([True, False]))
    with pytest.raises(InvalidArgument, match="fewer than"):
        Canaries.with_wrong_labels(
            np.zeros((5, 1)), np.zeros(5, int), classes=2, count=5, rng=seeded(0)
        )


def test_replaced_canaries_keep_their_places() -> None:
    x, y = np.arange(20.0)[:, None], np.arange(20) % 2
    canaries = Canaries.with_wrong_labels(x, y, classes=2, count=8, rng=seeded(1))
    rows, labels = canaries.training_set(Adjacency.REPLACE_ONE)
    assert np.array_equal(rows, x)
    assert np.array_equal(labels[-8:] != y[-8:], canaries.included)
    assert len(canaries.training_set(Adjacency.ADD_REMOVE)[1]) == 12 + canaries.included.sum()


def test_where_labels_are_public_coins_move_features_alone() -> None:
    """A model that shows every label it was given is private for features: no coin may tell."""
    x, y = 1.0 + np.arange(20.0)[:, None], np.arange(20) % 2
    canaries = Canaries.with_wrong_labels(x, y, classes=2, count=8, rng=seeded(1))
    rows, labels = canaries.training_set(Adjacency.REPLACE_ONE, Protects.FEATURES)
    assert np.array_equal(labels, np.concatenate([y[:12], canaries.y]))
    assert np.array_equal(rows[:12], x[:12])
    assert np.array_equal(rows[12:] == x[12:], canaries.included[:, None])
