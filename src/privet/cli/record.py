"""`privet verify` and `privet record`: the record of a run, checked, signed and handed on."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from privet._atomic_files import write_json, write_whole
from privet._formatting import standing_of
from privet.cli.console import Json, one_line_errors, print_json
from privet.cli.data_options import Folder, fingerprint_of
from privet.errors import InvalidArgument
from privet.guarantee import Guarantee, Protects

if TYPE_CHECKING:
    from privet.runs import Verified

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
        Path | None, typer.Option(help="The ledger that was charged; by default the run's own.")
    ] = None,
    key: Annotated[
        Path | None, typer.Option(help="The public key that must have signed the record.")
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(help="The data, file or name: are they those it was trained on?"),
    ] = None,
    folder: Folder = None,
    as_json: Json = False,
) -> None:
    """Check a record against all that is there; exit code 2 where something does not fit.

    Model, card, page, the statement of the method (made again, which needs no data) and the ledger
    are held against the record, and what does not fit is named. Only a record that is signed with
    the key that you name is called verified; what was not checked is listed.
    """
    from privet.runs import verify as verified

    fingerprint = None if data is None else fingerprint_of(data, folder)
    found = verified(run, ledger=ledger, key=key, data=fingerprint)
    if as_json:
        print_json(found.to_dict())
    else:
        for line in _lines(found):
            typer.echo(line)
        for problem in found.problems:
            typer.echo(f"error: {problem}", err=True)
    if not found.ok:
        raise typer.Exit(2)


def _lines(found: Verified) -> list[str]:
    """What was found, for the terminal: the promise first, then who answers for it."""
    record, by = found.record, found.signature
    promise = Guarantee.from_dict(record["guarantee"])
    standing = standing_of(record["guarantee"])
    part = "" if promise.protects is Protects.RECORD else f", {promise.protects.value}"
    signer = "nobody"
    if by.public_key:
        known = "the key that you named" if by.by_named_key else "a key that you did not name"
        who = f"{by.name}, " if by.name else ""
        signer = f"{who}{known}, {by.public_key}, as {by.signed_as}, {by.date[:10]}"
    if not found.ok:
        verdict = "REFUSED: something does not fit"
    elif found.verified:
        verdict = "verified: signed by the key that you named, and nothing contradicts it"
        if found.unanswered:
            verdict += f"; NOT {', '.join(found.unanswered)}, which that key did not sign"
    else:
        verdict = "NOT VERIFIED: nothing contradicts it, but nobody you named answers for it"
    return [
        f"{found.folder}: {verdict}",
        f"  status: {record['status']}",
        f"  {'promise' if found.ok else 'what it claims'}: epsilon {promise.epsilon:.4g} at delta "
        f"{promise.delta:g} per {promise.unit.value}{part} ({promise.adjacency.value}), {standing}"
        f"{'' if promise.release else '; NOT a promise, since a premise is not met'}",
        f"  signed by: {signer}",
        f"  checked: {', '.join(found.checked)}",
        *(f"  not checked: {line}" for line in found.not_checked),
    ]


@app.command()
@one_line_errors()
def sign(
    run: Run,
    key: Annotated[
        Path, typer.Option(help="Ed25519 private key: `openssl genpkey -algorithm ed25519`.")
    ],
    name: Annotated[str, typer.Option(help="Who signs; written into the signature.")] = "",
    experiment: Annotated[
        bool, typer.Option("--experiment", help="Sign an experiment, as what it is.")
    ] = False,
    again: Annotated[
        bool, typer.Option("--again", help="Sign in place of whoever signed before.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Sign the record; what is added later goes to a second one, which can be signed too."""
    from privet.runs import verify as verified
    from privet.runs.guarantee_record import GUARANTEE, read_record
    from privet.runs.run_folder import later_records
    from privet.runs.signature import RELEASE
    from privet.runs.signature import sign as signed

    found = verified(run)
    if not found.ok:
        raise InvalidArgument("run", str(run), "one that verifies", found.problems[0])
    unsigned = [p.name for p in later_records(run) if "signature" not in read_record(run, p.name)]
    file = unsigned[-1] if "signature" in found.record and unsigned else GUARANTEE
    record = read_record(run, file)
    if not again and (before := record.get("signature")):
        by = f"signed by {before['name'] or before['public_key']} on {before['date'][:10]}"
        raise InvalidArgument("run", by, "one that nobody signed yet", "--again signs in its place")
    if (record["status"] != RELEASE) != experiment:
        hint = "--experiment signs it as what it is"
        if experiment:
            raise InvalidArgument("--experiment", record["status"], "with an experiment")
        raise InvalidArgument("run", record["status"], "a release", hint)
    record = signed(record, key, name=name)
    write_json(run / file, record)
    signature = {k: v for k, v in record["signature"].items() if k != "value"}
    if as_json:
        print_json({"run": str(run), "file": file, **signature})
    else:
        typer.echo(
            f"{run / file}: signed as {signature['as']}; public key {signature['public_key']}"
        )


@app.command()
@one_line_errors()
def export(
    run: Run,
    out: Annotated[Path | None, typer.Option(help="The file; by default standard output.")] = None,
) -> None:
    """The record as YAML for OpenDP's registry of deployments, with what you have to fill in."""
    from privet.report.deployment_registry import UNSAID, entry, to_yaml
    from privet.runs.guarantee_record import read_record
    from privet.runs.verify import check_sealed, is_sealed

    record = read_record(run)
    if is_sealed(record):
        check_sealed(run, record, {})
    text = to_yaml(entry(record))
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
    from privet.runs.guarantee_record import read_record
    from privet.runs.run_folder import write_record

    record = read_record(run)
    if record.get("migrated_from") != 1 or record["digest"] is not None:
        raise InvalidArgument("run", str(run), "one with a record of version 1")
    record = write_record(run, record)
    if as_json:
        print_json(record)
    else:
        typer.echo(f"{run}: version {record['version']}; what version 1 did not say stays unknown")
