"""`privet predict`: what a trained model says of new records."""

from __future__ import annotations

import csv
import io
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from privet.cli._data import Folder
from privet.cli._run import Json, one_line_errors, print_json
from privet.errors import InvalidArgument

if TYPE_CHECKING:
    from privet.data import Dataset

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
    folder: Folder = None,
    as_json: Json = False,
) -> None:
    """Predict the class of every record, with probabilities.

    The model was released, so asking it costs nothing more. The training file is not needed: all
    that is public about it is kept in the folder of the run.
    """
    from privet.cli._attacked import settings_of

    if out is not None and out.is_dir():
        raise InvalidArgument("--out", str(out), "a file to write, not a folder")
    config = settings_of(run)
    if "input_shape" in config:
        rows = _of_student(run, config, file)
    else:
        rows = _of_run(run, config, file, folder)
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


def _of_run(run: Path, config: dict[str, Any], file: Path, folder: Path | None) -> list[Row]:
    from privet.audit.membership import confidence_of_logits
    from privet.cli._attacked import seen
    from privet.cli._data import DECLARATION, of_run
    from privet.data.declared import picture_files, rows_like, rows_of

    declared = run / DECLARATION
    if declared.exists():
        records = rows_of(file, label=config.get("label"), declaration=declared)
    else:
        records = rows_like(of_run(run, config, folder), file)
    _check_shape(records, config, file)
    model = seen(run, config, records)
    answers = model.answer(model.x[: len(records.y_train)])
    if model.read is confidence_of_logits:
        answers = _softmax(answers)
    names = [path.name for path in picture_files(file)] if file.is_dir() else None
    return _rows(answers, records.classes, names)


def _check_shape(records: Dataset, config: dict[str, Any], file: Path) -> None:
    """New records must look like those that the model was trained on."""
    wanted = tuple(config.get("shape", records.shape))
    if records.shape != wanted:
        raise InvalidArgument("file", str(file), f"one with records of shape {wanted}",
                              f"its records have shape {records.shape}")  # fmt: skip


def _of_student(run: Path, config: dict[str, Any], file: Path) -> list[Row]:
    """A student of `privet pate`: arrays in, classes by their numbers out."""
    import torch
    from safetensors.torch import load_file

    from privet.data.declared import array_of
    from privet.methods.pate.students import flat_student

    wanted, target = tuple(config["input_shape"]), tuple(config["target_shape"])
    if len(target) != 1:
        raise InvalidArgument(
            "run", str(run), "a student that answers with classes", "for maps, load it in Python"
        )
    x = array_of(file)
    if x.shape[1:] != wanted:
        raise InvalidArgument("file", str(file), f"one with records of shape {wanted}",
                              f"its records have shape {x.shape[1:]}")  # fmt: skip
    module = flat_student(
        input_shape=wanted, target_shape=target, hidden=config["hidden"]
    ).module.eval()  # fmt: skip
    module.load_state_dict(load_file(run / "model.safetensors"))
    with torch.no_grad():
        logits = module(torch.as_tensor(x, dtype=torch.float32)).double().numpy()
    return _rows(_softmax(logits), tuple(str(k) for k in range(target[0])), None)


def _softmax(logits: Any) -> Any:
    import numpy as np

    p = np.exp(logits - logits.max(axis=1, keepdims=True))
    return p / p.sum(axis=1, keepdims=True)


def _rows(answers: Any, classes: tuple[str, ...], names: list[str] | None) -> list[Row]:
    return [
        ({} if names is None else {"file": names[i]})
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
