"""GNMax and its confident form: price, winners, and the data-dependent cost kept apart."""

import math

import numpy as np
import pytest
from scipy import integrate, stats

from privet.accounting import gaussian_delta
from privet.errors import BudgetExceeded, InvalidArgument
from privet.guarantee import Guarantee
from privet.methods.pate import (
    ConfidentGNMax,
    DataDependentCost,
    GNMax,
    confident_cost,
    count_votes,
    gnmax_cost,
    shard_ledger,
)
from privet.methods.pate.data_dependent_cost import ORDERS, log_chance_of_another, renyi_cost
from privet.noise import seeded


def votes(agree, teachers=200, queries=50, classes=5, seed=0):
    """Teachers who say the query's number modulo the classes with probability `agree`."""
    rng = np.random.default_rng(seed)
    right = np.arange(queries) % classes
    guess = rng.integers(0, classes, size=(teachers, queries))
    return np.where(rng.uniform(size=(teachers, queries)) < agree, right, guess), right


def test_price_is_exact():
    gnmax = GNMax.for_budget(classes=10, queries=300, epsilon=3.0, delta=1e-5)
    mu = math.sqrt(2 * 300) / gnmax.mechanism.scale
    assert gaussian_delta(mu, 3.0) <= 1e-5 < gaussian_delta(1.0001 * mu, 3.0)
    g = gnmax.guarantee(300, delta=1e-5)
    assert g.epsilon <= 3.0 and isinstance(g, Guarantee) and g.unit.value == "teacher shard"


def test_a_changed_vote_moves_counts_by_sqrt_2_and_the_maximum_by_1():
    """All votes of three teachers for three classes, exhaustively."""
    for code in range(27):
        v = [[code % 3], [code // 3 % 3], [code // 9]]
        for other in range(3):
            a, b = count_votes(v, 3), count_votes([[other], *v[1:]], 3)
            assert np.linalg.norm(a - b) <= math.sqrt(2) and abs(a.max() - b.max()) <= 1


def test_winners():
    v, right = votes(0.9)
    gnmax = GNMax.for_budget(classes=5, queries=50, epsilon=8.0, delta=1e-5)
    ledger = shard_ledger(epsilon=8.0, delta=1e-5)
    found = gnmax.release(v, rng=seeded(0), delta=1e-5, ledger=ledger)
    assert (found.labels == right).mean() > 0.95 and found.answered.all()
    assert ledger.spent() == pytest.approx(8.0, rel=1e-6)
    with pytest.raises(BudgetExceeded):
        gnmax.release(v, rng=seeded(1), delta=1e-5, ledger=ledger)


def test_confident_answers_where_teachers_agree():
    sure, right = votes(0.9)
    unsure, _ = votes(0.0, seed=1)
    v = np.hstack([unsure, sure])
    confident = ConfidentGNMax.for_budget(
        classes=5, queries=100, answers=50, threshold=120.0, epsilon=8.0, delta=1e-5
    )
    found = confident.release(
        v, rng=seeded(0), delta=1e-5, ledger=shard_ledger(epsilon=8.0, delta=1e-5)
    )
    assert found.answered[:50].mean() < 0.2 and found.answered[50:].mean() > 0.7
    given = found.answered[50:]
    assert (found.labels[50:][given] == right[given]).mean() > 0.95
    assert found.guarantee.epsilon <= 8.0


def test_confident_stops_at_its_answers():
    v, _ = votes(1.0)
    confident = ConfidentGNMax.for_budget(
        classes=5, queries=50, answers=7, threshold=0.0, epsilon=8.0, delta=1e-5
    )
    found = confident.release(v, rng=seeded(0), delta=1e-5)
    assert found.answered.sum() == 7
    # all of it is charged whatever the votes were: N / s1^2 + 2 A / s2^2
    mu2 = 50 / confident.check.scale**2 + 2 * 7 / confident.mechanism.scale**2
    assert confident.loss(50).mu == pytest.approx(math.sqrt(mu2), rel=1e-9)
    assert confident.guarantee(50, delta=1e-5).epsilon <= 8.0


@pytest.mark.parametrize("threshold", [-1e6, 1e6])
def test_confident_is_charged_before_it_looks(threshold):
    """All answered or none: the same charge and the same promise, that of the plan."""
    v, _ = votes(1.0)
    confident = ConfidentGNMax.for_budget(
        classes=5, queries=50, answers=7, threshold=threshold, epsilon=8.0, delta=1e-5
    )
    ledger = shard_ledger(epsilon=8.0, delta=1e-5)
    found = confident.release(v, rng=seeded(0), delta=1e-5, ledger=ledger)
    assert found.answered.sum() == (7 if threshold < 0 else 0)
    assert [e.loss for e in ledger.entries()] == [confident.loss(50)]
    assert found.guarantee == confident.guarantee(50, delta=1e-5, rng=seeded(0))


def test_chance_of_another_answer_is_a_bound():
    """Against the true chance by integration over the winner's noise."""
    counts, sigma = np.array([60.0, 45.0, 30.0]), 12.0

    def keeps(t):
        return stats.norm.pdf(t) * np.prod(
            [stats.norm.cdf((counts[0] - c) / sigma + t) for c in counts[1:]]
        )

    true = 1 - integrate.quad(keeps, -12, 12, epsabs=1e-12)[0]
    bound = float(np.exp(log_chance_of_another([counts], sigma))[0])
    assert true <= bound <= 1.5 * true


def renyi_of_answers(counts, other, sigma, order):
    """The Renyi divergence of GNMax's answers for two classes, exactly."""

    def law(c):
        p = stats.norm.cdf((c[0] - c[1]) / (math.sqrt(2) * sigma))
        return np.array([p, 1 - p])

    p, q = law(counts), law(other)
    return math.log(np.sum(p**order * q ** (1 - order))) / (order - 1)


@pytest.mark.parametrize("gap", [10, 40, 80, 120, 200])
def test_data_dependent_bound_holds(gap):
    """Above the true divergence to the worst neighbour, and no worse than without the votes."""
    sigma = 30.0
    counts = np.array([100 + gap / 2, 100 - gap / 2])
    log_q = float(log_chance_of_another([counts], sigma)[0])
    bound = renyi_cost(log_q, sigma)
    assert np.all(bound <= ORDERS / sigma**2 + 1e-15)
    for order in (1.5, 2.0, 5.0, 20.0):
        i = int(np.flatnonzero(order == ORDERS)[0])
        for shift in (1, -1):
            worst = renyi_of_answers(counts, counts + np.array([shift, -shift]), sigma, order)
            assert worst <= bound[i] * (1 + 1e-9)
    if gap >= 200:
        assert bound[0] < 0.1 * ORDERS[0] / sigma**2


def test_cost_is_no_guarantee_and_says_so():
    v, _ = votes(0.95)
    counts = count_votes(v, 5)
    cost = gnmax_cost(counts, noise=25.0, delta=1e-5)
    assert isinstance(cost, DataDependentCost) and not isinstance(cost, Guarantee)
    assert "secret" in str(cost) and cost.epsilon < 0.5 * cost.independent
    split = gnmax_cost(count_votes(votes(0.0)[0], 5), noise=25.0, delta=1e-5)
    assert split.epsilon == pytest.approx(split.independent, rel=1e-3)
    both = confident_cost(
        counts, np.ones(50, bool), threshold=100.0, check_noise=40.0, noise=25.0, delta=1e-5
    )
    assert both.epsilon < both.independent
    with pytest.raises(InvalidArgument, match="each of 50 queries"):
        confident_cost(counts, [True], threshold=1.0, check_noise=1.0, noise=1.0, delta=1e-5)


def test_odd_votes_are_counted_not_refused():
    assert count_votes([[9], [-1], [2]], 3).tolist() == [[2, 0, 1]]
    with pytest.raises(InvalidArgument, match="teachers, queries"):
        count_votes([1, 2], 3)
