"""Every method of the catalogue: the same input, the same answer; a promise that fits the run."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import privet
from privet.data.records import UnprotectedDiagnostic
from privet.errors import InvalidArgument
from privet.guarantee import Adjacency, Backing
from privet.methods import neighbour_replay
from privet.methods.catalogue import method_names, method_type

METHODS = method_names()
CLASSIFIERS = [name for name in METHODS if method_type(name).files is None]


def rows(n: int = 240) -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    x = rng.uniform(size=(n, 4))
    return x, np.where(x[:, 0] > x[:, 1], "yes", "no")


def estimator(name: str, **told: Any) -> privet.PrivateClassifier:
    kind = method_type(name)
    settings: dict[str, Any] = {}
    if kind.public_inputs_field is not None:
        settings = settings | {
            kind.public_inputs_field: np.random.default_rng(1).uniform(size=(20, 4))
        }
    if "epochs" in kind.__dataclass_fields__:
        settings = settings | {"epochs": 1}
    given = {"epsilon": 4.0, "bounds": (0.0, 1.0), "classes": ["no", "yes"], "random_state": 0}
    return privet.PrivateClassifier(kind(**settings), **given | told)


def fit(name: str, x: Any, y: Any, **told: Any) -> privet.PrivateClassifier:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnprotectedDiagnostic)
        return estimator(name, **told).fit(x, y)


# The same bad input, the same answer


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_without_bounds_nobody_fits(name: str) -> None:
    with pytest.raises(InvalidArgument, match="bounds must be given when there are no features"):
        fit(name, *rows(), bounds=None)


@pytest.mark.slow
@pytest.mark.parametrize("name", CLASSIFIERS)
def test_one_class_only_is_refused_unless_two_are_declared(name: str) -> None:
    x, _ = rows()
    with pytest.raises(InvalidArgument, match="at least two"):
        fit(name, x, np.full(len(x), "yes"), classes=None)
    assert set(fit(name, x, np.full(len(x), "yes")).classes_) == {"no", "yes"}


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_labels_that_are_no_class_at_all(name: str) -> None:
    x, y = rows()
    with pytest.raises(InvalidArgument, match="among the classes"):
        fit(name, x, y, classes=["left", "right"])


@pytest.mark.slow
@pytest.mark.parametrize("name", CLASSIFIERS)
def test_a_bad_record_counts_for_nothing_and_its_owner_is_told(name: str) -> None:
    """A bad row, a label outside and a null record are one and the same to every method."""
    x, y = rows()
    infinite, unknown = x.copy(), y.astype(object)
    infinite[3, 1] = np.inf
    unknown[3] = "maybe"
    with pytest.warns(
        UnprotectedDiagnostic, match="1 with a value that is not finite or not as declared of 240"
    ):
        first = estimator(name).fit(infinite, y)
    with pytest.warns(UnprotectedDiagnostic, match="1 with a label outside"):
        second = estimator(name).fit(x, unknown.astype(str))
    assert neighbour_replay.same_model(first.model_, second.model_)
    assert first.guarantee_ == second.guarantee_


@pytest.mark.slow
@pytest.mark.parametrize("name", CLASSIFIERS)
def test_a_class_that_does_not_occur_and_few_records(name: str) -> None:
    x, y = rows()
    clf = fit(name, x, y, classes=["maybe", "no", "yes"])
    assert clf.predict_proba(x).shape == (len(x), 3)
    small = (
        fit(name, *rows(2), n_public=24) if method_type(name).public_inputs_field is None else clf
    )
    assert np.isfinite(small.predict_proba(x)).all()


# What is promised is what was run


@pytest.mark.slow
@pytest.mark.parametrize("name", CLASSIFIERS)
def test_premises_match_the_run(name: str) -> None:
    x, y = rows()
    seeded = fit(name, x, y).guarantee_
    about = {p.about: p for p in seeded.premises}
    assert len(about) == len(seeded.premises)
    assert "seed" in about["noise key"].text and "experiment" in about["noise key"].text
    assert "declared" in about["classes"].text
    for wanted in ("settings", "rows", "people", "number of records"):
        assert wanted in about, wanted
    declared = fit(name, x, y, n_public=len(x), classes=None, random_state=None).guarantee_
    told = {p.about: p for p in declared.premises}
    assert "seed" not in told["noise key"].text and "taken from y" in told["classes"].text
    if seeded.adjacency is not Adjacency.REPLACE_ONE:
        assert seeded.adjacency is Adjacency.ZERO_OUT
        assert declared.adjacency is Adjacency.ADD_REMOVE
        assert about["number of records"].backing is Backing.ENFORCED


@pytest.mark.slow
@pytest.mark.parametrize("name", METHODS)
def test_what_is_charged_is_what_is_planned(name: str) -> None:
    method = method_type(name).for_audit()
    plan = method.plan(neighbour_replay.small_facts(method))
    assert neighbour_replay.charge_problems(method, plan, method.neighbours(plan).present) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", METHODS)
def test_nothing_but_the_releases_tells_neighbours_apart(name: str) -> None:
    method = method_type(name).for_audit()
    plan = method.plan(neighbour_replay.small_facts(method))
    for seed in range(3):
        assert (
            neighbour_replay.replay(method, plan, method.neighbours(plan), seed=seed).problems()
            == []
        )


@pytest.mark.slow
@pytest.mark.parametrize("name", METHODS)
def test_noise_in_every_coordinate_and_drawn_once(name: str) -> None:
    """False alarms: 1e-6 for each method; seeds are fixed."""
    method = method_type(name).for_audit()
    plan = method.plan(neighbour_replay.small_facts(method))
    present = method.neighbours(plan).present
    assert neighbour_replay.noise_problems(method, plan, present, runs=40) == []
    assert neighbour_replay.stream_problems(method, plan, present) == []


# Saved and loaded


@pytest.mark.slow
@pytest.mark.parametrize("name", CLASSIFIERS)
def test_a_loaded_run_answers_bit_for_bit(name: str, tmp_path: Path) -> None:
    x, y = rows()
    clf = fit(name, x, y)
    clf.save(tmp_path / "run")
    run = privet.load(tmp_path / "run")
    assert np.array_equal(run.predict_proba(x), clf.predict_proba(x))
    assert np.array_equal(run.predict(x), clf.predict(x))
    assert run.guarantee == clf.guarantee_ and run.method == name
    with pytest.raises(InvalidArgument, match="a folder without a run"):
        clf.save(tmp_path / "run")
