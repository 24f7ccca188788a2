"""The user's own files, with what is public about them written down in a file beside them.

{"bounds": {"age": [0, 120], "admitted": ["2020-01-01", "2029-12-31"]},
 "categories": {"sex": ["f", "m"]}, "classes": ["no", "yes"], "ignore": ["patient"],
 "fill": {"age": 50}, "missing_labels": "drop"}

`classes` are the labels that may occur (of arrays also {"no": 0, "yes": 1}); `target_bounds`
[low, high], instead, the range of a number to predict. `fill` is what a missing cell counts as: a
value a column, or "middle". `transforms`, {"income": "log1p", "school": ["none", "some"]}, are for
skewed columns and words in an order. Records without a label are left out by `missing_labels`.
"""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import Any

from privet._atomic_files import replacing
from privet.data.array_files import load_npz
from privet.data.csv_file import load_csv
from privet.data.data_folder import damaged_file
from privet.data.dataset import Dataset
from privet.data.picture_folder import load_pictures
from privet.data.table_columns import (
    TableColumns,
    declare_columns,
    is_date_pair,
    is_unnamed,
    table_of,
)
from privet.errors import InvalidArgument, MissingFile

KINDS: dict[str, tuple[type, ...]] = {
    "bounds": (dict, list), "categories": (dict,), "classes": (list, dict),
    "ignore": (list,), "shape": (list,), "target_bounds": (list,), "fill": (dict, str),
    "missing_labels": (str,), "transforms": (dict,),
}  # fmt: skip
KEYS = tuple(KINDS)
WORDS: dict[type, str] = {dict: "an object", list: "a list", str: "a word"}


def load_declared(
    path: Path, *, label: str | None, declaration: Path | None, user: str | None = None
) -> Dataset:
    """A CSV file (with `label`, the column to predict), an npz file or a folder of pictures.

    An npz file's declaration has `bounds` [low, high] for all features, and `classes`; that of a
    folder, with one folder of pictures for each class in it, `classes` and `shape` [height, width]
    (grey) or [height, width, 3]. `user`: the column of a CSV file that says whose a record is.
    """
    if user is not None and path.suffix != ".csv":
        raise InvalidArgument("--user", user, "left out: only a CSV file has such a column")
    require_declaration(path, declaration)
    assert declaration is not None
    declared = read_declaration(declaration)
    if path.is_dir() and next(path.rglob("*.nii*"), None) is not None:
        raise InvalidArgument(
            "data", str(path), "a table, arrays or pictures",
            "volumes go through Python: see `load_volumes` in the guide on PATE for volumes",
        )  # fmt: skip
    if path.is_dir():
        return load_pictures(
            path, classes=_listed(declared["classes"]), shape=declared.get("shape")
        )
    if path.suffix == ".npz":
        low, high = _pair(declared["bounds"])
        return load_npz(
            path, bounds=(low, high), classes=declared["classes"],
            target_bounds=declared.get("target_bounds"),
        )  # fmt: skip
    if label is None:
        raise InvalidArgument(
            "--label", None, "the column to predict", f"one of those in the first line of {path}"
        )
    return load_csv(
        path,
        label=label,
        classes=_listed(declared["classes"]),
        target_bounds=declared.get("target_bounds"),
        bounds=_by_column(declared["bounds"]),
        categories=declared["categories"],
        ignore=declared["ignore"],
        fill=declared.get("fill"),
        transforms=declared.get("transforms"),
        missing_labels=declared.get("missing_labels"),
        user=user,
    )


def require_declaration(path: Path, declaration: Path | None) -> None:
    """Refuse a file that is not there, or about which nothing is declared."""
    if not path.is_file() and not path.is_dir():
        raise MissingFile(
            path, "give a .csv or .npz file, a folder of pictures, or a name of `privet data list`"
        )
    if declaration is None:
        raise InvalidArgument(
            "--bounds", None, "a JSON file that declares what is public",
            f"`privet data describe {path}` writes one to fill in",
        )  # fmt: skip


def declared_columns(
    declaration: Path | None,
) -> tuple[dict[str, tuple[float, float]], dict[str, list[str]]]:
    """Bounds and categories of columns, where a file declares no classes."""
    if declaration is None:
        raise InvalidArgument("--bounds", None, 'a JSON file, {"bounds": {"steps": [0, 30000]}}')
    declared = read_declaration(declaration, classes=False)
    bounds = _by_column(declared["bounds"])
    if dated := [name for name, pair in bounds.items() if is_date_pair(pair)]:
        raise InvalidArgument(f"bounds[{dated[0]!r}]", bounds[dated[0]], "two numbers here")
    return bounds, dict(declared["categories"])


def read_declaration(path: Path, *, classes: bool = True) -> dict[str, Any]:
    """What is public, from its file; null where something was left to fill in is an error."""
    if not path.is_file():
        raise MissingFile(path, "`privet data describe FILE` writes one to fill in")
    try:
        declared = json.loads(path.read_text())
    except ValueError as e:
        raise InvalidArgument("--bounds", str(path), "a JSON file", str(e)) from None
    if not isinstance(declared, dict) or not set(declared) <= set(KEYS):
        raise InvalidArgument("--bounds", str(path), f"a JSON object with {', '.join(KEYS)}")
    declared = {
        k: v
        for k, v in declared.items()
        if v is not None or k not in ("target_bounds", "fill", "transforms", "missing_labels")
    }
    named = declared.get("classes", [])
    if "target_bounds" in declared:
        _pair(declared["target_bounds"])
    right = isinstance(named, list | dict) and (len(named) < 2) is ("target_bounds" in declared)
    if classes and not right:
        raise InvalidArgument(
            "classes",
            named, f"a list in {path.name} of two or more: every label that may occur",
            "for a number to predict give target_bounds [low, high] and no classes",
        )  # fmt: skip
    whole = {"bounds": {}, "categories": {}, "ignore": [], "classes": [], **declared}
    for key, value in whole.items():
        kinds = KINDS[key]
        if not isinstance(value, kinds):
            expected = " or ".join(WORDS[kind] for kind in kinds)
            raise InvalidArgument(key, value, f"{expected} in {path.name}")
    return whole


def columns_of_file(path: Path) -> TableColumns | None:
    """The declared columns of a table, from the declaration beside a run; None for other data."""
    declared = read_declaration(path)
    if isinstance(declared["bounds"], list) or "shape" in declared:
        return None
    return declare_columns(
        bounds=_by_column(declared["bounds"]), categories=declared["categories"],
        fill=declared.get("fill"), transforms=declared.get("transforms"), number_type="float32",
    ).columns  # fmt: skip


def write_declaration(path: str | os.PathLike[str], **declared: Any) -> Path:
    """Write what is publicly known of a table to a new file, for `privet train --bounds`.

    The keys are those of the declaration: `bounds`, `categories`, `classes` or `target_bounds`,
    `ignore`, `fill`, `transforms`, `missing_labels`. Nothing is read from records; what cannot be
    read back is refused. The same words go to an estimator.

    >>> import tempfile
    >>> known = {"bounds": {"age": (0, 120)}, "classes": ["no", "yes"]}
    >>> path = write_declaration(Path(tempfile.mkdtemp()) / "d.json", **known)
    >>> read_declaration(path)["bounds"]
    {'age': [0, 120]}
    """
    place = Path(path)
    if place.exists():
        raise InvalidArgument("path", str(place), "a file that does not exist yet")
    if wrong := sorted(set(declared) - set(KEYS)):
        raise InvalidArgument(wrong[0], declared[wrong[0]], f"one of {', '.join(KEYS)}")
    if isinstance(declared.get("bounds"), Mapping):
        declare_columns(
            bounds=declared["bounds"], categories=declared.get("categories"),
            fill=declared.get("fill"), transforms=declared.get("transforms"),
        )  # fmt: skip
    text = json.dumps(declared, indent=2, default=_as_json)
    with replacing(place) as file:
        file.write(text.encode() + b"\n")
    try:
        read_declaration(place)
    except InvalidArgument:
        place.unlink()
        raise
    return place


def _as_json(value: Any) -> Any:
    return value.isoformat() if isinstance(value, date) else list(value)


def template(source: Any, *, label: str | None = None) -> dict[str, Any]:
    """A declaration to fill in, from the names of columns alone: no record is read.

    `source`: a CSV or npz file, a folder of pictures, or a frame.

    >>> template({"age": [41, 7], "ill": ["no", "yes"]}, label="ill")["bounds"]
    {'age': [None, None]}
    """
    if (table := table_of(source)) is not None:
        return _template_of(list(table), label)
    path = Path(source)
    if path.is_dir():
        return {"classes": [], "shape": [None, None]}
    if not path.is_file():
        raise MissingFile(path, "give the path of a .csv or .npz file, or a folder of pictures")
    if path.suffix == ".npz":
        return {"bounds": [None, None], "classes": []}
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            columns = [name.strip() for name in next(csv.reader(file), [])]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise damaged_file(path, f"not a readable CSV file ({error})") from None
    if not columns:
        raise damaged_file(path, "it is empty; expected a header line")
    return _template_of(columns, label)


def _template_of(columns: list[str], label: str | None) -> dict[str, Any]:
    if label is not None and label not in columns:
        raise InvalidArgument("--label", label, f"one of the columns: {', '.join(columns)}")
    return {
        "bounds": {
            name: [None, None] for name in columns if name != label and not is_unnamed(name)
        },
        "categories": {},
        "classes": [],
        "target_bounds": None,
        "ignore": [],
        "fill": None,
        "transforms": None,
        "missing_labels": None,
    }


def _by_column(bounds: Any) -> dict[str, Any]:
    if not isinstance(bounds, dict):
        expected = 'an object, {"column": [low, high]}, for a CSV file'
        raise InvalidArgument("bounds", bounds, expected)
    return {str(k): v if is_date_pair(v) else _pair(v) for k, v in bounds.items()}


def _listed(classes: Any) -> list[str]:
    """Names of classes, where the records have them as they are."""
    if isinstance(classes, dict):
        raise InvalidArgument("classes", classes, "a list of the labels, as the records have them")
    return list(classes)


def _pair(value: Any) -> tuple[float, float]:
    if not (isinstance(value, list | tuple) and len(value) == 2 and all(map(_is_number, value))):
        raise InvalidArgument(
            "bounds", value, "[low, high], two numbers known without the data",
            'dates are ["2020-01-01", "2029-12-31"]; a column not to be used belongs in ignore',
        )  # fmt: skip
    return float(value[0]), float(value[1])


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
