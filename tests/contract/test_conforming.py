"""Every method of the catalogue: nothing leaves a training but what was released and paid for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import privet
from privet.data.domain import Domain, RowKind
from privet.guarantee import Unit
from privet.mechanisms import release_transcript
from privet.methods import contract_checks, neighbour_replay
from privet.methods.autoencoder import AutoencoderStack
from privet.methods.catalogue import method_names, method_type
from privet.methods.dpsgd import LinearDPSGD, NetworkDPSGD
from privet.methods.moments import OneShotMoments
from privet.methods.noisy_inputs import NoisyInputs
from tests.contract.leaving import kept_problems

METHODS = method_names()
CLASSIFIERS = [name for name in METHODS if method_type(name).files is None]


@pytest.mark.slow
@pytest.mark.parametrize("declared", [True, False])
@pytest.mark.parametrize("name", METHODS)
def test_whatever_the_records_are(name: str, declared: bool) -> None:
    method = method_type(name).for_audit()
    facts = replace(neighbour_replay.small_facts(method), declared=declared)
    assert contract_checks.problems(method, facts) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", [n for n in METHODS if method_type(n).protects_users])
def test_whoever_the_users_are(name: str) -> None:
    method = method_type(name).for_audit()
    facts = replace(neighbour_replay.small_facts(method), declared=False, unit=Unit.USER)
    assert contract_checks.problems(method, facts) == []


@pytest.mark.parametrize("declared", [True, False])
def test_rows_that_are_taken_as_they_are(declared: bool) -> None:
    """Moments of public features have no mean released before them."""
    method = OneShotMoments()
    facts = replace(neighbour_replay.small_facts(method), declared=declared, kind=RowKind.BALL)
    assert method.plan(facts).centre is None
    assert contract_checks.problems(method, facts) == []


OTHERWISE = (
    (OneShotMoments(), 0.0),
    (OneShotMoments(adjacency="replace-one"), 1e-5),
    (AutoencoderStack(layers=(2,)), 0.0),
    (AutoencoderStack(layers=(2,), adjacency="replace-one"), 1e-5),
    (AutoencoderStack(layers=(2,), noise="discrete gaussian"), 1e-5),
    (LinearDPSGD(), 1e-5),  # as it is: `small` has a learning rate that hardly moves the model
    (LinearDPSGD(steps=3, sample_rate=0.5, centre=0.0), 1e-5),
    (NetworkDPSGD(steps=3, sample_rate=0.5), 1e-5),
    (NoisyInputs(epochs=2, redraw=True, members=2), 1e-5),
)


@pytest.mark.slow
@pytest.mark.parametrize(("method", "delta"), OTHERWISE)
def test_with_other_settings(method: Any, delta: float) -> None:
    """Pure noise, replaced records, samples, noise that is drawn anew."""
    facts = replace(neighbour_replay.small_facts(method), delta=delta)
    assert contract_checks.problems(method, facts) == []


def people(n: int = 60) -> tuple[Any, Any, Any, Any]:
    """Two data sets of n records that share nothing; a third of the second is no record at all."""
    rng = np.random.default_rng(0)
    x = rng.uniform(0.2, 0.8, size=(n, 3))
    other = np.where(np.arange(n)[:, None] % 3 == 0, np.nan, np.eye(n, 3) + 0.1)
    return (
        x,
        np.where(x[:, 0] > x[:, 1], "yes", "no"),
        other,
        np.where(rng.random(n) < 0.9, "no", "yes"),
    )


def classifier(name: str) -> privet.PrivateClassifier:
    kind = method_type(name)
    settings: dict[str, Any] = {}
    if kind.public_inputs_field is not None:
        settings = {
            kind.public_inputs_field: np.random.default_rng(1).uniform(size=(8, 3)),
            "teachers": 4,
        }
    if "epochs" in kind.__dataclass_fields__:
        settings = settings | {"epochs": 1}
    given = {"epsilon": 4.0, "bounds": (0.0, 1.0), "classes": ["no", "yes"], "random_state": 0}
    return privet.PrivateClassifier(kind(**settings), **given)


@pytest.mark.slow
@pytest.mark.parametrize("name", CLASSIFIERS)
def test_nothing_stays_but_the_releases(name: str, tmp_path: Path) -> None:
    x, y, other, labels = people()
    asked = np.vstack([x, other])
    assert kept_problems(lambda: classifier(name), (x, y), (other, labels), asked, tmp_path) == []


SAMPLED = (NetworkDPSGD(steps=3, sample_rate=0.5), LinearDPSGD(steps=3, sample_rate=0.5))


@pytest.mark.slow
@pytest.mark.parametrize("method", SAMPLED, ids=lambda m: m.name)
def test_coins_and_noise_have_streams_of_their_own(method: Any) -> None:
    """The smallest data sets are not sampled by rule."""
    plan = method.plan(neighbour_replay.small_facts(method))
    assert contract_checks.seed_problems(method, plan, contract_checks.strangers(plan)[1]) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", CLASSIFIERS)
def test_unseeded_fits_have_noise_of_their_own(name: str) -> None:
    x, y, *_ = people()
    made = []
    for _ in range(2):
        with release_transcript.record_releases() as seen:
            classifier(name).set_params(random_state=None).fit(x, y)
        made.append(np.concatenate([np.ravel(r.noisy - r.exact) for r in seen.releases]))
    assert not np.array_equal(*made)  # noise, not models: equal winners of votes are no fault


@pytest.mark.parametrize("bounds", [(0.0, 1.0), ([0.0, 0.2, -1.0], [0.9, 0.7, 3.0]), 0.8])
def test_a_row_is_computed_from_its_own_record(bounds: Any) -> None:
    x, _, other, _ = people()
    domain, both = Domain(shape=(3,), bounds=bounds), np.vstack([x, other])
    together = domain.rows(both).values
    alone = np.vstack([domain.rows(both[k : k + 1]).values for k in range(len(both))])
    assert np.array_equal(together, alone)
