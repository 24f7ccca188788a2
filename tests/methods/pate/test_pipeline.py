"""The one call: teachers of every kind, failures, charges, readings, backends."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from privet.errors import BudgetExceeded, InvalidArgument
from privet.guarantee import Standing
from privet.methods.pate import (
    PATE,
    EstimatorLearner,
    IdentityReducer,
    ModuleLearner,
    PCAReducer,
    TeacherFailed,
    shard_ledger,
    unit_noise,
)
from privet.methods.pate.answer_files import hash_inputs
from privet.methods.pate.learner_adapters import as_learner
from privet.noise import seeded

BUDGET = {"epsilon": 8.0, "delta": 1e-5}


def bumps(n, rng):
    """Inputs in [0, 1] and maps of 16 numbers with a bump there."""
    x = rng.uniform(size=(n, 1))
    return x, np.exp(-((np.linspace(0, 1, 16) - x) ** 2) / 0.02)


def parts(k=20, n=40, public=15, seed=0):
    rng = np.random.default_rng(seed)
    return [bumps(n, rng) for _ in range(k)], bumps(public, rng)[0], bumps(100, rng)[1]


def pate(targets, k=20, n=15, **changes):
    noise = unit_noise(teachers=k, queries=n, **BUDGET)
    settings = {
        "teachers": DecisionTreeRegressor(max_depth=5),
        "student": DecisionTreeRegressor(max_depth=4),
        "reducer": PCAReducer.fit(targets, noise=noise),
        **BUDGET,
        **changes,
    }
    return PATE(**settings)


def nearest(x, y, seed):
    """A teacher as a plain function: the answer of the nearest input."""
    return lambda new: y[np.abs(np.asarray(new) - x.T).argmin(axis=1)]


def broken(x, y, seed):
    """Fails on two shards."""
    if seed in (3, 5):
        raise RuntimeError(f"no data at seed {seed}")
    return nearest(x, y, seed)


def test_labels_are_better_than_no_answer():
    """The decoded noisy labels are nearer to the truth than the public mean is."""
    shards, public, targets = parts(k=60)
    release = pate(targets, k=60).fit(shards, public, rng=seeded(0))
    truth = np.exp(-((np.linspace(0, 1, 16) - public) ** 2) / 0.02)
    error = ((release.model.labels - truth) ** 2).mean()
    assert error < 0.5 * ((targets.mean(axis=0) - truth) ** 2).mean()
    assert release.model.predict(public).shape == (15, 16)
    assert release.guarantee.standing is Standing.PROVED


@pytest.mark.slow
def test_functions_estimators_and_modules_teach():
    shards, public, targets = parts()
    for teacher in (nearest, DecisionTreeRegressor(), as_learner(nearest)):
        model = pate(targets, teachers=teacher).fit(shards, public, rng=seeded(0)).model
        assert np.isfinite(model.labels).all()
    rng = np.random.default_rng(0)
    x = rng.normal(size=(600, 2)).astype(np.float32)
    y = (x[:, 0] > 0).astype(np.int64)
    module = ModuleLearner(module=torch.nn.Linear(2, 2), epochs=20, learning_rate=0.05)
    call = PATE(teachers=module, student=module, reducer=IdentityReducer(shape=(2,)), **BUDGET)
    release = call.fit([(x[i::30], y[i::30]) for i in range(30)], x[:40], rng=seeded(0))
    assert (release.model.predict(x).argmax(axis=1) == y).mean() > 0.8


def test_failed_teachers_are_named_and_nothing_is_charged():
    shards, public, targets = parts(k=8)
    ledger = shard_ledger(**BUDGET)
    call = pate(targets, k=8, teachers=broken, ledger=ledger)
    with pytest.raises(TeacherFailed, match=r"2 of 8.*site-3.*site-5") as e:
        call.fit(shards, public, rng=seeded(0))
    assert e.value.failures == {"site-3": "RuntimeError", "site-5": "RuntimeError"}
    assert "no data" not in str(e.value) and len(ledger) == 0


def test_wrong_answers_are_failures_too():
    shards, public, targets = parts(k=3)
    call = pate(targets, k=3, teachers=lambda x, y, seed: lambda new: np.zeros((len(new), 7)))
    with pytest.raises(TeacherFailed, match=r"3 of 3.*InvalidArgument"):
        call.fit(shards, public, rng=seeded(0))


def test_answers_that_are_not_numbers_do_no_harm():
    """NaN and infinities are clipped like anything else: refusing them would tell."""
    shards, public, targets = parts()

    def wild(x, y, seed):
        return lambda new: np.full((len(new), 16), [np.nan, np.inf, -np.inf, 1e300][seed % 4])

    release = pate(targets, teachers=wild).fit(shards, public, rng=seeded(0))
    assert np.isfinite(release.model.labels).all()


def test_charged_once_and_refused_whole():
    shards, public, targets = parts()
    ledger = shard_ledger(**BUDGET)
    release = pate(targets, ledger=ledger).fit(shards, public, rng=seeded(0))
    assert release.entry == ledger.entries()[-1] and len(ledger) == 1
    assert ledger.spent() == pytest.approx(release.guarantee.epsilon, rel=1e-9)
    with pytest.raises(BudgetExceeded):
        pate(targets, ledger=ledger).fit(shards, public, rng=seeded(1))


def test_promise_does_not_look_at_the_data():
    first, second = parts(seed=0), parts(seed=1, n=13)
    targets = first[2]
    promises = {pate(targets).fit(s, p, rng=seeded(0)).guarantee for s, p, _ in (first, second)}
    assert len(promises) == 1


def test_backends_give_the_same_bits():
    """One process, threads, several processes: the same labels to the last bit."""
    shards, public, targets = parts(k=4)
    labels = [
        pate(targets, k=4, backend=b, workers=w).fit(shards, public, rng=seeded(0)).model.labels
        for b, w in (("loky", 1), ("threading", 2))
    ]
    assert np.array_equal(*labels)


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["loky", "ray", "dask"])
@pytest.mark.filterwarnings("ignore")
def test_clusters_give_the_same_bits(backend):
    """A real local Ray cluster, a real local Dask cluster, joblib's own processes."""
    shards, public, targets = parts(k=4)
    one = pate(targets, k=4).fit(shards, public, rng=seeded(0)).model.labels
    call = pate(targets, k=4, backend=backend, workers=2)
    if backend == "ray":
        ray = pytest.importorskip("ray")
        ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
        try:
            many = call.fit(shards, public, rng=seeded(0)).model.labels
            assert ray.is_initialized()
        finally:
            ray.shutdown()
    elif backend == "dask":
        distributed = pytest.importorskip("distributed")
        with (
            distributed.LocalCluster(
                n_workers=1, threads_per_worker=2, processes=False, dashboard_address=None
            ) as cluster,
            distributed.Client(cluster),
        ):
            many = call.fit(shards, public, rng=seeded(0)).model.labels
    else:
        many = call.fit(shards, public, rng=seeded(0)).model.labels
    assert np.array_equal(one, many)


def test_shards_without_a_class_or_a_record():
    learner = EstimatorLearner(estimator=LogisticRegression(), classes=3)
    x = np.zeros((4, 2))
    one = learner.train(x, np.full(4, 2), seed=0)(x)
    assert one.tolist() == [[0, 0, 1]] * 4
    none = learner.train(x[:0], np.zeros(0, dtype=int), seed=0)(x)
    assert np.allclose(none, 1 / 3)


def test_soft_targets_weigh_rows():
    """A tree that cannot split answers with the mean of the soft targets."""
    learner = EstimatorLearner(estimator=DecisionTreeClassifier(), classes=2)
    said = learner.train(np.zeros((2, 1)), np.array([[0.9, 0.1], [0.3, 0.7]]), seed=0)(
        np.zeros((1, 1))
    )
    assert np.allclose(said, [[0.6, 0.4]])


@pytest.mark.slow
def test_what_is_wrong_is_told():
    shards, public, targets = parts(k=3)
    with pytest.raises(InvalidArgument, match="at least one"):
        pate(targets).fit([], public)
    with pytest.raises(InvalidArgument, match="backend"):
        pate(targets, backend="slurm").fit(shards, public)
    with pytest.raises(InvalidArgument, match="3 different names"):
        pate(targets, sites=["a", "a", "b"]).fit(shards, public)
    with pytest.raises(InvalidArgument, match="classes"):
        as_learner(LogisticRegression())
    with pytest.raises(InvalidArgument, match="a Learner"):
        as_learner(7)
    assert hash_inputs(["a", "b"]) != hash_inputs(["b", "a"])
    volumes = [np.zeros((2, 3)), np.ones((4, 1))]
    assert hash_inputs(volumes) != hash_inputs(volumes[::-1])


def test_learners_tell_how_far_they_are():
    told = []
    learner = ModuleLearner(
        module=torch.nn.Linear(2, 2), epochs=3, watcher=lambda done, of: told.append((done, of))
    )
    learner.train(np.zeros((4, 2)), np.zeros(4, dtype=int), seed=0)
    assert told == [(1, 3), (2, 3), (3, 3)]
