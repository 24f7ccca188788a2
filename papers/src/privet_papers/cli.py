"""`privet reproduce PAPER`: a paper's tables and figures; options are fields of its settings."""

from __future__ import annotations

import inspect
import typing
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from privet.cli._data import Folder
from privet.cli._run import Json, one_line_errors, print_json, progress_bar
from privet.data.files import data_folder
from privet.errors import InvalidArgument
from privet.papers import EXPERIMENTS, experiment_named


class PaperGroup(TyperGroup):
    """One command a paper, made when it is asked for."""

    def list_commands(self, ctx: Any) -> list[str]:
        """The papers that have an experiment."""
        return list(EXPERIMENTS)

    def get_command(self, ctx: Any, name: str) -> Any:
        """The command of one paper."""
        if name not in EXPERIMENTS:
            return None
        with one_line_errors():
            return _command(experiment_named(name))


app = typer.Typer(
    name="reproduce",
    cls=PaperGroup,
    help="Run a paper's experiments: quick by default, resumable, with pictures.",
    no_args_is_help=True,
)


@app.callback()
def _papers() -> None:
    """Keeps each paper a word of its own."""


def _command(kind: Any) -> Any:
    """The command of an experiment, with its settings as options."""

    @one_line_errors()
    def run(**given: Any) -> None:
        out, folder, as_json, jobs = (
            given.pop(name) for name in ("out", "folder", "as_json", "jobs")
        )
        data = given.pop("data") if len(kind.quick) > 1 else None
        chosen = _chosen(kind, data, paper := given.pop("paper", False))
        asked = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in given.items()
            if value is not None and value != []
        }
        experiment = kind(chosen.given(**asked), out, folder)
        jobs = experiment.default_jobs() if jobs is None else jobs
        if paper and (seconds := experiment.expected_time(jobs)) is not None:
            told = f"expected on this machine: {_duration(seconds)}; goes on after an interruption"
            typer.echo(told, err=True)
        with progress_bar(show=not as_json) as progress:
            results = experiment.run(progress, jobs)
        if as_json:
            print_json(results)
        else:
            typer.echo(experiment.text(results))
            typer.echo(f"pictures, tables.md and results.json in {out}")

    parameters = list(_parameters(kind))
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in parameters}
    run.__doc__ = (
        f"{inspect.getdoc(kind)}\n\n"
        "The same command goes on after an interruption: what was computed is kept in OUT/cells."
    )
    one = typer.Typer(add_completion=False)
    one.command(kind.name)(run)
    command = typer.main.get_command(one)
    command.name = kind.name
    return command


def _duration(seconds: float) -> str:
    """In the unit that people would choose."""
    for unit, size in (("days", 86_400.0), ("hours", 3_600.0), ("minutes", 60.0)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} seconds"


def _chosen(kind: Any, data: str | None, paper: bool) -> Any:
    """The settings that options start from: quick, or the paper's, of a data set."""
    choices = kind.paper if paper else kind.quick
    name = next(iter(choices)) if data is None else data
    if name in choices:
        return choices[name]
    for folder in (Path(name), data_folder() / name):
        if folder.is_dir():
            return kind.from_folder(next(iter(choices.values())), str(folder))
    raise InvalidArgument("--data", name, f"one of {'; '.join(choices)}")


def _parameters(kind: Any) -> typing.Iterator[inspect.Parameter]:
    def parameter(name: str, annotation: Any, default: Any) -> inspect.Parameter:
        keyword = inspect.Parameter.KEYWORD_ONLY
        return inspect.Parameter(name, keyword, default=default, annotation=annotation)

    out = typer.Option(help="Folder of results and pictures.")
    yield parameter("out", Annotated[Path, out], Path(kind.name))
    if len(kind.quick) > 1:
        names = typer.Option(help=f"{', '.join(kind.quick)}; the first unless told.")
        yield parameter("data", Annotated[str | None, names], None)
    if kind.paper:
        scale = typer.Option("--paper", help="The paper's settings (days), not the quick ones.")
        yield parameter("paper", Annotated[bool, scale], False)
    settings = type(next(iter(kind.quick.values())))
    hints = typing.get_type_hints(settings)
    for f in fields(settings):
        if "help" in f.metadata:
            word = (f.metadata["option"] or f.name).replace("_", "-")
            option = typer.Option(f"--{word}", help=f.metadata["help"])
            yield parameter(f.name, Annotated[_read(hints[f.name]), option], None)
    yield parameter("folder", Folder, None)
    workers = typer.Option(help="Processes that compute at once, the cores unless told.", min=1)
    yield parameter("jobs", Annotated[int | None, workers], None)
    yield parameter("as_json", Json, False)


def _read(hint: Any) -> Any:
    """What the command line reads for a field: several of them for a tuple."""
    if typing.get_origin(hint) is tuple:
        return list[typing.get_args(hint)[0]] | None  # type: ignore[misc]
    return hint | None
