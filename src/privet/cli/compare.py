"""`privet compare`: every method at one budget, one table, one page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from privet._files import write_json
from privet.cli import _folder
from privet.cli._data import Bounds, Label, dataset
from privet.cli._run import one_line_errors, print_json, progress_bar


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
    folder: Annotated[Path | None, typer.Option(help="Where data sets lie.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Train, attack and audit every method (and the non-private limit) on the same split.

    The same command goes on after an interruption: finished cells are kept in OUT/cells.
    """
    from privet.experiments import compare as experiment
    from privet.report import page

    chosen = dataset(data, folder, label, bounds)
    if records is not None:
        chosen = chosen.subset(records)
    _folder.make(out)
    with progress_bar(show=not as_json) as progress:
        results = experiment.compare(
            chosen, out, epsilon=epsilon, delta=delta, methods=_names(methods), seeds=seeds,
            jobs=jobs, backend=backend, progress=progress,
        )  # fmt: skip
    write_json(out / "results.json", results)
    results["pictures"] = _pictures(results)
    results["page"] = str(page.write(results, out / "report.html"))
    results.pop("pictures")
    if as_json:
        print_json(results)
        return
    table(results)
    typer.echo(f"page: {results['page']}")


def _names(given: list[str] | None) -> list[str] | None:
    """--method a --method b and --methods a,b are the same."""
    return None if not given else [name.strip() for part in given for name in part.split(",")]


def _pictures(results: dict[str, Any]) -> list[tuple[str, str]]:
    """What DP-SGD of this budget spends over its steps, and where the closed form is a bound."""
    from privet import calibrate
    from privet.loss import SampledGaussian
    from privet.loss.compare import validity_map
    from privet.report import plots

    epsilon, delta = results["epsilon"], results["delta"]
    rate, steps = 0.05, 1000
    z = calibrate.noise_multiplier(epsilon=epsilon, delta=delta, sample_rate=rate, steps=steps)
    run = SampledGaussian(sample_rate=rate, noise_multiplier=z.value, steps=steps)
    spent = plots.accountants(run, delta, points=10)
    chart = plots.validity_map(validity_map(steps=steps, delta=delta))
    told = (
        (spent, f"Budget over training: {steps} steps at rate {rate:g}, by accountant."),
        (chart, "Where the paper's closed form is a bound, and where it is not."),
    )
    return [(plots.embedded(figure, caption), caption) for figure, caption in told]


def table(results: dict[str, Any]) -> None:
    """The results in the terminal."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

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
            *(_epsilon(row[f"{k}_epsilon"]) for k in ("claimed", "proved", "audited")),
            f"{row['attack_auc']:.3f}",
            f"{row['attack_tpr_at_1pct_fpr']:.3f}",
            f"{row['time_ratio']:.1f}x",
            row["verdict"],
        )
    needed = Console(width=1000).measure(shown).maximum
    Console(width=max(Console().width, needed)).print(shown)  # numbers are never cut off


def _epsilon(value: float | str | None) -> str:
    if value is None:
        return "-"
    return "∞" if value == "inf" else f"{float(value):.3g}"
