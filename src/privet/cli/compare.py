"""`privet compare`: every method at one budget, one table, one page."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from privet import _check
from privet._files import write_json
from privet.cli import _folder
from privet.cli._data import Bounds, Folder, Label
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
    seeds: Annotated[int, typer.Option(help="Trainings of each method.")] = 1,
    references: Annotated[
        int, typer.Option(help="Reference models of membership attacks: 0, or 2 and more.")
    ] = 8,
    jobs: Annotated[int, typer.Option(help="Cells at a time.")] = 2,
    backend: Annotated[str, typer.Option(help="loky, ray, dask or threading.")] = "loky",
    records: Annotated[int | None, typer.Option(help="The first so many records only.")] = None,
    out: Annotated[Path, typer.Option(help="Folder of results and the page.")] = Path("compare"),
    export: Annotated[
        Path | None, typer.Option(help="Curves as a table too: a .csv, .tex or .json file.")
    ] = None,
    cache: Annotated[
        bool, typer.Option("--cache", help="Keep features of pictures in OUT, unprotected.")
    ] = False,
    folder: Folder = None,
    anyway: Annotated[
        bool, typer.Option("--anyway", help="Compare even where noise outweighs all records.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Train, attack and audit every method (and the non-private limit) on the same split.

    The same command goes on after an interruption: finished cells are kept in OUT/cells. What was
    found at other budgets in the same folder stays, and is in the curves.
    """
    from privet import compare as comparison
    from privet.compare.sweep import EXPORTS
    from privet.data import load
    from privet.methods.contract import Signal, check_enough, linear_numbers
    from privet.report import page

    epsilons = _budgets(epsilon)
    if export is not None and export.suffix not in EXPORTS:
        raise InvalidArgument("--export", str(export), f"a file ending in {', '.join(EXPORTS)}")
    chosen = load(data, folder, label=label, declaration=bounds)
    if chosen.target_bounds is not None:
        raise InvalidArgument(
            "--data", data, "data with classes", "numbers go through privet train"
        )
    if records is not None:
        chosen = chosen.subset(records)
    if not anyway:
        numbers = linear_numbers(chosen.n_features, chosen.n_classes)
        signal = Signal(units=len(chosen.y_train), numbers=numbers)
        for one in epsilons:
            check_enough(signal, epsilon=one, delta=delta, hint="--anyway compares all the same")
    names = _names(methods)
    own = {name: own_entrant(name) for name in names or () if ":" in name}
    with _folder.begun(out), progress_bar(show=not as_json) as progress:
        results = comparison.sweep(
            chosen, out, epsilons=epsilons, delta=delta, entrants=(*_entrants(), *own.values()),
            methods=names and [own[n].name if n in own else n for n in names], seeds=seeds,
            jobs=jobs, backend=backend, cache=cache, progress=progress,
        )  # fmt: skip
    write_json(out / "results.json", results)
    results["page"] = str(page.write(results, out / "report.html"))
    if export is not None:
        comparison.export(results["curves"], export)
    if as_json:
        print_json(results)
        return
    table(results)
    if len(epsilons) > 1:
        _curves(results["curves"])
    typer.echo(f"page: {results['page']}")


def _entrants() -> tuple[Entrant, ...]:
    """Every method, and what their papers compare them with."""
    from privet.compare import own_entrants
    from privet.papers.compared import ENTRANTS

    return (*own_entrants(), *ENTRANTS)


def _budgets(text: str) -> list[float]:
    """Epsilons with commas between."""
    try:
        return [_check.positive("--epsilon", float(part)) for part in text.split(",")]
    except ValueError:
        expected = "a number above 0, or several with commas"
        raise InvalidArgument("--epsilon", text, expected) from None


def own_entrant(name: str) -> Entrant:
    """A method of somebody's own, from FILE.py:CLASS or MODULE:CLASS, as a row."""
    import importlib
    import importlib.util

    import cloudpickle  # joblib brings it

    from privet.compare import method_entrant
    from privet.methods.contract import Method

    where, _, what = name.rpartition(":")
    try:
        if where.endswith(".py"):
            spec = importlib.util.spec_from_file_location(Path(where).stem, where)
            assert spec is not None and spec.loader is not None
            module = importlib.util.module_from_spec(spec)
            sys.modules[spec.name] = module  # dataclasses look their module up
            spec.loader.exec_module(module)
            cloudpickle.register_pickle_by_value(module)  # workers do not know the file
        else:
            module = importlib.import_module(where)
    except (ImportError, OSError) as e:
        raise InvalidArgument("--method", name, "FILE.py:CLASS or MODULE:CLASS", str(e)) from None
    kind = getattr(module, what, None)
    if not (isinstance(kind, type) and issubclass(kind, Method)):
        raise InvalidArgument("--method", name, f"{what} in {where} to be a privet Method")
    return method_entrant(kind)


def _curves(rows: list[dict[str, Any]]) -> None:
    """Mean accuracy and its spread, a column a budget."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    epsilons = sorted({row["epsilon"] for row in rows})
    at = {(row["method"], row["epsilon"]): row for row in rows}
    shown = Table(box=box.SIMPLE_HEAD, title="accuracy over epsilon, mean and sd of seeds",
                  title_justify="left", title_style="bold")  # fmt: skip
    shown.add_column("method", no_wrap=True)
    for e in epsilons:
        shown.add_column(f"{e:g}", justify="right", no_wrap=True)
    for method in dict.fromkeys(row["method"] for row in rows):
        cells = [at.get((method, e)) for e in epsilons]
        shown.add_row(method, *("-" if c is None else _spread(c) for c in cells))
    needed = Console(width=1000).measure(shown).maximum
    Console(width=max(Console().width, needed)).print(shown)


def _spread(row: dict[str, Any]) -> str:
    spread = "" if row["accuracy_sd"] is None else f" ±{100 * row['accuracy_sd']:.1f}"
    return f"{100 * row['accuracy']:.1f}{spread}"


def _names(given: list[str] | None) -> list[str] | None:
    """--method a --method b and --methods a,b are the same."""
    return None if not given else [name.strip() for part in given for name in part.split(",")]


def table(results: dict[str, Any]) -> None:
    """The results in the terminal."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    from privet._words import number

    facts = results["data"]
    title = (
        f"{facts['name']}: {facts['records']:,} private records, "
        f"epsilon {results['epsilon']:g}, delta {results['delta']:g}"
    )
    shown = Table(
        title=title, box=box.SIMPLE_HEAD, title_justify="left", title_style="bold", padding=(0, 1)
    )
    shown.add_column("method", no_wrap=True)
    for name in ("accuracy", "balanced", "claimed", "proved", "audited", "AUC", "TPR@1%", "time"):
        shown.add_column(name, justify="right", no_wrap=True)
    shown.add_column("verdict", no_wrap=True)
    for row in results["rows"]:
        low, high = row["accuracy_interval"]
        shown.add_row(
            row["method"],
            f"{100 * row['accuracy']:.1f} [{100 * low:.0f}, {100 * high:.0f}]",
            f"{100 * row['balanced_accuracy']:.1f}",
            *(number(row[f"{k}_epsilon"]) for k in ("claimed", "proved", "audited")),
            f"{row['attack_auc']:.3f}",
            f"{row['attack_tpr_at_1pct_fpr']:.3f}",
            f"{row['time_ratio']:.1f}x",
            row["verdict"],
        )
    needed = Console(width=1000).measure(shown).maximum
    Console(width=max(Console().width, needed)).print(shown)  # numbers are never cut off
    for row in results["rows"]:
        if row["in_words"] is not None:
            typer.echo(f"{row['method']}: {row['in_words']}")
