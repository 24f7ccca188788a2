"""Records that a saved model is asked about: a person's frame, array or file, as the run had it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

import numpy as np
from numpy.typing import NDArray

from privet.data.array_files import read_records
from privet.data.csv_file import CSVReader
from privet.data.nifti import load_images
from privet.data.picture_folder import picture_files, read_picture
from privet.data.table_columns import table_of
from privet.errors import InvalidArgument, MissingFile
from privet.methods.catalogue import method_type
from privet.runs.run_folder import DECLARATION
from privet.settings import settings_from_json, settings_from_options

if TYPE_CHECKING:
    from privet.runs.saved_run import Run

Array = NDArray[Any]


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class NewRecords:
    """Records of the shape that a model takes; their labels and what each is called, if known."""

    x: Array
    labels: Array | None = None
    """Class numbers, -1 for none; or numbers, NaN for none."""
    names: list[str] | None = None
    name_of_names: str = "file"


def records_of_table(run: Run, X: Any) -> Array:
    """The records of a frame, a dict of columns, a list of dicts or an array.

    Columns are found by name, in any order and among others; cells are converted as declared.
    """
    table = table_of(X)
    if table is None:
        return np.asarray(X)
    if run.columns is None:
        raise InvalidArgument(
            "X", f"a table of columns {', '.join(table)}",
            f"an array of records of shape {run.domain.shape}",
            "this run was trained on arrays, whose columns had no names",
        )  # fmt: skip
    return run.columns.rows(table)


def read_new_records(run: Run, file: Path, reading: Sequence[str] = ()) -> NewRecords:
    """The records of a CSV, npy or npz file, or of a folder of pictures or volumes.

    `reading`: NAME=VALUE, where the run's method has its own options of reading that changed.
    """
    if reading and "files" not in run.config:
        raise InvalidArgument("--reading", reading[0], f"left out for a run of {run.method}")
    if file.suffix in (".npy", ".npz"):
        found = NewRecords(x=read_records(file))
    elif "files" in run.config:
        found = _read_as_method(run, file, reading)
    elif file.is_dir():
        found = _read_folder(run, file)
    elif run.columns is not None:
        x, labels = _reader(run).read_new(file)
        found = NewRecords(x=x, labels=labels)
    else:
        found = NewRecords(x=read_records(file))
    if len(found.x) == 0:
        raise InvalidArgument("file", str(file), "one with at least one record")
    if found.x.shape[1:] != run.domain.shape:
        raise InvalidArgument("file", str(file), f"one with records of shape {run.domain.shape}",
                              f"its records have shape {found.x.shape[1:]}")  # fmt: skip
    return found


def _reader(run: Run) -> CSVReader:
    range_ = run.config.get("target_bounds")
    assert run.columns is not None
    return CSVReader(
        columns=run.columns,
        label=run.config.get("label") or "",
        classes=tuple(map(str, run.config.get("classes", ()))),
        target_bounds=range_ and (float(range_[0]), float(range_[1])),
    )


def _read_folder(run: Run, folder: Path) -> NewRecords:
    shape = run.domain.shape
    files = picture_files(folder)
    if not files and len(shape) > 2 and next(folder.glob("*.nii*"), None) is not None:
        a, b, c = shape[-3:]
        return NewRecords(x=load_images(folder, grid=(a, b, c)))
    if run.columns is not None or len(shape) < 2:
        raise MissingFile(folder, "give a file of the kind that the run was trained on")
    x = [read_picture(file, list(shape)) for file in files]
    pictures = np.array(x) if x else np.zeros((0, *shape))
    return NewRecords(x=pictures, names=[file.name for file in files])


def _read_as_method(run: Run, file: Path, reading: Sequence[str]) -> NewRecords:
    """Records of a run whose method reads files in its own way."""
    trainer: Any = method_type(run.method)
    kind = trainer.files
    places = dict.fromkeys(kind.places) | run.config.get("places", {})  # its owner's alone
    options = {
        k: ",".join(map(str, v)) if isinstance(v, list) else v
        for k, v in (run.config["files"] | places).items()
    }
    for one in reading:
        name, equals, value = one.partition("=")
        if not equals or name not in options:
            raise InvalidArgument("--reading", one, f"NAME=VALUE, NAME one of {', '.join(options)}")
        options[name] = value
    method = trainer(**settings_from_json(trainer, run.config["settings"]))
    x, names = kind(**settings_from_options(kind, options)).read_inputs(
        file, run.folder / DECLARATION, method, run.domain.shape
    )
    return NewRecords(x=x, names=names, name_of_names=kind.record)
