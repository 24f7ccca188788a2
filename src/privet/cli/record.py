"""`privet verify` and `privet record`: the record of a run, checked, signed and handed on."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from privet._files import write_json, write_whole
from privet.cli._run import Json, one_line_errors, print_json
from privet.errors import InvalidArgument

app = typer.Typer(
    name="record",
    help="The record of a run: sign it, hand it to a registry, bring an old one up to date.",
    no_args_is_help=True,
)
Run = Annotated[Path, typer.Argument(help="Folder of a finished run.", show_default=False)]


@one_line_errors()
def verify(
    run: Run,
    ledger: Annotated[
        Path | None, typer.Option(help="The ledger that was charged; the run's own unless told.")
    ] = None,
    key: Annotated[
        Path | None, typer.Option(help="The public key that must have signed the record.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Check that model, record, card and ledger belong together; exit code 2 where they do not.

    Names what does not: a changed model, the record of another run, a ledger that was restored to
    an older state, a card edited by hand.
    """
    from privet.runs import verify as verified

    found = verified(run, ledger=ledger, key=key)
    if as_json:
        print_json(found.to_dict())
    elif found.ok:
        seen = "" if "ledger" in found.checked else "; no ledger was looked at (--ledger)"
        typer.echo(f"{run}: {', '.join(found.checked)} belong together{seen}")
    for problem in () if as_json else found.problems:
        typer.echo(f"error: {problem}", err=True)
    if not found.ok:
        raise typer.Exit(2)


@app.command()
@one_line_errors()
def sign(
    run: Run,
    key: Annotated[
        Path, typer.Option(help="Ed25519 private key: `openssl genpkey -algorithm ed25519`.")
    ],
    as_json: Json = False,
) -> None:
    """Sign the record, last of all: a record that is changed afterwards has to be signed again."""
    from privet.runs import verify as verified
    from privet.runs.record import GUARANTEE, read_record
    from privet.runs.signature import sign as signed

    found = verified(run)
    if not found.ok:
        raise InvalidArgument("run", str(run), "one that verifies", found.problems[0])
    record = signed(read_record(run), key)
    write_json(run / GUARANTEE, record)
    told = record["signature"]["public_key"]
    if as_json:
        print_json({"run": str(run), "public_key": told})
    else:
        typer.echo(f"{run}: signed; public key {told}")


@app.command()
@one_line_errors()
def export(
    run: Run,
    out: Annotated[Path | None, typer.Option(help="The file; standard output unless told.")] = None,
) -> None:
    """The record as YAML for OpenDP's registry of deployments, with what you have to fill in."""
    from privet.report.registry import UNSAID, entry, to_yaml
    from privet.runs.record import read_record

    text = to_yaml(entry(read_record(run)))
    if out is None:
        typer.echo(text, nl=False)
        return
    write_whole(out, text)
    left = text.count(UNSAID)
    typer.echo(f"{out}: {f'{left} fields to fill in' if left else 'complete'}")


@app.command()
@one_line_errors()
def migrate(run: Run, as_json: Json = False) -> None:
    """Write a record of version 1 as version 2, sealed as the folder is now."""
    from privet.runs.folder import write_record
    from privet.runs.record import read_record

    record = read_record(run)
    if record.get("migrated_from") != 1 or record["digest"] is not None:
        raise InvalidArgument("run", str(run), "one with a record of version 1")
    record = write_record(run, record)
    if as_json:
        print_json(record)
    else:
        typer.echo(f"{run}: version {record['version']}; what version 1 did not say stays unknown")
