"""Tables as users have them: numpy, pandas and polars give the same model."""

from __future__ import annotations

import warnings
from functools import partial
from typing import Any

import numpy as np
import pytest
from sklearn.exceptions import DataConversionWarning

import privet
from privet.data.declarations import load_declared
from privet.errors import InvalidArgument, PrivetError
from privet.features import PatchFilters, RandomProjection
from privet.guarantee import Unit
from privet.methods.feasibility import LittleSignal

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


WARD: dict[str, list[Any]] = {
    "patient": [f"p{k}" for k in range(200)],
    "age": [str(20 + k % 60) if k % 7 else None for k in range(200)],
    "sex": ["FEMALE" if k % 2 else "MALE" for k in range(200)],
    "admitted": [f"2021-{1 + k % 12:02d}-15" for k in range(200)],
    "stay": [float(k % 9) for k in range(200)],
}
KNOWN: dict[str, Any] = {
    "bounds": {"age": (0, 120), "stay": (0, 30), "admitted": ("2020-01-01", "2022-12-31")},
    "categories": {"sex": ["FEMALE", "MALE"]},
    "ignore": ["patient"],
    "fill": {"age": 50},
}
ILL = np.where(np.arange(200) % 2 == 1, "ill", "well")


def ward_frames() -> dict[str, Any]:
    """The same table as people have it; columns in another order, one too many, types as they are."""
    frame = pandas.DataFrame(WARD)
    typed = frame.assign(
        admitted=pandas.to_datetime(frame["admitted"]), sex=frame["sex"].astype("category"),
        age=frame["age"].astype(float), note="free text",
    )  # fmt: skip
    return {
        "dict": WARD,
        "pandas": frame,
        "pandas, typed, other order": typed[list(reversed(typed.columns))],
        "polars": polars.DataFrame(WARD).with_columns(polars.col("admitted").str.to_date()),
        "list of dicts": frame.to_dict("records"),
    }


def test_declared_words_dates_and_missing_cells_in_python(tmp_path: Any) -> None:
    """`could not convert string to float: 'MALE'`: the estimator takes what a declaration says."""
    common = {"classes": ["ill", "well"], "random_state": 0, "epsilon": 8.0}
    said = {}
    for name, X in ward_frames().items():
        known = KNOWN | {"ignore": ["patient", "note"]}
        clf = privet.AdaptiveLaplaceClassifier(**known, **common).fit(X, ILL)
        order = np.argsort([str(n) for n in clf.table_columns_.features])
        said[name] = clf.domain_.rows(clf._records(X)).values[:, order]
        assert (clf.predict(X) == ILL).mean() > 0.95, name
    for name, rows in said.items():
        np.testing.assert_array_equal(rows, said["dict"], err_msg=name)
    clf = privet.AdaptiveLaplaceClassifier(**KNOWN, **common).fit(WARD, ILL)
    clf.save(tmp_path / "run")
    run = privet.load(tmp_path / "run")
    for name, X in ward_frames().items():
        np.testing.assert_array_equal(run.predict_proba(X), clf.predict_proba(WARD), err_msg=name)
    with pytest.raises(InvalidArgument, match="also 'sex'"):
        run.predict(pandas.DataFrame(WARD).drop(columns="sex"))
    with pytest.raises(InvalidArgument, match=r"record 0.*'OTHER' is not among FEMALE, MALE"):
        run.predict(pandas.DataFrame(WARD).assign(sex="OTHER"))
    with pytest.raises(InvalidArgument, match=r"record 0.*'stay'.*fill"):
        run.predict(pandas.DataFrame(WARD).assign(stay=None))


def test_a_record_outside_what_was_declared_counts_for_nothing() -> None:
    X = pandas.DataFrame(WARD).assign(sex=["OTHER", *WARD["sex"][1:]])
    clf = privet.AdaptiveLaplaceClassifier(
        **KNOWN, classes=["ill", "well"], random_state=0, epsilon=8.0
    )
    with pytest.warns(UserWarning, match="1 with a value that is not finite or not as declared"):
        clf.fit(X, ILL)


def test_text_that_was_not_declared_is_named() -> None:
    clf = privet.DPSGDClassifier(bounds=(0, 1), classes=["ill", "well"])
    with pytest.raises(InvalidArgument, match=r"X\['patient'\].*categories"):
        clf.fit(pandas.DataFrame(WARD), ILL)
    clf = privet.DPSGDClassifier(**KNOWN | {"ignore": []}, classes=["ill", "well"])
    with pytest.raises(InvalidArgument, match="also 'patient'"):
        clf.fit(pandas.DataFrame(WARD), ILL)


@pytest.mark.parametrize("dtype", ["string", "object", "category", "boolean"])
def test_a_record_without_a_label_is_told_how_to_be_left_out(dtype: str) -> None:
    """pandas.NA raised TypeError, None could not be sorted."""
    y = pandas.Series([True, False] * 20 if dtype == "boolean" else ["a", "b"] * 20, dtype=dtype)
    y.iloc[3] = None
    clf = privet.DPSGDClassifier(bounds=(0, 1), classes=sorted(set(y.dropna())), random_state=0)
    with pytest.raises(InvalidArgument, match=r"X\[known\], y\[known\]"):
        clf.fit(np.zeros((40, 2)), y)
    known = pandas.notna(y)
    assert len(clf.fit(np.zeros((40, 2))[known], y[known]).classes_) == 2


def test_dates_in_another_order_are_told_how_to_be_written(tmp_path: Any) -> None:
    known = {"bounds": {"seen": ("2023-01-01", "2024-12-31")}, "classes": ["a", "b"]}
    privet.data.write_declaration(tmp_path / "known.json", **known)
    (tmp_path / "table.csv").write_text("seen,label\n19.10.2023 08:30,a\n20.10.2023 08:30,b\n")
    with pytest.raises(ValueError, match="dates are written 2023-10-19 or 2023-10-19 08:30"):
        load_declared(tmp_path / "table.csv", label="label", declaration=tmp_path / "known.json")


def test_a_declaration_from_public_knowledge(tmp_path: Any) -> None:
    """A template has names only; what is written goes to the command and to an estimator."""
    told = privet.data.template(pandas.DataFrame(WARD), label="sex")
    assert all(pair == [None, None] for pair in told["bounds"].values())
    path = privet.data.write_declaration(tmp_path / "d.json", **KNOWN, classes=["ill", "well"])
    clf = privet.AdaptiveLaplaceClassifier(
        **privet.data.read_declaration(path), random_state=0, epsilon=8.0
    )
    assert (clf.fit(WARD, ILL).predict(WARD) == ILL).mean() > 0.95
    with pytest.raises(InvalidArgument, match="each of them once"):
        privet.data.write_declaration(
            tmp_path / "e.json", categories={"sex": ["f", "f"]}, bounds={}
        )
    assert not (tmp_path / "e.json").exists()


def bars(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Small pictures of bytes: upright or lying bars, at random places."""
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 60, (n, 16, 16)).astype(np.uint8), np.arange(n) % 2
    for picture, k in zip(x, y, strict=True):
        at = rng.integers(2, 12)
        picture[(slice(None), slice(at, at + 3))[:: 1 if k else -1]] += 150
    return x, y


@pytest.mark.parametrize("name", ["dpsgd", "adaptive-laplace"])
def test_pictures_have_the_same_front_in_python_and_by_command(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    """Clothes: 83.4 by DPSGDClassifier, 88.0 by command. One default, and bit for bit one model."""
    from privet.data import from_arrays
    from privet.methods.catalogue import method_type
    from privet.runs.training_task import task_of

    def noise(count: int, *, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
        return rng.random((min(count, 60), *shape)).astype(np.float32)  # scenes take a minute

    monkeypatch.setenv("PRIVET_CACHE", str(tmp_path))
    monkeypatch.setattr("privet.features.patch_filters.draw_scenes", noise)
    monkeypatch.setattr("privet.features.scene_basis.draw_scenes", noise)
    few = partial(PatchFilters, filters=5)
    monkeypatch.setattr("privet.features.default_extractors.PatchFilters", few)
    x, y = bars(400)
    arrays = {"x_train": x[:300], "y_train": y[:300], "x_test": x[300:], "y_test": y[300:]}
    data = from_arrays(arrays, bounds=(0, 255), classes=("0", "1"))
    task = task_of(
        method_type(name)(), data, features="auto", cache=False, public=None, own=True,
        class_weight=None,
    )  # fmt: skip
    records = task.records(n_public=None, progress=None)
    plan = task.plan(records, epsilon=4.0, delta=1e-5, allow_vacuous=False)
    by_command = task.train(records, plan, rng=privet.noise.seeded(0)).model
    kind = {"dpsgd": privet.DPSGDClassifier, "adaptive-laplace": privet.AdaptiveLaplaceClassifier}
    common = {"epsilon": 4.0, "bounds": (0, 255), "classes": [0, 1], "random_state": 0}
    clf = kind[name](**common).fit(x[:300], y[:300])
    assert clf.domain_.features is not None
    np.testing.assert_array_equal(
        clf._outputs(x[300:]), by_command.outputs(task.domain.rows(x[300:]))
    )
    word = kind[name](**common, features="scenes").fit(x[:300], y[:300])
    np.testing.assert_array_equal(word._outputs(x[300:]), clf._outputs(x[300:]))
    other = kind[name](**common, features="scattering").fit(x[:300], y[:300])
    assert not np.array_equal(other._outputs(x[300:]), clf._outputs(x[300:]))
    plain = kind[name](**common, features="plain").fit(x[:300], y[:300])
    assert plain.domain_.features is None
    with pytest.raises(InvalidArgument, match="one of auto, plain, scattering, strokes"):
        kind[name](**common, features="magic").fit(x[:300], y[:300])


def test_few_users_are_told_what_to_expect_before_anything_is_charged(tmp_path: Any) -> None:
    """71 users: R2 of -.35, or chance, without a word. From sizes alone: no record is read."""
    rng = np.random.default_rng(0)
    x = rng.uniform(size=(71 * 40, 20))
    y, users = x[:, 0] * 10, np.repeat(np.arange(71), 40)
    ledger = privet.Ledger.create(tmp_path / "a", cap_epsilon=1e-3, cap_delta=1e-5, unit=Unit.USER)
    common = {"bounds": (0, 1), "epsilon": 1.0, "ledger": ledger}
    with pytest.warns(LittleSignal, match=r"71 users are 4.2 times .* a constant"):  # noqa: SIM117
        with pytest.raises(PrivetError):  # the ledger cannot pay: told before that
            privet.DPSGDRegressor(target_bounds=(0, 10), **common).fit(x, y, groups=users)
    with pytest.warns(LittleSignal, match=r"71 users are 2.9 times .* guessing"):  # noqa: SIM117
        with pytest.raises(PrivetError):
            privet.AdaptiveLaplaceClassifier(classes=[False, True], **common).fit(
                x, y > 5, groups=users
            )
    with warnings.catch_warnings():  # as records they are many
        warnings.simplefilter("error")
        privet.AdaptiveLaplaceClassifier(bounds=(0, 1), classes=[False, True]).fit(x, y > 5)
