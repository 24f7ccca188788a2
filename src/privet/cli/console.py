"""What every command shares: one-line errors and JSON on standard output."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Iterator
from typing import Annotated, Any, NoReturn

import typer

from privet.errors import PrivetError

EXTRAS = {
    "train": ("torch", "sklearn", "safetensors", "joblib", "PIL", "numba"),
    "plot": ("matplotlib",),
    "segmentation": ("monai", "nibabel"),
    "cluster": ("ray", "dask", "distributed"),
}
"""What has to be installed for modules that not every command needs."""
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def fail(error: PrivetError) -> NoReturn:
    """Print `error: <message>` on one line of standard error and leave with code 2."""
    typer.echo("error: " + " ".join(str(error).split()), err=True)
    raise typer.Exit(2)


@contextlib.contextmanager
def one_line_errors() -> Iterator[None]:
    """Turn privet's own errors, and files and packages that are not there, into `fail`.

    Also a decorator. Other errors are bugs and pass.
    """
    try:
        yield
    except PrivetError as e:
        fail(e)
    except ModuleNotFoundError as e:
        missing = (e.name or "").partition(".")[0]
        extra = next((name for name, modules in EXTRAS.items() if missing in modules), None)
        if extra is None:
            raise
        fail(PrivetError(f"this needs {missing}: pip install 'privet[{extra}]'"))
    except OSError as e:
        if e.filename is None:
            raise
        what = f"{e.filename} cannot be read or written: {e.strerror}"
        fail(PrivetError(f"{what}; name another place, or make this one accessible"))


def print_json(value: Any) -> None:
    """Indented JSON on standard output; infinities must have been written as "inf" before."""
    typer.echo(json.dumps(value, indent=2, allow_nan=False))


Progress = Callable[[str, int, int], None]
"""Told what is being done, how much is done, and of how much."""


@contextlib.contextmanager
def progress_bar(*, show: bool = True) -> Iterator[Progress]:
    """A bar on a terminal; elsewhere what is told is lost."""
    with watched(show=show) as progress:
        yield progress or (lambda what, done, of: None)


@contextlib.contextmanager
def watched(*, show: bool = True) -> Iterator[Progress | None]:
    """A bar on a terminal; None where nobody would see it."""
    if not (show and sys.stderr.isatty()):
        yield None
        return
    from rich import progress as parts
    from rich.console import Console

    columns = (
        parts.BarColumn(),
        parts.MofNCompleteColumn(),
        parts.TimeElapsedColumn(),
        parts.TextColumn("about"),
        parts.TimeRemainingColumn(),
        parts.TextColumn("left"),
        parts.TextColumn("{task.fields[what]}"),
    )
    with parts.Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("", what="")
        yield lambda what, done, of: bar.update(task, completed=done, total=of, what=what)
