"""`privet predict`: what a trained model says of new records."""

from __future__ import annotations

import csv
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from privet.cli._run import one_line_errors, print_json
from privet.errors import InvalidArgument


@one_line_errors()
def predict(
    run: Annotated[Path, typer.Argument(help="Folder that `privet train` left.")],
    file: Annotated[Path, typer.Argument(help="CSV file with the columns of the training file.")],
    out: Annotated[
        Path | None, typer.Option(help="CSV file to write; standard output unless told.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Predict the class of every row, with probabilities.

    The model was released, so asking it costs nothing more. The training file is not needed: all
    that is public about it is kept in the folder of the run.
    """
    from privet.cli._attacked import config_of, seen
    from privet.cli._data import DECLARATION
    from privet.data.declared import rows_of

    config = config_of(run)
    if not (run / DECLARATION).exists():
        raise InvalidArgument(
            "run", str(run), "one trained on a file of your own", "it was trained on a named set"
        )
    records = rows_of(file, label=config.get("label"), declaration=run / DECLARATION)
    if len(records.y_train) == 0:
        raise InvalidArgument("file", str(file), "a file with at least one row")
    model = seen(run, config, records)
    rows = _answers(model, records.classes, len(records.y_train))
    if as_json:
        print_json(rows)
    elif out is None:
        _write(rows, records.classes, sys.stdout)
    else:
        with out.open("w", newline="") as target:
            _write(rows, records.classes, target)
        typer.echo(f"{out}: {len(rows)} predictions")


def _answers(model: Any, classes: tuple[str, ...], n: int) -> list[dict[str, Any]]:
    import numpy as np

    from privet.audit.membership import confidence_of_logits

    answers = np.asarray(model.answer(model.x[:n]), dtype=np.float64)
    if model.read is confidence_of_logits:
        answers = np.exp(answers - answers.max(axis=1, keepdims=True))
        answers /= answers.sum(axis=1, keepdims=True)
    return [
        {"predicted": classes[int(p.argmax())]}
        | {name: round(float(q), 6) for name, q in zip(classes, p, strict=True)}
        for p in answers
    ]


def _write(rows: list[dict[str, Any]], classes: tuple[str, ...], target: Any) -> None:
    table = csv.DictWriter(target, ["predicted", *classes], lineterminator="\n")
    table.writeheader()
    table.writerows(rows)
