"""`privet reproduce`: the papers' tables and figures, run here."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from privet import _check
from privet.cli._data import Folder
from privet.cli._run import Json, one_line_errors, print_json, progress_bar
from privet.errors import InvalidArgument

app = typer.Typer(
    name="reproduce",
    help="Run a paper's experiments: quick by default, resumable, with pictures.",
    no_args_is_help=True,
)


@app.callback()
def _papers() -> None:
    """Keeps each paper a word of its own."""


@app.command("adaptive-laplace")
@one_line_errors()
def adaptive_laplace(
    out: Annotated[Path, typer.Option(help="Folder of results and pictures.")] = Path(
        "adaptive-laplace"
    ),
    paper: Annotated[
        bool, typer.Option("--paper", help="The paper's settings (days), not the quick ones.")
    ] = False,
    data: Annotated[str, typer.Option(help="mnist or cifar10.")] = "mnist",
    epsilon: Annotated[
        list[float] | None, typer.Option(help="Budgets instead of the usual ones.")
    ] = None,
    method: Annotated[list[str] | None, typer.Option(help="Only these methods.")] = None,
    epochs: Annotated[int | None, typer.Option(help="Epochs of the published methods.")] = None,
    pretraining_epochs: Annotated[
        int | None, typer.Option(help="Epochs of the network that relevance is computed on.")
    ] = None,
    records: Annotated[int | None, typer.Option(help="The first so many records only.")] = None,
    seeds: Annotated[int | None, typer.Option(help="How many seeds.")] = None,
    folder: Folder = None,
    as_json: Json = False,
) -> None:
    """Accuracy of AdLM, ILM, pSGD and the sound reading; relevance; the claim tested.

    The same command goes on after an interruption: finished cells are kept in OUT/cells.
    """
    from privet.papers import adaptive_laplace as experiment

    if (data, paper) not in experiment.CHOICES:
        raise InvalidArgument("data", data, "mnist or cifar10")
    settings = experiment.CHOICES[data, paper]
    unknown = [m for m in method or () if m not in experiment.METHODS]
    if unknown:
        raise InvalidArgument("method", unknown[0], f"one of {'; '.join(experiment.METHODS)}")
    given: dict[str, Any] = {
        "epsilons": tuple(epsilon) if epsilon else None,
        "methods": tuple(method) if method else None,
        "seeds": tuple(range(_check.count("seeds", seeds))) if seeds is not None else None,
        "epochs": epochs,
        "pretraining_epochs": pretraining_epochs,
        "records": records,
        "larger": () if epsilon else None,
    }
    settings = replace(settings, **{k: v for k, v in given.items() if v is not None})
    out.mkdir(parents=True, exist_ok=True)
    with progress_bar(show=not as_json) as progress:
        results = experiment.reproduce(out, settings, folder=folder, progress=progress)
    if as_json:
        print_json(results)
        return
    for row in results["summary"]:
        spread = "" if row["std"] is None else f" ({row['std']:.2f}, {row['seeds']} seeds)"
        stated = "" if row["claimed"] is None else f"claimed {row['claimed']:g}, "
        proved = row["proved"] if isinstance(row["proved"], str) else f"{row['proved']:.4g}"
        typer.echo(
            f"{row['method']:<17} epsilon {row['epsilon']:<8g} accuracy {row['accuracy']:5.1f}%"
            f"{spread}  {stated}proved {proved}; {row['seconds']:.0f} s"
        )
    for found in results["audits"]:
        typer.echo(
            f"audit of {found['what']}: claimed {found['claimed']:g}, audited "
            f"{found['audited']:.3f}, proved {found['proved']:g}: {found['verdict']}"
        )
    typer.echo(f"pictures and results.json in {out}")


@app.command("pate")
@one_line_errors()
def pate(
    out: Annotated[Path, typer.Option(help="Folder of results and pictures.")] = Path("pate"),
    data: Annotated[str, typer.Option(help="hippocampus, or spheres (generated).")] = "hippocampus",
    seeds: Annotated[int | None, typer.Option(help="How many seeds.")] = None,
    folder: Folder = None,
    as_json: Json = False,
) -> None:
    """Segmentation by PATE: teachers, ensemble, students, DP-SGD and the control; Dice by class.

    The same command goes on after an interruption: networks and rows are kept in OUT/cells.
    """
    from privet.papers import pate as experiment

    count = None if seeds is None else _check.count("seeds", seeds)
    settings = experiment.settings_for(data, count)
    with progress_bar(show=not as_json) as progress:
        results = experiment.reproduce(out, settings, folder=folder, progress=progress)
    if as_json:
        print_json(results)
        return
    typer.echo(experiment.table(results))
    for found in results["findings"]:
        typer.echo(
            f"{found['claim']}: {'yes' if found['holds'] else 'no'} "
            f"({found['difference']:+.3f}, mean of {len(found['by_seed'])} seeds)"
        )
    typer.echo(f"pictures, table.md and results.json in {out}")
