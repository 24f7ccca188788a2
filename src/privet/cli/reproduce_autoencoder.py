"""`privet reproduce autoencoder`: dPAH against the models it is compared to."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from privet import _check
from privet.cli._data import Folder
from privet.cli._run import Json, one_line_errors, print_json, progress_bar
from privet.errors import InvalidArgument


@one_line_errors()
def autoencoder(
    out: Annotated[Path, typer.Option(help="Folder of results and pictures.")] = Path(
        "autoencoder"
    ),
    data: Annotated[
        list[str] | None, typer.Option(help="health (generated) or copenhagen; both by default.")
    ] = None,
    model: Annotated[list[str] | None, typer.Option(help="Only these models.")] = None,
    epsilon: Annotated[
        list[float] | None, typer.Option(help="Budgets of Figure 3 instead of the usual ones.")
    ] = None,
    rate: Annotated[
        list[float] | None, typer.Option(help="Rates of Figure 2 instead of the usual ones.")
    ] = None,
    seeds: Annotated[int | None, typer.Option(help="How many seeds.")] = None,
    users: Annotated[int | None, typer.Option(help="Users of the generated network.")] = None,
    days: Annotated[int | None, typer.Option(help="Days of the generated network.")] = None,
    folder: Folder = None,
    as_json: Json = False,
) -> None:
    """Figures 2 and 3: accuracy against sampling rate and epsilon; the paper's orderings tested.

    The same command goes on after an interruption: finished cells are kept in OUT/cells.
    """
    from privet.papers import autoencoder as experiment

    for name, given, allowed in (
        ("--data", data, experiment.DATA),
        ("--model", model, experiment.MODELS),
    ):
        unknown = [x for x in given or () if x not in allowed]
        if unknown:
            raise InvalidArgument(name, unknown[0], f"one of {', '.join(allowed)}")
    settings = experiment.QUICK
    if data:
        settings = replace(settings, data=tuple(dict.fromkeys(data)))
    if model:
        settings = replace(settings, models=tuple(dict.fromkeys(model)))
    if epsilon:
        settings = replace(
            settings, epsilons=tuple(sorted({_check.positive("--epsilon", e) for e in epsilon}))
        )
    if rate:
        rates = {_check.unit("--rate", r) for r in rate} | {1.0}
        settings = replace(settings, rates=tuple(sorted(rates - {0.0})))
    if seeds is not None:
        settings = replace(settings, seeds=tuple(range(1, _check.count("--seeds", seeds) + 1)))
    if users is not None:
        settings = replace(settings, users=_check.count("--users", users, minimum=8))
    if days is not None:
        settings = replace(settings, days=_check.count("--days", days, minimum=20))
    out.mkdir(parents=True, exist_ok=True)
    with progress_bar(show=not as_json) as progress:
        results = experiment.reproduce(out, settings, folder=folder, progress=progress)
    if as_json:
        print_json(results)
        return
    typer.echo(experiment.tables(results, settings))
    typer.echo(f"pictures, tables.md and results.json in {out}")
