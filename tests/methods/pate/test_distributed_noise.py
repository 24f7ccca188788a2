"""Shares of noise: any k sites may be missing, the coordinator sees no exact answer."""

import itertools
import math

import numpy as np
import pytest

from privet import premises
from privet.accounting import ZCDP
from privet.errors import InvalidArgument
from privet.methods.pate import (
    Aggregator,
    AnswerFile,
    Answers,
    DistributedAggregator,
    RefusedAnswers,
    shard_ledger,
)
from privet.noise import secure, seeded

BUDGET = {"epsilon": 4.0, "delta": 1e-5}


def sets(k=6, rows=3, dimension=4):
    rng = np.random.default_rng(0)
    return [
        Answers.clip(
            rng.normal(size=(rows, dimension)), radius=1.0, site=f"s{i}", reducer="r", queries="q"
        )
        for i in range(k)
    ]


def plan(k=6, missing=2, rows=3, dimension=4):
    return DistributedAggregator.for_budget(
        teachers=k, missing=missing, queries=rows, dimension=dimension, **BUDGET
    )


def test_any_k_missing_sites_are_tolerated_by_the_calibration():
    """For every set of present sites: sensitivity over the noise that is really there."""
    shares = plan()
    promised = shares.loss(3, dimension=4).epsilon(1e-5)
    assert promised <= 4.0
    for present in range(4, 7):
        noise = shares.share * math.sqrt(present)
        rho = (2 * math.sqrt(3) / noise) ** 2 / 2
        assert ZCDP(rho=rho, adjacency=shares.loss(3).adjacency).epsilon(1e-5) <= promised
    too_few = (2 * math.sqrt(3) / (shares.share * math.sqrt(3))) ** 2 / 2
    assert ZCDP(rho=too_few, adjacency=shares.loss(3).adjacency).epsilon(1e-5) > 4.0


@pytest.mark.slow
def test_sums_of_shares_have_their_size():
    """6 standard errors of a standard deviation from 3,000 draws: false alarm 2e-9."""
    answers, shares = sets(k=3, rows=50, dimension=20), plan(k=3, missing=0, rows=50, dimension=20)
    noisy = [shares.add_share(a, rng=seeded(1)) for a in answers]
    mean = np.mean([a.codes() for a in answers], axis=0)
    found = shares.release(noisy, delta=1e-5)
    off = (found.codes - mean) / found.noise
    assert abs(off.std() - 1) < 6 / math.sqrt(2 * off.size)
    each = (noisy[0].codes() - answers[0].codes()) / shares.share
    assert abs(each.std() - 1) < 6 / math.sqrt(2 * each.size)
    assert not np.array_equal(
        *[n.units - a.units for n, a in zip(noisy[:2], answers[:2], strict=True)]
    )


def test_missing_sites():
    shares, ledger = plan(), shard_ledger(**BUDGET)
    noisy = [shares.add_share(a, rng=seeded(0)) for a in sets()]
    for some in itertools.combinations(noisy, 4):
        assert shares.release(some, delta=1e-5).noise == pytest.approx(shares.share / 2)
    found = shares.release(noisy[:5], delta=1e-5, ledger=ledger)
    assert ledger.spent() == pytest.approx(found.guarantee.epsilon, rel=1e-9)
    with pytest.raises(InvalidArgument, match="4 to 6"):
        shares.release(noisy[:3], delta=1e-5)


def test_one_share_from_a_seed_is_told_in_the_promise_of_the_sum(tmp_path):
    """Also where the coordinator has nothing but the sites' files."""
    shares, sources = plan(), [secure()] * 5
    for last, premise in ((secure(), premises.SECRET_KEY), (seeded(0), premises.SECRET_SEED)):
        files = []
        for k, (a, rng) in enumerate(zip(sets(), [*sources, last], strict=True)):
            shares.add_share(a, rng=rng).write(tmp_path / f"{k}")
            files.append(AnswerFile(tmp_path / f"{k}"))
        said = shares.release(files, delta=1e-5).guarantee.premises
        assert [p for p in said if p.about == "noise key"] == [premise]


def test_a_share_hides_its_site_in_one_sum_only():
    """The sums of all sites and of all but one uncover that one: two charges would not cover it."""
    shares = plan()
    ledger = shard_ledger(epsilon=40.0, delta=1e-5)
    answers = sets()
    noisy = [shares.add_share(a, rng=seeded(0)) for a in answers]
    everybody, but_one = (shares.release(some, delta=1e-5) for some in (noisy, noisy[:5]))
    uncovered = 6 * everybody.codes - 5 * but_one.codes
    np.testing.assert_allclose(uncovered, noisy[5].codes(), atol=1e-9)
    twice = shares.loss(3, dimension=4).repeat(2).epsilon(1e-5)
    assert twice < shares.guarantee_against_coordinator(3, delta=1e-5, dimension=4).epsilon

    shares.release(noisy, delta=1e-5, ledger=ledger)
    spent = ledger.spent()
    with pytest.raises(RefusedAnswers, match=r"'s0'.*used in an earlier sum"):
        shares.release(noisy[:5], delta=1e-5, ledger=ledger)
    again = shares.release(noisy[::-1], delta=1e-5, ledger=ledger)
    np.testing.assert_array_equal(again.codes, everybody.codes)
    assert ledger.spent() == spent
    anew = [shares.add_share(a, rng=seeded(1)) for a in answers]
    shares.release(anew, delta=1e-5, ledger=ledger)
    assert len(ledger) == 2


def test_what_the_coordinator_sees_is_worth_less():
    shares = plan()
    seen = shares.guarantee_against_coordinator(3, delta=1e-5, dimension=4)
    told = shares.guarantee(3, delta=1e-5, dimension=4)
    assert seen.epsilon > 1.5 * told.epsilon
    assert any("missing" in a.text for a in told.premises)
    one_place = Aggregator.for_budget(teachers=6, queries=3, dimension=4, **BUDGET)
    assert one_place.noise < shares.noise(6)


def test_refusals():
    shares = plan()
    answers = sets()
    noisy = [shares.add_share(a, rng=seeded(0)) for a in answers]
    with pytest.raises(RefusedAnswers, match=r"'s5'.*share of the noise is 0"):
        shares.release([*noisy[:5], answers[5]], delta=1e-5)
    with pytest.raises(InvalidArgument, match="without noise"):
        shares.add_share(noisy[0], rng=seeded(0))
    with pytest.raises(RefusedAnswers, match="noise of its own"):
        Aggregator.for_budget(teachers=6, queries=3, **BUDGET).release(
            noisy, rng=seeded(0), delta=1e-5
        )
    with pytest.raises(InvalidArgument, match="below 6"):
        DistributedAggregator(teachers=6, missing=6, radius=1.0, share=1.0)
