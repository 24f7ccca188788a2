"""`privet data`: what there is, and what may be declared about a file of your own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from privet.cli._data import Folder
from privet.cli._run import Json, one_line_errors, print_json
from privet.errors import InvalidArgument, MissingFile

app = typer.Typer(
    name="data", help="Data sets by name, and declarations for your own.", no_args_is_help=True
)


@app.command("list")
@one_line_errors()
def list_(
    folder: Folder = None,
    as_json: Json = False,
) -> None:
    """The data sets known by name, and whether their files are here."""
    from privet.data import NAMES, load

    rows = []
    for name in NAMES:
        try:
            about, here = load(name, folder).about, True
        except MissingFile as e:
            about, here = str(e), False
        rows.append({"name": name, "here": here, "about": about})
    if as_json:
        print_json(rows)
        return
    for row in rows:
        typer.echo(f"{row['name']:14s} {'yes' if row['here'] else 'no ':3s}  {row['about']}")


@app.command()
@one_line_errors()
def describe(
    file: Annotated[
        Path,
        typer.Argument(
            help="A CSV file with a header line, an .npz file, or a folder of pictures."
        ),
    ],
    private: Annotated[
        bool, typer.Option("--private", help="Read the header line only (the only way there is).")
    ] = False,
    label: Annotated[str | None, typer.Option(help="The column to predict.")] = None,
    out: Annotated[Path | None, typer.Option(help="Write the template here.")] = None,
) -> None:
    """A declaration to fill in: ranges, categories and classes that are known without the data.

    Ranges read from the records would tell about the records, so none are read: give what the
    instrument, the form or the law allows.
    """
    from privet.data.declared import template

    if not private:
        raise InvalidArgument(
            "--private", False, "given",
            "only the header is read; for data that are public use your usual tools",
        )  # fmt: skip
    text = json.dumps(template(file, label=label), indent=2)
    if out is None:
        typer.echo(text)
        return
    if out.exists():
        raise InvalidArgument("--out", str(out), "a file that does not exist yet")
    out.write_text(text + "\n")
    typer.echo(
        f"{out}: fill in the ranges and list the labels in `classes` (for a number to predict give "
        "its range in `target_bounds` instead); in a table, move text columns to `categories` with "
        'all their values, columns not to be used to `ignore`; "fill": "middle" takes missing cells'
    )
