"""How commands find their data: by name, in a file of the user's own, or where a run had it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from privet.data import Dataset

Label = Annotated[str | None, typer.Option(help="Column to predict, for a CSV file of yours.")]
Bounds = Annotated[
    Path | None,
    typer.Option(help="JSON file that declares ranges, categories and classes of your file."),
]
Folder = Annotated[Path | None, typer.Option(help="Where data sets lie.")]


def describe_file(out: Path, data: str, label: str | None, bounds: Path | None) -> dict[str, Any]:
    """Where a file of the user's own lies, which stays private; its declaration is copied."""
    from privet.runs.run_folder import DECLARATION

    out.mkdir(parents=True, exist_ok=True)
    if bounds is not None:
        (out / DECLARATION).write_bytes(bounds.read_bytes())
    return {"file": str(Path(data).resolve()), "label": label}


def fingerprint_of(data: str, folder: Path | None, dataset: Dataset | None = None) -> str:
    """What names the data themselves: the bytes of a file or folder, else a data set's content.

    A part of the records, other ranges or another column to predict do not make them other data.
    It is not private: only a curator's key makes an identity of it. `dataset`: as it was read.
    """
    from privet.data.builtin_datasets import SUFFIXES
    from privet.ledger import fingerprint

    path = Path(data)
    if path.suffix in SUFFIXES or path.is_dir():
        return fingerprint(path)
    if dataset is None:
        from privet.data import load

        dataset = load(data, folder)
    return dataset.fingerprint


def of_run(run: Path, config: dict[str, Any], folder: Path | None) -> Dataset:
    """The data that a run was trained on."""
    from privet.data import load
    from privet.runs.run_folder import DECLARATION

    name = str(config["data"])
    part = re.fullmatch(r"(.*)\[:(\d+)\]", name)
    source = config.get("file") or (name if part is None else part[1])
    declared = run / DECLARATION
    found = load(
        str(source), folder, label=config.get("label"), declaration=declared,
        user=config.get("user"),
    )  # fmt: skip
    return found if part is None else found.subset(int(part[2]))
