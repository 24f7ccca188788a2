"""What every command shares: one-line errors, JSON on standard output, and progress."""

from __future__ import annotations

import contextlib
import json
import sys
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from privet.errors import PrivetError

if TYPE_CHECKING:
    from privet.jobs import Progress

EXTRAS = {
    "train": ("torch", "sklearn", "safetensors", "joblib", "PIL", "numba", "jinja2"),
    "plot": ("matplotlib",),
    "segmentation": ("monai", "nibabel"),
    "cluster": ("ray", "dask", "distributed"),
}
"""What has to be installed for modules that not every command needs."""
FIRST_LINE = 2.0
"""Seconds before the first line in a log: what is over sooner needs none."""
LONGEST_PAUSE = 60.0
"""Seconds between lines in the end: a day's log has 1,440 of them, and a stop is seen soon."""
INSTALL_PAPERS = "pip install privet-papers (from a checkout: pip install ./papers)"
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


@contextlib.contextmanager
def show_progress(*, bar: bool = True) -> Iterator[Progress]:
    """A bar on a terminal if `bar`; in a log a line now and then on standard error.

    What takes less than two seconds leaves no line.
    """
    if not sys.stderr.isatty():
        with _log_progress() as progress:
            yield progress
        return
    if not bar:
        yield lambda what, done, of: None
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
    with parts.Progress(*columns, console=Console(stderr=True)) as shown:
        task = shown.add_task("", what="")
        yield lambda what, done, of: shown.update(task, completed=done, total=of, what=what)


@contextlib.contextmanager
def _log_progress() -> Iterator[Progress]:
    """Print the latest state from time to time, however rarely it changes."""
    begin, ended = time.monotonic(), threading.Event()
    state, counted_from = "starting", (begin, 0, 0)

    def set_state(what: str, done: int, of: int) -> None:
        nonlocal state, counted_from
        now, (start, first, total) = time.monotonic(), counted_from
        if of != total or done < first:  # another count begins
            counted_from = start, first, total = now, done, of
        state = f"{what} ({done} of {of}{_time_left(now - start, done - first, of - done)})"
        state = state if of else what

    def write() -> None:
        pause = FIRST_LINE
        while not ended.wait(pause):
            print(f"{time.monotonic() - begin:.0f} s: {state}", file=sys.stderr, flush=True)
            pause = min(2.0 * pause, LONGEST_PAUSE)

    writer = threading.Thread(target=write, daemon=True)
    writer.start()
    try:
        yield set_state
    finally:
        ended.set()
        writer.join()


def _time_left(seconds: float, done: int, left: int) -> str:
    """How long the rest takes at the rate so far; empty before a rate is known.

    >>> _time_left(30.0, 10, 40), _time_left(30.0, 0, 50), _time_left(30.0, 1, 900)
    (', about 2 min left', '', ', about 7.5 h left')
    """
    if done <= 0 or left <= 0:
        return ""
    rest = seconds / done * left
    for unit, length in (("h", 3600.0), ("min", 60.0)):
        if rest >= length:
            return f", about {rest / length:.2g} {unit} left"
    return f", about {rest:.0f} s left"
