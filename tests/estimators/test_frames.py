"""Tables as users have them: numpy, pandas and polars give the same model."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from sklearn.exceptions import DataConversionWarning

import privet
from privet.errors import InvalidArgument, PrivetError
from privet.nets.features import RandomProjection

pandas = pytest.importorskip("pandas", reason="frames; pip install 'privet[test]'")
polars = pytest.importorskip("polars", reason="frames; pip install 'privet[test]'")
BOUNDS = {"age": (0.0, 120.0), "marker": (-5.0, 5.0)}


def table():
    rng = np.random.default_rng(0)
    age, marker = rng.uniform(20, 90, 300), rng.normal(size=300)
    return {"age": age, "marker": marker}, np.where(marker > 0, "ill", "well")


def fitted(X, y, bounds):
    clf = privet.DPSGDClassifier(classes=["ill", "well"], bounds=bounds, random_state=0)
    return clf.fit(X, y)


def test_frames_and_arrays_give_the_same_model():
    columns, y = table()
    array = np.column_stack(list(columns.values()))
    plain = fitted(array, y, ([0, -5], [120, 5])).predict_proba(array)
    for frame in (pandas.DataFrame(columns), polars.DataFrame(columns)):
        clf = fitted(frame, y, BOUNDS)
        assert np.array_equal(clf.predict_proba(frame), plain)
        assert list(clf.feature_names_in_) == ["age", "marker"]
    labels = pandas.Series(y)
    frame = pandas.DataFrame(columns)
    assert np.array_equal(fitted(frame, labels, BOUNDS).predict_proba(frame), plain)


def test_a_column_without_bounds_is_named():
    columns, y = table()
    with pytest.raises(InvalidArgument, match="also 'marker'"):
        fitted(pandas.DataFrame(columns), y, {"age": (0, 120)})
    with pytest.raises(InvalidArgument, match="without column names"):
        fitted(np.column_stack(list(columns.values())), y, BOUNDS)


def test_a_dict_of_columns_is_a_table():
    columns, y = table()
    common = {"bounds": BOUNDS, "classes": ["ill", "well"], "random_state": 0}
    with pytest.warns(DataConversionWarning):  # as scikit-learn does for labels in a column
        frame = privet.DPSGDClassifier(**common).fit(pandas.DataFrame(columns), y[:, None])
    asked = dict(reversed(columns.items()))  # by name, in any order
    clf = privet.DPSGDClassifier(**common).fit(columns, y)
    np.testing.assert_array_equal(
        clf.predict_proba(asked), frame.predict_proba(pandas.DataFrame(columns))
    )
    with pytest.raises(InvalidArgument, match="also 'marker'"):
        clf.predict({"age": columns["age"]})


@pytest.mark.slow
def test_missing_cells_count_as_declared(tmp_path):
    """Without `fill` a third of the records is lost, and it warns; with it none is."""
    columns, y = table()
    holes = {
        k: np.where(np.arange(300) % 6 == i, np.nan, v) for i, (k, v) in enumerate(columns.items())
    }
    common = {"bounds": BOUNDS, "classes": ["ill", "well"], "random_state": 0, "epsilon": 8.0}
    with pytest.warns(UserWarning, match=r"100 with .* fill= declares"):
        privet.DPSGDClassifier(**common).fit(holes, y)
    clf = privet.DPSGDClassifier(**common, fill={"age": 50.0, "marker": 0.0}).fit(holes, y)
    filled = {
        "age": np.nan_to_num(holes["age"], nan=50.0),
        "marker": np.nan_to_num(holes["marker"]),
    }
    same = privet.DPSGDClassifier(**common).fit(filled, y)
    np.testing.assert_array_equal(clf.predict_proba(holes), same.predict_proba(filled))
    middle = privet.DPSGDClassifier(**common, fill="middle").fit(holes, y)
    assert middle.domain_.fill.tolist() == [60.0, 0.0]
    clf.save(tmp_path / "run")
    table_ = np.column_stack(list(holes.values()))
    np.testing.assert_array_equal(privet.load(tmp_path / "run").predict(table_), clf.predict(holes))
    with pytest.raises(InvalidArgument, match="fill"):
        privet.DPSGDClassifier(**common, fill=np.nan).fit(holes, y)


def test_class_weights_move_the_threshold_and_nothing_else(tmp_path):
    columns, _ = table()
    rare = np.where(columns["marker"] > 1.2, "ill", "well")
    common = {"bounds": BOUNDS, "classes": ["ill", "well"], "random_state": 0}
    plain = privet.DPSGDClassifier(**common).fit(columns, rare)
    clf = privet.DPSGDClassifier(**common, class_weight={"ill": 20.0}).fit(columns, rare)
    assert clf.guarantee_ == plain.guarantee_
    gap = clf.decision_function(columns) - plain.decision_function(columns)
    np.testing.assert_allclose(gap, -np.log(20.0))
    assert (clf.predict(columns) == "ill").sum() > (plain.predict(columns) == "ill").sum()
    clf.save(tmp_path / "run")
    table_ = np.column_stack(list(columns.values()))
    np.testing.assert_array_equal(
        privet.load(tmp_path / "run").predict(table_), clf.predict(columns)
    )
    for wrong in ("balanced", {"healthy": 2.0}, {"ill": 0.0}):
        with pytest.raises(InvalidArgument, match="class_weight"):
            privet.DPSGDClassifier(**common, class_weight=wrong).fit(columns, rare)


class Slow(RandomProjection):
    """An extractor that must not be asked."""

    def transform(self, x: np.ndarray) -> np.ndarray:
        raise AssertionError("minutes of work for nothing")


@pytest.mark.parametrize("told", [{"delta": 0.5}, {"epsilon": 1e9}, {"ledger": "/nowhere/a"}])
def test_what_is_refused_is_refused_before_features_are_made(told: dict[str, Any]) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(50, 4))
    front = Slow(n_inputs=4, n_features=3)
    clf = privet.DPSGDClassifier(bounds=(-4, 4), classes=[0, 1], features=front, **told)
    with pytest.raises(PrivetError):
        clf.fit(x, np.arange(50) % 2)


class Longer(RandomProjection):
    """An extractor that makes other rows than it says: a plan would be for the wrong ones."""

    def transform(self, x: np.ndarray) -> np.ndarray:
        return np.tile(super().transform(x), 2)


def test_features_are_as_many_as_were_planned_for() -> None:
    x = np.random.default_rng(0).normal(size=(50, 4))
    front = Longer(n_inputs=4, n_features=3)
    clf = privet.DPSGDClassifier(bounds=(-4, 4), classes=[0, 1], features=front)
    with pytest.raises(InvalidArgument, match="50 rows of 3"):
        clf.fit(x, np.arange(50) % 2)


def test_bad_records_are_told_of_once(recwarn: pytest.WarningsRecorder) -> None:
    warnings.simplefilter("always")
    x = np.random.default_rng(0).normal(size=(50, 4))
    x[3, 1] = np.nan
    front = RandomProjection(n_inputs=4, n_features=3)
    clf = privet.DPSGDClassifier(
        bounds=(-4, 4), classes=[0, 1], features=front, epsilon=5.0, random_state=0
    )
    clf.fit(x, np.arange(50) % 2)
    assert sum("not finite" in str(w.message) for w in recwarn) == 1
