"""What must not carry a bold "proved": fitted steps, large deltas, seeds."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.decomposition import PCA
from sklearn.experimental import enable_halving_search_cv  # noqa: F401
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import (
    GridSearchCV,
    HalvingGridSearchCV,
    RandomizedSearchCV,
    TunedThresholdClassifierCV,
    cross_val_score,
    cross_validate,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer, StandardScaler

import privet
from privet.errors import InvalidArgument
from privet.estimators import FittedInFront
from privet.guarantee import EXPERIMENT, Backing

X = np.random.default_rng(0).normal(size=(400, 3))
Y = X[:, 0] > 0


def classifier(**told: Any) -> privet.PrivateClassifier:
    given = {"bounds": (-4, 4), "classes": [False, True]} | told
    return privet.AdaptiveLaplaceClassifier(**given)


def preparation(guarantee: privet.Guarantee) -> Any:
    return next(p for p in guarantee.premises if p.about == "preparation")


def test_a_fitted_step_in_front_is_named() -> None:
    pipe = make_pipeline(StandardScaler(), PCA(2), classifier())
    with pytest.warns(FittedInFront, match="StandardScaler, PCA in front of AdaptiveLaplaceClass"):
        pipe.fit(X, Y)
    guarantee = pipe[-1].guarantee_
    assert preparation(guarantee).backing is Backing.NOT_MET and not guarantee.release
    assert str(guarantee).endswith(EXPERIMENT) and "StandardScaler" in preparation(guarantee).text


def test_inside_a_search_and_as_a_step_of_its_own() -> None:
    search = GridSearchCV(make_pipeline(StandardScaler(), classifier(epsilon=8.0)), {}, cv=2)
    with pytest.warns(FittedInFront):
        search.fit(X, Y)
    assert not search.best_estimator_[-1].guarantee_.release
    codes = privet.PrivateAutoencoder(bounds=(-4, 4))
    pipe = make_pipeline(StandardScaler(), codes, Normalizer())
    with pytest.warns(FittedInFront, match="StandardScaler in front of PrivateAutoencoder"):
        pipe.fit(X)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("around", "inside"),
    [
        (lambda own: GridSearchCV(own, {"epsilon": [1.0, 8.0]}, cv=2), "best_estimator_"),
        (lambda own: TunedThresholdClassifierCV(own, cv=2), "estimator_"),
        (lambda own: CalibratedClassifierCV(own, cv=2, ensemble=False), "calibrated_classifiers_"),
    ],
)
def test_what_chooses_by_the_records_is_named(around: Any, inside: str) -> None:
    """Attack: a setting, a threshold or probabilities that are exact functions of the records."""
    with pytest.warns(FittedInFront, match="chooses by the private records"):
        found = getattr(around(classifier()).fit(X, Y), inside)
    own = found[0].estimator if isinstance(found, list) else found
    assert not own.guarantee_.release
    (told,) = own.guarantee_.not_met
    assert told.about == "settings"


def best_of_a_loop(own: Any) -> Any:
    tried = [clone(own).set_params(epsilon=e).fit(X, Y) for e in (1.0, 8.0)]
    return tried[0]  # the first: when it was fitted, nothing was known of the second


def after_cross_validation(own: Any) -> Any:
    cross_val_score(own, X, Y, cv=2)
    return own.fit(X, Y)


SEARCHES: dict[str, Any] = {
    "grid": lambda own: GridSearchCV(own, {"epsilon": [1.0, 8.0]}, cv=2).fit(X, Y).best_estimator_,
    "random": lambda own: (
        RandomizedSearchCV(own, {"epsilon": [1.0, 8.0]}, n_iter=2, cv=2).fit(X, Y).best_estimator_
    ),
    "halving": lambda own: (
        HalvingGridSearchCV(own, {"epsilon": [1.0, 8.0]}, cv=2).fit(X, Y).best_estimator_
    ),
    "returned by cross validation": lambda own: cross_validate(
        own, X, Y, cv=2, return_estimator=True
    )["estimator"][0],
    "after cross validation": after_cross_validation,
    "loop": best_of_a_loop,
}


@pytest.mark.filterwarnings("ignore::privet.estimators.FittedInFront")
@pytest.mark.parametrize("search", SEARCHES)
def test_a_search_is_carried_into_the_record(search: str, tmp_path: Any) -> None:
    """Attack: the best of several fits, *proved*, a *release*, and `verify` was content."""
    own = SEARCHES[search](classifier())
    (told,) = own.guarantee_.not_met
    assert told.about == "settings" and not own.guarantee_.release
    own.save(tmp_path / "run", purpose="p", curator="c")
    record = json.loads((tmp_path / "run" / "guarantee.json").read_text())
    assert record["status"] == EXPERIMENT
    checked = privet.runs.verify(tmp_path / "run")
    assert checked.to_dict()["status"] == EXPERIMENT and not checked.problems
    assert not privet.load(tmp_path / "run").guarantee.release


def test_a_clone_or_a_second_fit_alone_is_no_search(tmp_path: Any) -> None:
    own = clone(classifier()).fit(X, Y)
    assert own.fit(X, Y).guarantee_.release
    assert classifier(epsilon=2.0).fit(X, Y).guarantee_.release  # not a clone: other records, say
    privet.Ledger.create(tmp_path / "a.ledger", cap_epsilon=9.0, cap_delta=1e-4)
    own = classifier(ledger=tmp_path / "a.ledger")
    paid = [clone(own).set_params(epsilon=e).fit(X, Y) for e in (1.0, 2.0)]
    assert all(c.guarantee_.release for c in paid)  # every one was charged


@pytest.mark.parametrize(
    "nobody", [np.nan, None, pd.NA, pd.NaT, "", " "], ids=["nan", "None", "NA", "NaT", "''", "' '"]
)
def test_every_record_has_a_user(nobody: Any) -> None:
    """Attack: each of 100 rows without a name counted as a person, and all was proved per user."""
    groups = np.array([nobody] * 100 + [f"person {k}" for k in range(300)], dtype=object)
    for kind in (privet.AdaptiveLaplaceClassifier, privet.DPSGDClassifier):
        with pytest.raises(InvalidArgument, match=r"groups must be a user for each record"):
            kind(bounds=(-4, 4), classes=[False, True]).fit(X, Y, groups=groups)
    with pytest.raises(InvalidArgument, match="groups must be"):
        classifier().fit(X, Y, groups=np.where(np.arange(400) < 5, np.nan, 1.0))


def test_a_private_step_in_front_is_a_release_of_its_own() -> None:
    pipe = make_pipeline(privet.PrivateAutoencoder(bounds=(-4, 4)), classifier(bounds=(-1, 1)))
    guarantee = pipe.fit(X, Y)[-1].guarantee_
    assert guarantee.release
    assert "a release of its own, (1, 1e-05)-DP" in preparation(guarantee).text


def test_what_learns_nothing_is_let_through() -> None:
    public = FrozenEstimator(StandardScaler().fit(X + 1.0))
    for step in (privet.DeclaredScaler(bounds=(-4, 4)), Normalizer(), public, "passthrough"):
        with warnings.catch_warnings():
            warnings.simplefilter("error", FittedInFront)
            pipe = make_pipeline(step, classifier(bounds=(-4, 4))).fit(X, Y)
        assert pipe[-1].guarantee_.release
        assert preparation(pipe[-1].guarantee_) is privet.premises.OWN_MAP
    StandardScaler().fit(X)
    assert classifier().fit(X, Y).guarantee_.release  # fitted elsewhere: assumed, as it says


def test_declared_scaler() -> None:
    frame = pd.DataFrame({"age": [30.0, 200.0, np.nan], "weight": [80.0, -1.0, 50.0]})
    scaler = privet.DeclaredScaler(bounds={"weight": (0, 100), "age": (0, 120)})
    scaled = clone(scaler).fit_transform(frame)
    assert np.allclose(scaled, [[0.25, 0.8], [1.0, 0.0], [np.nan, 0.5]], equal_nan=True)
    one = np.vstack([clone(scaler).fit(frame).transform(frame[k : k + 1]) for k in range(3)])
    assert np.array_equal(one, scaled, equal_nan=True)  # a record by itself gives the same row
    assert scaler.fit(frame).get_feature_names_out().tolist() == ["age", "weight"]
    for bounds, told in ((None, "two numbers"), ({"age": (0, 1)}, "also 'weight'")):
        with pytest.raises(InvalidArgument, match=told):
            privet.DeclaredScaler(bounds=bounds).fit(frame)


@pytest.mark.parametrize("delta", [1 / 400, 0.1])
def test_delta_of_one_in_n_is_refused_or_marked(delta: float) -> None:
    with pytest.raises(InvalidArgument, match=r"below 1/n, 0.0025 for 400 records"):
        classifier(delta=delta).fit(X, Y)
    guarantee = classifier(delta=delta, allow_vacuous=True).fit(X, Y).guarantee_
    assert not guarantee.release and guarantee.not_met[0].about == "delta"
    assert classifier(delta=0.99 / 400).fit(X, Y).guarantee_.release


def test_an_experiment_says_so_everywhere(tmp_path: Path) -> None:
    folder = classifier(random_state=0).fit(X, Y).save(tmp_path / "run")
    record = json.loads((folder / "guarantee.json").read_text())
    assert record["status"] == EXPERIMENT and record["guarantee"]["release"] is False
    for name in ("README.md", "run.html"):
        text = (folder / name).read_text()
        assert EXPERIMENT in text and "**epsilon" not in text
    assert str(privet.load(folder).guarantee).endswith(EXPERIMENT)
    assert EXPERIMENT in repr(privet.load(folder))
