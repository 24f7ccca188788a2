"""The stack under the contract: plan, charge, premises, files, and replay on neighbours."""

from __future__ import annotations

import numpy as np
import pytest

import privet
from privet import premises
from privet.audit.conformance import streams_drawn_once
from privet.data.domain import Domain
from privet.data.records import PublicFacts, Records
from privet.estimators import PrivateAutoencoder, PrivateClassifier
from privet.guarantee import Adjacency, Unit
from privet.mechanisms import Noise
from privet.mechanisms.release_transcript import record_releases
from privet.methods.autoencoder import AutoencoderStack, Stream, StreamedRecords
from privet.methods.catalogue import method_names, method_type
from privet.methods.neighbour_replay import charge_problems, distance, replay, stream_problems
from privet.methods.train_method import make_plan, train
from privet.noise import secure, seeded
from tests.methods.crowd import neighbours_in_a_crowd

pytestmark = pytest.mark.filterwarnings("ignore::privet.data.records.UnprotectedDiagnostic")

METHODS = [
    AutoencoderStack(layers=(3,)),
    AutoencoderStack(layers=(3, 2), activation="sigmoid"),
    AutoencoderStack(layers=()),
    AutoencoderStack(layers=(3,), adjacency="replace-one"),
]


def facts(**more) -> PublicFacts:
    told = {"records": 50, "features": 4, "outputs": 3, "epsilon": 2.0, "delta": 1e-5, **more}
    return PublicFacts(**{"shape": (4,), **told})


def blobs(n: int = 600) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    y = rng.integers(3, size=n)
    x = 0.3 + 0.4 * np.eye(3, 4)[y] + 0.1 * rng.normal(size=(n, 4))
    return x, np.array(["a", "b", "c"])[y]


DOMAIN, CLASSES = Domain(shape=(4,), bounds=(0.0, 1.0)), np.array(["a", "b", "c"])


def records(n: int = 600, **more) -> Records:
    return Records.with_classes(*blobs(n), domain=DOMAIN, classes=CLASSES, **more)


def test_named_in_the_catalogue() -> None:
    assert "autoencoder" in method_names() and method_type("autoencoder") is AutoencoderStack


@pytest.mark.parametrize("method", METHODS)
def test_a_plan_needs_facts_alone_and_is_what_is_charged(method) -> None:
    plan = method.plan(records().facts(epsilon=2.0, delta=1e-5))
    found = train(method, records(), plan, rng=seeded(0))
    total = privet.accounting.compose([e.loss for e in found.entries], adjacency=plan.adjacency)
    assert total.epsilon(1e-5) == pytest.approx(plan.loss.epsilon(1e-5), rel=1e-9)
    assert 0.99 * 2.0 < found.guarantee.epsilon <= 2.0
    assert found.claim is None and plan.summary()["releases"] == len(plan.releases)
    assert charge_problems(method, plan, records()) == []
    assert stream_problems(method, plan, records()) == []
    assert streams_drawn_once(lambda: train(method, records(), plan, rng=seeded(5))) is None


@pytest.mark.parametrize("rng", [seeded(0), secure()], ids=["seeded", "secure"])
@pytest.mark.parametrize("n_public", [None, 600])
@pytest.mark.parametrize("streamed", [False, True])
def test_premises_say_what_was_run_and_each_thing_once(rng, n_public, streamed) -> None:
    method = AutoencoderStack(layers=(3,))
    x, y = blobs()
    held = records(n_public=n_public)
    if streamed:
        stream = Stream(open=lambda: iter([(x, y)]), columns=4)
        held = StreamedRecords(
            stream=stream, domain=DOMAIN, classes=CLASSES, records=600, n_public=n_public
        )
    told = train(
        method, held, make_plan(method, held.facts(epsilon=2.0, delta=1e-5)), rng=rng
    ).guarantee
    about = [p.about for p in told.premises]
    assert len(about) == len(set(about))
    size = premises.counted_size(600) if n_public is None else premises.declared_size(600)
    expected = {rng.premise, size, premises.DECLARED_CLASSES, premises.ONE_RECORD_EACH}
    assert expected | {DOMAIN.premise} <= set(told.premises)
    counted = n_public is None
    assert told.adjacency is (Adjacency.ZERO_OUT if counted else Adjacency.ADD_REMOVE)


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_saved_and_loaded_predictions_are_the_same_bits(method, tmp_path) -> None:
    x, y = blobs()
    clf = PrivateClassifier(
        method, epsilon=4.0, bounds=(0, 1), classes=["a", "b", "c"], random_state=0
    ).fit(x, y)
    x[3] = np.nan
    run = privet.load(clf.save(tmp_path / "run"))
    assert np.array_equal(run.predict_proba(x), clf.predict_proba(x))
    assert run.guarantee == clf.guarantee_ and run.config["method"] == "autoencoder"


def test_a_saved_transformer_gives_its_codes(tmp_path) -> None:
    x, _ = blobs()
    encoder = PrivateAutoencoder(bounds=(0, 1), layers=(3, 2), random_state=0).fit(x)
    run = privet.load(encoder.save(tmp_path / "run"))
    assert np.array_equal(run.outputs(x).astype(np.float32), encoder.transform(x))


# Replay


def check_replay(method, plan, worst) -> list[float]:
    found = replay(method, plan, worst)
    assert found.problems() == []
    return [
        distance(a.mechanism, a.exact, b.exact) / a.sensitivity
        for a, b in zip(found.present.releases, found.absent.releases, strict=True)
    ]


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("delta", [1e-5, 0.0])
@pytest.mark.parametrize("declared", [True, False])
@pytest.mark.parametrize("unit", [Unit.RECORD, Unit.USER])
def test_on_its_worst_neighbours(method, delta, declared, unit) -> None:
    plan = method.plan(facts(delta=delta, declared=declared, unit=unit))
    parts = check_replay(method, plan, method.neighbours(plan))
    if plan.adjacency is Adjacency.ADD_REMOVE:
        assert parts[0] > 0.98 and parts[-1] > 0.98  # as bad as can be; codes may be shorter


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("delta", [1e-5, 0.0])
@pytest.mark.parametrize("declared", [True, False])
@pytest.mark.parametrize("users", [False, True])
def test_on_an_outlier_in_a_crowd(method, delta, declared, users) -> None:
    worst = neighbours_in_a_crowd(method.adjacency, declared=declared, users=users)
    plan = method.plan(worst.present.facts(epsilon=2.0, delta=delta))
    check_replay(method, plan, worst)


@pytest.mark.slow
@pytest.mark.parametrize("noise", [n for n in Noise if n is not Noise.GAUSSIAN])
def test_every_kind_of_noise_can_be_played_back(noise) -> None:
    method = AutoencoderStack(layers=(3,), noise=noise)
    plan = method.plan(facts())
    check_replay(method, plan, method.neighbours(plan))


@pytest.mark.parametrize("streamed", [False, True])
def test_null_records_add_nothing_to_any_sum(streamed: bool) -> None:
    """Rows that are not finite, or of no class: the exact sums are those without them."""
    x, y = blobs(60)
    x[5], y[9] = np.nan, "z"
    good = np.arange(60) != 5
    good[9] = False
    method = AutoencoderStack(layers=(3,))
    plan = method.plan(facts(records=60))

    def exact(x: np.ndarray, y: np.ndarray) -> list[np.ndarray]:
        held = Records.with_classes(x, y, domain=DOMAIN, classes=CLASSES)
        if streamed:
            stream = Stream(open=lambda: iter([(x, y)]), columns=4)
            held = StreamedRecords(stream=stream, domain=DOMAIN, classes=CLASSES, n_public=60)
        with record_releases() as made:
            train(method, held, plan, rng=seeded(0))
        return [release.exact for release in made.releases]

    for one, other in zip(exact(x, y), exact(x[good], y[good]), strict=True):
        assert np.array_equal(one, other)
