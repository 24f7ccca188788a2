"""The estimators: scikit-learn's own checks, and what is private about them."""

import pickle

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import check_estimator
from torch import nn

from privet.data.records import UnprotectedDiagnostic
from privet.errors import BudgetExceeded, InvalidArgument
from privet.estimators import DPSGDClassifier, DPSGDRegressor
from privet.features import RandomProjection
from privet.guarantee import Adjacency, Backing, Standing
from privet.ledger import Ledger


def data(n=1500, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 4))
    return x, np.where(x[:, 0] - x[:, 1] > 0, "yes", "no")


@pytest.mark.slow
@pytest.mark.parametrize(
    "estimator",
    [
        DPSGDClassifier(bounds=4.0, random_state=0),
        DPSGDRegressor(bounds=4.0, target_bounds=(-100.0, 100.0), random_state=0),
    ],
)
def test_check_estimator(estimator):
    results = check_estimator(estimator, on_skip=None)
    assert sum(r["status"] == "passed" for r in results) >= 45
    assert not [r for r in results if r["status"] == "failed"]


def test_learns_and_says_what_it_cost():
    x, y = data()
    clf = DPSGDClassifier(
        epsilon=1.0, bounds=4.0, n_public=1500, classes=["no", "yes"], random_state=0
    ).fit(x, y)
    assert clf.score(x, y) > 0.9
    g = clf.guarantee_
    assert 0.99 < g.epsilon <= 1.0 and g.delta == 1e-5
    assert g.standing is Standing.PROVED and g.adjacency is Adjacency.ADD_REMOVE
    assert clf.claim_.epsilon > g.epsilon  # for full batches the closed form is a loose theorem
    assert g.epsilon * (1 - 1e-9) <= clf.ledger_entry_.spent <= g.epsilon * 1.005  # a bound


@pytest.mark.slow
def test_what_is_taken_from_the_data_is_marked():
    x, y = data(100)
    texts = {
        a.text: a.backing
        for a in DPSGDClassifier(bounds=4.0, random_state=0).fit(x, y).guarantee_.premises
    }
    assert texts["the list of classes, taken from y, is public"] is Backing.ASSUMED
    assert texts["the number of records, 100, is public in this relation"] is Backing.ENFORCED
    declared = DPSGDClassifier(bounds=4.0, random_state=0, classes=["no", "yes"]).fit(x, y)
    assert not any("taken from y" in a.text for a in declared.guarantee_.premises)


def test_settings_depend_on_public_facts_only():
    x, y = data(300)
    one = DPSGDClassifier(bounds=4.0, random_state=0, n_public=300, classes=["no", "yes"]).fit(x, y)
    other = DPSGDClassifier(bounds=4.0, random_state=0, n_public=300, classes=["no", "yes"]).fit(
        1e6 * x[:250], np.where(y[:250] == "no", "yes", "no")
    )
    assert np.array_equal(
        one.plan_.schedule.noise_multipliers, other.plan_.schedule.noise_multipliers
    )
    assert np.array_equal(one.plan_.learning_rates, other.plan_.learning_rates)
    assert one.guarantee_.epsilon == other.guarantee_.epsilon


def test_a_ledger_is_charged_and_can_refuse():
    x, y = data(100)
    ledger = Ledger.in_memory(cap_epsilon=1.2, cap_delta=1e-5)
    DPSGDClassifier(bounds=4.0, random_state=0, ledger=ledger).fit(x, y)
    spent = ledger.spent()
    assert spent == pytest.approx(1.0, abs=1e-3)
    with pytest.raises(BudgetExceeded):
        DPSGDClassifier(bounds=4.0, random_state=1, ledger=ledger).fit(x, y)
    assert ledger.spent() == spent
    assert clone(DPSGDClassifier(ledger=ledger)).ledger is ledger


def test_bad_rows_count_as_zero():
    x, y = data(400)
    clean = DPSGDClassifier(bounds=4.0, random_state=0, classes=["no", "yes"]).fit(x, y)
    x[3], x[7, 1] = np.nan, np.inf
    with pytest.warns(
        UnprotectedDiagnostic, match="2 with a value that is not finite or not as declared of 400"
    ):
        dirty = DPSGDClassifier(bounds=4.0, random_state=0, classes=["no", "yes"]).fit(x, y)
    assert np.isfinite(dirty.predict_proba(x)).all()
    assert dirty.guarantee_.epsilon == clean.guarantee_.epsilon


def test_secure_noise_by_default():
    x, y = data(100)
    first, second = (DPSGDClassifier(bounds=4.0).fit(x, y).decision_function(x) for _ in range(2))
    assert not np.array_equal(first, second)


def test_bounds_are_public():
    x, y = data()
    for bounds in (4.0, (-4.0, 4.0), (-4.0 * np.ones(4), 4.0 * np.ones(4))):
        clf = DPSGDClassifier(bounds=bounds, random_state=0).fit(x, y)
        assert clf.score(x, y) > 0.85
    with pytest.raises(InvalidArgument, match="bounds"):
        DPSGDClassifier(bounds=(1.0, 1.0)).fit(x, y)


def test_features_in_front():
    x, y = data()
    front = RandomProjection(n_inputs=4, n_features=3)
    with pytest.raises(InvalidArgument, match="declare bounds"):
        DPSGDClassifier(features=front, random_state=0).fit(x, y)
    clf = DPSGDClassifier(features=front, bounds=4.0, random_state=0)
    assert clf.fit(x, y).model_.weights.shape == (3, 2)


@pytest.mark.slow
def test_any_module():
    x, y = data()
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
    before = net[0].weight.detach().clone()
    clf = DPSGDClassifier(module=net, epsilon=2.0, bounds=4.0, random_state=0).fit(x, y)
    assert clf.score(x, y) > 0.8
    assert torch.equal(before, net[0].weight)  # the module given is a recipe, not the result
    assert 1.98 < clf.guarantee_.epsilon <= 2.0


def test_labels_outside_the_classes():
    x, y = data(50)
    with pytest.raises(InvalidArgument, match="among the classes"):
        DPSGDClassifier(bounds=4.0, classes=["never", "maybe"]).fit(x, y)


@pytest.mark.parametrize(
    "bad", [{"epsilon": -1.0}, {"delta": 0.0}, {"delta": 1.5}, {"n_public": -3}]
)
def test_bad_settings(bad):
    x, y = data(50)
    with pytest.raises(InvalidArgument):
        DPSGDClassifier(bounds=4.0, **bad).fit(x, y)


def test_pipeline_and_pickle():
    x, y = data(200)
    pipe = make_pipeline(
        FunctionTransformer(np.tanh), DPSGDClassifier(bounds=4.0, random_state=0)
    ).fit(x, y)
    again = pickle.loads(pickle.dumps(pipe))
    assert np.array_equal(pipe.predict(x), again.predict(x))


def test_regressor():
    x, _ = data(3000)
    y = 10.0 + 5.0 * np.tanh(x[:, 0])
    reg = DPSGDRegressor(bounds=5.0, target_bounds=(5.0, 15.0), random_state=0).fit(x, y)
    assert reg.score(x, y) > 0.5
    out = reg.predict(100 * x)
    assert out.min() >= 5.0 and out.max() <= 15.0
    with pytest.raises(InvalidArgument, match="target_bounds"):
        DPSGDRegressor(bounds=5.0, target_bounds=(2.0, 1.0)).fit(x, y)
