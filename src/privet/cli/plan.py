"""`privet plan`: which method, and what to expect of it, before anything is spent."""

from __future__ import annotations

from typing import Annotated

import typer

from privet.cli._run import Json, one_line_errors, print_json


@one_line_errors()
def plan(
    records: Annotated[int, typer.Option(help="How many records there are, about.")],
    kind: Annotated[str, typer.Option(help="pictures, table or volumes.")],
    epsilon: Annotated[float, typer.Option(help="The budget.")],
    minutes: Annotated[float | None, typer.Option(help="The time you have, on two cores.")] = None,
    as_json: Json = False,
) -> None:
    """Read our measured curves at your n times epsilon; no data is needed and nothing is spent."""
    from privet.compare.plan import advise

    found = advise(records=records, kind=kind, epsilon=epsilon, minutes=minutes)
    if as_json:
        print_json([a.to_dict() for a in found])
        return
    from rich import box
    from rich.console import Console
    from rich.table import Table

    shown = Table(box=box.SIMPLE_HEAD)
    for name in ("method", "settings", "expect", "minutes", "measured on"):
        shown.add_column(name, no_wrap=True)
    for a in found:
        c = a.curve
        shown.add_row(
            c.method,
            c.settings,
            f"{a.expected:.1%}" + ("" if a.within else " ?"),
            ("-" if a.minutes is None else f"{a.minutes:.2g}") + ("" if a.fits else " (too long)"),
            f"{c.data} ({c.records:,}), per {c.unit}",
        )
    needed = Console(width=1000).measure(shown).maximum
    Console(width=max(Console().width, needed)).print(shown)
    typer.echo(
        "Read at your n times epsilon from curves measured here; your data are other data. "
        "Minutes of training, after public features. "
        "A question mark: outside the measured range, the nearest end is shown."
    )
