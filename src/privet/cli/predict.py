"""`privet predict`: what a trained model says of new records."""

from __future__ import annotations

import csv
import io
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from privet._files import write_json
from privet.cli._data import Folder
from privet.cli._run import Json, one_line_errors, print_json
from privet.errors import InvalidArgument

if TYPE_CHECKING:
    from privet.runs import Run

Row = dict[str, Any]


@one_line_errors()
def predict(
    run: Annotated[
        Path, typer.Argument(help="Folder that `privet train` or `privet pate student` left.")
    ],
    file: Annotated[
        Path,
        typer.Argument(
            help="CSV file with the columns of the training file, .npy or .npz (array x), or "
            "folder of pictures."
        ),
    ],
    out: Annotated[
        Path | None, typer.Option(help="CSV file to write; standard output unless told.")
    ] = None,
    metrics: Annotated[
        Path | None, typer.Option(help="JSON file for how good they are, where labels are there.")
    ] = None,
    folder: Folder = None,
    reading: Annotated[
        list[str] | None,
        typer.Option(help="Where the run's own options of reading changed: edges=friends.csv."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Predict the class of every record, with probabilities; or its number.

    Where the file has the column to predict, how good the predictions are is told as well. The
    model was released, so asking it costs nothing more. The training file is not needed: all that
    is public about it is kept in the folder of the run.
    """
    from privet.runs import load

    if out is not None and out.is_dir():
        raise InvalidArgument("--out", str(out), "a file to write, not a folder")
    found = load(run)
    if _asks_for_maps(found):
        _write_maps(found, file, out)
        return
    rows, measured = _of_run(found, file, folder, reading or [])
    if metrics is not None:
        if measured is None:
            raise InvalidArgument("--metrics", str(metrics), "left out: the file has no labels")
        write_json(metrics, measured)
    if as_json:
        print_json(rows)
    elif out is None:
        sys.stdout.write(_table(rows))
    else:
        from privet._files import write_whole

        try:
            write_whole(out, _table(rows))
        except OSError as e:
            raise InvalidArgument("--out", str(out), "a file that can be written", str(e)) from None
        typer.echo(f"{out}: {len(rows)} predictions")
    if measured is not None and not as_json:
        from privet.report.measures import in_words

        typer.echo(f"{in_words(measured)} (exact, not private)".replace("test ", "", 1), err=True)


def _asks_for_maps(found: Run) -> bool:
    """Whether the model answers with a class for every pixel or voxel."""
    network = found.config["model"]["settings"].get("network") or {}
    return len(network.get("targets", ())) > 1


def _write_maps(found: Run, file: Path, out: Path | None) -> None:
    """Class numbers on the grid of each input, in one .npy file."""
    import numpy as np

    if out is None or out.suffix != ".npy":
        raise InvalidArgument("--out", str(out), "a .npy file, for maps of class numbers")
    maps = found.outputs(_arrays(found, file)).argmax(axis=1).astype(np.uint8)
    np.save(out, maps)
    typer.echo(f"{out}: {len(maps)} maps of {'x'.join(map(str, maps.shape[1:]))}")


def _arrays(found: Run, file: Path) -> Any:
    """Records for a model that was made without a data set of privet's."""
    from privet.data.declared import array_of
    from privet.data.nifti import load_images

    shape = found.domain.shape
    if file.is_dir() and len(shape) > 2:
        a, b, c = shape[-3:]
        x = load_images(file, grid=(a, b, c))
    else:
        x = array_of(file)
    if x.shape[1:] != found.domain.shape:
        raise InvalidArgument("file", str(file), f"one with records of shape {found.domain.shape}",
                              f"its records have shape {x.shape[1:]}")  # fmt: skip
    return x


def _of_run(
    found: Run, file: Path, folder: Path | None, reading: list[str]
) -> tuple[list[Row], Row | None]:
    from scipy.special import softmax

    from privet.cli._data import DECLARATION, of_run
    from privet.data.declared import picture_files, rows_like, rows_of
    from privet.report.measures import from_unit, measures_of

    declared, labels = found.folder / DECLARATION, None
    if "files" in found.config:
        return _of_files(found, file, declared, reading), None
    if reading:
        raise InvalidArgument("--reading", reading[0], f"left out for a run of {found.method}")
    if "asked_with" in found.config:
        answers = found.predict_proba(_arrays(found, file))
        return _rows(answers, tuple(found.classes), None), None
    if declared.exists():
        records, labels = rows_of(file, label=found.config.get("label"), declaration=declared)
    else:
        records = rows_like(of_run(found.folder, found.config, folder), file)
    if records.shape != found.domain.shape:
        raise InvalidArgument("file", str(file), f"one with records of shape {found.domain.shape}",
                              f"its records have shape {records.shape}")  # fmt: skip
    names = [path.name for path in picture_files(file)] if file.is_dir() else None
    outputs, range_ = found.outputs(records.x_train), found.config.get("target_bounds")
    measured = None
    if labels is not None:
        measured = measures_of(
            outputs, labels, classes=records.classes, target_bounds=range_ and tuple(range_)
        )
    if range_ is not None:
        return [{"predicted": float(v)} for v in from_unit(outputs, range_)], measured
    return _rows(softmax(outputs, axis=1), records.classes, names), measured


def _of_files(found: Run, file: Path, declared: Path, reading: list[str]) -> list[Row]:
    """A run whose method reads files in its own way."""
    from privet.cli._options import given_settings, method_of
    from privet.methods.catalogue import method_type

    kind: Any = method_type(found.method).files
    told = {k: ",".join(v) if isinstance(v, list) else v for k, v in found.config["files"].items()}
    for one in reading:
        name, equals, value = one.partition("=")
        if not equals or name not in told:
            raise InvalidArgument("--reading", one, f"NAME=VALUE, NAME one of {', '.join(told)}")
        told[name] = value
    method = method_of(found.method, found.config["settings"])
    x, names = kind(**given_settings(kind, told)).asked(file, declared, method, found.domain.shape)
    return _rows(found.predict_proba(x), tuple(found.classes), names, kind.record)


def _rows(
    answers: Any, classes: tuple[str, ...], names: list[str] | None, what: str = "file"
) -> list[Row]:
    return [
        ({} if names is None else {what: names[i]})
        | {"predicted": classes[int(p.argmax())]}
        | {name: round(float(q), 6) for name, q in zip(classes, p, strict=True)}
        for i, p in enumerate(answers)
    ]


def _table(rows: list[Row]) -> str:
    target = io.StringIO()
    table = csv.DictWriter(target, list(rows[0]), lineterminator="\n")
    table.writeheader()
    table.writerows(rows)
    return target.getvalue()
