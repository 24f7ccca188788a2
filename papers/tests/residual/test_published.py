"""Both strategies as published: what is claimed, what is proved of the same run, and learning."""

from __future__ import annotations

import math

import numpy as np
import pytest

from privet.errors import Incomparable, InvalidArgument
from privet.guarantee import Adjacency, Protects, Standing, Unit
from privet.ledger import Ledger
from privet.networks.residual import Strategy
from privet_papers.residual.published import PublishedResidual

USUAL = {"classes": ["no", "yes"], "epochs": 5, "random_state": 0}

pytestmark = pytest.mark.usefixtures("one_thread")


def clouds(n=400, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, n)
    x = 0.5 + 0.25 * (2 * y[:, None] - 1) * np.array([1.0, -1.0]) + 0.08 * rng.normal(size=(n, 2))
    return x, np.where(y == 1, "yes", "no")


def test_published_claims_theorem_one_and_proves_what_is_left_of_it():
    x, y = clouds()
    clf = PublishedResidual(**USUAL, gamma=1.0, members=2, noise_draws=3).fit(x, y)
    assert clf.claim_.standing is Standing.CLAIMED
    radius = math.sqrt(2)
    rho = 2 * 5 * (radius / 0.5) ** 2  # five epochs, pi = gamma / 2
    assert clf.claim_.epsilon == pytest.approx(rho + 2 * math.sqrt(rho * math.log(1e5)))
    g = clf.guarantee_
    assert g.standing is Standing.PROVED and g.protects is Protects.FEATURES
    mu = 2 * radius * math.sqrt(10) / 0.5  # two members with their own noise
    assert clf.budget(2).loss().mu == pytest.approx(mu, rel=1e-6)
    assert g.epsilon > clf.claim_.epsilon  # the claim counts one member
    assert clf.score(x, y) > 0.8


def test_strategy_two_promises_nothing():
    x, y = clouds()
    clf = PublishedResidual(**USUAL, strategy=Strategy.MULTIPLICATIVE).fit(x, y)
    assert clf.claim_ is None and clf.guarantee_.epsilon == math.inf
    assert clf.guarantee_.standing is Standing.NONE and clf.score(x, y) > 0.8


def test_what_is_proved_is_what_is_charged():
    x, y = clouds()
    terms = {"cap_epsilon": 1e6, "cap_delta": 1e-5, "adjacency": Adjacency.REPLACE_ONE}
    ledger = Ledger.in_memory(**terms, protects=Protects.FEATURES)
    clf = PublishedResidual(**USUAL | {"epochs": 1}, ledger=ledger).fit(x, y)
    assert ledger.spent() == pytest.approx(clf.guarantee_.epsilon) and clf.entry_ is not None
    for other in (
        Ledger.in_memory(**terms),
        Ledger.in_memory(**terms, protects=Protects.FEATURES, unit=Unit.USER),
    ):
        with pytest.raises(Incomparable):
            PublishedResidual(**USUAL, ledger=other).fit(x, y)
        assert len(other) == 0


def test_pictures_and_repeated_runs():
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 255, size=(40, 8, 8, 3)), np.where(rng.integers(0, 2, 40), "yes", "no")
    settings = USUAL | {"bounds": (0, 255), "shape": (8, 8, 3), "epochs": 1}
    one, two = (PublishedResidual(**settings).fit(x, y) for _ in range(2))
    np.testing.assert_array_equal(one.predict_proba(x), two.predict_proba(x))
    with pytest.raises(InvalidArgument, match="gamma"):
        PublishedResidual(**settings | {"gamma": 0.0, "input_noise": 1.0}).fit(x, y)
