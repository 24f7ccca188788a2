"""Samplers: the law of what they draw, and that the price is derived from it.

The statistical tests use fixed seeds, so they pass or fail for good; with a fresh seed each has the
false-alarm rate stated beside it.
"""

import math

import numpy as np
import pytest
from scipy import stats

from privet.accounting import FixedSizeGaussian, Gaussian, SampledGaussian
from privet.errors import InvalidArgument
from privet.guarantee import Adjacency
from privet.mechanisms import release_transcript
from privet.methods.dpsgd import samplers
from privet.methods.dpsgd.samplers import FixedSizeSampler, PoissonSampler, micro_batches, shard
from privet.noise import secure, seeded

N, T, Q = 400, 500, 0.07
LEVEL = 1e-4  # false-alarm rate of each test below


@pytest.fixture(scope="module", params=["few records", "many records"])
def joined(request):
    """Which record joined which step, (T, N); many records are drawn in another way."""
    sampler = PoissonSampler(n=N, rates=[Q] * T, rng=seeded(11))
    out = np.zeros((T, N))
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "many records":
            patch.setattr(samplers, "_MANY", 0)
        for t in range(T):
            out[t, sampler.indices(t)] = 1.0
    return out


@pytest.mark.slow
@pytest.mark.parametrize("p", [0.0, 2.0**-9, 0.013, 0.25, 0.3, 0.5, 0.51, 1.0])
def test_members_join_by_exact_coins(p):
    """False alarms: 8 in 10,000 seeds. Every place of a word, and a last word that is not full."""
    n, rounds = 70, 3000
    source, counts = seeded(3), np.zeros(n)
    for _ in range(rounds):
        found = source.poisson_subset(n, p)
        assert np.all(np.diff(found) > 0)
        counts[found] += 1
    if p in (0.0, 1.0):
        assert np.all(counts == p * rounds)
        return
    statistic = np.sum((counts - rounds * p) ** 2) / (rounds * p * (1 - p))
    assert LEVEL / 2 < stats.chi2.cdf(statistic, n) < 1 - LEVEL / 2


def test_a_record_that_must_join_does(monkeypatch):
    """An audit's question, and no member twice."""
    monkeypatch.setattr(samplers, "_MANY", 0)
    sampler = PoissonSampler(n=100, rates=[0.3] * 20, rng=seeded(2))
    with release_transcript.replay_releases(release_transcript.Transcript(), included=17):
        for t in range(20):
            found = sampler.indices(t)
            assert 17 in found and np.all(np.diff(found) > 0) and found.dtype == np.int64


def test_rate(joined):
    assert stats.binomtest(int(joined.sum()), N * T, Q).pvalue > LEVEL


def test_batch_sizes_vary_as_binomial(joined):
    """Shuffled batches have no variance, batches of fixed size either: index of dispersion."""
    sizes = joined.sum(1)
    statistic = np.sum((sizes - N * Q) ** 2) / (N * Q * (1 - Q))
    assert LEVEL < stats.chi2.cdf(statistic, T) < 1 - LEVEL


def test_counts_per_example_vary_as_binomial(joined):
    """Shuffling gives every record the same number of turns."""
    counts = joined.sum(0)
    statistic = np.sum((counts - T * Q) ** 2) / (T * Q * (1 - Q))
    assert LEVEL < stats.chi2.cdf(statistic, N) < 1 - LEVEL


@pytest.mark.parametrize("lag", [1, 2, round(1 / Q)])
def test_steps_are_uncorrelated(joined, lag):
    """Lag 1, and the length of an epoch: an epoch without repetition shows as a negative one."""
    a = (joined - Q) / math.sqrt(Q * (1 - Q))
    z = np.sum(a[lag:] * a[:-lag]) / math.sqrt((T - lag) * N)
    assert abs(z) < stats.norm.isf(LEVEL / 2)


def test_neighbouring_records_are_uncorrelated(joined):
    a = (joined - Q) / math.sqrt(Q * (1 - Q))
    z = np.sum(a[:, 1:] * a[:, :-1]) / math.sqrt(T * (N - 1))
    assert abs(z) < stats.norm.isf(LEVEL / 2)


def test_same_batches_again_when_seeded_and_new_ones_when_secure():
    def first(rng):
        return PoissonSampler(n=1000, rates=[0.3] * 3, rng=rng).indices(2).tolist()

    assert first(seeded(5)) == first(seeded(5)) != first(seeded(6))
    rng = secure()
    sampler = PoissonSampler(n=1000, rates=[0.3], rng=rng)
    assert sampler.indices(0).tolist() != sampler.indices(0).tolist()


def test_one_more_record_does_not_change_who_else_joins():
    few = PoissonSampler(n=500, rates=[0.2] * 4, rng=seeded(1))
    more = PoissonSampler(n=501, rates=[0.2] * 4, rng=seeded(1))
    for t in range(4):
        assert [i for i in more.indices(t) if i < 500] == few.indices(t).tolist()


def test_divisor_is_public():
    for n in (0, 7, 1000):
        sampler = PoissonSampler(n=n, rates=[0.25], rng=seeded(0), n_public=800)
        assert sampler.expected_batch(0) == 200.0


def test_loss_is_derived_from_the_sampler():
    rates = np.array([0.1, 0.1, 0.5, 1.0])
    z = np.array([2.0, 2.0, 3.0, 4.0])
    sampler = PoissonSampler(n=10, rates=rates, rng=seeded(0))
    expected = SampledGaussian(
        sample_rate=rates[:3], noise_multiplier=z[:3], steps=np.ones(3)
    ) + Gaussian(mu=0.25)
    assert sampler.loss(z).epsilon(1e-5) == pytest.approx(expected.epsilon(1e-5), rel=1e-6)
    whole = sampler.loss(z, start=0, stop=2) + sampler.loss(z, start=2)
    assert whole.epsilon(1e-5) == pytest.approx(sampler.loss(z).epsilon(1e-5), rel=1e-6)
    assert sampler.loss(z, start=1, stop=1).epsilon(1e-5) == 0.0


def test_full_batches_under_replace_one_cost_twice_the_contribution():
    sampler = PoissonSampler(n=10, rates=[1.0], rng=seeded(0), adjacency=Adjacency.REPLACE_ONE)
    loss = sampler.loss([4.0])
    assert loss.adjacency is Adjacency.REPLACE_ONE
    assert loss.parts[0].mu == pytest.approx(0.5)


def test_fixed_size():
    sampler = FixedSizeSampler(n=50, batch_sizes=[10] * 400, rng=seeded(3))
    counts = np.zeros(50)
    for t in range(400):
        batch = sampler.indices(t)
        assert len(set(batch.tolist())) == 10
        counts[batch] += 1
    # counts of a record are binomial(400, 1/5); they sum to a constant, hence one degree fewer
    statistic = np.sum((counts - 80) ** 2) / (400 * 0.2 * 0.8) * 49 / 50
    assert LEVEL < stats.chi2.cdf(statistic, 49) < 1 - LEVEL
    loss = sampler.loss([3.0] * 400)
    assert isinstance(loss, FixedSizeGaussian) and loss.adjacency is Adjacency.REPLACE_ONE
    assert sampler.expected_batch(0) == 10.0


def test_shards_partition_the_batch():
    batch = PoissonSampler(n=101, rates=[0.5], rng=seeded(0)).indices(0)
    parts = [shard(batch, n=101, rank=r, world=3) for r in range(3)]
    assert np.concatenate(parts).tolist() == batch.tolist()


def test_micro_batches_cover_the_batch():
    parts = list(micro_batches(np.arange(10), lambda: 4))
    assert [p.tolist() for p, _ in parts] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert [last for _, last in parts] == [False, False, True]


@pytest.mark.parametrize("rates", [[], [0.0], [1.5], [-0.1], [float("nan")], [[0.1]]])
def test_bad_rates(rates):
    with pytest.raises(InvalidArgument):
        PoissonSampler(n=10, rates=rates, rng=seeded(0))


def test_wrong_number_of_multipliers():
    sampler = PoissonSampler(n=10, rates=[0.1] * 3, rng=seeded(0))
    with pytest.raises(InvalidArgument):
        sampler.loss([1.0] * 4)
