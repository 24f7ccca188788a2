"""Tables as users have them: numpy, pandas and polars give the same model."""

from __future__ import annotations

import numpy as np
import pytest

import privet
from privet.errors import InvalidArgument

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
