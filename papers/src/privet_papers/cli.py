"""`privet reproduce PAPER`: a paper's tables and figures; options are fields of its settings."""

from __future__ import annotations

import inspect
import shlex
import sys
import typing
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from privet.cli.console import Json, one_line_errors, print_json, show_progress
from privet.cli.data_options import Folder
from privet.data.data_folder import data_folder
from privet.errors import InvalidArgument
from privet.settings import option_parameters
from privet_papers import EXPERIMENTS, experiment_named


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
        out, folder, as_json, jobs, record = (
            given.pop(name) for name in ("out", "folder", "as_json", "jobs", "record")
        )
        data = given.pop("data") if len(kind.quick) > 1 else None
        paper, scale = given.pop("paper", False), given.pop("scale", None)
        chosen = _chosen(kind, data, paper=paper, scale=scale)
        asked = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in given.items()
            if value is not None and value != []
        }
        experiment = kind(chosen.given(**asked), out, folder)
        jobs = experiment.default_jobs() if jobs is None else jobs
        if paper or scale:
            typer.echo(_expected(experiment, jobs), err=True)
        with show_progress(bar=not as_json) as progress:
            results = experiment.run(progress, jobs)
        if record is not None:
            experiment.record(results, f"privet {shlex.join(sys.argv[1:])}").write(record)
        if as_json:
            print_json(results)
        else:
            typer.echo(experiment.text(results))
            typer.echo(f"pictures, tables.md, tables.tex and results.json in {out}")

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


def _expected(experiment: Any, jobs: int) -> str:
    """What is about to be spent, said first: time, and memory where somebody knows."""
    seconds, memory = experiment.expected_time(jobs), experiment.expected_memory()
    time = "unknown" if seconds is None else _duration(seconds)
    peak = "" if memory is None else f", {memory / 2**30:.1f} GB of memory at the most a job"
    return f"expected on this machine: {time}{peak}; goes on after an interruption"


def _duration(seconds: float) -> str:
    """In the unit that people would choose."""
    for unit, size in (("days", 86_400.0), ("hours", 3_600.0), ("minutes", 60.0)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} seconds"


def _chosen(kind: Any, data: str | None, *, paper: bool, scale: int | None) -> Any:
    """The settings that options start from: quick, scaled up, or the paper's, of a data set."""
    if paper and scale:
        raise InvalidArgument("--scale", scale, "left out with --paper, which is the whole")
    choices = kind.paper if paper else kind.quick
    name = next(iter(choices)) if data is None else data
    if scale and name in kind.quick and name in kind.paper:
        return kind.quick[name].scaled(kind.paper[name], scale)
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
        names = typer.Option(help=f"{', '.join(kind.quick)}; by default the first.")
        yield parameter("data", Annotated[str | None, names], None)
    if kind.paper:
        scale = typer.Option("--paper", help="The paper's settings (days), not the quick ones.")
        yield parameter("paper", Annotated[bool, scale], False)
        times = typer.Option(help="The quick run's sizes times this, none beyond the paper's.")
        yield parameter("scale", Annotated[int | None, times], None)
    settings = type(next(iter(kind.quick.values())))
    yield from option_parameters(settings, defaults=False)
    yield parameter("folder", Folder, None)
    workers = typer.Option(help="Processes that compute at once, by default one a core.", min=1)
    yield parameter("jobs", Annotated[int | None, workers], None)
    small = typer.Option(help="Also keep date, command, processor hours and tables in this file.")
    yield parameter("record", Annotated[Path | None, small], None)
    yield parameter("as_json", Json, False)
