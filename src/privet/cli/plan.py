"""`privet plan`: which method, and what to expect of it, before anything is spent."""

from __future__ import annotations

from typing import Annotated

import typer

from privet.cli.console import Json, one_line_errors, print_json


@one_line_errors()
def plan(
    records: Annotated[int, typer.Option(help="How many records there are, about.")],
    kind: Annotated[str, typer.Option(help="pictures or table.")],
    epsilon: Annotated[float, typer.Option(help="The budget.")],
    classes: Annotated[
        int | None, typer.Option(help="How many classes: two, or more, are read apart.")
    ] = None,
    minutes: Annotated[float | None, typer.Option(help="The time you have, on one core.")] = None,
    as_json: Json = False,
) -> None:
    """What our measurements say at your n times epsilon; no data is needed and nothing is spent."""
    from privet.compare.expected_accuracy import COMMAND, advise

    found = advise(records=records, kind=kind, epsilon=epsilon, minutes=minutes, classes=classes)
    if as_json:
        print_json([a.to_dict() for a in found])
        return
    from rich import box
    from rich.console import Console
    from rich.table import Table

    shown = Table(box=box.SIMPLE_HEAD)
    for name in ("method", "expect", "minutes", "on each data set (guessing)"):
        shown.add_column(name, no_wrap=True)
    for a in found:
        low, high = a.range
        shown.add_row(
            a.method,
            f"{low:.0%} to {high:.0%}",
            f"{a.minutes:.2g}" + ("" if a.fits else " (too long)"),
            ", ".join(
                f"{e.data} {e.accuracy:.0%}{'' if e.within else '?'} ({e.guessing:.0%})"
                for e in a.by_data
            ),
        )
    needed = Console(width=1000).measure(shown).maximum
    Console(width=max(Console().width, needed)).print(shown)
    typer.echo(
        f"Accuracies measured here by `{COMMAND}`, read at your n times epsilon; your data are "
        "other data, so take the range. Minutes of one thread, features of pictures included. A "
        "question mark: outside the range measured on that data set, whose nearest end is shown."
    )
