"""`privet explain`: what an epsilon means for one person, before training or of a run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from privet import _check
from privet.cli._quick_start import leave_out_fortran
from privet.cli.account import check_picture_path
from privet.cli.console import Json, one_line_errors, print_json
from privet.errors import InvalidArgument
from privet.guarantee import EXPERIMENT, Guarantee, Unit

if TYPE_CHECKING:
    from privet.accounting.trade_off import TradeOff
    from privet.report.explanation import Explanation

STATED = "from epsilon and delta alone, for the worst release that keeps them"
COMPUTED = "from the whole curve of this run's releases"


@one_line_errors()
def explain(
    run: Annotated[
        list[str] | None,
        typer.Argument(help="Folder of a finished run (or further epsilons).", show_default=False),
    ] = None,
    epsilon: Annotated[
        str | None, typer.Option(help="Budgets to explain: --epsilon 1 8.", show_default=False)
    ] = None,
    delta: Annotated[float, typer.Option(help="The chance that the promise fails.")] = 1e-5,
    unit: Annotated[Unit, typer.Option(help="Who is protected as one.")] = Unit.RECORD,
    plot: Annotated[
        Path | None,
        typer.Option(
            "--plot",
            "--out",
            help="Draw what attackers find (.png, .svg, .pdf), or a page to print (.html).",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """What attackers may come to believe about one person, and find, at most.

    Before training: privet explain --epsilon 1 8 --delta 1e-5. Of a run: privet explain FOLDER.
    """
    leave_out_fortran()
    if plot is not None:
        check_picture_path(plot, ".html")
    words = run or []
    basis, mark = STATED, ""
    if epsilon is not None:
        budgets = [_check.positive("epsilon", e) for e in (*epsilon.split(","), *words)]
        told = [_of_budget(e, _check.delta_or_zero("delta", delta), unit) for e in budgets]
    elif len(words) == 1:
        said, curve, exact, release = _of_run(Path(words[0]))
        told, basis = [(said, curve)], COMPUTED if exact else STATED
        mark = "" if release else EXPERIMENT
    else:
        raise InvalidArgument(
            "explain", " ".join(words) or "nothing", "--epsilon and numbers, or the folder of a run"
        )
    if plot is not None:
        _draw(plot, told, basis, mark)
    if as_json:
        explanations = [said.to_dict() for said, _ in told]
        facts = {"basis": basis, "mark": mark or None, "plot": plot and str(plot)}
        print_json(facts | {"explanations": explanations})
        return
    if mark:
        typer.echo(f"{mark}: it would hold if all premises were met")
    for said, _ in told:
        typer.echo(f"epsilon {said.epsilon:.3g}, delta {said.delta:g}, per {said.unit.value}")
        for sentence in said.sentences:
            typer.echo(f"- {'WARNING: ' if sentence == said.warning else ''}{sentence}")
        typer.echo("")
    typer.echo(f"Computed {basis}." + (f" Picture: {plot}" if plot is not None else ""))


def _draw(path: Path, told: list[tuple[Explanation, TradeOff]], basis: str, mark: str) -> None:
    """The picture, or a page with it."""
    from privet._atomic_files import write_whole
    from privet.report import plots
    from privet.report.explanation_page import explanation_page

    if path.suffix.lower() == ".html":
        write_whole(path, explanation_page(told, basis=basis, mark=mark))
    else:
        plots.save(plots.trade_offs([(said.epsilon, curve) for said, curve in told]), path)


def _of_budget(epsilon: float, delta: float, unit: Unit) -> tuple[Explanation, TradeOff]:
    from privet.accounting.trade_off import trade_off_of_statement
    from privet.report import explanation

    curve = trade_off_of_statement(epsilon, delta)
    return explanation.explain(curve, epsilon=epsilon, delta=delta, unit=unit), curve


def _of_run(folder: Path) -> tuple[Explanation, TradeOff, bool, bool]:
    """What a record means, its curve, whether that is its loss's own, whether it is a release."""
    from privet.report import explanation
    from privet.runs.guarantee_record import loss_of, read_record, trade_off_of
    from privet.runs.verify import check_sealed, is_sealed

    record = read_record(folder)
    if is_sealed(record):
        check_sealed(folder, record, {})
    stated = Guarantee.from_dict(record["guarantee"])
    curve = trade_off_of(record)
    said = explanation.explain(curve, epsilon=stated.epsilon, delta=stated.delta, unit=stated.unit)
    return said, curve, loss_of(record) is not None, stated.release
