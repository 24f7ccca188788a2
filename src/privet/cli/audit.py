"""`privet audit`: attack the promise of a method or of a finished run."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from privet import _check
from privet.cli.console import (
    INSTALL_PAPERS,
    Json,
    one_line_errors,
    print_json,
    show_progress,
)
from privet.errors import InvalidArgument, MissingFile, PrivetError
from privet.methods.catalogue import method_names

if TYPE_CHECKING:
    from privet.audit import Finding


@one_line_errors()
def audit(
    target: Annotated[
        str,
        typer.Argument(help="A method (see `privet train --help`), or the folder of a run."),
    ],
    reading: Annotated[str, typer.Option(help="Of a method: sound, or published.")] = "sound",
    epsilon: Annotated[float, typer.Option(help="The budget at which a method is audited.")] = 1.0,
    delta: Annotated[float, typer.Option(help="At this delta.")] = 1e-5,
    trials: Annotated[
        int | None, typer.Option(help="Runs a side, or draws of a published reading.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the audit's own coins and noise.")] = 0,
    record: Annotated[
        bool, typer.Option("--record", help="Add the verdict to the record of a run.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Attack a promise: claimed, proved, audited, and what to make of it.

    A method is run again and again, by the code that trains, on the two neighbours that move its
    releases most; the likelihood ratio of all that it releases says which of the two it was. The
    control is the same method without noise. A run is audited so at its own budget and settings.
    """
    _check.positive("epsilon", epsilon)
    _check.open_unit("delta", delta)
    _check.count("seed", seed, minimum=0)
    if trials is not None:
        _check.count("trials", trials, minimum=100)
    with show_progress(bar=not as_json) as progress:
        progress(f"auditing {target}", 0, 1)
        finding = _audit_target(target, reading, epsilon, delta, trials, seed)
    if record:
        from privet.runs.audit_evidence import add_audit

        if not Path(target).is_dir():
            raise InvalidArgument("--record", target, "with the folder of a run")
        add_audit(Path(target), finding)
    if as_json:
        print_json({"target": target, **finding.to_dict()})
        return
    for line in _lines(finding):
        typer.echo(line)


def _audit_target(
    target: str, reading: str, epsilon: float, delta: float, trials: int | None, seed: int
) -> Finding:
    path = Path(target)
    if path.is_dir():
        return _of_run(path, trials, seed)
    if path.suffix or len(path.parts) > 1:
        raise MissingFile(path, "give the folder of a finished `privet train` run, or a method")
    if reading == "published":
        return _of_published(target, epsilon, delta, trials, seed)
    if reading != "sound":
        raise InvalidArgument("--reading", reading, "sound or published")
    if target not in method_names():
        raise InvalidArgument(
            "target", target, f"a run folder, or one of {', '.join(method_names())}"
        )
    return _of_method(target, epsilon, delta, trials, seed)


def _of_published(
    name: str, epsilon: float, delta: float, trials: int | None, seed: int
) -> Finding:
    from privet.plugins import PUBLISHED_AUDITS, plugins

    point = plugins(PUBLISHED_AUDITS).get("papers")
    if point is None:
        raise PrivetError(f"--reading published needs the papers: {INSTALL_PAPERS}")
    found: Finding = point.load()(name, epsilon=epsilon, delta=delta, trials=trials, seed=seed)
    return found


def _of_method(name: str, epsilon: float, delta: float, trials: int | None, seed: int) -> Finding:
    from privet.methods.catalogue import method_type
    from privet.methods.neighbour_replay import TRIALS, audit_method, small_facts
    from privet.noise import seeded

    method = method_type(name).for_audit()
    facts = small_facts(method, epsilon=epsilon, delta=delta)
    return audit_method(method, facts, trials=trials or TRIALS, rng=seeded(seed))


def _of_run(folder: Path, trials: int | None, seed: int) -> Finding:
    """The method of the run in small, at its budget; the verdict is on what the run itself states.

    A run's own settings would cost its training time for each of the trials.
    """
    from privet.guarantee import Standing
    from privet.methods.catalogue import method_type
    from privet.runs import load

    run = load(folder)
    known = {f.name for f in fields(method_type(run.method))}  # type: ignore[arg-type]
    if strange := sorted(set(run.config["settings"]) - known):
        raise InvalidArgument(
            "run", str(folder), f"one of the {run.method} that is installed here",
            f"that one has no setting {', '.join(strange)}: audit the method that trained it",
        )  # fmt: skip
    found = _of_method(run.method, run.config["epsilon"], run.config["delta"], trials, seed)
    claim = run.claim
    stated = None if claim is None or claim.standing is not Standing.CLAIMED else claim.epsilon
    return replace(
        found,
        what=f"{run.method} in small, at the budget of {folder} ({run.config['data']})",
        claimed=stated,
        proved=run.guarantee.epsilon,
    )


def _lines(f: Finding) -> list[str]:
    """A finding for the terminal."""

    def number(x: float | None) -> str:
        return "none" if x is None else f"{x:.3g}"

    kind = "parametric" if f.parametric else "no shape assumed"
    return [
        f"{f.what}: {f.verdict.value}",
        f"  {f.in_words}",
        f"  claimed {number(f.claimed)}, proved {number(f.proved)}, audited {number(f.audited)}"
        f" at delta {f.delta:g} ({f.confidence:.3g} confidence, {kind})",
        f"  could have found {number(f.ceiling)}; the control without noise shows "
        f"{number(f.control)}",
        f"  {f.method}; the attacker {f.threat}",
    ]
