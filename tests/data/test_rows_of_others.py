"""No row of anybody else changes when one record changes in type, missingness or value.

A route makes rows of a list of records. It may refuse the list in one line of its own (before
anything is paid), and must not if all records are as declared; where it answers, the rows of all
records but the odd one are the same bits as beside an ordinary one.
"""

from __future__ import annotations

import inspect
import tempfile
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from functools import partial
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch

from privet import DPSGDClassifier, _check, sensitivity
from privet import features as features_package
from privet.data import from_arrays, load_npz
from privet.data.domain import Domain
from privet.data.records import Records, class_numbers
from privet.data.table_columns import TableColumns, table_of
from privet.errors import InvalidArgument, PrivetError
from privet.features import (
    CachedFeatures,
    Features,
    FromModule,
    MirrorInvariant,
    PatchFilters,
    RandomConvolutions,
    RandomProjection,
    Scattering,
    SceneBasis,
    SideBySide,
    StrokeBasis,
    StrokeNet,
)
from privet.methods.dpsgd.dataset_rows import as_rows
from privet.sensitivity import (
    Moments,
    TaylorCoefficients,
    categories,
    clip_l1,
    clip_l2,
    clip_range,
    clipping,
    count,
    moments,
)
from privet.sensitivity.user_ids import number_users
from privet.sensitivity.user_weights import assign_owners, user_weights
from tests.conformance.planting import Patch, wrapped

pytestmark = pytest.mark.filterwarnings("ignore::privet.data.records.UnprotectedDiagnostic")
Route = Callable[[list[Any]], np.ndarray]
SIDE, N = 8, 12
RNG = np.random.default_rng(0)
PICTURES = [RNG.integers(0, 256, (SIDE, SIDE)).astype(np.uint8) for _ in range(N)]
LARGE = 2**53 + 1
"""A whole number that is none as a float64."""

ODD_PICTURES = {
    "16 bits": PICTURES[0].astype(np.uint16) * 256,
    "signed": PICTURES[0].astype(np.int16) - 300,
    "64 bits": PICTURES[0].astype(np.int64) + LARGE,
    "half": (PICTURES[0] / 255).astype(np.float16),
    "single": (PICTURES[0] / 255).astype(np.float32),
    "double": PICTURES[0] / 3,
    "long double": PICTURES[0].astype(np.longdouble) * np.longdouble("1e400"),
    "missing": np.full((SIDE, SIDE), np.nan),
    "missing pixel": np.where(np.eye(SIDE) > 0, np.nan, PICTURES[0]),
    "infinite": np.full((SIDE, SIDE), np.inf),
    "huge": np.full((SIDE, SIDE), 1e300),
    "truth values": PICTURES[0] > 99,
    "objects": PICTURES[0].astype(object),
    "text": PICTURES[0].astype(str),
    "complex": PICTURES[0] * 1j,
    "white": np.full((SIDE, SIDE), 255, dtype=np.uint8),
    "black": np.zeros((SIDE, SIDE), dtype=np.uint8),
    "colour": np.zeros((SIDE, SIDE, 3), dtype=np.uint8),
    "small": np.zeros((SIDE - 1, SIDE), dtype=np.uint8),
}  # fmt: skip

TABLE: list[list[Any]] = [[int(k), float(k) / 3, LARGE + int(k), int(k) % 2] for k in range(1, N)]
ODD_LINES: dict[str, list[Any]] = {
    "float in a column of counts": [0.5, 0.1, 7, 1],
    "float in a column of large counts": [1, 0.1, 7.5, 1],
    "missing count": [None, 0.1, 7, 1],
    "missing number": [3, float("nan"), 7, 1],
    "missing large count": [3, 0.1, None, 1],
    "infinite": [3, float("inf"), 7, 1],
    "unsigned": [3, 0.1, 2**64 - 1, 1],
    "beyond 64 bits": [3, 0.1, 2**70, 1],
    "huge": [3, 1e300, 7, 1],
    "negative": [-3, -1e9, -7, -1],
    "text": ["three", 0.1, 7, 1],
    "truth value": [True, 0.1, 7, True],
    "long line": [3, 0.1, 7, 1, 5],
}


def extractors() -> dict[str, Features]:
    shape = (SIDE, SIDE)
    scattering, projection = Scattering(shape=shape), RandomProjection(n_inputs=64, n_features=9)
    module = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 4))
    with torch.no_grad():
        for p in module.parameters():
            p.copy_(torch.linspace(-1.0, 1.0, p.numel()).view_as(p))  # rows that differ
    filters = PatchFilters(shape=shape, filters=4, patch=3, folder=tempfile.mkdtemp())
    return {
        "scattering": scattering,
        "convolutions": RandomConvolutions(shape=shape, filters=4, patch=3, grid=2),
        "projection": projection,
        "mirrored": MirrorInvariant(scattering, shape=shape),
        "pipeline": scattering.then(RandomProjection(n_inputs=scattering.n_features, n_features=5)),
        "side by side": SideBySide(projection, scattering),
        "cached": CachedFeatures(projection, tempfile.mkdtemp()),
        "basis": StrokeBasis(
            scattering,
            n_features=6,
            glyphs=4,
            views=2,
            side=SIDE,
            screened=20,
            folder=tempfile.mkdtemp(),
        ),
        "filters": filters,
        "scene basis": SceneBasis(
            filters,
            shape=shape,
            n_features=6,
            scenes=20,
            folder=tempfile.mkdtemp(),
        ),
        "module": FromModule(module, n_features=4),
    }


def rows_of(domain: Domain, make: Callable[[list[Any]], Any], records: list[Any]) -> np.ndarray:
    return domain.rows(make(records)).values


def npz_rows(records: list[Any]) -> np.ndarray:
    with tempfile.TemporaryDirectory() as folder:
        path, few = Path(folder) / "a.npz", np.zeros((1, SIDE, SIDE))
        y = np.arange(len(records)) % 2
        x = np.asarray(records)
        if x.dtype == object:
            raise InvalidArgument("x", "objects", "numbers: such a file cannot be written")
        np.savez(path, x_train=x, y_train=y, x_test=few, y_test=[0])
        return load_npz(path, bounds=(0, 255), classes=("a", "b")).train_rows()


def array_rows(records: list[Any]) -> np.ndarray:
    y = np.arange(len(records)) % 2
    few = np.zeros((1, *np.shape(records[0])))
    arrays = {"x_train": records, "y_train": y, "x_test": few, "y_test": [0]}
    return from_arrays(arrays, bounds=(0, 255), classes=("a", "b")).train_rows()


def picture_routes() -> dict[str, Route]:
    found: dict[str, Route] = {"npz": npz_rows, "arrays": array_rows}
    makers: dict[str, Callable[[list[Any]], Any]] = {
        "list": list, "array": np.asarray, "stack": np.stack,
    }  # fmt: skip
    for name, make in makers.items():
        for bounds in ((0, 255), (0, 1), 9.0):
            domain = Domain(shape=(SIDE, SIDE), bounds=bounds)
            found[f"{name}, {bounds}"] = partial(rows_of, domain, make)
            filled = Domain(shape=(SIDE, SIDE), bounds=bounds, fill=1.0)
            found[f"{name}, {bounds}, fill"] = partial(rows_of, filled, make)
    for name, features in extractors().items():
        for scale in (None, (0, 255), 9.0):
            domain = Domain(shape=(SIDE, SIDE), bounds=scale, features=features)
            found[f"{name}, {scale}"] = partial(rows_of, domain, list)
    return found


def estimator_rows(
    make: Callable[[list[Any]], Any], records: list[Any], categories: Any = None
) -> np.ndarray:
    """Rows as `fit` makes them of a frame, a dict of columns or lists."""
    names = ["count", "number", "large", "flag"]
    bounds: Any = dict(zip(names, [(0, 20), (-1, 9), (0, LARGE + 20), (0, 1)], strict=True))
    table = make(records)
    estimator: Any = DPSGDClassifier(epsilon=1.0, classes=[0, 1], bounds=bounds)
    if categories is not None:
        estimator.categories = categories
        estimator.bounds = {k: v for k, v in bounds.items() if k not in categories}
    elif isinstance(table, list):
        estimator.bounds = tuple(zip(*bounds.values(), strict=True))
    x, _ = estimator._validate(table, [0, 1] * (len(records) // 2), y_numeric=False)
    return np.asarray(estimator._declared_domain(x.shape[1:]).rows(x).values)


def frame(records: list[Any], kind: str | None = None) -> pd.DataFrame:
    if {len(line) for line in records} != {4}:
        raise InvalidArgument("records", "lines of several lengths", "a table")
    made = pd.DataFrame(records, columns=["count", "number", "large", "flag"])
    with np.errstate(over="ignore"):
        return made if kind is None else made.astype({"number": kind})


TABLE_ROUTES: dict[str, Route] = {
    "lists": partial(estimator_rows, list),
    "pandas": partial(estimator_rows, frame),
    "pandas, single": partial(estimator_rows, partial(frame, kind="float32")),
    "pandas, nullable": partial(estimator_rows, lambda r: frame(r).convert_dtypes()),
    "polars": partial(
        estimator_rows,
        lambda r: pl.DataFrame({n: v.tolist() for n, v in frame(r).items()}, strict=False),
    ),
    "columns": partial(estimator_rows, lambda r: {n: v.to_numpy() for n, v in frame(r).items()}),
    "categories": partial(estimator_rows, frame, categories={"flag": [False, True]}),
    "categories of whole numbers": partial(estimator_rows, frame, categories={"count": range(9)}),
    "list of dicts": partial(
        estimator_rows, lambda r: frame(r).to_dict("records"), categories={"flag": [0, 1]}
    ),
}
PICTURE_ROUTES = picture_routes()


def moves_others(route: Route, ordinary: list[Any], odd: Any, *, at: int = 0) -> bool | None:
    """Whether other rows change with the odd record; None where the route refuses it in one line."""
    before = route([*ordinary[:at], ordinary[0], *ordinary[at:]])
    try:
        after = route([*ordinary[:at], odd, *ordinary[at:]])
    except (PrivetError, ValueError, TypeError, OverflowError, pl.exceptions.PolarsError):
        return None
    assert len(before) == len(after) == len(ordinary) + 1
    others = np.arange(len(before)) != at
    return bool(before[others].tobytes() != after[others].tobytes())


@pytest.mark.parametrize("route", PICTURE_ROUTES)
def test_a_picture_leaves_the_rows_of_others(route: str) -> None:
    for name, odd in ODD_PICTURES.items():
        for at in (0, 5):
            assert not moves_others(PICTURE_ROUTES[route], PICTURES, odd, at=at), (name, at)


@pytest.mark.slow
def test_a_network_that_drew_its_own_lessons_leaves_the_rows_of_others(tmp_path: Path) -> None:
    net = StrokeNet(side=12, width=2, steps=2, batch=4, folder=tmp_path)
    wide = [np.pad(picture, 2) for picture in PICTURES]
    for scale in (None, (0, 255)):
        route = partial(rows_of, Domain(shape=(12, 12), bounds=scale, features=net), list)
        for name, odd in ODD_PICTURES.items():
            record = np.pad(odd, 2) if odd.shape == (SIDE, SIDE) else odd
            assert not moves_others(route, wide, record), (name, scale)


def test_every_extractor_is_here() -> None:
    """One that is added to the package is added to this test, or shows here."""
    tested = {type(features).__name__ for features in extractors().values()} | {"StrokeNet"}
    tested |= {"FeaturePipeline"}  # what `then` makes
    public = {name for name in vars(features_package) if not name.startswith("_")}
    kinds = {
        name for name in public
        if isinstance(kind := getattr(features_package, name), type) and issubclass(kind, Features)
    }  # fmt: skip
    assert kinds - {"Features"} <= tested


@pytest.mark.parametrize("route", TABLE_ROUTES)
def test_a_line_leaves_the_rows_of_others(route: str) -> None:
    for name, odd in ODD_LINES.items():
        for at in (0, 5):
            assert not moves_others(TABLE_ROUTES[route], TABLE, odd, at=at), (name, at)


START = datetime(2024, 2, 29, 13, 5, 7, 123456, tzinfo=UTC).replace(tzinfo=None)
PEOPLE = [
    {"age": 20 + k, "code": 10**16 + k % 3, "word": "abc"[k % 3], "day": START + timedelta(k / 7)}
    for k in range(N)
]
ODD_CELLS = {
    "age": [None, float("nan"), 0.5, "old", True, 2**70, 1e300, "7"],
    "code": [None, float("nan"), 1.5, "x", True, 2**64 - 1, "10000000000000001"],
    "word": [None, float("nan"), 3, "z", True, ""],
    "day": [None, pd.NaT, "2024-02-29", "never", date(2024, 1, 1), datetime(9999, 1, 1), 7,
            pd.Timestamp("2024-02-29 13:05:07.123456789")],
}  # fmt: skip
COLUMNS = TableColumns(
    numbers=("age", "day"), dates={"day": "2020-01-01"},
    categories={"code": tuple(str(10**16 + k) for k in range(3)), "word": ("a", "b", "c")},
)  # fmt: skip


def by_name(people: list[dict[str, Any]]) -> dict[str, list[Any]]:
    return {name: [one[name] for one in people] for name in people[0]}


NAMED_TABLES: dict[str, Callable[[list[Any]], Any]] = {
    "dicts": list,
    "columns": by_name,
    "pandas": pd.DataFrame,
    "nullable": lambda people: pd.DataFrame(people, dtype=object).astype({"code": "Int64"}),
    "polars": lambda people: pl.DataFrame(by_name(people)),
}


@pytest.mark.parametrize("kind", NAMED_TABLES)
@pytest.mark.parametrize("column", ODD_CELLS)
def test_a_cell_leaves_the_cells_of_others(kind: str, column: str) -> None:
    def rows(people: list[Any]) -> np.ndarray:
        table = table_of(NAMED_TABLES[kind](people))
        assert table is not None
        return COLUMNS.encode(table)[0]

    assert not np.isnan(rows(PEOPLE)).any()
    for cell in ODD_CELLS[column]:
        for at in (0, 5):
            odd = PEOPLE[0] | {column: cell}
            assert not moves_others(rows, PEOPLE, odd, at=at), (cell, at)


def test_a_record_of_another_type_or_a_missing_one_is_taken_where_bounds_are_declared() -> None:
    for bounds in ("list, (0, 255)", "scattering, (0, 255)"):
        for odd in ("16 bits", "single", "missing", "missing pixel", "long double"):
            found = moves_others(PICTURE_ROUTES[bounds], PICTURES, ODD_PICTURES[odd])
            assert found is False, (bounds, odd)
    for route in TABLE_ROUTES:
        assert moves_others(TABLE_ROUTES[route], TABLE, ODD_LINES["missing number"]) is False


@pytest.mark.parametrize("odd", ["16 bits", "single", "missing"])
def test_without_bounds_only_bytes_are_taken(odd: str) -> None:
    domain: Any = Domain(shape=(SIDE, SIDE), features=Scattering(shape=(SIDE, SIDE)))
    with pytest.raises(InvalidArgument, match=r"declare bounds=\(0, 1\)"):
        domain.rows([ODD_PICTURES[odd], *PICTURES])
    estimator: Any = DPSGDClassifier(features=domain.features, epsilon=1.0, classes=[0, 1])
    with pytest.raises(InvalidArgument, match=r"declare bounds=\(0, 1\)"):
        estimator.fit([ODD_PICTURES[odd], *PICTURES[1:]], [0, 1] * 6)


def test_bytes_and_declared_floats_have_the_rows_they_had() -> None:
    front = Scattering(shape=(SIDE, SIDE))
    x = np.asarray(PICTURES)
    single = x.astype(np.float32) / np.float32(255)
    assert np.array_equal(
        Domain(shape=(SIDE, SIDE), features=front).rows(x).values, front.transform(single)
    )
    declared = Domain(shape=(SIDE, SIDE), features=front, bounds=(0, 1))
    for floats in (single, single.astype(np.float64)):
        assert np.array_equal(declared.rows(floats).values, front.transform(single))


def test_an_extractor_takes_an_array_whose_type_says_its_scale() -> None:
    front = Scattering(shape=(SIDE, SIDE))
    for wrong in (PICTURES, np.asarray(PICTURES).astype(np.uint16)):
        with pytest.raises(InvalidArgument, match="its type declares the scale"):
            front.transform(wrong)  # type: ignore[arg-type]


def batch_of(make: Callable[[Any], Any], records: list[Any]) -> np.ndarray:
    """The rows of a step of `private`, of a data set that gives rows by number."""
    rows = as_rows([make(record) for record in records])
    return rows.take(np.arange(len(records)))[0].numpy()


def to_tensor(record: Any) -> torch.Tensor:
    return torch.from_numpy(np.asarray(record))


BATCHES: dict[str, Route] = {
    "tensors": partial(batch_of, lambda r: {"x": to_tensor(r)}),
    "arrays": partial(batch_of, lambda r: {"x": np.asarray(r)}),
    "lists": partial(batch_of, lambda r: {"x": np.asarray(r).tolist()}),
    "numbers": partial(batch_of, lambda r: {"x": np.asarray(r).ravel().tolist()[0]}),
    "another column": partial(
        batch_of,
        lambda r: {"x": to_tensor(r)} | ({} if np.asarray(r).dtype == np.uint8 else {"y": 1}),
    ),
}


@pytest.mark.parametrize("route", BATCHES)
def test_a_record_leaves_the_batch_of_others(route: str) -> None:
    """Attack: a picture of numbers with a point made a batch of bytes one of floats."""
    for name, odd in ODD_PICTURES.items():
        for at in (0, 5):
            assert not moves_others(BATCHES[route], PICTURES, odd, at=at), (name, at)
    with pytest.raises(InvalidArgument, match="rows of one type and shape"):
        BATCHES[route]([*PICTURES, ODD_PICTURES["single"]])


def test_columns_say_their_number_type() -> None:
    for rows in ([[1, 2], [3, 4]], [[1, 2.5], [3, 4]]):
        with pytest.raises(InvalidArgument, match="dtype="):
            as_rows((rows, torch.zeros(2)))
    with pytest.raises(InvalidArgument, match="must be numbers"):
        as_rows((np.array([1, None]), torch.zeros(2)))


LABELS = [0, 1, 1, 0, 1, 0]


def targets(y: list[Any]) -> np.ndarray:
    domain = Domain(shape=(2,), bounds=(0, 1))
    x, labels = np.zeros((len(y), 2)), np.asarray(y)
    return Records.with_classes(x, labels, domain=domain, classes=np.array([0, 1])).targets


def large_rows(records: list[Any]) -> np.ndarray:
    arrays = {"x_train": records, "x_test": [[0]], "y_test": [0]}
    y = np.arange(len(records)) % 2
    data = from_arrays(arrays | {"y_train": y}, bounds=(0, 2**61), classes=("a", "b"))
    return data.train_rows()


def products_of_targets(y: list[Any]) -> np.ndarray:
    """What each target adds: row k is e_k, so that its products stand apart in the sum."""
    found = moments(np.eye(len(y)) * 0.7, y, of=(of := Moments(features=len(y), outputs=2))).value
    return of.unpack(found)[1]


@pytest.mark.parametrize("odd", ["1", "one", 0.5, float("nan"), None, True, 2**63, -1, 1 + 0j])
def test_a_label_leaves_the_labels_of_others(odd: Any) -> None:
    assert not moves_others(targets, LABELS, odd)


@pytest.mark.parametrize("odd", ["1", "one", 0.5, float("nan"), None, 2**60, 2**63, -1])
def test_a_target_leaves_what_others_add(odd: Any) -> None:
    assert not moves_others(products_of_targets, LABELS, odd)


def clipped(clip: Callable[[Any], Any], records: list[Any]) -> np.ndarray:
    return clip(records).units


SENSITIVITY: dict[str, Route] = {
    "l2": partial(clipped, lambda r: clip_l2(r, 1.0)),
    "l1": partial(clipped, lambda r: clip_l1(r, 1.0)),
    "range": partial(clipped, lambda r: clip_range(r, 0.0, 5.0)),
    "categories": lambda r: categories([line[0] for line in r], 20).values,
    # apart from each other in a sum: record k with targets, or hidden units, that no other has
    "moments": lambda r: (
        Moments(features=3, outputs=len(r))
        .unpack(moments(r, np.arange(len(r)), of=Moments(features=3, outputs=len(r))).value)[1]
        .T.copy()
    ),
    "coefficients": lambda r: (
        TaylorCoefficients(features=len(r), outputs=3)
        .sum(np.eye(len(r)), r)
        .value[: 3 * len(r)]
        .reshape(3, len(r))
        .T.copy()
    ),
}
NAMES = [f"person {k}" for k in range(6)]
ODD_NAMES = [None, float("nan"), 7, 7.5, 2**60, True, b"person", "", ("a", "b")]


def alike(groups: Any) -> np.ndarray:
    """For each record, which others are of the same person."""
    number = number_users(groups)
    return number[:, None] == number[None, :]


PEOPLE_ROUTES: dict[str, Route] = {
    # the odd person's own column is theirs
    "users": lambda names: np.delete(alike([*names, *NAMES]), [0, 5], axis=1),
    "weights": lambda names: user_weights([*names, *NAMES], share=1.5).values[: len(names)],
    "owners": lambda names: assign_owners([[name] for name in names]),
}


@pytest.mark.parametrize("route", PEOPLE_ROUTES)
@pytest.mark.parametrize("odd", ODD_NAMES, ids=repr)
def test_a_name_leaves_who_the_others_are(route: str, odd: Any) -> None:
    make = PEOPLE_ROUTES[route]
    before = make([*NAMES[:5], NAMES[5]])
    try:
        after = make([*NAMES[:5], odd])
    except (InvalidArgument, TypeError):
        return
    assert before[:5].tobytes() == after[:5].tobytes()


def test_a_truth_value_leaves_the_count_of_others() -> None:
    for odd in (None, 1, 0.5, "yes", float("nan")):
        try:
            found = float(count([True, False, True, odd]).value)
        except InvalidArgument:
            continue
        assert found in (2.0, 3.0)


def test_every_function_that_takes_records_is_here() -> None:
    """One that is added to `sensitivity` is added to these tests, or shows here."""
    tested = {"clip_l1", "clip_l2", "clip_range", "categories", "count", "moments"}
    tested |= {"number_users", "user_weights", "assign_owners"}
    of_sums = {"softplus", "softplus_taylor", "taylor_error", "cross_entropy", "squared_error"}
    of_sums |= {"bound_weights", "rounding_room"}  # of numbers that are no records
    inside = {
        "user_ids",
        "refuse_merged_ids",
        "is_missing",
        "as_keys",
        "clip_to_unit_ball",
    }  # of number_users, and of moments
    modules = [
        import_module(f"{sensitivity.__name__}.{m.name}")
        for m in iter_modules(sensitivity.__path__)
    ]
    found = {
        name
        for module in modules
        for name, value in vars(module).items()
        if inspect.isfunction(value) and value.__module__ == module.__name__ and name[0] != "_"
    }
    assert found == tested | of_sums | inside


ODD_ROWS: dict[str, list[Any]] = {
    "missing": [float("nan"), 0.1, 7],
    "none": [None, 0.1, 7],
    "infinite": [1, float("-inf"), 7],
    "huge": [1e300, 1e300, 7],
    "tiny": [5e-324, 0.0, 0.0],
    "large counts": [2**63, 2**70, 1],
    "text": ["three", 0.1, 7],
    "truth values": [True, False, True],
    "complex": [1j, 0.1, 7],
    "long": [1, 2, 3, 4],
    "zero": [0, 0, 0],
}


@pytest.mark.parametrize("route", SENSITIVITY)
def test_a_row_leaves_what_others_are_clipped_to(route: str) -> None:
    ordinary = [[k, k / 3, LARGE + k] for k in range(1, 7)]
    for name, odd in ODD_ROWS.items():
        for at in (0, 3):
            assert not moves_others(SENSITIVITY[route], ordinary, odd, at=at), (name, at)


def test_classes_that_floats_would_merge_are_refused() -> None:
    with pytest.raises(InvalidArgument, match="below 2\\*\\*53"):
        class_numbers(np.array([LARGE - 1, LARGE]), np.array([LARGE - 1, LARGE]))


def largest_first(original: Any, self: Domain, x: Any) -> Any:
    x = np.asarray(x, dtype=np.float64)
    return original(self, x / 255 if np.nanmax(x) > 254 else x)


def fill_by_mean(original: Any, self: Domain, x: Any) -> Any:
    x = np.asarray(x, dtype=np.float64)
    return original(self, np.where(np.isfinite(x), x, np.nanmean(x)) - np.isnan(x).any())


def sorted_records(original: Any, self: Domain, x: Any) -> Any:
    x = np.asarray(x, dtype=np.float64)
    return original(self, x[np.argsort(x.reshape(len(x), -1)[:, 0], kind="stable")])


def common_type(original: Any, name: str, value: Any) -> Any:
    return np.asarray(value)


PLANTED: dict[str, tuple[Patch, Route, list[Any], list[Any]]] = {
    "scale by the type of all": (
        wrapped(Domain, "_check_number_type", lambda original, self, x: None),
        PICTURE_ROUTES["scattering, None"], PICTURES,
        [ODD_PICTURES[k] for k in ("16 bits", "single", "missing")],
    ),
    "scale by the largest value": (
        wrapped(Domain, "rows", largest_first), PICTURE_ROUTES["list, (0, 255)"],
        [p // 2 for p in PICTURES], [ODD_PICTURES["white"]],
    ),
    "missing values by the mean": (
        wrapped(Domain, "rows", fill_by_mean), PICTURE_ROUTES["list, (0, 255)"], PICTURES,
        [ODD_PICTURES["missing pixel"]],
    ),
    "records in order of their values": (
        wrapped(Domain, "rows", sorted_records), PICTURE_ROUTES["list, (0, 255)"], PICTURES,
        [ODD_PICTURES["black"], ODD_PICTURES["white"]],
    ),
    "numbers of a common type": (
        wrapped(_check, "numbers", common_type), large_rows, [[2**60 + 2**36 + 1]] * 3, [[0.5]],
    ),
}  # fmt: skip


def minus_the_mean(original: Any, self: Features, images: Any) -> Any:
    rows = original(self, images)
    return rows - rows.mean(axis=0)


@pytest.mark.parametrize("name", extractors())
def test_rows_of_every_extractor_are_looked_at(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same bug in each: the mean of all rows is taken from them."""
    route = PICTURE_ROUTES[f"{name}, (0, 255)"]
    wrapped(type(extractors()[name]), "transform", minus_the_mean)(monkeypatch)
    assert moves_others(route, PICTURES, ODD_PICTURES["white"])


def centred(x: Any) -> np.ndarray:
    x = np.asarray(x, dtype=np.float64)
    return x - np.nan_to_num(x, posinf=0.0, neginf=0.0).mean(axis=0)


@pytest.mark.parametrize("route", TABLE_ROUTES)
def test_rows_of_every_table_are_looked_at(route: str, monkeypatch: pytest.MonkeyPatch) -> None:
    wrapped(Domain, "rows", lambda f, self, x: f(self, centred(x)))(monkeypatch)
    assert moves_others(TABLE_ROUTES[route], TABLE, ODD_LINES["huge"])


def centred_first(original: Any, *given: Any) -> Any:
    x, *rest = original(*given)
    return centred(x), *rest


FINITE = wrapped(clipping, "_finite_rows", centred_first)
CENTRED: dict[str, Patch] = {
    "l2": FINITE, "l1": FINITE, "range": FINITE,
    "moments": wrapped(_check, "numbers", lambda f, name, x: centred(f(name, x))),
    "coefficients": wrapped(TaylorCoefficients, "sum", lambda f, s, h, x: f(s, h, centred(x))),
    "categories": wrapped(
        sensitivity.counts, "categories", lambda f, x, k: f((np.asarray(x) + np.max(x)) % 20, k)
    ),
}  # fmt: skip


@pytest.mark.parametrize("route", SENSITIVITY)
def test_rows_of_every_sum_are_looked_at(route: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same bug in each: the mean of all rows is taken from them."""
    ordinary = [[k, k / 8, k / 7] for k in range(6)]
    CENTRED[route](monkeypatch)
    assert moves_others(SENSITIVITY[route], ordinary, [9, -0.9, 0.9])


@pytest.mark.parametrize("bug", PLANTED)
def test_a_planted_bug_moves_others(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plant, route, ordinary, odd = PLANTED[bug]
    assert not any(moves_others(route, ordinary, record) for record in odd)
    plant(monkeypatch)
    assert any(moves_others(route, ordinary, record) for record in odd)
