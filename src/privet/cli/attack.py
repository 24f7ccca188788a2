"""`privet attack`: who was in the training set of a run? Asked of the model that it released."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from privet import _check
from privet.cli.console import Json, one_line_errors, print_json, show_progress
from privet.cli.data_options import Folder
from privet.errors import InvalidArgument

if TYPE_CHECKING:
    from privet.audit.membership import MembershipFinding
    from privet.cli._attack_target import AttackTarget

NOTE = "exact facts about private records, not covered by the run's guarantee: for the owner's eyes"


@one_line_errors()
def attack(
    run: Annotated[Path, typer.Argument(help="Folder that `privet train` left.")],
    references: Annotated[
        int, typer.Option(help="Reference models to train: 0 for the loss attack alone, or 2, 4...")
    ] = 8,
    seed: Annotated[int, typer.Option(help="Of the reference models.")] = 0,
    jobs: Annotated[int | None, typer.Option(help="Reference models at a time.")] = None,
    folder: Folder = None,
    cache: Annotated[
        Path | None, typer.Option(help="Folder that keeps what references say, to go on with.")
    ] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw the ROC curves, log axes.")] = None,
    record: Annotated[
        bool, typer.Option("--record", help="Add the headline to the run's record, for others.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Attack the membership of a run: training records against test records.

    Runs the loss attack, RMIA and (with 4 references or more) LiRA and BaVarIA. `auc` and
    `tpr_at_1pct_fpr` are RMIA's, or the loss attack's without references: fixed beforehand, never
    the best of several.
    """
    start = time.perf_counter()
    _check.count("references", references, minimum=0)
    if references == 1:
        raise InvalidArgument("references", 1, "0, or 2 and more")
    from privet.cli._attack_target import attack_target
    from privet.runs import load

    loaded = load(run)
    config, target = loaded.config, attack_target(loaded, folder)
    with show_progress(bar=not as_json) as progress:
        progress(f"attacking {run} with {references} reference models", 0, 0)
        findings = _attack(target, references, seed, jobs, cache)
    headline = findings[-1]
    if plot is not None:
        from privet.report import plots

        plots.save(plots.roc(findings, title=f"Members of {config['data']}"), plot)
    if record:
        from privet.runs.audit_evidence import add_attack

        add_attack(run, headline)
    if as_json:
        found = headline.to_dict() | {
            "data": config["data"],
            "method": config["method"],
            "references": references,
            "attacks": [f.to_dict(points=0) for f in findings],
            "seconds": time.perf_counter() - start,
            "note": NOTE,
        }
        print_json(found)
        return
    for finding in findings:
        typer.echo(str(finding))
    typer.echo(NOTE)


def _attack(
    target: AttackTarget, count: int, seed: int, jobs: int | None, cache: Path | None
) -> tuple[MembershipFinding, ...]:
    """All attacks, the one that gives the headline last."""
    from privet.audit import membership as m

    references = None
    if count:
        references = m.train_references(
            target.train,
            target.x,
            target.y,
            count,
            seed=seed,
            out=cache,
            what=f"privet attack {target.name}",
            jobs=jobs,
            read=target.read,
        )
    return m.attack(
        target.answer,
        target.x,
        target.y,
        target.members,
        references=references,
        read=target.read,
        classes=target.classes,
    )
