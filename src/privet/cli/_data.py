"""How commands find their data: by name, or in a file of the user's own."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from privet.data import Dataset

Label = Annotated[str | None, typer.Option(help="Column to predict, for a CSV file of yours.")]
Bounds = Annotated[
    Path | None,
    typer.Option(help="JSON file that declares ranges, categories and classes of your file."),
]
SUFFIXES = (".csv", ".npz")


def dataset(
    data: str, folder: Path | None, label: str | None = None, bounds: Path | None = None
) -> Dataset:
    """A data set by its name, or the file it names."""
    from privet.data import load
    from privet.data.declared import load_declared

    path = Path(data)
    if path.suffix in SUFFIXES:
        return load_declared(path, label=label, declaration=bounds)
    return load(data, folder)
