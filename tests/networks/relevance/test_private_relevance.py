"""The private average relevance: sensitivity by replay, charge before release, whose model."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st
from torch import nn

from privet.accounting import Pure
from privet.errors import BudgetExceeded, InvalidArgument
from privet.guarantee import Adjacency, Guarantee, Standing
from privet.ledger import Ledger
from privet.networks.bounded_layers import MinMax
from privet.networks.relevance import (
    LedgerModel,
    PrivateModel,
    PublicModel,
    bounded_average_relevance,
    budget_ratios,
    private_average_relevance,
)
from privet.noise import secure, seeded

PUBLIC = PublicModel(why="random weights")


def _net() -> nn.Module:
    torch.manual_seed(5)
    return nn.Sequential(nn.Conv2d(1, 3, 3), nn.ReLU(), nn.Flatten(), nn.Linear(48, 4))


def _data(n: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    g = torch.Generator().manual_seed(seed)
    return torch.rand(n, 1, 6, 6, generator=g), torch.randint(0, 4, (n,), generator=g)


@pytest.mark.slow
@examples(max_examples=30)
@given(st.integers(0, 1000), st.sampled_from([0.0, 1.0, 1e6, math.nan, math.inf]), st.booleans())
def test_sensitivity_by_replay(seed, value, magnitudes):
    net = _net()
    x, y = _data(12, seed)
    other = x.clone()
    other[-1] = value if seed % 2 else torch.rand(1, 6, 6) * value
    settings = {"records": 12, "magnitudes": magnitudes, "batch_size": 5}
    a = bounded_average_relevance(net, x, y, **settings)
    b = bounded_average_relevance(net, other, y, **settings)
    without = bounded_average_relevance(net, x[:-1], y[:-1], **settings)
    assert np.abs(a.value - b.value).sum() <= a.sensitivity(Adjacency.REPLACE_ONE).l1
    assert np.abs(a.value - without.value).sum() <= a.sensitivity(Adjacency.ADD_REMOVE).l1
    assert a.sensitivity(Adjacency.REPLACE_ONE).l1 == pytest.approx(2 / 12, rel=1e-5)
    assert a.sensitivity(Adjacency.ADD_REMOVE).l1 == pytest.approx(1 / 12, rel=1e-5)


def test_average_is_right():
    net = _net()
    x, y = _data(20)
    from privet.networks.relevance import average_relevance, scale_to_unit_l1

    expected = average_relevance(net, x, y, normalise=scale_to_unit_l1)
    found = bounded_average_relevance(net, x, y, records=20, batch_size=7)
    np.testing.assert_allclose(found.value, expected, atol=1e-7)


def test_nothing_is_drawn_when_the_ledger_refuses():
    x, y = _data(8)
    ledger = Ledger.in_memory(cap_epsilon=0.5, cap_delta=0.0)
    rng = seeded(1)
    with pytest.raises(BudgetExceeded):
        private_average_relevance(
            _net(), x, y, origin=PUBLIC, epsilon=1.0, records=8, rng=rng, ledger=ledger
        )
    assert len(ledger) == 0
    assert rng.laplace(3).tolist() == seeded(1).laplace(3).tolist()


@pytest.mark.slow
def test_noise_has_the_promised_scale():
    x, y = _data(10)
    exact = bounded_average_relevance(_net(), x, y, records=10)
    found = [
        private_average_relevance(
            _net(), x, y, origin=PUBLIC, epsilon=2.0, records=10, rng=seeded(s), ledger=None
        ).values
        - exact.value
        for s in range(60)
    ]
    assert np.mean(np.abs(found)) == pytest.approx(1 / (10 * 2.0), rel=0.08)  # 2160 draws


@pytest.mark.parametrize("rng", [seeded(1), secure()], ids=["seeded", "secure"])
def test_guarantee_says_who_knows_the_noise(rng):
    x, y = _data(8)
    promise = private_average_relevance(
        _net(), x, y, origin=PUBLIC, epsilon=1.0, records=8, rng=rng, ledger=None
    ).guarantee
    assert [p for p in promise.premises if p.about == "noise key"] == [rng.premise]
    assert promise.release is rng.secret


def test_guarantee_says_whose_model_it_was():
    x, y = _data(8)
    release = private_average_relevance(
        _net(), x, y, origin=PUBLIC, epsilon=1.0, records=8, rng=seeded(1), ledger=None,
        adjacency=Adjacency.REPLACE_ONE,
    )  # fmt: skip
    assert release.guarantee.epsilon <= 1.0 and release.guarantee.standing is Standing.PROVED
    assert release.guarantee.adjacency is Adjacency.REPLACE_ONE
    assert any("random weights" in a.text for a in release.guarantee.premises)
    assert release.entry is None
    assert release.ratios().sum() == pytest.approx(36)


def test_origin_has_no_default_and_is_checked():
    x, y = _data(8)
    common = {"epsilon": 1.0, "records": 8, "rng": seeded(1)}
    with pytest.raises(TypeError, match="origin"):
        private_average_relevance(_net(), x, y, ledger=None, **common)
    with pytest.raises(InvalidArgument, match="PublicModel"):
        private_average_relevance(_net(), x, y, origin="public", ledger=None, **common)
    claim = Guarantee(epsilon=1.0, delta=0.0, theorem="x", standing=Standing.CLAIMED)
    with pytest.raises(InvalidArgument, match="claim protects ignore_loss"):
        PrivateModel(guarantee=claim)
    ledger = Ledger.in_memory(cap_epsilon=3.0, cap_delta=0.0)
    elsewhere = Ledger.in_memory(cap_epsilon=3.0, cap_delta=0.0)
    paid = ledger.charge(Pure(epsilon_each=1.0), what="the model")
    with pytest.raises(InvalidArgument, match="ledger that is charged now"):
        private_average_relevance(
            _net(), x, y, origin=LedgerModel(entries=(paid,)), ledger=elsewhere, **common
        )
    release = private_average_relevance(
        _net(), x, y, origin=LedgerModel(entries=(paid,)), ledger=ledger, **common
    )
    assert release.entry is not None and release.entry.sequence == 2
    assert ledger.spent() == pytest.approx(2.0)


def test_layers_that_mix_records_are_refused():
    x, y = torch.rand(8, 5), torch.zeros(8, dtype=torch.long)
    ranged = MinMax(3)
    ranged(torch.rand(4, 3))
    model = nn.Sequential(nn.Linear(5, 3), ranged, nn.Linear(3, 2))
    with pytest.raises(InvalidArgument, match="MinMax"):
        bounded_average_relevance(model, x, y, records=8)


def test_ratios():
    assert budget_ratios(np.zeros(3)).tolist() == [1.0, 1.0, 1.0]
    assert budget_ratios(np.array([1.0, 0.0]), floor=0.5).tolist() == [1.5, 0.5]
    with pytest.raises(InvalidArgument, match="floor"):
        budget_ratios(np.ones(2), floor=1.0)
    with pytest.raises(InvalidArgument, match="finite"):
        budget_ratios(np.array([math.nan]))
