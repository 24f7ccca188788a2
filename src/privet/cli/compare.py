"""`privet compare`: every method at one budget, one table, one page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from privet import _check
from privet._atomic_files import write_json, write_whole
from privet.cli import _output_folder
from privet.cli.console import Json, one_line_errors, print_json, show_progress
from privet.cli.data_options import Bounds, Folder, Label
from privet.errors import InvalidArgument
from privet.plugins import import_from_path

if TYPE_CHECKING:
    from privet.compare import Participant


@one_line_errors()
def compare(
    data: Annotated[
        str, typer.Option(help="A data set's name, or a .csv or .npz file.")
    ] = "digits",
    label: Label = None,
    bounds: Bounds = None,
    epsilon: Annotated[
        str, typer.Option(help="The budget of every method; several with commas give curves.")
    ] = "1",
    delta: Annotated[float, typer.Option(help="At this delta.")] = 1e-5,
    methods: Annotated[
        list[str] | None,
        typer.Option(
            "--method",
            "--methods",
            help="Only these; repeated, or with commas. Your own as FILE.py:CLASS or MODULE:CLASS.",
        ),
    ] = None,
    splits: Annotated[
        int | None,
        typer.Option(
            help="Splits into training and test records, each with noise of its own.",
            show_default="5 up to 10,000 records, else 1",
        ),
    ] = None,
    seeds: Annotated[int, typer.Option(help="Trainings of each method on each split.")] = 1,
    reference: Annotated[
        str | None,
        typer.Option(help="The method that others are compared with; else the first private one."),
    ] = None,
    references: Annotated[
        int, typer.Option(help="Reference models of membership attacks: 0, or 2 and more.")
    ] = 8,
    jobs: Annotated[int, typer.Option(help="Cells at a time.")] = 2,
    backend: Annotated[str, typer.Option(help="loky, ray, dask or threading.")] = "loky",
    records: Annotated[int | None, typer.Option(help="The first so many records only.")] = None,
    out: Annotated[Path, typer.Option(help="Folder of results and the page.")] = Path("compare"),
    cache: Annotated[
        bool, typer.Option("--cache", help="Keep features of pictures in OUT, unprotected.")
    ] = False,
    folder: Folder = None,
    allow_vacuous: Annotated[
        bool, typer.Option("--anyway", help="Compare even where noise outweighs all records.")
    ] = False,
    latex: Annotated[
        bool, typer.Option("--latex", help="Print the table for a paper (booktabs).")
    ] = False,
    as_json: Json = False,
) -> None:
    """Train, attack and audit every method (and the non-private limit) on the same splits.

    The same command goes on after an interruption: finished cells are kept in OUT/cells. What was
    found at other budgets in the same folder stays, and is in the curves. OUT has the page
    (report.html), its picture for a paper (accuracy.pdf, accuracy.svg), the tables (table.csv,
    table.tex) and every training (runs.csv).
    """
    from privet import compare as comparison
    from privet.compare.table_export import latex as latex_table
    from privet.compare.table_export import to_csv
    from privet.data import load
    from privet.methods.feasibility import Signal, check_enough, linear_numbers
    from privet.report import comparison_page, comparison_sentences

    epsilons = _budgets(epsilon)
    chosen = load(data, folder, label=label, declaration=bounds)
    if chosen.target_bounds is not None:
        raise InvalidArgument(
            "--data", data, "data with classes", "numbers go through privet train"
        )
    if records is not None:
        chosen = chosen.subset(records)
    if not allow_vacuous:
        numbers = linear_numbers(chosen.n_features, chosen.n_classes)
        signal = Signal(units=len(chosen.y_train), numbers=numbers)
        for one in epsilons:
            check_enough(signal, epsilon=one, delta=delta, hint="--anyway compares all the same")
    names = _names(methods)
    own = {name: participant_from_path(name) for name in names or () if ":" in name}
    with _output_folder.new_run_folder(out), show_progress(bar=not as_json) as progress:
        results = comparison.sweep(
            chosen, out, epsilons=epsilons, delta=delta,
            participants=(*_participants(), *own.values()),
            methods=names and [own[n].name if n in own else n for n in names], splits=splits,
            seeds=seeds, reference=reference, references=references, jobs=jobs, backend=backend,
            cache=cache, progress=progress,
        )  # fmt: skip
    write_json(out / "results.json", results)
    write_whole(out / "runs.csv", to_csv(results["runs"]))
    for name in ("table.csv", "table.tex"):
        comparison.export(results["curves"], out / name)
    results["page"] = str(comparison_page.write(results, out / "report.html"))
    for name in ("accuracy.pdf", "accuracy.svg"):
        comparison_page.save_figure(results, out / name)
    if as_json:
        print_json(results)
        return
    if latex:
        typer.echo(latex_table(results["curves"]), nl=False)
        return
    for rows in comparison_sentences.by_budget(results).values():
        table(results, rows)
    for sentence in comparison_sentences.conclusions(results):
        typer.echo(sentence)
    typer.echo(f"page: {results['page']}")


def _participants() -> tuple[Participant, ...]:
    """Every method, and what their papers compare them with."""
    from privet.compare import catalogue_participants
    from privet.plugins import PARTICIPANTS, plugins

    others = (row for point in plugins(PARTICIPANTS).values() for row in point.load())
    return (*catalogue_participants(), *others)


def _budgets(text: str) -> list[float]:
    """Epsilons with commas between."""
    try:
        return [_check.positive("--epsilon", float(part)) for part in text.split(",")]
    except ValueError:
        expected = "a number above 0, or several with commas"
        raise InvalidArgument("--epsilon", text, expected) from None


def participant_from_path(name: str) -> Participant:
    """A method of somebody's own, from FILE.py:CLASS or MODULE:CLASS, as a row."""
    from privet.compare import method_participant
    from privet.methods.contract import Method

    kind = import_from_path("--method", name)
    if not (isinstance(kind, type) and issubclass(kind, Method)):
        raise InvalidArgument("--method", name, "a class that is a privet Method")
    return method_participant(kind)


def _names(options: list[str] | None) -> list[str] | None:
    """--method a --method b and --methods a,b are the same."""
    return None if not options else [name.strip() for part in options for name in part.split(",")]


def table(results: dict[str, Any], rows: list[dict[str, Any]]) -> None:
    """The rows of one budget in the terminal."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    from privet._formatting import number

    facts, splits = results["data"], rows[0]["splits"]
    title = (
        f"{facts['name']}: {facts['records']:,} private records, epsilon {rows[0]['epsilon']:g}, "
        f"delta {rows[0]['delta']:g}; {splits} split{'s' if splits > 1 else ''}, 95% intervals"
    )
    shown = Table(
        title=title, box=box.SIMPLE_HEAD, title_justify="left", title_style="bold", padding=(0, 1),
        caption="audited: of the method in small, on made-up neighbours", caption_justify="left",
    )  # fmt: skip
    shown.add_column("method", no_wrap=True)
    versus = f"vs {rows[0]['reference']}"
    for name in ("accuracy", versus, "claimed", "proved", "audited", "AUC", "TPR@1%", "seconds"):
        shown.add_column(name, justify="right", no_wrap=True)
    shown.add_column("verdict", no_wrap=True)
    for row in rows:
        low, high = row["accuracy_interval"]
        accuracy = f"{100 * row['accuracy']:.1f} [{100 * low:.1f}, {100 * high:.1f}]"
        shown.add_row(
            row["method"],
            accuracy if row["learned"] else f"did not learn: {accuracy}",
            _difference(row["difference"]),
            *(number(row[f"{k}_epsilon"]) for k in ("claimed", "proved", "audited")),
            f"{row['attack_auc']:.3f}",
            f"{row['attack_tpr_at_1pct_fpr']:.3f}",
            f"{number(row['seconds'])} ({number(row['time_ratio'])}x)",
            row["verdict"],
        )
    needed = Console(width=1000).measure(shown).maximum
    Console(width=max(Console().width, needed)).print(shown)  # numbers are never cut off


def _difference(found: dict[str, float] | None) -> str:
    if found is None:
        return ""
    return "{:+.1f} [{:+.1f}, {:+.1f}]".format(*(100 * found[k] for k in ("mean", "low", "high")))
