"""The compared models: one interface, bounds that hold, and each does what its paper says."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from privet.errors import BudgetExceeded, InvalidArgument
from privet.guarantee import Unit
from privet.ledger import Ledger
from privet_papers.autoencoder.baselines import (
    ConditionalRBM,
    DeepAutoencoder,
    FilterPriority,
    FunctionalMechanism,
    PerturbedHistogram,
    SocialRBM,
    boltzmann,
)
from privet_papers.autoencoder.baselines.functional_mechanism import _rows
from privet_papers.autoencoder.baselines.private_regression import columns, logistic_regression
from privet_papers.autoencoder.behaviour import BehaviourModel, Examples
from privet_papers.autoencoder.behaviour.health_network import health_network
from privet_papers.autoencoder.behaviour.panel_data import Panel, rolling_folds

PRIVATE: tuple[Any, ...] = (FunctionalMechanism, PerturbedHistogram, FilterPriority)
DEEP: tuple[Any, ...] = (DeepAutoencoder, ConditionalRBM, SocialRBM)


@pytest.fixture(scope="module")
def panel() -> Panel:
    return health_network(users=100, days=50, seed=11).panel


@pytest.fixture(scope="module")
def split(panel: Panel) -> tuple[Examples, Examples]:
    fold = rolling_folds(panel, horizon=10, first=4)[0]
    return Examples.of(panel, fold.train), Examples.of(panel, fold.test)


@pytest.mark.slow
@pytest.mark.parametrize("kind", DEEP)
def test_deep_models_learn_and_are_reproducible(
    kind: Any, split: tuple[Examples, Examples]
) -> None:
    train, test = split
    few = {"steps": 120, "pretraining_steps": 30, "learning_rate": 5e-3, "random_state": 0}
    one, two = (kind(**few).fit(train) for _ in range(2))
    assert isinstance(one, BehaviourModel) and one.guarantee_ is None
    assert np.array_equal(one.predict_proba(test), two.predict_proba(test))
    assert one.score(test) > 0.58


@pytest.mark.parametrize("kind", PRIVATE)
@pytest.mark.parametrize("unit", ["user", "record"])
def test_private_models_learn_and_say_what_is_proved(
    kind: Any, unit: str, split: tuple[Examples, Examples]
) -> None:
    train, test = split
    model = kind(epsilon=500.0, unit=unit, random_state=0).fit(train)
    assert model.score(test) > 0.6
    small = kind(epsilon=0.5, unit=unit, random_state=0).fit(train)
    assert small.guarantee_.unit is Unit(unit) and small.guarantee_.epsilon <= 0.5
    assert small.guarantee_.delta == 0.0
    assert np.array_equal(
        small.weights_, kind(epsilon=0.5, unit=unit, random_state=0).fit(train).weights_
    )
    with pytest.raises(InvalidArgument, match="unit"):
        kind(unit="shard")


@pytest.mark.parametrize("kind", PRIVATE)
def test_a_ledger_can_refuse(kind: Any, split: tuple[Examples, Examples]) -> None:
    ledger = Ledger.in_memory(cap_epsilon=0.02, cap_delta=0.0, unit=Unit.USER)
    model = kind(epsilon=0.5, ledger=ledger, random_state=0)
    with pytest.raises(BudgetExceeded):
        model.fit(split[0])
    assert "weights_" not in vars(model)


def test_taking_a_user_out_moves_histograms_and_coefficients_no_more_than_declared(
    panel: Panel,
) -> None:
    """What each model hands to its mechanism, with and without a user."""
    whole = Examples.of(panel, range(4, 50))
    for user in (0, 7, 42):
        part = Examples.of(panel.without(user), range(4, 50))
        for model in (PerturbedHistogram(), FilterPriority()):
            values = []
            for rows in (whole, part):
                model.used_, model.bins_ = 3, 2
                columns = np.column_stack([rows.now[:, rows.target], rows.past[:, :2, rows.target]])
                bounded = model._histogram(columns, rows)
                values.append(bounded.value)
            assert np.abs(values[0] - values[1]).sum() <= bounded.add_remove.l1


def _phi(x: np.ndarray, y: float) -> np.ndarray:
    d = len(x)
    return np.concatenate([(0.5 - y) * x, (np.outer(x, x) / 8.0)[np.triu_indices(d)]])


@pytest.mark.parametrize("d", [1, 2, 3])
def test_bounds_of_fm_against_all_corners(d: int) -> None:
    """Entries of x are at most 1/sqrt(d): the L1 norm is largest at a corner; tight is reached
    exactly, and the paper's noise costs a part of epsilon only."""
    largest = max(
        np.abs(_phi(np.array(signs) / math.sqrt(d), y)).sum()
        for signs in itertools.product((-1.0, 0.0, 1.0), repeat=d)
        for y in (0.0, 1.0)
    )
    tight = FunctionalMechanism(tight=True)._bounded(np.zeros(1), d).add_remove.l1
    assert largest <= tight
    assert largest == pytest.approx(tight)
    assert FunctionalMechanism().share(d) == pytest.approx(largest / (d * d / 8 + 1.5 * d))
    assert FunctionalMechanism(tight=True).share(d) == 1.0


def test_rows_of_fm_are_in_the_unit_ball(split: tuple[Examples, Examples]) -> None:
    for made in (columns(split[0]), split[0].own()):
        assert np.linalg.norm(_rows(made), axis=1).max() <= 1.0


def test_histogram_grids_follow_the_public_size() -> None:
    assert PerturbedHistogram()._grid(254, 9) == (3, 2)
    assert PerturbedHistogram()._grid(60_000, 9)[0] == 9
    assert PerturbedHistogram()._grid(10, 9) == (1, 2)
    assert FilterPriority()._grid(254, 9) == (9, 2)


def test_priority_sampling_keeps_the_total_on_average() -> None:
    """The mean over 300 draws of a sum that priority sampling leaves unbiased (Duffield et al.);
    its error is some 1%, so a false alarm has a chance below 1e-6."""
    from privet.noise import seeded

    counts = np.concatenate([np.full(600, 5.0), np.full(30, 200.0)])
    model = FilterPriority()
    totals = [model._synthetic(counts, 1e-9, seeded(i)).sum() for i in range(300)]
    assert np.mean(totals) == pytest.approx(counts.sum(), rel=0.05)
    assert np.count_nonzero(model._synthetic(counts, 1e-9, seeded(0))) == model.kept


@pytest.mark.parametrize("kind", [ConditionalRBM, SocialRBM])
def test_boltzmann_machines_learn_at_the_rate_that_is_given(
    kind: Any, split: tuple[Examples, Examples], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The paper's 1e-3 is for all: they took three and five times as much."""
    rates: list[float] = []
    monkeypatch.setattr(
        boltzmann, "train", lambda *a, learning_rate, **k: rates.append(learning_rate)
    )
    model = kind(hidden=3, pretraining_steps=0, learning_rate=1e-3, random_state=0).fit(split[0])
    x, u = torch.ones(2, model._w.shape[0]), torch.zeros(2, model._past_hidden.shape[0])
    generator, again = (torch.Generator().manual_seed(5) for _ in range(2))
    h = torch.sigmoid(x @ model._w)
    drawn = (torch.rand(h.shape, generator=again) < h).float()
    x2 = drawn @ model._w.T + torch.randn(x.shape, generator=again)
    model._contrast(x, u, generator)
    assert rates == [1e-3]
    assert torch.allclose(model._visible, 1e-3 * (x - x2).mean(dim=0), rtol=1e-4, atol=1e-7)


def test_only_the_social_machine_listens_to_friends(split: tuple[Examples, Examples]) -> None:
    train, test = split
    remove_frame = replace(test, activity=np.zeros_like(test.activity))
    for kind, listens in ((ConditionalRBM, False), (SocialRBM, True)):
        model = kind(steps=60, pretraining_steps=20, random_state=0).fit(train)
        same = np.array_equal(model.predict_proba(test), model.predict_proba(remove_frame))
        assert same is not listens


def test_logistic_regression_against_scikit_learn() -> None:
    from sklearn.linear_model import LogisticRegression

    rng = np.random.default_rng(0)
    x = rng.normal(size=(400, 3))
    y = (x[:, 0] - 0.5 * x[:, 1] + rng.logistic(size=400) > 0).astype(float)
    w = rng.random(400)
    found = logistic_regression(x, y, w, ridge=1e-6)
    peer = LogisticRegression(C=1e6, tol=1e-10, max_iter=1000).fit(x, y, sample_weight=w)
    assert np.allclose(found[:3], peer.coef_[0], atol=1e-3)
    assert found[3] == pytest.approx(peer.intercept_[0], abs=1e-3)


@pytest.mark.parametrize("kind", PRIVATE)
def test_a_ledger_of_another_unit_is_refused(kind: Any, split: tuple[Examples, Examples]) -> None:
    """What one tuple costs, in a ledger that promises for users, would be a false promise."""
    ledger = Ledger.in_memory(cap_epsilon=1.0, cap_delta=0.0, unit=Unit.USER)
    with pytest.raises(InvalidArgument, match="per record"):
        kind(unit="record", ledger=ledger, random_state=0).fit(split[0])
    assert not ledger.entries()


@pytest.mark.parametrize("kind", PRIVATE)
def test_rows_without_a_status_are_refused(kind: Any, split: tuple[Examples, Examples]) -> None:
    """A status of -1 would add (1/2 - -1) x to the coefficients of FM: three times its bound."""
    train = split[0]
    unknown = replace(train, status=np.full(len(train), -1))
    with pytest.raises(InvalidArgument, match="known"):
        kind(random_state=0).fit(unknown)
