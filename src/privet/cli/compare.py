"""`privet compare`: every method at one budget, one table, one page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from privet._files import write_json
from privet.cli import _folder
from privet.cli._data import Bounds, Folder, Label, dataset
from privet.cli._run import Json, one_line_errors, print_json, progress_bar
from privet.errors import InvalidArgument

if TYPE_CHECKING:
    from privet.compare import Entrant


@one_line_errors()
def compare(
    data: Annotated[
        str, typer.Option(help="A data set's name, or a .csv or .npz file.")
    ] = "digits",
    label: Label = None,
    bounds: Bounds = None,
    epsilon: Annotated[float, typer.Option(help="The budget of every method.")] = 1.0,
    delta: Annotated[float, typer.Option(help="At this delta.")] = 1e-5,
    methods: Annotated[
        list[str] | None,
        typer.Option("--method", "--methods", help="Only these; repeated, or with commas."),
    ] = None,
    seeds: Annotated[int, typer.Option(help="Trainings of each method.")] = 1,
    jobs: Annotated[int, typer.Option(help="Cells at a time.")] = 2,
    backend: Annotated[str, typer.Option(help="loky, ray, dask or threading.")] = "loky",
    records: Annotated[int | None, typer.Option(help="The first so many records only.")] = None,
    out: Annotated[Path, typer.Option(help="Folder of results and the page.")] = Path("compare"),
    folder: Folder = None,
    anyway: Annotated[
        bool, typer.Option("--anyway", help="Compare even where noise outweighs all records.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Train, attack and audit every method (and the non-private limit) on the same split.

    The same command goes on after an interruption: finished cells are kept in OUT/cells.
    """
    from privet import compare as comparison
    from privet.methods.enough import Signal, check_enough, linear_numbers
    from privet.report import page

    chosen = dataset(data, folder, label, bounds)
    if chosen.target_bounds is not None:
        raise InvalidArgument(
            "--data", data, "data with classes", "numbers go through privet train"
        )
    if records is not None:
        chosen = chosen.subset(records)
    if not anyway:
        numbers = linear_numbers(chosen.n_features, chosen.n_classes)
        signal = Signal(units=len(chosen.y_train), numbers=numbers)
        check_enough(signal, epsilon=epsilon, delta=delta, hint="--anyway compares all the same")
    with _folder.begun(out), progress_bar(show=not as_json) as progress:
        results = comparison.compare(
            chosen, out, epsilon=epsilon, delta=delta, entrants=_entrants(),
            methods=_names(methods), seeds=seeds,
            jobs=jobs, backend=backend, progress=progress,
        )  # fmt: skip
    write_json(out / "results.json", results)
    results["page"] = str(page.write(results, out / "report.html"))
    if as_json:
        print_json(results)
        return
    table(results)
    typer.echo(f"page: {results['page']}")


def _entrants() -> tuple[Entrant, ...]:
    """Every method, and what their papers compare them with."""
    from privet.compare import own_entrants
    from privet.papers.compared import ENTRANTS

    return (*own_entrants(), *ENTRANTS)


def _names(given: list[str] | None) -> list[str] | None:
    """--method a --method b and --methods a,b are the same."""
    return None if not given else [name.strip() for part in given for name in part.split(",")]


def table(results: dict[str, Any]) -> None:
    """The results in the terminal."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    from privet.report.figures import number

    facts = results["data"]
    title = (
        f"{facts['name']}: {facts['records']:,} private records, "
        f"epsilon {results['epsilon']:g}, delta {results['delta']:g}"
    )
    shown = Table(
        title=title, box=box.SIMPLE_HEAD, title_justify="left", title_style="bold", padding=(0, 1)
    )
    shown.add_column("method", no_wrap=True)
    for name in ("accuracy", "claimed", "proved", "audited", "AUC", "TPR@1%", "time"):
        shown.add_column(name, justify="right", no_wrap=True)
    shown.add_column("verdict", no_wrap=True)
    for row in results["rows"]:
        low, high = row["accuracy_interval"]
        shown.add_row(
            row["method"],
            f"{100 * row['accuracy']:.1f} [{100 * low:.0f}, {100 * high:.0f}]",
            *(number(row[f"{k}_epsilon"]) for k in ("claimed", "proved", "audited")),
            f"{row['attack_auc']:.3f}",
            f"{row['attack_tpr_at_1pct_fpr']:.3f}",
            f"{row['time_ratio']:.1f}x",
            row["verdict"],
        )
    needed = Console(width=1000).measure(shown).maximum
    Console(width=max(Console().width, needed)).print(shown)  # numbers are never cut off
