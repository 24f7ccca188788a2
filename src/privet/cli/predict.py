"""`privet predict`: what a trained model says of new records."""

from __future__ import annotations

import csv
import io
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from privet._atomic_files import write_json
from privet.cli.console import Json, one_line_errors, print_json
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
            help="CSV file with the columns of the training file among others, in any order; .npy "
            "or .npz (array x); or folder of pictures."
        ),
    ],
    out: Annotated[
        Path | None, typer.Option(help="CSV file to write; by default standard output.")
    ] = None,
    metrics: Annotated[
        Path | None, typer.Option(help="JSON file for how good they are, where labels are there.")
    ] = None,
    reading: Annotated[
        list[str] | None,
        typer.Option(help="Where the run's own options of reading changed: edges=friends.csv."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Predict the class of every record, with probabilities; or its number.

    Where the file has the column to predict, how good the predictions are is reported as well. The
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
    rows, measured = _of_run(found, file, reading or [])
    if metrics is not None:
        if measured is None:
            raise InvalidArgument("--metrics", str(metrics), "left out: the file has no labels")
        write_json(metrics, measured)
    if as_json:
        print_json(rows)
    elif out is None:
        sys.stdout.write(_table(rows))
    else:
        from privet._atomic_files import write_whole

        try:
            write_whole(out, _table(rows))
        except OSError as e:
            raise InvalidArgument("--out", str(out), "a file that can be written", str(e)) from None
        typer.echo(f"{out}: {len(rows)} predictions")
    if measured is not None and not as_json:
        from privet.report.metrics import summarise_metrics

        summary = summarise_metrics(measured).replace("test ", "", 1)
        typer.echo(f"{summary} (exact, not private)", err=True)


def _asks_for_maps(run: Run) -> bool:
    """Whether the model answers with a class for every pixel or voxel."""
    network = run.config["model"]["settings"].get("network") or {}
    return len(network.get("targets", ())) > 1


def _write_maps(run: Run, file: Path, out: Path | None) -> None:
    """Class numbers on the grid of each input, in one .npy file."""
    import numpy as np

    if out is None or out.suffix != ".npy":
        raise InvalidArgument("--out", str(out), "a .npy file, for maps of class numbers")
    maps = run.outputs(file).argmax(axis=1).astype(np.uint8)
    np.save(out, maps)
    typer.echo(f"{out}: {len(maps)} maps of {'x'.join(map(str, maps.shape[1:]))}")


def _of_run(run: Run, file: Path, reading: list[str]) -> tuple[list[Row], Row | None]:
    """A row for each record, and how good they are where the file has labels."""
    from scipy.special import softmax

    from privet.report.metrics import measure_outputs, to_target_units
    from privet.runs.new_records import read_new_records

    records = read_new_records(run, file, reading)
    outputs, range_ = run.outputs(records.x), run.config.get("target_bounds")
    classes = tuple(map(str, run.classes))
    measured = None
    if records.labels is not None:
        known = records.labels >= 0 if range_ is None else records.labels == records.labels
        if known.any():
            measured = measure_outputs(
                outputs[known], records.labels[known], classes=classes,
                target_bounds=range_ and tuple(range_),
            )  # fmt: skip
    if range_ is not None:
        return [{"predicted": float(v)} for v in to_target_units(outputs, range_)], measured
    answers = softmax(outputs, axis=1)
    return _rows(answers, classes, records.names, records.name_of_names), measured


def _rows(
    answers: Any, classes: tuple[str, ...], names: list[str] | None, column: str = "file"
) -> list[Row]:
    return [
        ({} if names is None else {column: names[i]})
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
