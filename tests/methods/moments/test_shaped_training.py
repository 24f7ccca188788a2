"""Relevance-shaped training: the budget of both parts, where noise falls, and what it gains."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from scipy import stats
from sklearn.base import clone
from torch import nn

from privet import data
from privet.accounting import Gaussian
from privet.data.domain import Domain
from privet.data.records import PublicFacts, Records
from privet.errors import BudgetExceeded, InvalidArgument, MissingFile
from privet.estimators import PrivateClassifier
from privet.guarantee import Adjacency, Unit
from privet.ledger import Ledger
from privet.methods.contract import Method
from privet.methods.dpsgd import LinearDPSGD, NetworkDPSGD
from privet.methods.moments import RelevanceShapedTraining
from privet.methods.train_method import TrainingResult, train
from privet.networks.architectures import ShapedNetwork
from privet.noise import seeded

pytestmark = pytest.mark.filterwarnings("ignore::privet.data.records.UnprotectedDiagnostic")


def facts(**more) -> PublicFacts:
    return PublicFacts(
        **{"records": 2000, "features": 12, "outputs": 2, "epsilon": 1.0, "delta": 1e-5, **more}
    )


def one_that_matters(n: int = 2000, d: int = 12, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Rows in [0, 1] of which feature 3 alone tells the two classes apart."""
    rng = np.random.default_rng(seed)
    x, y = rng.random((n, d)).astype(np.float32), rng.integers(0, 2, n)
    x[:, 3] = np.clip(0.5 + (0.15 * (2 * y - 1) + 0.15 * rng.normal(size=n)), 0.0, 1.0)
    return x, y


def dense(d: int = 12, seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(d, 8), nn.Tanh(), nn.Linear(8, 2))


def trainer(network: nn.Module | None = None, **settings) -> NetworkDPSGD:
    return NetworkDPSGD(network=network or dense(), **{"steps": 10, **settings})


@dataclass(frozen=True, kw_only=True)
class Watched(Method):
    """A trainer that notes what it was given, and what had been charged by then."""

    inner: NetworkDPSGD
    seen: list
    name = "watched"

    def plan(self, facts: PublicFacts):
        return self.inner.plan(facts)

    def fit(self, records, plan, context):
        self.seen.append((records, [entry.what for entry in context.ledger.entries()]))
        return self.inner.fit(records, plan, context)


def held(x: np.ndarray, y: np.ndarray) -> Records:
    domain = Domain(shape=x.shape[1:], bounds=(0.0, 1.0))
    return Records.with_classes(x, y, domain=domain, classes=np.arange(2), n_public=len(x))


def released(
    method: Method, x, y, *, epsilon: float = 1.0, seed: int = 0, **more
) -> TrainingResult:
    records = held(x, y)
    plan = method.plan(records.facts(epsilon=epsilon, delta=1e-5))
    return train(method, records, plan, rng=seeded(seed), **more)


# The budget


@pytest.mark.slow
@pytest.mark.parametrize("exponent", [None, 0.0, 0.5])
@pytest.mark.parametrize(("epsilon", "sample_rate"), [(1e-4, 1.0), (0.25, 1.0), (2.0, 0.2)])
def test_both_parts_fill_the_budget_and_no_more(exponent, epsilon, sample_rate) -> None:
    method = RelevanceShapedTraining(trainer=trainer(sample_rate=sample_rate), exponent=exponent)
    plan = method.plan(facts(epsilon=epsilon))
    spent = plan.loss.epsilon(1e-5)
    assert 0.99 * epsilon < spent <= epsilon
    assert (plan.relevance is None) == (exponent is None)


@pytest.mark.slow
def test_charged_before_release_and_guaranteed_by_what_was_charged() -> None:
    seen: list = []
    method = RelevanceShapedTraining(trainer=Watched(inner=trainer(), seen=seen))
    ledger = Ledger.in_memory(cap_epsilon=1.0, cap_delta=1e-5, adjacency=Adjacency.ADD_REMOVE)
    found = released(method, *one_that_matters(), ledger=ledger)
    assert seen[0][1] == ["private relevance"]
    assert found.entries == tuple(ledger.entries()) and len(found.entries) >= 2
    assert found.guarantee.epsilon == pytest.approx(ledger.spent(), rel=1e-6)
    assert 0.99 < found.guarantee.epsilon <= 1.0 and found.steps == 10
    assert found.guarantee.adjacency is Adjacency.ADD_REMOVE and found.claim is None
    said = [a.text for a in found.guarantee.premises]
    assert any("clipped" in text for text in said) and any("unit ball" in text for text in said)


@pytest.mark.slow
def test_a_ledger_that_cannot_afford_both_releases_nothing() -> None:
    seen: list = []
    method = RelevanceShapedTraining(trainer=Watched(inner=trainer(), seen=seen))
    ledger = Ledger.in_memory(cap_epsilon=1.0, cap_delta=1e-5, adjacency=Adjacency.ADD_REMOVE)
    ledger.charge(Gaussian(mu=0.1), what="something before")
    assert ledger.affords(method.plan(facts()).relevance.loss)  # the first alone would have fitted
    with pytest.raises(BudgetExceeded):
        released(method, *one_that_matters(), ledger=ledger)
    assert len(list(ledger.entries())) == 1 and not seen


# Where noise falls


def test_the_gradient_of_a_feature_is_multiplied_by_its_shape() -> None:
    """In the first layer: so uniform noise on it is noise / D_j on the feature's own gradient."""
    torch.manual_seed(0)
    x, shape = torch.rand(5, 4), torch.tensor([2.0, 1.0, 0.5, 0.1])
    outer = ShapedNetwork(nn.Linear(4, 3), centre=torch.full((4,), 0.5), shape=shape)
    plain = nn.Linear(4, 3)
    plain.weight.data.copy_(2.0 * shape * outer.network.weight.data)
    plain.bias.data.copy_(outer.network.bias.data - 2.0 * outer.network.weight.data @ (0.5 * shape))
    assert torch.allclose(outer(x), plain(x), atol=1e-6)
    for net in (outer, plain):
        net(x).square().sum().backward()
    centred = plain.weight.grad - 0.5 * plain.bias.grad[:, None]
    assert torch.allclose(outer.network.weight.grad, 2.0 * shape * centred, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("exponent", [0.5, 1.0])
def test_the_relevant_feature_gets_the_energy_and_the_total_stays(exponent: float) -> None:
    seen: list = []
    method = RelevanceShapedTraining(
        trainer=Watched(inner=trainer(steps=1), seen=seen), exponent=exponent, share=0.5, radius=1.0
    )
    x, y = one_that_matters(n=20_000)
    network = released(method, x, y, epsilon=4.0).model.network
    shape, centre = network.shape.numpy(), network.centre.numpy()
    assert shape.argmax() == 3 and shape[3] > 1.5 * np.delete(shape, 3).max()
    assert np.abs(centre - x.mean(0)).max() < 0.03
    fed = seen[0][0].rows.cube()
    assert fed.var(0).sum() == pytest.approx(4.0 * x.var(0).sum(), rel=0.15)
    assert np.allclose(fed, 2.0 * shape * (x - centre), atol=1e-5)


def test_identical_noise_changes_nothing_but_the_range() -> None:
    seen: list = []
    method = RelevanceShapedTraining(trainer=Watched(inner=trainer(), seen=seen), exponent=None)
    x, y = one_that_matters()
    found = released(method, x, y)
    assert np.allclose(seen[0][0].rows.cube(), 2.0 * x) and seen[0][1] == []
    assert found.guarantee.epsilon <= 1.0


# Misuse


@pytest.mark.slow
def test_records_without_a_known_class_count_for_nothing() -> None:
    seen: list = []
    method = RelevanceShapedTraining(trainer=Watched(inner=trainer(), seen=seen))
    x, y = one_that_matters()
    y[:50], y[50:60] = -1, 7
    released(method, x, y)
    shown = seen[0][0]
    assert shown.null.sum() == 60 and not shown.rows.cube()[:60].any()


def test_wrong_settings_say_what_is_wrong() -> None:
    x, y = one_that_matters(n=50)
    for wrong in ({"bounds": None}, {"delta": 0.0}):
        with pytest.raises(InvalidArgument) as error:
            classifier(**wrong).fit(x, y)
        assert "\n" not in str(error.value)
    linear = RelevanceShapedTraining(trainer=LinearDPSGD())
    with pytest.raises(InvalidArgument):  # rows that are not in the ball
        released(linear, x, y)


# Through the estimator


def classifier(inner: Method | None = None, **settings) -> PrivateClassifier:
    method = RelevanceShapedTraining(trainer=inner or trainer())
    return PrivateClassifier(
        method, **{"bounds": (0.0, 1.0), "classes": [0, 1], "random_state": 0, **settings}
    )


@pytest.mark.slow
def test_the_estimator_trains_a_copy_and_repeats_itself() -> None:
    x, y = one_that_matters()
    started = dense()
    before = [p.detach().clone() for p in started.parameters()]
    clf = classifier(trainer(started, steps=30), epsilon=4.0).fit(x, y)
    assert all(torch.equal(a, b) for a, b in zip(before, started.parameters(), strict=True))
    assert clf.score(*one_that_matters(seed=1)) > 0.75
    assert clf.claim_ is None and 3.9 < clf.guarantee_.epsilon <= 4.0
    again = clone(clf).fit(x, y)
    assert np.array_equal(again.predict_proba(x), clf.predict_proba(x))


@pytest.mark.slow
def test_a_convolutional_network_on_pictures() -> None:
    """The digits that ship with the package, in the shape (8, 8); 20 steps at a large budget."""
    digits = data.load("digits")
    low, high = digits.low, digits.high
    torch.manual_seed(0)
    network = nn.Sequential(
        nn.Unflatten(1, (1, 8)), nn.Conv2d(1, 8, 3, padding=1), nn.Tanh(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(128, 10),
    )  # fmt: skip
    clf = classifier(
        NetworkDPSGD(network=network, steps=25, sample_rate=0.5), epsilon=8.0, classes=range(10),
        bounds=(low.ravel(), high.ravel()),
    ).fit(digits.x_train.reshape(-1, 8, 8), digits.y_train)  # fmt: skip
    assert clf.model_.network.shape.shape == (8, 8)
    assert clf.score(digits.x_test.reshape(-1, 8, 8), digits.y_test) > 0.7
    assert clf.guarantee_.epsilon <= 8.0


# What it gains


@pytest.mark.slow
def test_adaptive_beats_identical_where_few_features_matter() -> None:
    """One feature of 40 matters: shaping gains over removing the mean alone, same epsilon.

    Paired over 8 seeds, one-sided; a gain of nothing would pass once in a thousand.
    """
    gains = []
    for seed in range(8):
        x, y = one_that_matters(n=2000, d=40, seed=seed)
        x_test, y_test = one_that_matters(n=4000, d=40, seed=100 + seed)
        score = {}
        for exponent in (0.0, 1.0):
            method = RelevanceShapedTraining(
                trainer=trainer(dense(40, seed), steps=60), exponent=exponent, share=0.1
            )
            found = released(method, x, y, seed=seed)
            z = found.model.outputs(held(x_test, y_test).rows)
            score[exponent] = float((z.argmax(1) == y_test).mean())
            assert found.guarantee.epsilon <= 1.0
        gains.append(score[1.0] - score[0.0])
    assert stats.ttest_1samp(gains, 0.0, alternative="greater").pvalue < 1e-3, gains


@pytest.mark.slow
def test_mnist_by_a_small_convolutional_network() -> None:
    try:
        mnist = data.load("mnist")
    except MissingFile as missing:
        pytest.skip(str(missing))
    torch.manual_seed(0)
    network = nn.Sequential(
        nn.Unflatten(1, (1, 28)), nn.Conv2d(1, 16, 8, stride=2, padding=3), nn.Tanh(),
        nn.MaxPool2d(2), nn.Conv2d(16, 32, 4, stride=2), nn.Tanh(), nn.Flatten(),
        nn.Linear(128, 10),
    )  # fmt: skip
    clf = classifier(NetworkDPSGD(network=network, steps=40), classes=range(10)).fit(mnist.train_rows()[:30_000].reshape(-1, 28, 28), mnist.y_train[:30_000])  # fmt: skip
    assert (
        clf.score(mnist.test_rows().reshape(-1, 28, 28), mnist.y_test) > 0.85
    )  # .872 with this seed
    assert clf.guarantee_.epsilon <= 1.0


@pytest.mark.parametrize("exponent", [0.5, None])
def test_a_ledger_for_users_is_refused(exponent: float | None) -> None:
    """Both charges are for single records; a ledger per user would promise too much."""
    method = RelevanceShapedTraining(trainer=trainer(), exponent=exponent)
    ledger = Ledger.in_memory(
        cap_epsilon=1.0, cap_delta=1e-5, unit=Unit.USER, adjacency=Adjacency.ADD_REMOVE
    )
    with pytest.raises(InvalidArgument, match="per record"):
        released(method, *one_that_matters(), ledger=ledger)
    assert not ledger.entries()
