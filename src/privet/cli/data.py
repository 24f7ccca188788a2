"""`privet data`: what there is, and what may be declared about a file of your own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from privet.cli.console import Json, one_line_errors, print_json
from privet.cli.data_options import Folder
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
    from privet.data import dataset_names, load

    rows = []
    for name in dataset_names():
        try:
            about, here = load(name, folder).about, True
        except MissingFile as e:
            about, here = str(e), False
        rows.append({"name": name, "here": here, "about": about})
    rows += _decathlon_tasks(folder)
    if as_json:
        print_json(rows)
        return
    width = max(14, *(len(str(row["name"])) for row in rows))
    for row in rows:
        typer.echo(f"{row['name']:{width}s} {'yes' if row['here'] else 'no ':3s}  {row['about']}")


def _decathlon_tasks(folder: Path | None) -> list[dict[str, object]]:
    """Tasks of the Medical Segmentation Decathlon in the data folder, for `privet train pate`."""
    from privet.data.data_folder import data_folder

    place = data_folder(folder)
    found = sorted(path.parent for path in place.glob("Task*/imagesTr"))
    if not found:
        about = f"no such folder: {place / 'Task04_Hippocampus'}; put a task's folder there"
        return [{"name": "Task04_Hippocampus", "here": False, "about": about}]
    return [
        {
            "name": task.name,
            "here": True,
            "about": f"Decathlon: {sum(1 for _ in (task / 'imagesTr').glob('[!.]*.nii*'))} volumes "
            "with a class for every voxel (privet train pate --grid X,Y,Z)",
        }
        for task in found
    ]


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
        bool, typer.Option("--private", hidden=True, help="Needed no more: records are never read.")
    ] = False,
    label: Annotated[str | None, typer.Option(help="The column to predict.")] = None,
    out: Annotated[Path | None, typer.Option(help="Write the template here.")] = None,
) -> None:
    """A declaration to fill in: ranges, categories and classes that are known without the data.

    Ranges read from the records would tell about the records, so only the header line is read: give
    what the instrument, the form or the law allows.
    """
    from privet.data.declarations import template

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
        "all their values, columns not to be used to `ignore`; a range of dates is "
        '["2020-01-01", "2029-12-31"]; "fill": "middle" takes missing cells, and '
        '"missing_labels": "drop" leaves out records without a label'
    )
