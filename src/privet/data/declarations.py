"""The user's own files, with what is public about them written down in a file beside them.

{"bounds": {"age": [0, 120]}, "categories": {"sex": ["f", "m"]},
 "classes": ["no", "yes"], "ignore": ["patient"], "fill": {"age": 50}}

`classes` are the labels that may occur; `target_bounds` [low, high], instead, the range of a number
to predict. `fill` is what a missing cell counts as: a value a column, or "middle".
"""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privet.data.columns import Columns
from privet.data.dataset import Dataset
from privet.data.files import damaged
from privet.data.pictures import read_npz
from privet.data.split import BY_CONTENT, kept_for_tests
from privet.data.table import check_labels, check_parts, load_csv, load_npz
from privet.errors import InvalidArgument, MissingFile

KINDS: dict[str, tuple[type, ...]] = {
    "bounds": (dict, list), "categories": (dict,), "classes": (list,), "ignore": (list,),
    "shape": (list,), "target_bounds": (list,), "fill": (dict, str),
}  # fmt: skip
KEYS = tuple(KINDS)
WORDS: dict[type, str] = {dict: "an object", list: "a list", str: "a word"}
PICTURES = (".png", ".jpg", ".jpeg", ".bmp", ".tif", ".tiff")


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
    if not path.is_file() and not path.is_dir():
        raise MissingFile(
            path, "give a .csv or .npz file, a folder of pictures, or a name of `privet data list`"
        )
    if declaration is None:
        raise InvalidArgument(
            "--bounds", None, "a JSON file that declares what is public",
            f"`privet data describe {path} --private` writes one to fill in",
        )  # fmt: skip
    told = read_declaration(declaration)
    if path.is_dir() and next(path.rglob("*.nii*"), None) is not None:
        raise InvalidArgument(
            "data", str(path), "a table, arrays or pictures",
            "volumes go through Python: see `load_volumes` in the guide on PATE for volumes",
        )  # fmt: skip
    if path.is_dir():
        return load_pictures(path, classes=told["classes"], shape=told.get("shape"))
    if path.suffix == ".npz":
        low, high = _pair(told["bounds"])
        return load_npz(
            path, bounds=(low, high), classes=told["classes"],
            target_bounds=told.get("target_bounds"),
        )  # fmt: skip
    if label is None:
        raise InvalidArgument(
            "--label", None, "the column to predict", f"one of those in the first line of {path}"
        )
    return load_csv(
        path,
        label=label,
        classes=told["classes"],
        target_bounds=told.get("target_bounds"),
        bounds=_by_column(told["bounds"]),
        categories=told["categories"],
        ignore=told["ignore"],
        fill=told.get("fill"),
        user=user,
    )


def load_pictures(path: Path, *, classes: Sequence[str], shape: Any, seed: int = 0) -> Dataset:
    """Pictures in one folder a class, brought to one size.

    About a fifth are the test part, each by a hash of its own pixels. They are taken in the order
    of their names, whatever their class: the same picture under another class moves no other one,
    to the test part or to another teacher.
    """
    found: list[tuple[str, int, Path]] = []
    for k, name in enumerate(classes):
        folder = path / str(name)
        if not folder.is_dir():
            raise MissingFile(folder, "every declared class needs a folder of its own")
        found += [(file.name, k, file) for file in picture_files(folder)]
    x = [_picture(file, shape) for _, _, file in sorted(found)]
    y = [k for _, k, _ in sorted(found)]
    if not x:
        raise InvalidArgument("data", str(path), f"a folder with pictures ({', '.join(PICTURES)})")
    rows, labels, names = np.stack(x), np.array(y), tuple(map(str, classes))
    check_labels(path, labels, names)
    tests = kept_for_tests((picture.tobytes() for picture in x), share=0.2, seed=seed)
    check_parts(path, int((~tests).sum()), int(tests.sum()))
    return Dataset(
        name=path.name, about=f"pictures in {path.name}", classes=names, low=np.array(0.0),
        high=np.array(255.0), x_train=rows[~tests], y_train=labels[~tests], x_test=rows[tests],
        y_test=labels[tests], split_assumes=BY_CONTENT,
    )  # fmt: skip


def declared_columns(
    declaration: Path | None,
) -> tuple[dict[str, tuple[float, float]], dict[str, list[str]]]:
    """Bounds and categories of columns, where a file declares no classes."""
    if declaration is None:
        raise InvalidArgument("--bounds", None, 'a JSON file, {"bounds": {"steps": [0, 30000]}}')
    told = read_declaration(declaration, classes=False)
    return _by_column(told["bounds"]), dict(told["categories"])


def read_declaration(path: Path, *, classes: bool = True) -> dict[str, Any]:
    """What is public, from its file; null where something was left to fill in is an error."""
    if not path.is_file():
        raise MissingFile(path, "`privet data describe FILE --private` writes one to fill in")
    try:
        told = json.loads(path.read_text())
    except ValueError as e:
        raise InvalidArgument("--bounds", str(path), "a JSON file", str(e)) from None
    if not isinstance(told, dict) or not set(told) <= set(KEYS):
        raise InvalidArgument("--bounds", str(path), f"a JSON object with {', '.join(KEYS)}")
    told = {k: v for k, v in told.items() if v is not None or k not in ("target_bounds", "fill")}
    named = told.get("classes", [])
    if "target_bounds" in told:
        _pair(told["target_bounds"])
    right = isinstance(named, list) and (len(named) < 2) is ("target_bounds" in told)
    if classes and not right:
        raise InvalidArgument(
            "classes",
            named, f"a list in {path.name} of two or more: every label that may occur",
            "for a number to predict give target_bounds [low, high] and no classes",
        )  # fmt: skip
    whole = {"bounds": {}, "categories": {}, "ignore": [], "classes": [], **told}
    for key, value in whole.items():
        kinds = KINDS[key]
        if not isinstance(value, kinds):
            expected = " or ".join(WORDS[kind] for kind in kinds)
            raise InvalidArgument(key, value, f"{expected} in {path.name}")
    return whole


def rows_of(
    path: Path, *, label: str | None, declaration: Path
) -> tuple[Dataset, NDArray[Any] | None]:
    """New records as declared: a data set to ask a model about; and their labels if they have."""
    told = read_declaration(declaration)
    classes = tuple(map(str, told["classes"])) or ("number",)
    if path.is_dir():
        x = np.array([_picture(file, told.get("shape")) for file in picture_files(path)])
        return _unlabelled(path, x, classes, low=0.0, high=255.0), None
    if isinstance(told["bounds"], list):
        low, high = _pair(told["bounds"])
        return _unlabelled(path, array_of(path), classes, low=low, high=high), None
    range_ = told.get("target_bounds")
    columns = Columns(
        label or "", classes, _by_column(told["bounds"]), told["categories"],
        tuple(told["ignore"]), fill=told.get("fill"), target_bounds=range_ and _pair(range_),
    )  # fmt: skip
    limits = columns.limits()
    x, labels = columns.read_features(path)
    return _unlabelled(path, x, classes, low=limits[0], high=limits[1]), labels


def rows_like(known: Dataset, path: Path) -> Dataset:
    """New records for a model of a data set with a name, from .npy, or .npz with an array x."""
    return _unlabelled(path, array_of(path), known.classes, low=known.low, high=known.high)


def array_of(path: Path) -> NDArray[Any]:
    """Records from .npy, or the array x of .npz; numbers that are finite, nothing pickled."""
    if not path.is_file():
        raise MissingFile(path, "give a .npy file, or an .npz file with an array x")
    if path.suffix == ".npz":
        x = read_npz(path, ("x",))["x"]
    elif path.suffix == ".npy":
        try:
            x = np.load(path, allow_pickle=False)
        except (OSError, ValueError, EOFError) as error:
            raise damaged(path, f"not a readable npy file ({error})") from None
    else:
        raise InvalidArgument("file", str(path), "a .npy file, or an .npz file with an array x")
    if not np.issubdtype(x.dtype, np.number) or not np.isfinite(x).all() or x.ndim < 2:
        raise damaged(path, "records must be rows of finite numbers")
    return x


def _unlabelled(path: Path, x: Any, classes: tuple[str, ...], *, low: Any, high: Any) -> Dataset:
    if len(x) == 0:
        raise InvalidArgument("file", str(path), "one with at least one record")
    none = np.zeros(len(x), dtype=np.int64)
    try:
        return Dataset(
            name=path.stem, about=path.name, classes=classes, low=low, high=high,
            x_train=x, y_train=none, x_test=x[:1], y_test=none[:1],
        )  # fmt: skip
    except InvalidArgument as error:
        raise damaged(path, str(error)) from None


def picture_files(folder: Path) -> list[Path]:
    """The pictures in a folder, by name."""
    return sorted(file for file in folder.iterdir() if file.suffix.lower() in PICTURES)


def _picture(file: Path, shape: Any) -> NDArray[np.uint8]:
    """A picture, brought to the declared size."""
    given = isinstance(shape, list) and len(shape) in (2, 3) and shape[2:] in ([], [3])
    if not given or not all(isinstance(side, int) and side > 0 for side in shape):
        raise InvalidArgument("shape", shape, "[height, width] or [height, width, 3], declared")
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(file) as opened:
            picture = opened.convert("RGB" if len(shape) == 3 else "L")
            return np.asarray(picture.resize((int(shape[1]), int(shape[0]))))
    except (OSError, UnidentifiedImageError) as e:
        raise InvalidArgument("picture", str(file), "a readable picture", str(e)) from None


def template(path: Path, *, label: str | None) -> dict[str, Any]:
    """A declaration to fill in, from the names of the columns alone: no record is read."""
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
        raise damaged(path, f"not a readable CSV file ({error})") from None
    if not columns:
        raise damaged(path, "it is empty; expected a header line")
    if label is not None and label not in columns:
        raise InvalidArgument("--label", label, f"one of the columns: {', '.join(columns)}")
    return {
        "bounds": {name: [None, None] for name in columns if name != label},
        "categories": {},
        "classes": [],
        "target_bounds": None,
        "ignore": [],
        "fill": None,
    }


def _by_column(bounds: Any) -> dict[str, tuple[float, float]]:
    if not isinstance(bounds, dict):
        expected = 'an object, {"column": [low, high]}, for a CSV file'
        raise InvalidArgument("bounds", bounds, expected)
    return {str(k): _pair(v) for k, v in bounds.items()}


def _pair(value: Any) -> tuple[float, float]:
    if not (isinstance(value, list) and len(value) == 2 and all(_is_number(v) for v in value)):
        raise InvalidArgument(
            "bounds", value, "[low, high], two numbers known without the data",
            "a date is none: write it as days since a public day, or name its column in ignore",
        )  # fmt: skip
    return float(value[0]), float(value[1])


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
