"""Skewed and ordered columns by a declared transform: the same numbers everywhere, none inferred."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import privet
from privet.data.column_transforms import WORDS, ColumnTransform
from privet.data.declarations import load_declared, write_declaration
from privet.data.table_columns import TableColumns, declare_columns
from privet.errors import InvalidArgument

KNOWN = {
    "bounds": {"income": (0, 1e6), "age": (0, 100)},
    "transforms": {"income": "log1p", "school": ["none", "some", "degree"]},
    "classes": ["no", "yes"],
}


@pytest.mark.parametrize("word", WORDS)
def test_every_transform_goes_up_within_its_bounds_and_has_a_way_back(word: str) -> None:
    low = {"log": 0.5, "asinh": -50.0}.get(word, 0.0)
    one = ColumnTransform(word=word, low=low, high=1e4)
    x = np.linspace(low, 1e4, 1000)
    z = one.apply(x)
    assert (np.diff(z) > 0).all() and (z[0], z[-1]) == one.range
    np.testing.assert_allclose(WORDS[word][1](z), x, rtol=1e-9, atol=1e-9)
    wild = one.apply(np.array([-1e30, 1e30, np.nan]))
    assert tuple(wild[:2]) == one.range and np.isnan(wild[2])
    assert one.apply(np.array([one.middle]))[0] == pytest.approx(sum(one.range) / 2)
    assert ColumnTransform.of(json.loads(json.dumps(one.to_list()))) == one


def test_what_cannot_be_transformed_is_refused() -> None:
    bounds = {"income": (0, 10), "debt": (-5, 5), "day": ("2020-01-01", "2021-01-01")}
    for wrong in (
        {"income": "log"}, {"debt": "sqrt"}, {"debt": "cube"}, {"day": "log1p"}, {"age": "log1p"},
        {"income": ["a", "b"]}, {"school": ["a"]}, {"school": ["a", "a"]},
    ):  # fmt: skip
        with pytest.raises(InvalidArgument, match=r"income|debt|day|age|school"):
            declare_columns(bounds=bounds, categories={}, transforms=wrong)


def table(n: int) -> tuple[dict[str, list[object]], list[str]]:
    rng = np.random.default_rng(0)
    income, level = np.expm1(rng.normal(9, 1.5, n)), rng.integers(3, size=n)
    says = np.log1p(income) - 9 + level - 1 + 0.5 * rng.normal(size=n) > 0
    school = np.array(KNOWN["transforms"]["school"])[level]  # type: ignore[index]
    columns = {"income": income.tolist(), "age": [40.0] * n, "school": school.tolist()}
    return columns, np.where(says, "yes", "no").tolist()


@pytest.mark.slow
def test_the_map_is_kept_with_the_run(tmp_path: Path) -> None:
    x, y = table(1500)
    common = {"epsilon": 2.0, "random_state": 0}
    clf = privet.AdaptiveLaplaceClassifier(**common, **KNOWN).fit(x, y)
    plain = KNOWN | {"transforms": None, "categories": {"school": ["none", "some", "degree"]}}
    worse = privet.AdaptiveLaplaceClassifier(**common, **plain).fit(x, y)
    score = [np.mean(c.predict(x) == np.array(y)) for c in (clf, worse)]
    assert score[0] > score[1] + 0.02  # in a corner of its box income says little
    clf.save(tmp_path / "run")
    run = privet.load(tmp_path / "run")
    np.testing.assert_array_equal(run.predict(x), clf.predict(x))
    assert run.columns is not None and TableColumns.from_dict(run.columns.to_dict()) == run.columns
    with pytest.raises(InvalidArgument, match="'PhD' is not a level"):
        run.predict([{"income": 3.0, "age": 9, "school": "PhD"}])
    with pytest.raises(InvalidArgument, match="column names"):
        privet.AdaptiveLaplaceClassifier(transforms={"income": "log1p"}, bounds=(0, 1)).fit(
            np.zeros((9, 2)), np.arange(9) % 2
        )


def test_a_file_is_read_as_python_reads_the_table(tmp_path: Path) -> None:
    x, y = table(60)
    x["income"][3] = None
    lines = [
        ",".join("" if c is None else str(c) for c in row)
        for row in zip(*x.values(), y, strict=True)
    ]
    (tmp_path / "t.csv").write_text("\n".join(["income,age,school,buys", *lines]) + "\n")
    path = write_declaration(tmp_path / "d.json", **KNOWN, fill="middle")
    found = load_declared(tmp_path / "t.csv", label="buys", declaration=path)
    assert found.columns is not None
    rows = found.columns.encode(x)[0]
    both = np.concatenate([found.x_train, found.x_test])
    np.testing.assert_array_equal(np.sort(both, axis=0), np.sort(rows, axis=0))
    low, high = found.low[0], found.high[0]
    assert (low, high) == (0.0, pytest.approx(np.log1p(1e6)))
    assert rows[3, 0] == np.float32((low + high) / 2)
