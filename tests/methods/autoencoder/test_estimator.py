"""The estimators: scikit-learn's habits, an independent reference, memory, and a real table."""

from __future__ import annotations

import os
import tracemalloc
import warnings

import numpy as np
import pytest
from sklearn.decomposition import PCA
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import check_estimator

from privet import data
from privet.data.domain import Domain
from privet.estimators import PrivateAutoencoder, PrivateAutoencoderClassifier
from privet.guarantee import Standing
from privet.methods.autoencoder import AutoencoderStack, Stream
from privet.methods.autoencoder.stack_model import output_rows
from privet.methods.autoencoder.streamed_records import StreamedRecords
from privet.methods.train_method import make_plan, train
from privet.noise import seeded


@pytest.mark.slow
@pytest.mark.parametrize(
    "estimator",
    [
        PrivateAutoencoderClassifier(bounds=50.0, layers=(3,), random_state=0),
        PrivateAutoencoder(bounds=50.0, layers=(2,), random_state=0),
    ],
    ids=["classifier", "transformer"],
)
def test_check_estimator(estimator) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = check_estimator(estimator, on_skip=None, on_fail=None)
    failed = {r["check_name"]: r["exception"] for r in results if r["status"] == "failed"}
    assert not failed


def clouds(n: int = 3000) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, n)
    x = 0.5 + 0.2 * np.eye(3)[y] @ rng.normal(size=(3, 8)) + 0.05 * rng.normal(size=(n, 8))
    return np.clip(x, 0.0, 1.0), y


def test_without_noise_a_layer_is_principal_components() -> None:
    """The limit of a large budget, against scikit-learn: the same subspace, the same mean."""
    x, _ = clouds()
    encoder = PrivateAutoencoder(epsilon=1e6, bounds=(0, 1), layers=(2,), random_state=0).fit(x)
    stack = encoder.model_
    rows = encoder.domain_.rows(x).squash(stack.looseness).astype(np.float64)
    reference = PCA(n_components=2).fit(rows)
    layer = stack.layers[0]
    assert np.allclose(layer.mean, reference.mean_, atol=1e-3)
    cosines = np.linalg.svd(reference.components_ @ layer.basis)[1]
    assert cosines.min() > 0.999


def test_without_noise_the_output_layer_is_least_squares() -> None:
    """Taylor cross-entropy has its minimum at 4 (least squares of y - 1/2): an affine map."""
    x, y = clouds()
    settings = {"bounds": (0, 1), "classes": range(3), "layers": (3,), "random_state": 0}
    clf = PrivateAutoencoderClassifier(epsilon=1e6, **settings).fit(x, y)
    held = clf.domain_.rows(x)
    rows = output_rows(clf.model_.encode(held)).astype(np.float64)
    reference = Ridge(alpha=1e-6, fit_intercept=False).fit(rows, 4.0 * (np.eye(3)[y] - 0.5))
    assert np.allclose(clf.model_.outputs(held), reference.predict(rows), atol=0.02)


def test_in_a_pipeline() -> None:
    x, y = clouds()
    encoder = PrivateAutoencoder(epsilon=4.0, bounds=(0, 1), layers=(3,), random_state=0)
    head = PrivateAutoencoderClassifier(epsilon=4.0, bounds=1.0, layers=(), random_state=0)
    both = make_pipeline(encoder, head).fit(x, y)
    assert both.score(x, y) > 0.9


def peak(records: int) -> int:
    """The most memory that a fit of so many streamed records takes, in bytes."""

    def chunks():
        rng = np.random.default_rng(0)
        for _ in range(records // 500):
            x = rng.uniform(size=(500, 30))
            yield x, (x[:, 0] > 0.5).astype(int)

    settings = {"bounds": (0, 1), "classes": [0, 1], "layers": (20, 10), "n_public": records}
    clf = PrivateAutoencoderClassifier(random_state=0, **settings)
    tracemalloc.start()
    clf.fit(Stream(open=chunks, columns=30))
    found = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return found


@pytest.mark.slow
def test_memory_does_not_grow_with_the_records() -> None:
    peak(500)  # what is imported on first use
    assert peak(20_000) < 1.1 * peak(2_000) + 50_000


def test_a_memory_map_is_read_in_blocks(tmp_path) -> None:
    x, y = clouds()
    np.save(tmp_path / "x.npy", x)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    told: list[tuple[str, int, int]] = []
    domain = Domain(shape=(8,), bounds=(0, 1))
    records = StreamedRecords(stream=Stream.of(mapped), domain=domain, records=3000)
    method = AutoencoderStack(layers=(3, 2))
    plan = make_plan(method, records.facts(epsilon=1.0, delta=1e-5))
    train(method, records, plan, rng=seeded(0), progress=lambda *seen: told.append(seen))
    assert [of for what, of, _ in told if what == "layer 1"] == [2048, 3000]
    assert {what for what, _, _ in told} == {"layer 1", "layer 2"}
    settings = {"bounds": (0, 1), "layers": (3, 2), "random_state": 0}
    once = PrivateAutoencoder(**settings).fit(mapped)
    again = PrivateAutoencoder(**settings).fit(x)
    assert np.array_equal(once.transform(x), again.transform(x))
    settings["classes"] = range(3)
    clf = PrivateAutoencoderClassifier(**settings).fit(mapped, y)
    other = PrivateAutoencoderClassifier(**settings).fit(x, y)
    assert np.array_equal(clf.model_.weights, other.model_.weights)


@pytest.mark.slow
@pytest.mark.skipif("PRIVET_DATA" not in os.environ, reason="needs PRIVET_DATA")
def test_adult_under_a_proof() -> None:
    """84.2% on average (standard deviation 0.15 over noise): 83.2% is more than six of them off."""
    adult = data.load("adult")
    settings = {"bounds": (adult.low, adult.high), "classes": [0, 1], "layers": (60,)}
    clf = PrivateAutoencoderClassifier(epsilon=1.0, random_state=0, **settings)
    clf.fit(adult.x_train, adult.y_train)
    assert clf.guarantee_.epsilon <= 1.0 and clf.guarantee_.standing is Standing.PROVED
    assert clf.score(adult.x_test, adult.y_test) > 0.832
